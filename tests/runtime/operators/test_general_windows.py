"""The general window operator: the situations of Flink's own operator tests."""

from __future__ import annotations

import random
from typing import Any

import pytest

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountEvictor,
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaEvictor,
    DeltaTrigger,
    EventTimeSessionWindows,
    EventTimeTrigger,
    GlobalWindows,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SessionWindowTimeGapExtractor,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    Window,
)
from millstream.errors import ProgramError
from millstream.functions.descriptors import (
    ListStateDescriptor,
    ValueStateDescriptor,
)
from millstream.functions.functions import (
    AggregateFunction,
    ProcessWindowFunction,
    ReduceFunction,
    WindowFunction,
)
from millstream.runtime.columnar.aggregates import Count, Last, Sum
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    BuiltInSpec,
    ProcessSpec,
    ReduceSpec,
    WindowFactory,
)
from millstream.runtime.operators.windows import contents, generic
from millstream.state import keyed
from millstream.state.keyed import KeyedState
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag

LATE = OutputTag("late")


def key_of(record: Any) -> Any:
    return record[0]


class Adding(ReduceFunction):
    def reduce(self, value1: Any, value2: Any) -> Any:
        return value1[0], value1[1] + value2[1]


class Collecting(AggregateFunction):
    """Accumulates into a list, in place."""

    def create_accumulator(self) -> Any:
        return []

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator.append(value[1])
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        acc_a.extend(acc_b)
        return acc_a


class Listing(WindowFunction[Any, Any, Any, Any]):
    """Emits key, window and the values, sorted."""

    def apply(self, key: Any, window: Any, inputs: Any) -> Any:
        bounds = (window.start, window.end) if isinstance(window, TimeWindow) else repr(window)
        return [(key, bounds, sorted(value for _, value in inputs))]


class Session(WindowFunction[Any, Any, Any, TimeWindow]):
    """Flink's SessionReducer: the sum with key, start and end."""

    def apply(self, key: Any, window: TimeWindow, inputs: Any) -> Any:
        return [(f"{key}-{sum(value for _, value in inputs)}", window.start, window.end)]


def harness_of(
    assigner: Any,
    spec: Any,
    *,
    trigger: Any = None,
    evictor: Any = None,
    lateness: int = 0,
    late: OutputTag | None = None,
    **options: Any,
) -> OperatorHarness:
    factory = WindowFactory(assigner, spec, key_of, lateness, late, trigger, evictor)
    return OperatorHarness(factory, **options)


SPECS = {
    "reduce": lambda: ReduceSpec(Adding(), Session()),
    "aggregate": lambda: AggregateSpec(Pairing(), Session()),
    "apply": lambda: ApplySpec(Session()),
}


class Pairing(AggregateFunction):
    """Sums values; the result is a record again."""

    def create_accumulator(self) -> Any:
        return ["", 0]

    def add(self, value: Any, accumulator: Any) -> Any:
        accumulator[0] = value[0]
        accumulator[1] += value[1]
        return accumulator

    def get_result(self, accumulator: Any) -> Any:
        return tuple(accumulator)

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return [acc_a[0] or acc_b[0], acc_a[1] + acc_b[1]]


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_sessions(spec: Any) -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(3000), spec())
    for record, time in [
        (("key2", 1), 0), (("key2", 2), 1000), (("key2", 3), 2500),
        (("key1", 1), 10), (("key1", 2), 1000),
    ]:  # fmt: skip
        harness.process(record, time)
    harness.end_epoch()
    for record, time in [
        (("key1", 3), 2500), (("key2", 4), 5501), (("key2", 5), 6000), (("key2", 5), 6000),
        (("key2", 6), 6050),
    ]:  # fmt: skip
        harness.process(record, time)
    harness.watermark(12_000)
    assert sorted(harness.records) == [
        (("key1-6", 10, 5500), 5499),
        (("key2-20", 5501, 9050), 9049),
        (("key2-6", 0, 5500), 5499),
    ]
    harness.records.clear()
    harness.process(("key2", 10), 15_000)
    harness.process(("key2", 20), 15_000)
    harness.end_epoch()
    harness.watermark(17_999)
    assert sorted(harness.records) == [(("key2-30", 15_000, 18_000), 17_999)]
    harness.end_epoch()
    assert_empty(harness)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
