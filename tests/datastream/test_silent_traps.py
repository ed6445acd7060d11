"""What runs, but hardly does what was meant, is said with operator and line."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pytest
from tests.integration.job_runs import SplitsSource, collect, collected, environment, event_time

from millstream.common import Duration, Row, Time, Types, WatermarkStrategy
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    CountTrigger,
    EventTimeTrigger,
    KeyedProcessFunction,
    ProcessFunction,
    ProcessWindowFunction,
    PurgingTrigger,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
)
from millstream.errors import ProgramError
from millstream.execution.driver import check_job
from millstream.runtime import user_code
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream

    Build = Callable[[DataStream], DataStream]

EVENTS = [("ab", n, n * 10) for n in range(8)]


@pytest.fixture(autouse=True)
def warnings(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """Each warning is given once per process: here once per test."""
    caplog.set_level(logging.WARNING, "millstream")
    user_code._warned.clear()
    yield caplog
    user_code._warned.clear()


def run(directory: Path, build: Build, assigner: Any = None) -> list[Any]:
    env = environment(1)
    strategy = event_time(0) if assigner is None else assigner
    events = env.from_source(SplitsSource([EVENTS]), strategy, "events")
    collect(build(events), directory)
    MiniCluster(env.get_job_graph("traps"), directory / "checkpoint").run()
    return collected(directory)


class Text(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Any:
        return value[0]


class KeyedDict(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        return {"n": value[1]}


class OnTimer(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(value[2])

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        return "xy"


class OfWindow(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: Any, context: Any, elements: Any) -> Any:
        return f"{len(list(elements))}!"

    def clear(self, context: Any) -> None:
        pass


WINDOWS = TumblingEventTimeWindows.of(Time.milliseconds(20))

ITERATED: dict[str, tuple[Build, str]] = {
    "flat_map": (lambda s: s.flat_map(lambda value: value[0]), "letters"),
    "flat_map of bytes": (lambda s: s.flat_map(lambda value: value[0].encode()), "numbers"),
    "process": (lambda s: s.process(Text()), "letters"),
    "keyed process": (lambda s: s.key_by(lambda v: v[1]).process(KeyedDict()), "keys"),
    "timer": (lambda s: s.key_by(lambda v: v[1]).process(OnTimer()), "letters"),
    "window": (lambda s: s.key_by(lambda v: 0).window(WINDOWS).process(OfWindow()), "letters"),
    "window with a trigger": (
        lambda s: (
            s.key_by(lambda v: 0).window(WINDOWS).trigger(CountTrigger.of(1)).process(OfWindow())
        ),
        "letters",
    ),
}


@pytest.mark.both_engines
@pytest.mark.parametrize("name", ITERATED)
def test_a_text_or_dict_for_records_is_iterated_as_in_flink_and_warned_of_once(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    build, parts = ITERATED[name]
    assert run(tmp_path, build)
    found = [record.getMessage() for record in caplog.records if "become records" in record.message]
    assert len(found) == 1
    assert f"its {parts} become records" in found[0]
    assert "test_silent_traps.py:" in found[0]
    assert "yield it" in found[0]


def test_lists_tuples_and_generators_are_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def generate(value: Any) -> Iterator[Any]:
        yield value

    def build(stream: DataStream) -> DataStream:
        return stream.flat_map(generate).flat_map(lambda v: [v]).flat_map(lambda v: (v,))

    assert len(run(tmp_path, build)) == len(EVENTS)
    assert not caplog.records


def test_a_row_of_a_window_is_refused_as_elsewhere(tmp_path: Path) -> None:
    with pytest.raises(ProgramError, match="whose fields would be taken for records"):
        run(
            tmp_path,
            lambda s: (
                s.key_by(lambda v: 0).window(WINDOWS).apply(lambda key, window, records: Row(1, 2))
            ),
        )


# -- timestamps --------------------------------------------------------------------------------


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("first", "words"),
    [
        (1_764_230_400, "look like seconds since 1970"),
        (1_764_230_400_000_000, "look like microseconds since 1970"),
        (1_764_230_400_000_000_000, "look like nanoseconds since 1970"),
        (1_764_230_400_000, ""),
        (0, ""),
        (100_000, ""),
    ],
)
def test_timestamps_in_another_unit_are_warned_of(
    first: int, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
        lambda value, _: first + value[1]
    )
    run(tmp_path, lambda s: s.map(lambda v: v), strategy)
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == bool(words)
    if words:
        assert words in found[0]
        assert "test_silent_traps.py:" in found[0]
    if first == 1_764_230_400:
        assert "21 January 1970" in found[0]


# -- windows that never fire -------------------------------------------------------------------


def window_of(stream: DataStream, trigger: Any = None, windows: Any = WINDOWS) -> DataStream:
    windowed: Any = stream.key_by(lambda v: 0).window(windows)
    if trigger is not None:
        windowed = windowed.trigger(trigger)
    return windowed.reduce(lambda a, b: b)  # type: ignore[no-any-return]


NONE = WatermarkStrategy.no_watermarks()
SOME = WatermarkStrategy.for_monotonous_timestamps()
PROCESSING = TumblingProcessingTimeWindows.of(Time.seconds(1))

NEVER: dict[str, Build] = {
    "window": window_of,
    "behind others": lambda s: window_of(s.map(lambda v: v).rebalance().filter(lambda v: True)),
    "purging": lambda s: window_of(s, PurgingTrigger.of(EventTimeTrigger.create())),
    "join": lambda s: (
        s.join(s)
        .where(lambda v: v[0])
        .equal_to(lambda v: v[0])
        .window(WINDOWS)
        .apply(lambda a, b: a)
    ),
    "one of two": lambda s: window_of(
        s.union(s.map(lambda v: v).assign_timestamps_and_watermarks(SOME))
    ),
}
FIRES: dict[str, Build] = {
    "count": lambda s: window_of(s, CountTrigger.of(2)),
    "processing time": lambda s: window_of(s, windows=PROCESSING),
    "assigned later": lambda s: window_of(s.assign_timestamps_and_watermarks(SOME)),
    "no window": lambda s: s.map(lambda v: v),
}


def check(
    directory: Path, build: Build, strategy: WatermarkStrategy, *, unbounded: bool = True
) -> None:
    env = environment(1)
    source = SplitsSource([EVENTS], unbounded=unbounded)
    collect(build(env.from_source(source, strategy, "events")), directory)
    check_job(env.get_job_graph("traps"))


@pytest.mark.parametrize("name", NEVER)
def test_a_window_that_never_fires_is_warned_of(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(tmp_path, NEVER[name], NONE)
    assert "never emits: it fires by event time" in caplog.text
    assert "source 'Source: events' (test_silent_traps.py:" in caplog.text


@pytest.mark.parametrize("name", FIRES)
def test_what_fires_is_not_warned_of(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(tmp_path, FIRES[name], NONE)
    assert "never emits" not in caplog.text


@pytest.mark.parametrize(
    "strategy",
    [SOME, NONE.with_idleness(Duration.of_seconds(1)), WatermarkStrategy.for_ingestion_time()],
)
def test_sources_with_time_are_not_warned_of(
    strategy: WatermarkStrategy, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(tmp_path, window_of, strategy)
    assert "never emits" not in caplog.text


def test_bounded_sources_are_not_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    check(tmp_path, window_of, NONE, unbounded=False)
    assert "never emits" not in caplog.text


# -- large closures ----------------------------------------------------------------------------


def test_a_large_closure_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, small = b"x" * (11 << 20), {1: 2}
    env = environment(1)
    numbers = env.from_sequence(1, 3)
    looked_up = numbers.map(lambda n: table[n] + small[1], Types.LONG()).name("look up")
    collect(looked_up, tmp_path)
    env.get_job_graph("traps")
    found = [record.getMessage() for record in caplog.records]
    assert len(found) == 1
    assert "the function of operator 'look up' (test_silent_traps.py:" in found[0]
    assert "is 11 MB" in found[0]
    assert "variable 'table'" in found[0]


@pytest.mark.parametrize("directory", ["checkpoints", ""])
def test_state_that_is_found_by_its_place_is_warned_of(
    directory: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = environment(1)
    kept = str(tmp_path / directory) if directory else ""
    env.get_configuration().set_string("execution.checkpointing.dir", kept)
    source = SplitsSource([EVENTS])
    events = env.from_source(source, None, "events").uid("events").map(lambda v: v).name("plain")
    sums = events.key_by(lambda each: each[0])
    sums.reduce(lambda a, b: a).name("without").sink_to(BlackholeSink())
    sums.reduce(lambda a, b: a).name("with").uid("with").sink_to(BlackholeSink())
    check_job(env.get_job_graph("uids"))
    warnings = [each.getMessage() for each in caplog.records if "add .uid" in each.getMessage()]
    if not directory:
        assert warnings == [], "its checkpoints are temporary"
        return
    (warning,) = warnings
    assert warning.startswith("operator 'without' (test_silent_traps.py:")
    assert "its state is found by its place in the program" in warning
