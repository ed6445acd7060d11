"""How the plan of an epoch reaches the tasks on Spark: as a property, or within the functions."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

import pytest

from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors import DataGeneratorSource, RateLimiterStrategy
from millstream.engines.spark import engine, stage_function

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.datastream import StreamExecutionEnvironment
    from millstream.runtime.plan import EpochPlan

    Make = Callable[..., StreamExecutionEnvironment]

pytestmark = pytest.mark.spark

RECORDS = 60
KEYS = 7


def test_short_and_long_plans_take_turns(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """State goes on from one to the other: every count is that of one running count per key."""
    seen: list[bool] = []

    def text_of(plan: EpochPlan) -> str:
        seen.append(len(seen) % 2 == 1)
        too_long = "x" * (engine._LONGEST_PROPERTY + 1)
        return too_long if seen[-1] else stage_function.plan_text(plan)

    monkeypatch.setattr(engine, "plan_text", text_of)
    # Over three seconds, so in some epochs; in two at the least, for the end has one of its own.
    limited = RateLimiterStrategy.per_second(RECORDS / 3)
    source = DataGeneratorSource(lambda i: (i % KEYS, 1), RECORDS, limited)
    settings = {"execution.checkpointing.interval": "100 ms"}
    stream = make(2, settings).from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    row = Types.TUPLE([Types.LONG(), Types.LONG()])
    counted = stream.map(tuple, row).key_by(lambda pair: pair[0], Types.LONG()).sum(1)
    with counted.execute_and_collect() as records:  # type: ignore[union-attr]
        found = Counter(cast("tuple[int, int]", tuple(each)) for each in records)  # type: ignore[arg-type]
    wanted = Counter((i % KEYS, i // KEYS + 1) for i in range(RECORDS))
    assert found == wanted
    assert {True, False} == set(seen)
