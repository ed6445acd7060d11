"""Two inputs of one operator: shared state and timers, side outputs, cuts, errors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.errors import ProgramError, UserFunctionError
from millstream.functions.descriptors import ListStateDescriptor, ValueStateDescriptor
from millstream.functions.functions import CoProcessFunction, KeyedCoProcessFunction, TimeDomain
from millstream.runtime.operators import CoProcessFactory, KeyedCoProcessFactory
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.functions.functions import RuntimeContext

SIDE = OutputTag("side")


def first(value: tuple[Any, ...]) -> Any:
    return value[0]


def last(value: tuple[Any, ...]) -> Any:
    return value[-1]


class Times(CoProcessFunction):
    """Record, watermark and timestamp of both inputs."""

    def process_element1(self, value: object, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield 1, value, ctx.timer_service().current_watermark(), ctx.timestamp()

    def process_element2(self, value: object, ctx: CoProcessFunction.Context) -> Iterator[Any]:
        yield 2, value, ctx.timer_service().current_processing_time(), ctx.timestamp()
        yield SIDE, value


def test_time_on_streams_that_are_not_keyed() -> None:
    harness = OperatorHarness(CoProcessFactory(Times()), side_types={})
    harness.process("a", 5)
    harness.watermark(17)
    harness.processing_time(1000)
    harness.process("b", 20)
    harness.process("c", 21, input_index=1)
    assert harness.records == [
        ((1, "a", MIN_TIMESTAMP, 5), 5),
        ((1, "b", 17, 20), 20),
        ((2, "c", 1000, 21), 21),
    ]
    assert harness.side_records == {"side": [("c", 21)]}
    assert harness.watermarks == [17]


class Timer(CoProcessFunction):
    def process_element1(self, value: object, ctx: CoProcessFunction.Context) -> None:
        ctx.timer_service().register_event_time_timer(5)

    def process_element2(self, value: object, ctx: CoProcessFunction.Context) -> None:
        ctx.timer_service().register_processing_time_timer(5)

    def on_timer(self, timestamp: int, ctx: CoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield timestamp, ctx.time_domain()


@pytest.mark.parametrize("index", [0, 1])
def test_timers_need_keyed_streams(index: int) -> None:
    harness = OperatorHarness(CoProcessFactory(Timer()))
    with pytest.raises(ProgramError, match="needs a keyed stream"):
        harness.process("a", 1, input_index=index)


def test_a_co_process_function_has_timers_on_keyed_streams() -> None:
    harness = OperatorHarness(KeyedCoProcessFactory(Timer(), first, last))
    harness.process(("k",), 1)
    harness.process(("k",), 1, input_index=1)
    harness.watermark(5)
    harness.processing_time(5)
    assert harness.records == [
        ((5, TimeDomain.EVENT_TIME), 5),
        ((5, TimeDomain.PROCESSING_TIME), MIN_TIMESTAMP),
    ]


class Meeting(KeyedCoProcessFunction):
    """Keeps what comes in on the first input until the second, or the time, asks for it."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.kept = runtime_context.get_list_state(ListStateDescriptor("kept"))
        self.asked = runtime_context.get_state(ValueStateDescriptor("asked"))

    def process_element1(self, value: tuple[Any, int], ctx: KeyedCoProcessFunction.Context) -> None:
        self.kept.add(value[1])
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 10)
        ctx.timer_service().register_processing_time_timer(1000)

    def process_element2(
        self, value: tuple[int, Any], ctx: KeyedCoProcessFunction.Context
    ) -> Iterator[Any]:
        self.asked.update((self.asked.value() or 0) + 1)
        yield ctx.get_current_key(), list(self.kept.get()), self.asked.value()
        if value[0] < 0:
            ctx.timer_service().delete_processing_time_timer(1000)

    def on_timer(self, timestamp: int, ctx: KeyedCoProcessFunction.OnTimerContext) -> Iterator[Any]:
        yield ctx.time_domain().name, timestamp, ctx.get_current_key(), list(self.kept.get())
        yield SIDE, (ctx.timestamp(), self.asked.value())


def test_both_inputs_share_state_and_timers_of_a_key() -> None:
    """As Flink's KeyedCoProcessOperatorTest: state, both kinds of timers, a snapshot between."""
    harness = OperatorHarness(KeyedCoProcessFactory(Meeting(), first, last))
    harness.process_all([("a", 1), ("b", 2), ("a", 3)], [1, 2, 3])
    harness.end_epoch()
    harness.process_all([(0, "a"), (-1, "b"), (0, "c")], [4, 5, 6], input_index=1)
    harness.watermark(11)
    harness.end_epoch()
    harness.process((0, "a"), 12, input_index=1)
    harness.watermark(12)
    harness.processing_time(1000)
    assert harness.records == [
        (("a", [1, 3], 1), 4),
        (("b", [2], 1), 5),
        (("c", [], 1), 6),
        (("EVENT_TIME", 11, "a", [1, 3]), 11),
        (("a", [1, 3], 2), 12),
        (("EVENT_TIME", 12, "b", [2]), 12),
        (("PROCESSING_TIME", 1000, "a", [1, 3]), MIN_TIMESTAMP),
    ]
    assert harness.side_outputs("side") == [(11, 1), (12, 1), (1000, 2)]
    assert harness.metrics["numRecordsIn"] == 7


def test_a_lost_epoch_leaves_no_trace_on_either_input() -> None:
    harness = OperatorHarness(KeyedCoProcessFactory(Meeting(), first, last))
    harness.process(("a", 1), 1)
    harness.end_epoch()
    harness.process(("a", 2), 2)
    harness.process((0, "a"), 3, input_index=1)
    harness.crash()
    harness.process((0, "a"), 3, input_index=1)
    assert harness.outputs == [("a", [1], 1)]


@pytest.mark.parametrize("batch_mode", [False, True])
def test_processing_time_timers_fire_at_the_end_in_batch_mode_only(batch_mode: bool) -> None:
    harness = OperatorHarness(KeyedCoProcessFactory(Meeting(), first, last), batch_mode=batch_mode)
    harness.process(("a", 1), 1)
    harness.finish()
    domains = [record[0] for record in harness.outputs]  # type: ignore[index]
    assert domains == ["EVENT_TIME", *(["PROCESSING_TIME"] if batch_mode else [])]
    assert harness.watermarks == [MAX_TIMESTAMP]


class Broken(KeyedCoProcessFunction):
    def process_element1(self, value: object, ctx: KeyedCoProcessFunction.Context) -> None: ...

    def process_element2(self, value: object, ctx: KeyedCoProcessFunction.Context) -> None:
        raise ValueError(value)


def test_an_error_names_operator_record_and_key() -> None:
    harness = OperatorHarness(KeyedCoProcessFactory(Broken(), first, last), name="meet")
    harness.process(("a", 1), 1)
    with pytest.raises(UserFunctionError, match=r"'meet'.*record \('b', 2\) \(key 2\).*ValueError"):
        harness.process(("b", 2), 1, input_index=1)
