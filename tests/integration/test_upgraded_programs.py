"""Operators with a uid find their state when they are reordered, moved, added or removed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment

from millstream.common import Types
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import ListStateDescriptor, ValueStateDescriptor
from millstream.errors import IncompatibleProgramError
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream, RuntimeContext

    Step = Callable[[DataStream], DataStream]

pytestmark = pytest.mark.both_engines

EVENTS: list[Any] = [(number % 11, number % 4, ()) for number in range(120)]
IGNORE = {"execution.state-recovery.ignore-unclaimed-state": "true"}


class Numbered(KeyedProcessFunction):
    """Append (name, key, number of the record among those of the key) to each record."""

    def __init__(self, name: str) -> None:
        self.name = name

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self.seen = runtime_context.get_list_state(ListStateDescriptor("seen", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        self.seen.add(number)
        assert list(self.seen.get() or ()) == list(range(1, number + 1))
        yield (*value[:2], (*value[2], (self.name, ctx.get_current_key(), number)))


def numbered(name: str, field: int, parallelism: int = 2) -> Step:
    def step(stream: DataStream) -> DataStream:
        keyed = stream.key_by(lambda each: each[field], Types.LONG())
        return keyed.process(Numbered(name)).uid(name).set_parallelism(parallelism)

    return step


def unchanged(stream: DataStream) -> DataStream:
    return stream.map(lambda each: each)


def exchanged(stream: DataStream) -> DataStream:
    return stream.rebalance().map(lambda each: each)


FIRST, SECOND, THIRD = numbered("first", 0), numbered("second", 1), numbered("third", 0)


@dataclass(frozen=True)
class Change:
    """A program that follows on FIRST and SECOND."""

    steps: tuple[Step, ...]
    #: Operators that begin without state.
    new: tuple[str, ...] = ()
    parallelism: int = 2


CHANGES = {
    "reordered": Change((SECOND, FIRST)),
    "in a later stage": Change((unchanged, exchanged, FIRST, exchanged, SECOND), parallelism=3),
    "in an earlier stage": Change((SECOND, exchanged, FIRST), parallelism=1),
    "one is wider": Change((numbered("first", 0, 3), numbered("second", 1, 1))),
    "one between": Change((FIRST, THIRD, SECOND), ("third",)),
    "one before": Change((THIRD, exchanged, SECOND, FIRST), ("third",)),
}


def run(directory: Path, steps: tuple[Step, ...], parallelism: int = 2, **more: Any) -> None:
    env = environment(parallelism, **more.pop("settings", {}))
    stream = env.from_source(SplitsSource([EVENTS]), None, "events").uid("events")
    for step in steps:
        stream = step(stream)
    collect(stream, directory)
    graph = env.get_job_graph("upgraded")
    cluster = MiniCluster(graph, directory / "checkpoint", limits=[20] * 100)
    try:
        cluster.run(**more)
    finally:
        cluster.coordinator.close()


def found(directory: Path) -> Counter[Any]:
    return Counter(each for event in collected(directory) for each in event[2])


def expected(field: int, name: str, start: int = 0, stop: int = 120) -> Counter[Any]:
    seen: Counter[int] = Counter()
    numbers: Counter[Any] = Counter()
    for event in EVENTS[start:stop]:
        seen[event[field]] += 1
        numbers[name, event[field], seen[event[field]]] += 1
    return numbers


@pytest.mark.parametrize("name", CHANGES)
def test_oracle_state_follows_its_uid(tmp_path: Path, name: str) -> None:
    change = CHANGES[name]
    run(tmp_path, (FIRST, SECOND), max_epochs=2)
    read = len(collected(tmp_path))
    assert 0 < read < len(EVENTS)
    run(tmp_path, change.steps, change.parallelism)
    wanted = expected(0, "first") + expected(1, "second")
    for each in change.new:
        wanted += expected(0, each, read)
    assert found(tmp_path) == wanted


def test_oracle_the_state_of_one_that_is_removed_is_dropped_if_allowed(tmp_path: Path) -> None:
    run(tmp_path, (FIRST, SECOND), max_epochs=2)
    read = len(collected(tmp_path))
    with pytest.raises(IncompatibleProgramError) as refused:
        run(tmp_path, (exchanged, SECOND))
    assert "uid 'first') is gone; the checkpoint has keyed state of it" in str(refused.value)
    assert "'second'" not in str(refused.value)
    run(tmp_path, (exchanged, SECOND), max_epochs=1, settings=IGNORE)
    more = len(collected(tmp_path))
    run(tmp_path, (FIRST, SECOND))  # back again, it begins without what was dropped
    wanted = expected(0, "first", 0, read) + expected(0, "first", more) + expected(1, "second")
    assert found(tmp_path) == wanted
