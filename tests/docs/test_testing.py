"""The tests of docs/how-to/testing.md pass, and what they show fails where it should."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest

from millstream.common import Time, Types
from millstream.datastream import (
    CoProcessFunction,
    KeyedProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.aggregates import Sum
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
)
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import ProgramError
from millstream.testing import ManualClock, StreamHarness, run_and_collect

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "testing.md"


def page() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "docs_testing"}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)):
        exec(compile(block, f"testing.md block {number}", "exec"), names)
    return names


NAMES = page()
TESTS = [name for name in NAMES if name.startswith("test_")]


@pytest.mark.parametrize("name", TESTS)
def test_of_the_page(name: str) -> None:
    NAMES[name]()


def test_the_page_has_its_tests() -> None:
    assert len(TESTS) == 5


class InAField(KeyedProcessFunction):
    """Counts where it must not."""

    def open(self, runtime_context: Any) -> None:
        self.count = 0

    def process_element(self, value: Any, ctx: Any) -> Iterator[int]:
        self.count += 1
        yield self.count


def test_a_count_in_a_field_is_found() -> None:
    with StreamHarness(lambda s: s.key_by(lambda v: v).process(InAField())) as harness:
        harness.process("a")
        harness.end_epoch()
        harness.process("a")
        assert harness.outputs == [1, 1]


class EveryState(KeyedProcessFunction):
    """Keeps values in all kinds of state."""

    def open(self, runtime_context: Any) -> None:
        self.all = runtime_context.get_list_state(ListStateDescriptor("all", Types.LONG()))
        self.by = runtime_context.get_map_state(
            MapStateDescriptor("by", Types.STRING(), Types.LONG())
        )
        self.sum = runtime_context.get_reducing_state(
            ReducingStateDescriptor("sum", lambda a, b: a + b, Types.LONG())
        )

    def process_element(self, value: Any, ctx: Any) -> None:
        self.all.add(value[1])
        self.by.put(str(value[1]), value[1])
        self.sum.add(value[1])


def test_every_kind_of_state_can_be_looked_at() -> None:
    with StreamHarness(lambda s: s.key_by(lambda v: v[0]).process(EveryState())) as harness:
        harness.process_all([("a", 1), ("b", 5), ("a", 2)])
        for _ in range(2):  # in memory, and in the store
            assert harness.state("all", "a") == [1, 2]
            assert harness.state("by", "a") == {"1": 1, "2": 2}
            assert harness.state("sum", "a") == 3
            assert harness.state("sum", "b") == 5
            assert [harness.state(name, "c") for name in ("all", "by", "sum")] == [None] * 3
            harness.end_epoch()
            harness.process(("d", 0))  # handles are made at the first record
        with pytest.raises(ProgramError, match=r"no state 'total'; there are \['all', 'by', 'sum'"):
            harness.state("total", "a")


def test_two_inputs() -> None:
    class Tag(CoProcessFunction):
        def process_element1(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield "left", value

        def process_element2(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield "right", value

    with StreamHarness(lambda left, right: left.connect(right).process(Tag())) as harness:
        harness.process(1)
        harness.process(2, input_index=1)
        assert harness.outputs == [("left", 1), ("right", 2)]


def test_a_typed_window_with_an_aggregate() -> None:
    row = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])

    def sums(stream: Any) -> Any:
        window = TumblingEventTimeWindows.of(Time.seconds(1))
        return stream.key_by(lambda r: r.key).window(window).aggregate(Sum("n"))

    with StreamHarness(sums, input_type=row) as harness:
        harness.process_all([("a", 1), ("a", 2), ("b", 3)], [1, 2, 3])
        harness.finish()
        sums_of = {each.key: each.sum_n for each in cast("list[Any]", harness.outputs)}
        assert sums_of == {"a": 3, "b": 3}


def test_records_of_a_type_come_as_from_a_source() -> None:
    row = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
    with StreamHarness(lambda s: s.map(lambda r: (r.key, r["n"])), input_type=row) as harness:
        harness.process(("a", 1))
        assert harness.outputs == [("a", 1)]


def test_what_is_not_one_operator_is_refused() -> None:
    with pytest.raises(ProgramError, match=r"has 2: 'Map' .*one by one, or all together"):
        StreamHarness(lambda s: s.map(str).key_by(len).process(InAField()))
    with pytest.raises(ProgramError, match="has 0: none"):
        StreamHarness(lambda s: s)
    with (
        StreamHarness(lambda s: s.map(str)) as harness,
        pytest.raises(ProgramError, match="no keyed state"),
    ):
        harness.state("count", "a")


def test_a_program_with_a_manual_clock() -> None:
    clock = ManualClock(5)
    clock.advance(10)
    env = StreamExecutionEnvironment.get_execution_environment()

    class Now(KeyedProcessFunction):
        def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
            yield value, ctx.timer_service().current_processing_time()

    stream = env.from_collection([1]).key_by(lambda v: v).process(Now())
    assert run_and_collect(stream, clock=clock) == [[(1, 15)]]


def test_a_program_without_results_and_none_at_all() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_collection([1, 2]).filter(lambda v: v > 2)
    assert run_and_collect(stream) == [[]]
    with pytest.raises(ProgramError, match="needs a stream"):
        run_and_collect()
