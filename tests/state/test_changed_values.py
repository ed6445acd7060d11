"""Changed values of keyed state against a dict, and pickles of many values against ``pickle``."""

from __future__ import annotations

import math
import pickle
import random
from typing import Any

import pytest

from millstream.common import Types
from millstream.datastream import KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import TypeMismatchError
from millstream.runtime.operators.process import KeyedProcessFactory
from millstream.state.keyed import KeyedState
from millstream.state.serializers import dumps_all
from millstream.testing.harness import OperatorHarness
from millstream.testing.memory_store import MemoryStore

EDGES: list[Any] = [0, -1, 1, 2**63 - 1, -(2**63), 2**63, -(2**70)]


@pytest.mark.parametrize("others", [[], ["", "a", "1"], [2.5, None, (1, "x")]], ids=repr)
@pytest.mark.parametrize("seed", range(4))
def test_agree_changed_values_and_a_dict(seed: int, others: list[Any]) -> None:
    chance = random.Random(seed)
    keyed, store = KeyedState(128, (0, 128)), MemoryStore()
    keyed.begin_epoch(store)
    keyed.live_on(True)
    handle = keyed.get_state(ValueStateDescriptor("n", Types.LONG()))
    state: Any = keyed._states["n"]
    keys = [*EDGES, *others, *(chance.randrange(-(2**63), 2**63) for _ in range(600))]
    wanted: dict[Any, int | None] = {}
    for _ in range(150):
        some = chance.choices(keys, k=chance.choice([1, 80]))
        if chance.random() < 0.7:
            keyed.prefetch(some)
        for key in some:
            keyed.set_current_key(key)
            if chance.random() < 0.6:
                assert handle.value() == wanted.get(key)
            if chance.random() < 0.6:
                wanted[key] = chance.choice([None, 0, 2**30, 2**63 - 1, -(2**63)])
                handle.update(wanted[key])
        step = chance.randrange(6)
        if step == 0:
            keyed.flush()
            assert not state.changes
        elif step == 1:
            keyed._make_room()
        elif step == 2:
            puts, deletes = list[Any](), list[bytes]()
            before = state.changes
            state.flush_some(40, puts, deletes)
            assert len(puts) + len(deletes) == min(40, before) == before - state.changes
            keyed.write_through(puts, deletes)
    keyed.flush()
    another = KeyedState(128, (0, 128))
    another.begin_epoch(store)
    stored = another.get_state(ValueStateDescriptor("n", Types.LONG()))
    for key in keys:
        another.set_current_key(key)
        assert stored.value() == wanted.get(key)


class Wrong(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.state = runtime_context.get_state(ValueStateDescriptor("n", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        self.state.update(value)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, "x"])
def test_a_value_that_is_refused_is_located_in_the_program(value: object) -> None:
    with OperatorHarness(KeyedProcessFactory(Wrong(), lambda _: 1)) as harness:
        harness.process_all([None, True, -(2**63)])
        pattern = (
            r"state 'n' is declared as Long: .*\n  at .*test_changed_values.py:\d+ in process_el"
        )
        with pytest.raises(TypeMismatchError, match=pattern):
            harness.process(value)


@pytest.mark.parametrize(
    "values",
    [
        [0, 1, -1, 2**31 - 1, -(2**31)],
        [0, 2**31],
        [2**63 - 1, -(2**63)],
        [1, 2**63],
        [0.0, -0.0, 1.5, math.inf, 5e-324],
        [True, False],
        [1, 1.0],
        [1, None],
        ["a", (1, 2)],
        [],
    ],
    ids=repr,
)
def test_oracle_pickles_of_many_values_are_read_by_pickle(values: list[Any]) -> None:
    read = [pickle.loads(each) for each in dumps_all(values)]
    assert [(type(each), repr(each)) for each in read] == [(type(e), repr(e)) for e in values]


def test_not_a_number_is_pickled_with_others() -> None:
    assert math.isnan(pickle.loads(dumps_all([1.0, math.nan])[1]))
