"""The general window operator agrees with the fast one, and with itself however it is cut."""

from __future__ import annotations

import random
from typing import Any

import pytest
from tests.runtime.operators.general_windows import (
    LATE,
    Adding,
    Collecting,
    GapOfValue,
    Listing,
    Pairing,
    Session,
    harness_of,
    key_of,
)
from tests.support.tiers import sampled

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
    GlobalWindows,
    ProcessingTimeoutTrigger,
    ProcessingTimeSessionWindows,
    PurgingTrigger,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TimeEvictor,
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
    ProcessWindowFunction,
)
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    ProcessSpec,
    ReduceSpec,
    WindowFactory,
)
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag


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


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("assigner", sampled(ASSIGNERS, 3))
@pytest.mark.parametrize("trigger", TRIGGERS)
def test_cuts_into_epochs_change_nothing(assigner: str, trigger: str) -> None:
    merging = "session" in assigner or assigner == "dynamic"
    if merging and trigger in {"delta", "timeout"}:
        harness = harness_of(ASSIGNERS[assigner], ReduceSpec(Adding()), trigger=TRIGGERS[trigger])
        harness.process(("a", 1), 100)
        harness.processing_time(harness.current_processing_time + 1)
        with pytest.raises(ProgramError, match="does not support merging"):
            harness.process(("a", 1), 101)
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
