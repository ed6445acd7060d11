"""Keyed process and reduce: state, timers, epoch cuts, errors; and against plain Python."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.errors import UserFunctionError
from millstream.functions.descriptors import ListStateDescriptor, ValueStateDescriptor
from millstream.functions.functions import (
    KeyedProcessFunction,
    ReduceFunction,
    RuntimeContext,
    TimeDomain,
)
from millstream.runtime.operators import (
    KeyedAggregateFactory,
    KeyedProcessFactory,
    KeyedReduceFactory,
)
from millstream.testing.harness import OperatorHarness
from millstream.types.output_tag import OutputTag
from millstream.types.row import Row
from millstream.types.types import Types

SIDE = OutputTag("side")


class Count(KeyedProcessFunction):
    """Counts per key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield ctx.get_current_key(), count


class Flush(KeyedProcessFunction):
    """Collects values, emits them ``gap`` after the first; counts firings in the side output."""

    gap = 10

    def open(self, runtime_context: RuntimeContext) -> None:
        self.values = runtime_context.get_list_state(ListStateDescriptor("values"))
        self.timer = runtime_context.get_state(ValueStateDescriptor("timer"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        self.values.add(value[1])
        if self.timer.value() is None:
            time = ctx.timestamp() + self.gap
            self.timer.update(time)
            ctx.timer_service().register_event_time_timer(time)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        assert ctx.timestamp() == timestamp == self.timer.value()
        assert ctx.time_domain() is TimeDomain.EVENT_TIME
        yield ctx.get_current_key(), sorted(self.values.get())
        yield SIDE, ctx.timer_service().current_watermark()
        self.values.clear()
        self.timer.clear()


def test_count_across_epochs() -> None:
    harness = OperatorHarness(KeyedProcessFactory(Count(), lambda v: v))
    harness.process_all(["a", "b", "a"], [1, 2, 3])
    harness.end_epoch()
    harness.process_all(["a"], [4])
    harness.end_epoch(swap=False)
    harness.process("b", 5)
    assert harness.records == [
        (("a", 1), 1), (("b", 1), 2), (("a", 2), 3), (("a", 3), 4), (("b", 2), 5)
    ]  # fmt: skip


def test_a_lost_epoch_leaves_no_trace() -> None:
    harness = OperatorHarness(KeyedProcessFactory(Count(), lambda v: v))
    harness.process("a", 1)
    harness.end_epoch()
    harness.process("a", 2)
    harness.crash()
    harness.process("a", 2)
    assert harness.outputs == [("a", 1), ("a", 2)]


@pytest.mark.parametrize(
    "key", [[1, 2], {"x": 1}, None, True, 1.5, Row(a=1), (1, "x"), b"\0", 2**70]
)
def test_any_value_can_be_a_key(key: Any) -> None:
    harness = OperatorHarness(KeyedProcessFactory(Count(), lambda v: v["key"]))
    for _ in range(2):
        harness.process_all([{"key": key}, {"key": 1}])
        harness.end_epoch()
    outputs: list[Any] = harness.outputs
    assert [count for _, count in outputs] == [1, 1, 2, 2]
    assert [type(found) for found, _ in outputs] == [type(key), int] * 2
    assert [found for found, _ in outputs] == [key, 1] * 2


def test_column_keys_equal_selected_keys() -> None:
    row = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
    harness = OperatorHarness(KeyedProcessFactory(Count(), lambda r: r.k), input_type=row)
    harness.process_all([Row(k=7, v=1)], [0], columnar=True)
    harness.end_epoch()
    harness.process_all([Row(k=7, v=1)], [0])
    assert harness.outputs == [(7, 1), (7, 2)]


def test_event_time_timers_fire_once_in_order_with_their_timestamp() -> None:
    harness = OperatorHarness(KeyedProcessFactory(Flush(), lambda v: v[0]))
    harness.process_all([("a", 1), ("b", 2), ("a", 3)], [20, 10, 5])
    harness.watermark(19)
    assert harness.outputs == []
    harness.end_epoch()
    harness.watermark(29)
    harness.end_epoch()
    harness.watermark(100)
    assert harness.records == [(("b", [2]), 20), (("a", [1, 3]), 30)]
    assert harness.side_outputs("side") == [29, 100]


def test_end_of_input_fires_event_time_timers() -> None:
    harness = OperatorHarness(KeyedProcessFactory(Flush(), lambda v: v[0]))
    harness.process(("a", 1), 5)
    harness.finish()
    assert harness.records == [(("a", [1]), 15)]
    assert harness.watermarks == [MAX_TIMESTAMP]


class Alarm(KeyedProcessFunction):
    """A processing-time timer per record."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        service = ctx.timer_service()
        service.register_processing_time_timer(service.current_processing_time() + 100)
        if value == "cancel":
            service.delete_processing_time_timer(service.current_processing_time() + 100)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        assert ctx.time_domain() is TimeDomain.PROCESSING_TIME
        return [(ctx.get_current_key(), timestamp)]


def test_processing_time_timers() -> None:
    harness = OperatorHarness(KeyedProcessFactory(Alarm(), lambda v: v))
    harness.processing_time(1000)
    harness.process_all(["a", "a", "cancel"], [1, 2, 3])
    harness.processing_time(1099)
    assert harness.records == []
    harness.processing_time(1100)
    assert harness.records == [(("a", 1100), MIN_TIMESTAMP)]


@pytest.mark.parametrize("batch_mode", [False, True])
def test_pending_processing_time_timers_at_the_end(batch_mode: bool) -> None:
    harness = OperatorHarness(KeyedProcessFactory(Alarm(), lambda v: v), batch_mode=batch_mode)
    harness.process("a", 1)
    harness.finish()
    assert harness.outputs == ([("a", 100)] if batch_mode else [])


def test_errors_name_key_record_and_timer() -> None:
    class Broken(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
            ctx.timer_service().register_event_time_timer(5)
            if value == 13:
                message = "unlucky"
                raise ValueError(message)

        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
            raise KeyError(timestamp)

    harness = OperatorHarness(KeyedProcessFactory(Broken(), lambda v: v % 2), name="count")
    with pytest.raises(UserFunctionError, match=r"'count'.*record 13 \(key 1\).*unlucky"):
        harness.process_all([2, 13, 4], [0, 0, 0])
    harness = OperatorHarness(KeyedProcessFactory(Broken(), lambda v: v % 2))
    harness.process(2, 0)
    with pytest.raises(UserFunctionError, match=r"event_time timer for 5.*key 0"):
        harness.watermark(7)
    harness = OperatorHarness(KeyedProcessFactory(Broken(), lambda v: v.key))
    with pytest.raises(UserFunctionError, match=r"key_by.*record 2"):
        harness.process(2, 0)


class Longest(ReduceFunction):
    """The longer of two."""

    def reduce(self, value1: Any, value2: Any) -> Any:
        return max(value1, value2, key=len)


def test_reduce_emits_every_update_in_streaming_mode() -> None:
    harness = OperatorHarness(KeyedReduceFactory(Longest(), lambda v: v[0]))
    harness.process_all(["a", "b", "abc"], [1, 2, 3])
    harness.end_epoch()
    harness.process("ab", 4)
    assert harness.records == [("a", 1), ("b", 2), ("abc", 3), ("abc", 4)]


def test_reduce_emits_final_values_in_batch_mode() -> None:
    factory = KeyedReduceFactory(lambda a, b: a + b, lambda v: v % 3)
    harness = OperatorHarness(factory, batch_mode=True)
    harness.process_all([1, 2, 3, 4])
    harness.end_epoch()
    harness.process_all([5, 6])
    assert harness.records == []
    harness.finish()
    assert sorted(harness.records) == [
        (5, MAX_TIMESTAMP), (7, MAX_TIMESTAMP), (9, MAX_TIMESTAMP)
    ]  # fmt: skip


def test_reduce_that_changes_its_argument_does_not_change_what_was_emitted() -> None:
    def add(one: Any, other: Any) -> Any:
        one[1] += other[1]
        return one

    harness = OperatorHarness(KeyedReduceFactory(add, lambda v: v[0]))
    harness.process_all([["a", 1], ["a", 2], ["a", 3]])
    assert harness.outputs == [["a", 1], ["a", 3], ["a", 6]]


@dataclass(frozen=True)
class Trade:
    """A record with fields."""

    name: str
    price: int
    size: int


RECORDS: dict[str, tuple[list[Any], str | int, Any]] = {
    "tuple": ([("a", 5, 1), ("a", 3, 2), ("a", 5, 3), ("a", 9, 4)], 1, tuple),
    "list": ([["a", 5, 1], ["a", 3, 2], ["a", 5, 3], ["a", 9, 4]], 1, tuple),
    "row": ([Row(n="a", p=5, s=1), Row(n="a", p=3, s=2), Row(n="a", p=5, s=3),
             Row(n="a", p=9, s=4)], "p", tuple),
    "dict": ([{"n": "a", "p": 5, "s": 1}, {"n": "a", "p": 3, "s": 2}, {"n": "a", "p": 5, "s": 3},
              {"n": "a", "p": 9, "s": 4}], "p", lambda d: tuple(d.values())),
    "dataclass": ([Trade("a", 5, 1), Trade("a", 3, 2), Trade("a", 5, 3), Trade("a", 9, 4)],
                  "price", lambda t: (t.name, t.price, t.size)),
}  # fmt: skip


@pytest.mark.parametrize("form", RECORDS)
@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("sum", [(5, 1), (8, 1), (13, 1), (22, 1)]),
        ("min", [(5, 1), (3, 1), (3, 1), (3, 1)]),
        ("max", [(5, 1), (5, 1), (5, 1), (9, 1)]),
        ("min_by", [(5, 1), (3, 2), (3, 2), (3, 2)]),
        ("max_by", [(5, 1), (5, 1), (5, 1), (9, 4)]),
    ],
)
def test_field_aggregations(form: str, kind: str, expected: list[tuple[int, int]]) -> None:
    records, field, plain = RECORDS[form]
    harness = OperatorHarness(KeyedAggregateFactory(kind, field, lambda _: "a"))
    harness.process_all(records)
    assert [plain(v)[1:] for v in harness.outputs] == expected
    assert [type(v) for v in harness.outputs] == [type(records[0])] * 4


def test_aggregation_of_scalars() -> None:
    harness = OperatorHarness(KeyedAggregateFactory("sum", 0, lambda v: v % 2))
    harness.process_all([1, 2, 3])
    assert harness.outputs == [1, 2, 4]


# Against plain Python over the whole input.

ITEMS = st.lists(
    st.one_of(
        st.tuples(st.just("record"), st.integers(0, 4), st.integers(0, 60)),
        st.tuples(st.just("watermark"), st.integers(0, 80), st.just(0)),
        st.tuples(st.just("cut"), st.booleans(), st.just(0)),
    ),
    max_size=60,
)


def run(harness: OperatorHarness, items: list[tuple[str, Any, int]]) -> OperatorHarness:
    """Feed a program, records in batches as long as nothing comes between."""
    pending: list[tuple[Any, int]] = []

    def send() -> None:
        if pending:
            harness.process_all(pending, [time for _, time in pending])
            pending.clear()

    for what, first, second in items:
        if what == "record":
            pending.append((first, second))
            continue
        send()
        if what == "watermark":
            harness.watermark(first)
        else:
            harness.end_epoch(swap=first)
    send()
    harness.finish()
    return harness


def flush_model(items: list[tuple[str, Any, int]]) -> list[Any]:
    """What ``Flush`` emits, computed with a dict and a sorted list."""
    out: list[Any] = []
    open_keys: dict[Any, tuple[int, list[int]]] = {}
    watermark = MIN_TIMESTAMP
    for what, first, second in [*items, ("watermark", MAX_TIMESTAMP, 0)]:
        if what == "record":
            _, values = open_keys.setdefault(first, (second + Flush.gap, []))
            values.append(second)
        elif what == "watermark" and first > watermark:
            watermark = first
            due = [(timer, key) for key, (timer, _) in open_keys.items() if timer <= watermark]
            out.extend((timer, key, sorted(open_keys.pop(key)[1])) for timer, key in due)
    return out


@given(ITEMS)
@examples(150)
def test_oracle_state_and_timers(items: list[tuple[str, Any, int]]) -> None:
    harness = run(OperatorHarness(KeyedProcessFactory(Flush(), lambda v: v[0])), items)
    emitted = [(time, *value) for value, time in harness.records]  # type: ignore[misc]
    assert sorted(emitted) == sorted(flush_model(items))


@given(ITEMS, st.booleans())
@examples(80)
def test_oracle_running_reduce(items: list[tuple[str, Any, int]], batch_mode: bool) -> None:
    factory = KeyedReduceFactory(lambda a, b: (a[0], a[1] + b[1]), lambda v: v[0])
    harness = run(OperatorHarness(factory, batch_mode=batch_mode), items)
    sums: dict[int, int] = {}
    updates = []
    for what, key, value in items:
        if what == "record":
            sums[key] = sums.get(key, 0) + value
            updates.append((key, sums[key]))
    assert sorted(harness.outputs) == sorted(sums.items() if batch_mode else updates)  # type: ignore[type-var]
