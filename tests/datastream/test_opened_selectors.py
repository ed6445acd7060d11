"""Key selectors and partitioners are opened and closed wherever keys are taken, as in PyFlink."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time

from millstream.common import Time, Types
from millstream.datastream import (
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    Partitioner,
    ProcessJoinFunction,
    TumblingEventTimeWindows,
)
from millstream.datastream.aggregates import Count
from millstream.datastream.state import MapStateDescriptor
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.datastream import DataStream, RuntimeContext

RECORD = Types.TUPLE([Types.LONG(), Types.LONG(), Types.LONG()])
EVENTS = [(at % 5, at, at * 10) for at in range(40)]


class Modulo(KeySelector):
    """Refuses to work unless it is open; leaves a file for each time it is opened, or closed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.modulus: int | None = None

    def open(self, runtime_context: RuntimeContext) -> None:
        assert self.modulus is None, "opened twice"
        assert runtime_context.get_number_of_parallel_subtasks() == 2
        self.modulus = 5
        self._note("opened")

    def close(self) -> None:
        assert self.modulus is not None, "closed, but not open"
        self.modulus = None
        self._note("closed")

    def get_key(self, value: Any) -> int:
        assert self.modulus is not None, "not open"
        return int(value[1]) % self.modulus

    def _note(self, what: str) -> None:
        place = self.directory / what
        place.mkdir(exist_ok=True)
        (place / f"{len(list(place.iterdir()))}").touch()


class ByKey(Modulo, Partitioner):
    def partition(self, key: Any, num_partitions: int) -> int:
        assert self.modulus is not None, "not open"
        return int(key) % num_partitions


class Passing(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class PassingBoth(CoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value


class PassingKeyed(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield value

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        yield from ()


class Pairs(ProcessJoinFunction):
    def process_element(self, left: Any, right: Any, ctx: Any) -> Iterator[Any]:
        yield left


WINDOW = TumblingEventTimeWindows.of(Time.seconds(1))
RULES = MapStateDescriptor("rules", Types.LONG(), Types.LONG())

PROGRAMS: dict[str, Callable[[DataStream, Modulo], DataStream]] = {
    "process": lambda s, select: s.key_by(select).process(Passing()),
    "reduce": lambda s, select: s.key_by(select).reduce(lambda a, b: (a[0], b[1], b[2])),
    "window": lambda s, select: s.key_by(select).window(WINDOW).reduce(lambda a, b: b),
    "built-in window": lambda s, select: s.key_by(select).window(WINDOW).aggregate({"n": Count()}),
    "connected": lambda s, select: s.connect(s).key_by(select, select).process(PassingBoth()),
    "broadcast": lambda s, select: (
        s.key_by(select).connect(s.broadcast(RULES)).process(PassingKeyed())
    ),
    "interval join": lambda s, select: (
        s.key_by(select)
        .interval_join(s.key_by(select))
        .between(Time.milliseconds(0), Time.milliseconds(0))
        .process(Pairs())
    ),
    "window join": lambda s, select: (
        s.join(s).where(select).equal_to(select).window(WINDOW).apply(lambda a, b: a)
    ),
    "partitioner": lambda s, select: s.partition_custom(ByKey(select.directory), select).map(
        lambda value: value
    ),
}


@pytest.mark.both_engines
@pytest.mark.parametrize("name", PROGRAMS)
def test_selectors_are_opened_and_closed(name: str, tmp_path: Path) -> None:
    env = environment(2)
    events = env.from_source(SplitsSource([EVENTS], RECORD), event_time(0), "events")
    selector = Modulo(tmp_path)
    collect(PROGRAMS[name](events, selector), tmp_path)
    MiniCluster(env.get_job_graph("opened"), tmp_path / "checkpoint").run()
    assert collected(tmp_path)
    opened, closed = (len(list((tmp_path / what).iterdir())) for what in ("opened", "closed"))
    assert opened == closed > 0
    assert selector.modulus is None, "the program's own object was opened"


def test_a_selector_that_is_opened_can_still_be_pickled() -> None:
    selector: Any = loads(dumps(Modulo(Path("x")).get_key))
    assert selector.__self__.modulus is None
