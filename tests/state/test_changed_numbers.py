"""Numbers that have changed, against a plain set; pickles of many values, against ``pickle``."""

from __future__ import annotations

import math
import pickle
import random
from typing import Any

import pytest

from millstream.state.serializers import dumps_all
from millstream.state.value_state import ChangedNumbers

EDGES = [0, -1, 1, 2**63 - 1, -(2**63)]


@pytest.mark.parametrize("seed", range(6))
def test_agree_changed_numbers_and_a_set(seed: int) -> None:
    chance = random.Random(seed)
    numbers, wanted = ChangedNumbers(), set[int]()
    note = numbers.note  # which is kept: it must stay that of the same list
    keys = [*EDGES, *(chance.randrange(-(2**63), 2**63) for _ in range(chance.choice([5, 9_000])))]
    for _ in range(200):
        step = chance.randrange(7)
        if step < 3:
            for key in chance.choices(keys, k=chance.choice([1, 300])):
                note(key)
                wanted.add(key)
        elif step == 3:
            assert len(wanted) / 2 <= numbers.roughly <= len(wanted)
        elif step == 4:
            some = chance.choices([*keys, 2**63, -(2**70), 77], k=20)
            assert numbers.count(some) == sum(key in wanted for key in some)
            assert wanted.issuperset(numbers.some())
        elif step == 5:
            most = chance.choice([1, 100, None])
            taken = numbers.take(most).tolist()
            assert taken == sorted(set(taken), key=lambda key: key % 2**64)
            assert wanted.issuperset(taken)
            assert len(taken) == min(len(wanted), len(wanted) if most is None else most)
            wanted.difference_update(taken)
            for key in taken:  # one that has changed since it was sorted may be left, too
                if numbers.count([key]):
                    wanted.add(key)
        else:
            numbers.keep_short()
    assert set(numbers.take().tolist()) == wanted
    numbers.clear()
    assert not len(numbers)


def test_numbers_of_more_than_64_bits_are_refused_and_many_changes_take_little_memory() -> None:
    numbers = ChangedNumbers()
    for key in (2**63, -(2**63) - 1):
        with pytest.raises(OverflowError):
            numbers.note(key)
    for _ in range(10):
        for key in range(20_000):
            numbers.note(key)
        numbers.keep_short()
        assert len(numbers._listed) <= 65_536
    assert len(numbers) == 20_000


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
