"""Broadcast state in BATCH mode: the broadcast stream is read to its end first, as in Flink."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Types
from millstream.datastream import (
    KeyedBroadcastProcessFunction,
    RestartStrategies,
    RuntimeExecutionMode,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import MapStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Make = Callable[..., StreamExecutionEnvironment]

RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())


class Priced(KeyedBroadcastProcessFunction):
    """Gives each number the rule of its key; fails once if it is to."""

    def __init__(self, failed: Path | None) -> None:
        self.failed = failed

    def process_element(self, value: int, ctx: Any) -> Iterator[tuple[int, int]]:
        if self.failed is not None and value == 250 and not self.failed.exists():
            self.failed.touch()
            message = "once"
            raise ValueError(message)
        yield value, ctx.get_broadcast_state(RULES).get(value % 5)

    def process_broadcast_element(self, value: tuple[int, int], ctx: Any) -> Iterator[Any]:
        ctx.get_broadcast_state(RULES).put(value[0], value[1])
        yield from ()


def slowly(number: int) -> tuple[int, int]:
    time.sleep(0.002)  # so that the others would be there long before
    return number % 5, number


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("interval", ["100 ms", "1 h"])
@pytest.mark.parametrize("fails", [False, True])
def test_all_rules_are_there_before_the_first_record(
    make: Make, tmp_path: Path, interval: str, fails: bool
) -> None:
    """The rules are sums, which come at the end of their input, behind an exchange."""
    env = make(2, {"execution.checkpointing.interval": interval})
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    records = env.from_sequence(0, 299).uid("records").key_by(lambda n: n % 7)
    rules = env.from_sequence(0, 99).uid("rules").map(slowly).uid("slowly")
    sums = rules.key_by(lambda rule: rule[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).uid("sums")
    function = Priced(tmp_path / "failed" if fails else None)
    priced = records.connect(sums.broadcast(RULES)).process(function).uid("priced")
    with priced.execute_and_collect("batch") as collected:  # type: ignore[union-attr]
        found = Counter(collected)
    expected = {key: sum(range(key, 100, 5)) for key in range(5)}
    assert found == {(n, expected[n % 5]): 1 for n in range(300)}
    assert (tmp_path / "failed").exists() is fails
