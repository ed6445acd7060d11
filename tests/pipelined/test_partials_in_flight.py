"""Partial aggregates in flight: merged by the program that made them, refused by any other."""

from __future__ import annotations

from collections import Counter as Tally
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.test_unaligned import finish, results

from millstream.common import Configuration, Row, Time, Types
from millstream.connectors.basic.collect import CollectSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import Count, Sum
from millstream.datastream.window import ContinuousEventTimeTrigger, TumblingEventTimeWindows
from millstream.errors import IncompatibleProgramError
from millstream.testing.sources import EPOCH, At, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.graph.model import JobGraph

    Take = Callable[..., Manifest]

RECORD = Types.ROW_NAMED(["key", "other", "n"], [Types.LONG()] * 3)
SCRIPT: list[Any] = [
    *[At(Row(key=n % 6, other=n % 4, n=n), n % 20) for n in range(120)],
    EPOCH,
    *[At(Row(key=n % 6, other=n % 4, n=n), 40 + n % 20) for n in range(30)],
]
KEYS: dict[str, Callable[[Any], Any]] = {
    "key": lambda row: row.key,
    "other": lambda row: row.other,
    "sum": lambda row: row.key + row.other,
}


def job(
    directory: Path,
    key: str = "key",
    parallelism: int = 2,
    *,
    early: bool = False,
) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(parallelism)
    source = ScriptedSource(SCRIPT, RECORD, directory / "script")
    stream = env.from_source(source, source.watermark_strategy(), "numbers").uid("numbers")
    keyed = stream.set_parallelism(1).key_by(KEYS[key], Types.LONG())
    windows = keyed.window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    if early:  # of which no partial aggregates are made
        windows = windows.trigger(ContinuousEventTimeTrigger.of(Time.milliseconds(5)))
    made = windows.aggregate({"count": Count(), "sum": Sum("n")})
    made.uid("windows").sink_to(CollectSink(directory / "out", fsync=False)).uid("out")
    return env.get_job_graph("partials")


def expected() -> list[tuple[int, ...]]:
    counts: Tally[tuple[int, int]] = Tally()
    sums: Tally[tuple[int, int]] = Tally()
    for each in SCRIPT:
        if isinstance(each, At):
            row: Any = each.value
            window = row.key, each.timestamp // 10 * 10
            counts[window] += 1
            sums[window] += row.n
    return sorted((*window, counts[window], sums[window]) for window in counts)


@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])
@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_the_same_program_merges_them(
    tmp_path: Path, take: Take, parallelism: int, *, pipelined: bool
) -> None:
    manifest = take(job(tmp_path), tmp_path)
    assert manifest.in_flight
    finish(job(tmp_path, parallelism=parallelism), tmp_path, pipelined=pipelined)
    found = sorted((row[0], row[1], *row[-2:]) for row in results(tmp_path, "out"))
    assert found == expected()


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])
@pytest.mark.parametrize(
    "changed",
    [
        {"key": "other"},
        {"key": "sum"},
        {"early": True},
    ],
    ids="-".join,
)
def test_another_program_is_refused_and_says_what_to_do(
    tmp_path: Path, take: Take, changed: dict[str, Any], *, pipelined: bool
) -> None:
    take(job(tmp_path), tmp_path)
    with pytest.raises(IncompatibleProgramError, match="partial aggregates are in flight"):
        finish(job(tmp_path, **changed), tmp_path, pipelined=pipelined)
    assert results(tmp_path, "out") == []
    finish(job(tmp_path), tmp_path, pipelined=pipelined)
    assert sorted((row[0], row[1], *row[-2:]) for row in results(tmp_path, "out")) == expected()
