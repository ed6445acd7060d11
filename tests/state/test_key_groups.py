from __future__ import annotations

import datetime as dt
import subprocess
import sys
from collections import namedtuple
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StateError
from millstream.state.key_codec import (
    cache_key,
    decode_key,
    encode_key,
    key_group,
    key_group_range,
    key_groups_of_array,
    subtask_of,
    uncache_key,
)
from millstream.types.row import Row, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Airport:
    code: str
    runways: int


class Colour(Enum):
    RED = 1


class Level(IntEnum):
    LOW = 1


Pair = namedtuple("Pair", ["left", "right"])  # noqa: PYI024 - the untyped kind is tested

KEYS: list[Any] = [
    0, 1, -1, 2**63 - 1, -(2**63), 2**63, -(2**80), True, False, None, 1.0, 0.5, float("inf"),
    "", "a", "ä", "\ud800", b"", b"a", (), (1, "a"), ((1,), 2), [1], [1, [2]], {"a": 1},
    {1, 2}, frozenset({3}), Decimal("1.5"), Decimal("NaN"), dt.date(2013, 1, 1), dt.time(1, 2),
    dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC), dt.datetime(2013, 1, 1, 5), dt.timedelta(1, 2, 3),  # noqa: DTZ001
    Airport("JFK", 4), Colour.RED, Level.LOW, Pair(1, 2), Row(1, "a"), Row(a=1, b="x"),
    bytearray(b"x"),
    complex(1, 2),
]  # fmt: skip


def test_keys_survive_encoding() -> None:
    for key in KEYS:
        decoded = decode_key(encode_key(key))
        assert type(decoded) is type(key)
        assert decoded == key or key != key  # noqa: PLR0124 - a NaN
        assert encode_key(decoded) == encode_key(key)
        assert encode_key(uncache_key(cache_key(key))) == encode_key(key)


def test_different_keys_have_different_bytes() -> None:
    assert len({encode_key(key) for key in KEYS}) == len(KEYS)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (np.int64(5), 5),
        (np.str_("a"), "a"),
        (np.float64(1.5), 1.5),
        (np.bool_(True), True),
        (-0.0, 0.0),
        (float("nan"), -float("nan")),
        (Decimal("1.0"), Decimal("1.00")),
        (Decimal(100), Decimal("1E2")),
        (Decimal("0.0"), Decimal("-0")),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (("ab", "ab"), ("ab", "abc"[:2])),
    ],
)
def test_equal_keys_have_equal_bytes(left: object, right: object) -> None:
    assert encode_key(left) == encode_key(right)
    assert cache_key(left) == cache_key(right)
    assert type(cache_key(left)) is type(cache_key(right))


def test_a_row_of_another_kind_is_the_same_key() -> None:
    row = Row(1, 2)
    row.set_row_kind(RowKind.DELETE)
    assert encode_key(row) == encode_key(Row(1, 2))


def test_bytes_of_no_key_are_refused() -> None:
    with pytest.raises(StateError, match="not an encoded key"):
        decode_key(b"?x")


#: Written down once: another result means that old checkpoints cannot be read any more.
FIXED = [
    (1, 44),
    (-5, 23),
    (10**30, 99),
    ("JFK", 99),
    (("a", 1), 38),
    (None, 82),
    (1.5, 111),
    (True, 96),
]


def test_key_groups_never_change() -> None:
    assert [(key, key_group(key, 128)) for key, _ in FIXED] == FIXED


def test_key_groups_are_the_same_in_another_process() -> None:
    program = (
        "from millstream.state.key_codec import key_group\n"
        "print([key_group(k, 128) for k in ('JFK', ('a', 1), frozenset('abc'), 1.5, 7)])"
    )
    runs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(runs) == 1


@given(
    st.one_of(
        st.lists(st.integers(-(2**63), 2**63 - 1)).map(lambda v: pa.array(v, pa.int64())),
        st.lists(st.one_of(st.none(), st.integers(-128, 127))).map(
            lambda v: pa.array(v, pa.int8())
        ),
        st.lists(st.integers(0, 2**64 - 1)).map(lambda v: pa.array(v, pa.uint64())),
        st.lists(st.one_of(st.none(), st.text())).map(lambda v: pa.array(v, pa.string())),
        st.lists(st.one_of(st.none(), st.text())).map(
            lambda v: pa.array(v, pa.string()).dictionary_encode()
        ),
        st.lists(st.floats()).map(lambda v: pa.array(v, pa.float64())),
        st.lists(st.one_of(st.none(), st.booleans())).map(lambda v: pa.array(v, pa.bool_())),
        st.lists(st.dates()).map(lambda v: pa.array(v, pa.date32())),
        st.lists(st.lists(st.integers(0, 9))).map(lambda v: pa.array(v, pa.list_(pa.int64()))),
    ),
    st.sampled_from([1, 7, 128, 32768]),
)
def test_agree_columns_and_single_keys(keys: pa.Array, most: int) -> None:
    expected = [key_group(key, most) for key in keys.to_pylist()]
    assert key_groups_of_array(keys, most).tolist() == expected
    assert key_groups_of_array(pa.chunked_array([keys, keys]), most).tolist() == expected * 2
    assert key_groups_of_array(keys[1:], most).tolist() == expected[1:]


@pytest.mark.parametrize("most", [1, 5, 128, 200])
def test_ranges_agree_with_subtasks(most: int) -> None:
    for parallelism in range(1, min(most, 20) + 1):
        owners = [
            subtask
            for subtask in range(parallelism)
            for _ in range(*key_group_range(subtask, most, parallelism))
        ]
        assert owners == [subtask_of(group, most, parallelism) for group in range(most)]


@pytest.mark.parametrize("make", [int, lambda i: f"key-{i}", lambda i: (i, "x")])
def test_keys_are_spread_evenly(make: Callable[[int], object]) -> None:
    counts = np.bincount([key_group(make(i), 128) for i in range(12_800)], minlength=128)
    assert counts.min() > 50
    assert counts.max() < 160
