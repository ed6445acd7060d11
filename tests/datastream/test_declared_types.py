"""Declared types are held to: in every operator's output and in every kind of state.

Each error names the operator, the line of the program, the record or key, the field, the value and
the type; what PyFlink's coders take is taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.common import Row, Types
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from millstream.errors import ProgramError, TypeMismatchError
from millstream.graph.validation import validate_connectors
from millstream.runtime.operators import KeyedProcessFactory
from millstream.testing.harness import OperatorHarness
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.datastream import DataStream

LONG, TEXT, INT = Types.LONG(), Types.STRING(), Types.INT()
PAIR = Types.ROW_NAMED(["word", "n"], [TEXT, LONG])


def run(build: Callable[[DataStream], DataStream], directory: Path, parallelism: int = 1) -> Any:
    """The numbers 0 to 9 through what ``build`` makes, with no exchange but those it makes."""
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(parallelism)
    stream = build(env.from_collection(list(range(10)), LONG))
    out = directory / "out"
    stream.sink_to(CollectSink(out, fsync=False))
    MiniCluster(env.get_job_graph(), directory / "checkpoint").run()
    return list(read_collected(out))


class Emit(ProcessFunction):
    def __init__(self, value: object) -> None:
        self.value = value

    def process_element(self, value: Any, ctx: Any) -> Iterator[object]:
        yield self.value


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (LONG, "x", r"'x' is a str and does not fit Long"),
        (INT, 2**40, r"1099511627776 is an int and does not fit Integer"),
        (PAIR, Row("x"), r"<Row\('x'\)> is a Row .*it has 1 field instead of 2"),
        (
            PAIR,
            ("a", "b"),
            r"field 'n': 'b' is a str and does not fit Long .*in record \('a', 'b'\)",
        ),
        (Types.LIST(LONG), [1, "b"], r"element 1: 'b' is a str"),
        (Types.MAP(TEXT, LONG), {"a": None, "b": 1.5}, r"value of 'b': 1.5 is a float"),
    ],
)
@pytest.mark.parametrize("operator", ["Map", "FlatMap", "Process", "side output"])
def test_output_that_breaks_its_type_is_refused_without_an_exchange(
    operator: str, kind: Any, value: Any, says: str, tmp_path: Path
) -> None:
    def build(numbers: DataStream) -> DataStream:
        if operator == "Map":
            return numbers.map(lambda _: value, kind)
        if operator == "FlatMap":
            return numbers.flat_map(lambda _: [value], kind)
        if operator == "Process":
            return numbers.process(Emit(value), kind)
        tag = OutputTag("side", kind)
        return numbers.process(Emit((tag, value))).get_side_output(tag)

    with pytest.raises(TypeMismatchError, match=says) as caught:
        run(build, tmp_path)
    name = "Process" if operator == "side output" else operator
    place = rf"operator '{name}' \(test_declared_types.py:\d+\)"
    if operator == "side output":
        place = f"side output 'side' of {place}"
    assert caught.match(f"^{place}: value [01]")


@pytest.mark.both_engines
def test_what_a_reduce_emits_is_held_to_its_type(tmp_path: Path) -> None:
    with pytest.raises(TypeMismatchError, match=r"operator 'Reduce' .*'01' is a str.*fit Long"):
        run(lambda n: n.key_by(lambda _: 1).reduce(lambda a, b: f"{a}{b}", LONG), tmp_path)


@pytest.mark.both_engines
def test_what_pyflink_takes_is_taken(tmp_path: Path) -> None:
    kind = Types.ROW([LONG, INT, Types.DOUBLE(), Types.BOOLEAN(), TEXT, LONG])
    given = (True, np.int32(5), 1, 1, "x", None)
    found = run(lambda numbers: numbers.map(lambda _: given, kind).rebalance().map(list), tmp_path)
    assert found[0] == [1, 5, 1.0, True, "x", None]
    assert list(map(type, found[0])) == [int, int, float, bool, str, type(None)]


class CountKeys(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.n = runtime_context.get_state(ValueStateDescriptor("n", LONG))

    def process_element(self, value: Any, ctx: Any) -> Iterator[object]:
        self.n.update((self.n.value() or 0) + 1)
        yield ctx.get_current_key(), self.n.value()


@pytest.mark.both_engines
def test_a_key_is_the_same_on_both_sides_of_the_exchange(tmp_path: Path) -> None:
    """1, True and 1.0 are the key 1.0 of a DOUBLE: one key group, one subtask, one count."""

    def build(numbers: DataStream) -> DataStream:
        mixed = numbers.map(
            lambda n: (n % 3, [1, 1.0, np.int64(1)][n % 3]), Types.ROW([LONG, Types.DOUBLE()])
        )
        # Not a field alone, so that the key is taken from Python values.
        return mixed.key_by(lambda row: row[1] + 0).process(CountKeys())

    found = run(build, tmp_path, parallelism=8)
    assert max(found) == (1.0, 10)


# -- state -----------------------------------------------------------------------------------------


class Mean(AggregateFunction):
    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return value

    def get_result(self, accumulator: Any) -> Any:
        return accumulator


def writes(kind: Any) -> dict[str, tuple[Any, Callable[[Any, Any], None]]]:
    """By name: a descriptor, and what writes a value through its handle."""
    return {
        "update": (ValueStateDescriptor("v", kind), lambda s, v: s.update(v)),
        "add": (ListStateDescriptor("v", kind), lambda s, v: s.add(v)),
        "add_all": (ListStateDescriptor("v", kind), lambda s, v: s.add_all([v])),
        "replace": (ListStateDescriptor("v", kind), lambda s, v: s.update([v])),
        "put": (MapStateDescriptor("v", TEXT, kind), lambda s, v: s.put("k", v)),
        "put_all": (MapStateDescriptor("v", TEXT, kind), lambda s, v: s.put_all({"k": v})),
        "setitem": (MapStateDescriptor("v", TEXT, kind), lambda s, v: s.__setitem__("k", v)),
        "reduce first": (ReducingStateDescriptor("v", lambda a, b: b, kind), lambda s, v: s.add(v)),
        "aggregate": (AggregatingStateDescriptor("v", Mean(), kind), lambda s, v: s.add(v)),
    }


class Write(KeyedProcessFunction):
    def __init__(self, kind: Any, way: str, ttl: bool) -> None:
        self.kind, self.way, self.ttl = kind, way, ttl

    def open(self, runtime_context: Any) -> None:
        descriptor, self.write = writes(self.kind)[self.way]
        if self.ttl:
            from millstream.common import Time

            descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(1)).build())
        self.state = getattr(
            runtime_context,
            {"value": "get_state"}.get(descriptor.kind, f"get_{descriptor.kind}_state"),
        )(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[object]:
        self.write(self.state, value[1])
        yield from ()


@pytest.mark.parametrize("ttl", [False, True])
@pytest.mark.parametrize("way", writes(LONG))
def test_state_takes_only_what_its_descriptor_says(way: str, ttl: bool) -> None:
    for kind, good, bad, says in (
        (LONG, 3, "x", "'x' is a str and does not fit Long"),
        (INT, np.int64(3), 2**40, "1099511627776 is an int and does not fit Integer"),
        (PAIR, Row("a", 1), Row("x"), "it has 1 field instead of 2"),
        (Types.TUPLE([TEXT, LONG]), ("a", None), ("a", "b"), "field 'f1': 'b' is a str"),
        (Types.LIST(LONG), [1], ["b"], "element 0: 'b' is a str"),
        (Types.PICKLED_BYTE_ARRAY(), object, None, ""),
    ):
        factory = KeyedProcessFactory(Write(kind, way, ttl), lambda row: row[0])
        with OperatorHarness(factory) as harness:
            harness.process(("key", good))
            harness.end_epoch()
            if says:
                with pytest.raises(TypeMismatchError, match=says) as caught:
                    harness.process(("key", bad))
                assert caught.match(r"operator 'operator' \(test\) .*record \('key', .*key 'key'")
                assert caught.match(r"state 'v'.* is declared as ")
                assert caught.match(r"at .*test_declared_types.py:\d+ in ")


def test_the_result_of_a_reduce_function_is_checked() -> None:
    class Bad(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            descriptor = ReducingStateDescriptor("v", lambda a, b: f"{a}{b}", LONG)
            self.v = runtime_context.get_reducing_state(descriptor)

        def process_element(self, value: Any, ctx: Any) -> None:
            self.v.add(value)

    with (
        OperatorHarness(KeyedProcessFactory(Bad(), lambda _: 1)) as harness,
        pytest.raises(TypeMismatchError, match=r"'v', what its reduce function returned"),
    ):
        harness.process_all([1, 2])


def test_map_keys_are_checked() -> None:
    class Bad(KeyedProcessFunction):
        def open(self, runtime_context: Any) -> None:
            self.v = runtime_context.get_map_state(MapStateDescriptor("v", TEXT, LONG))

        def process_element(self, value: Any, ctx: Any) -> None:
            self.v.put(value, 1)

    with OperatorHarness(KeyedProcessFactory(Bad(), lambda _: 1)) as harness:
        harness.process("a")
        with pytest.raises(TypeMismatchError, match=r"state 'v', map key is declared as String: 5"):
            harness.process(5)


# -- at submit -------------------------------------------------------------------------------------


def test_a_collection_is_held_to_its_type_at_submit() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([("a", 1), ("b",)], PAIR).sink_to(BlackholeSink())
    with pytest.raises(TypeMismatchError, match=r"Collection Source.*value 1: \('b',\).*1 field"):
        validate_connectors(env.get_job_graph())


@pytest.mark.parametrize("wrong", [int, Types.LONG, "Long"])
def test_what_is_no_type_is_refused_where_it_is_given(wrong: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    numbers = env.from_collection([1])
    tries: list[Callable[[], object]] = [
        lambda: ValueStateDescriptor("v", wrong),
        lambda: MapStateDescriptor("v", wrong, LONG),
        lambda: numbers.map(lambda x: x, wrong),
        lambda: numbers.flat_map(lambda x: [x], wrong),
        lambda: numbers.process(Emit(1), wrong),
        lambda: numbers.key_by(lambda x: x, wrong),
        lambda: env.from_collection([1], wrong),
        lambda: OutputTag("t", wrong),
        lambda: numbers.key_by(lambda x: x).reduce(max, wrong),
        lambda: Types.ROW([wrong]),
        lambda: Types.LIST(wrong),
        lambda: Types.MAP(LONG, wrong),
    ]
    for each in tries:
        with pytest.raises(ProgramError, match=r"must be a type such as Types.LONG") as caught:
            each()
        if wrong is Types.LONG:
            assert "write Types.LONG() with parentheses" in str(caught.value)