@pytest.mark.parametrize("cut", [False, True])
def test_late_record_joins_two_sessions_that_have_fired(spec: Any, cut: bool) -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(100), spec(), lateness=1000)
    harness.process_all([("a", 1), ("a", 2)], [0, 190])
    harness.watermark(400)
    assert harness.records == [(("a-1", 0, 100), 99), (("a-2", 190, 290), 289)]
    if cut:
        harness.end_epoch()
    harness.records.clear()
    harness.process(("a", 4), 95)
    assert harness.records == [(("a-7", 0, 290), 289)]
    if cut:
        harness.end_epoch()
    harness.process(("a", 8), 289)
    assert harness.records[1:] == [(("a-15", 0, 389), 388)]
    harness.watermark(1389)
    assert harness.outputs == [("a-7", 0, 290), ("a-15", 0, 389)]
    harness.end_epoch()
    assert_empty(harness)


def assert_empty(harness: OperatorHarness) -> None:
    left = [name for name, _ in harness.state_entries() if not name.startswith(b"M")]
    assert left == []


class GeneralFactory(WindowFactory):
    """Makes the general operator also where a faster one would do."""

    @property
    def is_general(self) -> bool:
        return True


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("side_output", [False, True])
def test_agree_with_the_fast_operator(seed: int, side_output: bool) -> None:
    chance = random.Random(seed)
    size = chance.choice([5, 10, 17])
    assigner: Any = chance.choice(
        [
            TumblingEventTimeWindows.of(size, chance.randrange(-size + 1, size)),
            SlidingEventTimeWindows.of(size, chance.choice([2, 3, size, size + 4])),
        ]
    )
    specs: list[Any] = [
        ReduceSpec(Adding()),
        AggregateSpec(Pairing(), Session()),
        ApplySpec(Listing()),
    ]
    spec = specs[seed % 3]
    lateness = chance.choice([0, 8])
    events = random_events(chance, 60)
    late = LATE if side_output else None
    runs = [
        OperatorHarness(factory(assigner, spec, key_of, lateness, late))
        for factory in (WindowFactory, GeneralFactory)
    ]
    for event in events:
        for harness in runs:
            play(harness, event)
    assert by_watermark(runs[0]) == by_watermark(runs[1])
    assert runs[0].side_records == runs[1].side_records
    assert runs[0].metrics == runs[1].metrics


def by_watermark(harness: OperatorHarness) -> list[list[str]]:
    """What came out between watermarks, whatever the order."""
    groups: list[list[str]] = [[]]
    for kind, *content in harness.events:
        if kind == "watermark":
            groups.append([])
        else:
            groups[-1].append(repr(content))
    return [sorted(group) for group in groups]


def random_events(chance: random.Random, count: int) -> list[tuple[str, Any]]:
    """Batches, watermarks and steps of processing time."""
    events: list[tuple[str, Any]] = []
    now = watermark = 0
    # Even, and far from event time, so that no window ends in the very millisecond of an epoch:
    # its timer would fire at a cut.
    clock = 100_000
    for _ in range(count):
        kind = chance.choices(["batch", "watermark", "clock"], [6, 3, 1])[0]
        if kind == "batch":
            records = [
                ((chance.choice("ab"), chance.randrange(10)), now + chance.randrange(-12, 12))
                for _ in range(chance.randrange(1, 4))
            ]
            events.append((kind, records))
            now += chance.randrange(4)
        elif kind == "watermark":
            watermark = max(watermark + 1, now - chance.randrange(10))
            events.append((kind, watermark))
        else:
            events.append((kind, clock + 2 * now))
    end = [("watermark", now + 1000), ("clock", clock + 2 * now + 1000), ("end", None)]
    return [("clock", clock), *events, *end]


def play(harness: OperatorHarness, event: tuple[str, Any]) -> None:
    kind, content = event
    if kind == "batch":
        harness.process_all([value for value, _ in content], [time for _, time in content])
    elif kind == "watermark":
        harness.watermark(content)
    elif kind == "clock":
        harness.processing_time(content)
    else:
        harness.end_epoch()


