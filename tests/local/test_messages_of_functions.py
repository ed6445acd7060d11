"""Errors of functions that end their process, return what cannot be pickled, or misuse state."""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments

from millstream.common import Types
from millstream.datastream import KeyedProcessFunction, RuntimeContext
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.errors import StateError, UserFunctionError
from millstream.testing import StreamHarness
from millstream.types.pickling import find_unpicklable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import DataStream

ENGINES = pytest.mark.parametrize("execution", ["epochs", "pipelined"])


def failure(
    directory: Path,
    execution: str,
    build: Callable[[DataStream], DataStream],
    kind: type[Exception],
) -> str:
    """What a job over two numbers fails with."""
    engine = {"execution.target": "local", "millstream.execution": execution}
    env = environments(directory, engine)(1)
    build(env.from_collection([1, 2], Types.LONG())).sink_to(DiscardingSink())
    with pytest.raises(kind) as caught:
        env.execute("failing")
    return str(caught.value)


@ENGINES
def test_a_function_that_ends_its_process_is_named(tmp_path: Path, execution: str) -> None:
    def leave(number: int) -> int:
        sys.exit(number + 2)

    text = failure(tmp_path, execution, lambda s: s.map(leave).name("leaver"), UserFunctionError)
    assert text.startswith("a function of operator 'leaver' (test_messages_of_functions.py:")
    assert "has asked its process to end: SystemExit: 3\n  at " in text
    assert "sys.exit(number + 2)" in text
    assert "to end the job, raise an exception" in text


def test_a_result_that_cannot_be_pickled_names_operator_and_record(tmp_path: Path) -> None:
    def locked(stream: DataStream) -> DataStream:
        made = stream.map(lambda n: (n, threading.Lock())).name("maker")
        return made.key_by(lambda pair: pair[0]).map(lambda pair: pair[0])

    text = failure(tmp_path, "epochs", locked, UserFunctionError)
    assert text.startswith("output of operator 'maker' (test_messages_of_functions.py:")
    assert "record (1, <unlocked _thread.lock" in text
    assert "cannot be pickled (TypeError: cannot pickle '_thread.lock' object)" in text


def test_the_first_value_that_cannot_be_pickled_is_found() -> None:
    found = find_unpicklable([1, "two", threading.Lock(), threading.RLock()])
    assert found.startswith("<unlocked _thread.lock object at")
    assert find_unpicklable([1]) == "a value cannot be pickled"


class KeepsLock(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.lock = runtime_context.get_state(ValueStateDescriptor("lock"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        del ctx
        self.lock.update(threading.Lock())
        return [value]


def test_state_that_cannot_be_pickled_names_its_operator(tmp_path: Path) -> None:
    def keep(stream: DataStream) -> DataStream:
        return stream.key_by(lambda n: n).process(KeepsLock()).name("keeper")

    text = failure(tmp_path, "epochs", keep, StateError)
    assert text.startswith("operator 'keeper' (test_messages_of_functions.py:")
    assert "cannot be pickled" in text


# -- state handles ---------------------------------------------------------------------------------


class Misuse(KeyedProcessFunction):
    """Have something done with the states of the key."""

    def __init__(self, act: Callable[[Any, Any], Any]) -> None:
        self.act = act

    def open(self, runtime_context: RuntimeContext) -> None:
        long = Types.LONG()
        self.one = runtime_context.get_state(ValueStateDescriptor("one", long))
        self.many = runtime_context.get_list_state(ListStateDescriptor("many", long))
        self.by_key = runtime_context.get_map_state(MapStateDescriptor("by key", long, long))
        self.greatest = runtime_context.get_reducing_state(
            ReducingStateDescriptor("greatest", max, long)
        )

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.act(self, ctx)
        return [value]


def increment(states: Any, _: Any) -> None:
    states.one += 1


MISUSES: list[tuple[Callable[[Any, Any], Any], str]] = [
    (increment, "this is a ValueState, a handle and no value: read it with state.value()"),
    (lambda states, _: states.one > 3, "write it with state.update(value)"),
    (lambda states, _: int(states.one), "this is a ValueState"),
    (lambda states, _: states.greatest - 1, "this is a ReducingState"),
    (lambda states, _: states.many + [1], "this is a ListState"),  # noqa: RUF005 - the mistake
    (lambda states, _: states.many.append(1), "a ListState has no 'append'"),
    (lambda states, _: states.by_key.update(1), "a MapState has no 'update'"),
    (lambda states, _: states.one.get(), "a ValueState has no 'get': read it with state.value()"),
    (lambda _, ctx: ctx.get_state(None), "has no 'get_state': take it in open()"),
    (lambda _, ctx: ctx.get_metrics_group(), "has no 'get_metrics_group': take it in open()"),
]


@pytest.mark.parametrize(("act", "said"), MISUSES)
def test_a_handle_taken_for_a_value_is_refused_with_what_to_call(
    act: Callable[[Any, Any], Any], said: str
) -> None:
    with (
        StreamHarness(lambda s: s.key_by(lambda n: n).process(Misuse(act))) as harness,
        pytest.raises(UserFunctionError) as caught,
    ):
        harness.process(1, 0)
    assert said in str(caught.value)
    assert "test_messages_of_functions.py" in str(caught.value)


def test_handles_and_contexts_have_no_other_attributes() -> None:
    def probe(states: Any, ctx: Any) -> None:
        assert not hasattr(states.one, "append")
        assert not hasattr(ctx, "get_state")
        assert not hasattr(ctx, "unknown")
        assert states.one

    with StreamHarness(lambda s: s.key_by(lambda n: n).process(Misuse(probe))) as harness:
        harness.process(1, 0)
