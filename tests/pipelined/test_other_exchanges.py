"""Programs that share records out in another way than the one that had them in flight.

The exchange, its key, or the number of key groups of an operator without state has changed between
two runs: what was in flight to a subtask may be another's now.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.test_unaligned import (
    RECORD,
    RESULT,
    SIZE,
    Count,
    Timed,
    finish,
    results,
)

from millstream.common import Configuration, Types
from millstream.connectors.basic.collect import CollectSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.runtime.frames_in_flight import UNKNOWN, cut_of
from millstream.testing.sources import EPOCH, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.graph.model import JobGraph

    Take = Callable[..., Manifest]

KEYS = 6
SCRIPT = [
    *[Timed((n, 7 * n), n % SIZE) for n in range(200)],
    EPOCH,
    *[Timed((n, 7 * n), 50) for n in range(200, 210)],
]
NUMBERS = [7 * n for n in range(210)]

both_engines = pytest.mark.parametrize("pipelined", [True, False], ids=["pipelined", "epochs"])


def shared_out(stream: Any, how: str) -> Any:
    if how == "first":
        return stream.key_by(lambda record: record[0], Types.LONG())
    if how == "second":
        return stream.key_by(lambda record: record[1], Types.LONG())
    if how == "group":
        return stream.key_by(lambda record: record[0] % KEYS, Types.LONG())
    return getattr(stream, how)()


def exchanging_job(
    directory: Path, how: str, parallelism: int = 2, *, groups: int = 0, counts: bool = False
) -> JobGraph:
    """Passes records on behind an exchange, or counts them by key."""
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(parallelism)
    if groups:
        env.set_max_parallelism(groups)
    source = ScriptedSource(SCRIPT, RECORD, directory / "script")
    stream = env.from_source(source, source.watermark_strategy(), "numbers").uid("numbers")
    stream = shared_out(stream.set_parallelism(1), how)
    if counts:
        made = stream.process(Count(), RESULT).uid("made")
    else:
        made = stream.map(lambda record: (record[1], 0), RESULT).uid("made")
    made.sink_to(CollectSink(directory / "out", fsync=False)).uid("out")
    return env.get_job_graph("exchange")


def numbers(directory: Path) -> list[int]:
    return [number for number, _ in results(directory, "out")]


@pytest.mark.sampled(every=3)
@both_engines
@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("rebalance", "first"),
        ("first", "second"),
        ("group", "first"),
        ("first", "rebalance"),
        ("rebalance", "global_"),
        ("first", "broadcast"),
    ],
)
def test_another_exchange_gets_each_record_in_flight(
    tmp_path: Path, take: Take, before: str, after: str, parallelism: int, *, pipelined: bool
) -> None:
    assert take(exchanging_job(tmp_path, before), tmp_path).in_flight != []
    finish(exchanging_job(tmp_path, after, parallelism), tmp_path, pipelined=pipelined)
    copies = parallelism if after == "broadcast" else 1
    assert numbers(tmp_path) == sorted(NUMBERS * copies)


@both_engines
@pytest.mark.parametrize("before", ["rebalance", "first"])
def test_records_in_flight_come_to_the_state_of_their_keys(
    tmp_path: Path, take: Take, before: str, *, pipelined: bool
) -> None:
    take(exchanging_job(tmp_path, before), tmp_path)
    finish(exchanging_job(tmp_path, "group", counts=True), tmp_path, pipelined=pipelined)
    out = results(tmp_path, "out")
    for key in range(KEYS):
        counts = sorted(count for number, count in out if number // 7 % KEYS == key)
        assert counts == list(range(1, 36))


@both_engines
def test_records_in_flight_and_state_come_together_at_another_max_parallelism(
    tmp_path: Path, take: Take, *, pipelined: bool
) -> None:
    take(exchanging_job(tmp_path, "group", counts=True), tmp_path)
    graph = exchanging_job(tmp_path, "group", 3, groups=50, counts=True)
    finish(graph, tmp_path, pipelined=pipelined)
    out = results(tmp_path, "out")
    for key in range(KEYS):
        counts = sorted(count for number, count in out if number // 7 % KEYS == key)
        assert counts == list(range(1, 36))


@pytest.mark.sampled(every=3)
@both_engines
@pytest.mark.parametrize("parallelism", [2, 3])
@pytest.mark.parametrize("groups", [32, 200])
def test_another_number_of_key_groups(
    tmp_path: Path, take: Take, groups: int, parallelism: int, *, pipelined: bool
) -> None:
    """An operator without state does not remember how many there were."""
    take(exchanging_job(tmp_path, "first"), tmp_path)
    graph = exchanging_job(tmp_path, "first", parallelism, groups=groups)
    finish(graph, tmp_path, pipelined=pipelined)
    assert numbers(tmp_path) == NUMBERS


# -- what is told apart ------------------------------------------------------------------------


def cut(selector: Any, groups: int = 128) -> str:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_max_parallelism(groups)
    stream = env.from_collection([(1, 2)], RECORD)
    stream.key_by(selector, Types.LONG()).map(tuple, RECORD).uid("mapped").print()
    graph = env.get_job_graph("cuts")
    edges = [edge for edge in graph.edges if edge.key_selector is not None]
    return cut_of(graph, edges[0])


def helped(remainder: Callable[[int], int]) -> Any:
    return lambda record: remainder(record[0])


def test_equal_keys_are_the_same_cut() -> None:
    assert cut(lambda record: record[0]) == cut(lambda other: other[0]) == cut(0)
    assert cut(lambda r: (r[0], abs(r[1]))) == cut(lambda r: (r[0], abs(r[1])))
    assert cut(helped(lambda n: n % 3)) == cut(helped(lambda n: n % 3))
    assert cut(lambda r: math.floor(r[0])) == cut(lambda r: math.floor(r[0])) != UNKNOWN


def test_other_keys_are_another_cut() -> None:
    found = [
        cut(lambda record: record[0]),
        cut(lambda record: record[0], groups=64),
        cut(lambda record: record[1]),
        cut(lambda record: -record[0]),
        cut(lambda record: record[0] % 3),
        cut(lambda record: record[0] % 4),
        cut(helped(lambda n: n % 3)),
        cut(helped(lambda n: n % 4)),
    ]
    assert UNKNOWN not in found
    assert len(set(found)) == len(found)


class Remainder:
    """What it does depends on what it holds."""

    def __init__(self, divisor: int) -> None:
        self.divisor = divisor

    def __call__(self, record: Any) -> int:
        return int(record[0]) % self.divisor


def test_what_cannot_be_compared_is_unknown() -> None:
    assert cut(Remainder(3)) == UNKNOWN
    remainder = Remainder(3)
    assert cut(lambda record: -remainder(record)) == UNKNOWN


@both_engines
@pytest.mark.parametrize("parallelism", [2, 3])
def test_an_unknown_cut_loses_nothing(
    tmp_path: Path,
    take: Take,
    monkeypatch: pytest.MonkeyPatch,
    parallelism: int,
    *,
    pipelined: bool,
) -> None:
    monkeypatch.setattr(
        "millstream.runtime.pipelined.unaligned_checkpoints.cut_of", lambda *_: UNKNOWN
    )
    take(exchanging_job(tmp_path, "first"), tmp_path)
    finish(exchanging_job(tmp_path, "first", parallelism), tmp_path, pipelined=pipelined)
    assert numbers(tmp_path) == NUMBERS