class CountingFires(ProcessWindowFunction[Any, Any, Any, Any]):
    """Emits the values with the number of firings of the key; late firings on the side too."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        fired = context.global_state().get_state(ValueStateDescriptor("fired"))
        fired.update((fired.value() or 0) + 1)
        yield key, repr(context.window()), [value for _, value in elements], fired.value()
        yield OutputTag("side"), (key, context.current_watermark())


class EveryThird(Trigger[Any, Any]):
    """Fires at every third element, and purges at the end of the window; with state and merging."""

    def __init__(self) -> None:
        self.seen = ListStateDescriptor("seen")

    def on_element(
        self, element: Any, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        state: Any = ctx.get_partitioned_state(self.seen)
        state.add(timestamp)
        if len(list(state.get())) % 3:
            return TriggerResult.CONTINUE
        state.clear()
        return TriggerResult.FIRE

    def on_processing_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(
        self, time: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE_AND_PURGE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.seen)
        if window.max_timestamp() > ctx.get_current_watermark():
            ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self.seen).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class GapOfValue(SessionWindowTimeGapExtractor):
    def extract(self, element: Any) -> int:
        return int(element[1]) + 1


ASSIGNERS: dict[str, Any] = {
    "tumbling": TumblingEventTimeWindows.of(10, -4),
    "sliding": SlidingEventTimeWindows.of(10, 4),
    "session": EventTimeSessionWindows.with_gap(5),
    "dynamic": EventTimeSessionWindows.with_dynamic_gap(GapOfValue()),
    "tumbling processing": TumblingProcessingTimeWindows.of(10, 2),
    "sliding processing": SlidingProcessingTimeWindows.of(10, 4),
    "session processing": ProcessingTimeSessionWindows.with_gap(6),
    "global": GlobalWindows.create(),
    "count": CountTumblingWindowAssigner.of(3),
    "sliding count": CountSlidingWindowAssigner.of(4, 3),
}
TRIGGERS: dict[str, Any] = {
    "default": None,
    "count": CountTrigger.of(2),
    "purging": PurgingTrigger.of(CountTrigger.of(2)),
    "continuous": ContinuousEventTimeTrigger.of(4),
    "continuous processing": ContinuousProcessingTimeTrigger.of(4),
    "delta": DeltaTrigger.of(3, lambda old, new: abs(old[1] - new[1])),
    "timeout": ProcessingTimeoutTrigger.of(CountTrigger.of(3), 5),
    "custom": EveryThird(),
}
EVICTORS: dict[str, Any] = {
    "none": None,
    "count": CountEvictor.of(2),
    "time after": TimeEvictor.of(4, True),
    "delta": DeltaEvictor.of(4, lambda old, last: abs(old[1] - last[1])),
}
FUNCTIONS: dict[str, Any] = {
    "reduce": lambda: ReduceSpec(Adding()),
    "aggregate": lambda: AggregateSpec(Collecting()),
    "apply": lambda: ApplySpec(Listing()),
    "process": lambda: ProcessSpec(CountingFires()),
}


@pytest.mark.parametrize("assigner", ASSIGNERS)
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_cuts_into_epochs_change_nothing(assigner: str, trigger: str) -> None:
    merging = "session" in assigner or assigner == "dynamic"
    if merging and trigger in {"delta", "timeout"}:
        with pytest.raises(ProgramError, match="does not support merging"):
            harness_of(ASSIGNERS[assigner], ReduceSpec(Adding()), trigger=TRIGGERS[trigger])
        return
    chance = random.Random(f"{assigner} {trigger}")
    for evictor in [None, EVICTORS[chance.choice(list(EVICTORS))]]:
        spec = FUNCTIONS[chance.choice(list(FUNCTIONS))]
        events = random_events(chance, 40)
        lateness = chance.choice([0, 6])
        runs: list[OperatorHarness] = []
        for cut in (0.0, 0.5):
            harness = OperatorHarness(
                GeneralFactory(
                    ASSIGNERS[assigner], spec(), key_of, lateness, LATE, TRIGGERS[trigger], evictor
                )
            )
            for event in events:
                play(harness, event)
                if chance.random() < cut:
                    harness.end_epoch(swap=chance.random() < 0.7)
            runs.append(harness)
        whole, parts = runs
        assert whole.records == parts.records
        assert whole.side_records == parts.side_records
        assert whole.metrics == parts.metrics
        assert state_of(whole) == state_of(parts)


def state_of(harness: OperatorHarness) -> list[bytes]:
    """What is left, but for how elements were cut into chunks."""
    return [name for name, _ in harness.state_entries() if not name.startswith((b"M", b"K"))]


def test_built_in_aggregates_run_in_any_window() -> None:
    aggregates = {"n": Count(), "total": Sum(1), "last": Last(1)}
    harness = harness_of(
        EventTimeSessionWindows.with_gap(10), BuiltInSpec(aggregates), lateness=100
    )
    harness.process_all([("a", 1), ("a", 2), ("b", 5)], [0, 15, 3])
    harness.end_epoch()
    harness.watermark(50)
    harness.process(("a", 4), 8)
    records: list[Any] = harness.records
    assert [(tuple(row), time) for row, time in records] == [
        (("a", 0, 10, 1, 1, 1), 9),
        (("b", 3, 13, 1, 5, 5), 12),
        (("a", 15, 25, 1, 2, 2), 24),
        (("a", 0, 25, 3, 7, 2), 24),
    ]


def test_built_in_aggregates_with_trigger_and_evictor() -> None:
    harness = harness_of(
        GlobalWindows.create(),
        BuiltInSpec({"total": Sum(1)}),
        trigger=DeltaTrigger.of(2, lambda old, new: new[1] - old[1]),
        evictor=CountEvictor.of(2),
    )
    for value in (1, 2, 4, 5, 7):
        harness.process(("a", value))
    rows: list[Any] = harness.outputs
    assert [tuple(row) for row in rows] == [("a", None, None, 6), ("a", None, None, 12)]


def test_purging_trigger_with_lateness_fires_late_elements_alone() -> None:
    harness = harness_of(
        TumblingEventTimeWindows.of(10),
        ReduceSpec(Adding()),
        trigger=PurgingTrigger.of(EventTimeTrigger.create()),
        lateness=20,
        late=LATE,
    )
    harness.process_all([("a", 1), ("a", 2)], [1, 2])
    harness.watermark(9)
    harness.process(("a", 4), 3)
    harness.end_epoch()
    harness.process(("a", 8), 4)
    harness.watermark(29)
    harness.process(("a", 16), 5)
    assert harness.outputs == [("a", 3), ("a", 4), ("a", 8)]
    assert harness.side_outputs("late") == [("a", 16)]
    harness.end_epoch()
    assert_empty(harness)


def test_purging_session_that_fired_keeps_nothing_when_it_grows() -> None:
    harness = harness_of(
        EventTimeSessionWindows.with_gap(10),
        ApplySpec(Session()),
        trigger=PurgingTrigger.of(EventTimeTrigger.create()),
        lateness=100,
    )
    harness.process_all([("a", 1), ("a", 2)], [0, 15])
    harness.watermark(40)
    harness.end_epoch()
    harness.process(("a", 4), 9)
    assert harness.outputs[2:] == [("a-4", 0, 25)]
    harness.process(("a", 8), 24)
    assert harness.outputs[3:] == [("a-8", 0, 34)]
    harness.watermark(133)
    harness.end_epoch()
    assert_empty(harness)


def test_session_late_by_itself_is_not_late_if_it_joins_one_in_flight() -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(10), ReduceSpec(Adding()), late=LATE)
    harness.process(("a", 1), 20)
    harness.watermark(25)
    harness.process(("a", 2), 12)
    harness.process(("a", 4), 1)
    harness.process(("b", 8), 12)
    harness.watermark(29)
    assert harness.records == [(("a", 3), 29)]
    assert harness.side_records["late"] == [(("a", 4), 1), (("b", 8), 12)]


def test_late_records_are_counted_without_a_side_output() -> None:
    harness = harness_of(EventTimeSessionWindows.with_gap(10), ReduceSpec(Adding()))
    harness.watermark(100)
    harness.process_all([("a", 1), ("a", 1), ("a", 1)], [90, 91, 92])
    harness.end_epoch()
    assert harness.metrics["numLateRecordsDropped"] == 2


@pytest.mark.parametrize("batch_mode", [False, True])
def test_processing_time_windows_at_the_end_of_the_input(batch_mode: bool) -> None:
    harness = harness_of(
        TumblingProcessingTimeWindows.of(10), ReduceSpec(Adding()), batch_mode=batch_mode
    )
    harness.processing_time(100)
    harness.process_all([("a", 1), ("a", 2)])
    harness.processing_time(109)
    assert harness.records == ([] if batch_mode else [(("a", 3), 109)])
    harness.process(("a", 4))
    harness.finish()
    # Neither has the window fired nor what was left at the end been dropped.
    assert harness.outputs == ([("a", 7)] if batch_mode else [("a", 3)])


def test_endless_trigger_ends_with_the_input() -> None:
    for trigger in (ContinuousEventTimeTrigger.of(10), ContinuousProcessingTimeTrigger.of(10)):
        harness = harness_of(
            GlobalWindows.create(), ReduceSpec(Adding()), trigger=trigger, batch_mode=True
        )
        harness.process(("a", 1), 5)
        harness.finish()
        assert set(harness.outputs) == {("a", 1)}
        assert len(harness.outputs) <= 2


def test_count_windows_fire_full_only_and_leave_only_the_count() -> None:
    harness = harness_of(CountSlidingWindowAssigner.of(3, 2), AggregateSpec(Collecting()))
    for number in range(8):
        harness.process(("a", number))
        harness.end_epoch()
    assert harness.outputs == [[0, 1, 2], [2, 3, 4], [4, 5, 6]]
    assert {time for _, time in harness.records} == {MAX_TIMESTAMP}


def test_results_do_not_change_after_they_were_emitted() -> None:
    harness = harness_of(
        GlobalWindows.create(), AggregateSpec(Collecting()), trigger=CountTrigger.of(1)
    )
    harness.process_all([("a", 1), ("a", 2), ("a", 3)])
    assert harness.outputs == [[1], [1, 2], [1, 2, 3]]


def test_window_state_is_refused_where_windows_merge() -> None:
    class Keeping(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            context.window_state().get_state(ValueStateDescriptor("state"))
            yield key

    harness = harness_of(EventTimeSessionWindows.with_gap(10), ProcessSpec(Keeping()))
    harness.process(("a", 1), 0)
    with pytest.raises(ProgramError, match="per-window state is not allowed"):
        harness.watermark(9)


def test_large_windows_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "_CHUNK", 7)
    monkeypatch.setattr(contents, "_MOST_LISTED", 20)
    monkeypatch.setattr(contents, "_MOST_MOVED", 5)
    monkeypatch.setattr(generic, "_MOST_IN_MEMORY", 30)

    class Twice(ProcessWindowFunction[Any, Any, Any, Any]):
        def process(self, key: Any, context: Any, elements: Any) -> Any:
            assert not isinstance(elements, list)
            yield len(elements), [value for _, value in elements] == [v for _, v in elements]
            yield [value for _, value in elements]

    harness = harness_of(EventTimeSessionWindows.with_gap(50), ProcessSpec(Twice()))
    for start in (0, 100, 200):  # three sessions, of 90 elements each, that then become one
        for step in range(30):
            harness.process_all([("a", start + step + n) for n in range(3)], [start + step] * 3)
    harness.process_all([("a", -1), ("a", -2)], [75, 175])
    harness.process(("a", -3), 229)
    harness.watermark(1000)
    size_and_same, values = harness.outputs
    assert size_and_same == (273, True)
    assert isinstance(values, list)
    expected = [start + step + n for start in (0, 100, 200) for step in range(30) for n in range(3)]
    assert sorted(values) == sorted([*expected, -1, -2, -3])
    assert values[-1] == -3
    harness.end_epoch()
    assert_empty(harness)


@pytest.mark.parametrize("engine", ["long-lived"], indirect=True)
def test_accumulators_that_stay_are_not_written_behind_every_batch(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert engine == "long-lived"
    monkeypatch.setattr(OperatorHarness, "managed_memory", 64 << 20)
    monkeypatch.setattr(keyed, "MOST_UNWRITTEN", 1_000_000)
    monkeypatch.setattr(generic, "_MOST_IN_MEMORY", 50)
    gap = EventTimeSessionWindows(1000)
    factory = WindowFactory(gap, ReduceSpec(lambda a, b: a), lambda value: value, 10)
    harness = OperatorHarness(factory)
    flushes: list[int] = []
    harness.process_all(range(100), [5] * 100)
    harness.end_epoch()
    flush = KeyedState.flush

    def counted(state: KeyedState) -> None:
        flushes.append(1)
        flush(state)

    monkeypatch.setattr(KeyedState, "flush", counted)
    for _ in range(3):
        harness.process_all(range(100), [6] * 100)
    assert not flushes
