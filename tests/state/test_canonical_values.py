"""Columns give back exactly the Python values that fit them, and nothing else fits."""

from __future__ import annotations

import random
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.state.canonical.value_form import ColumnCodec, ValueForm, form_of, infer_form
from millstream.state.serializers import dumps
from millstream.types.row import Row, RowKind

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Place:
    name: str


FITTING: dict[str, list[Any]] = {
    "bool": [True, False, None],
    "int": [0, -(2**63), 2**63 - 1, None],
    "float": [0.0, -0.0, 1e300, float("inf"), float("nan")],
    "str": ["", "ä\u20ac\U0001f600", "\0"],
    "bytes": [b"", b"\0\xff"],
    "datetime": [datetime(1, 1, 1), datetime(9999, 12, 31, 23, 59, 59, 999999)],  # noqa: DTZ001
    "datetime utc": [datetime(2026, 3, 1, 2, 3, 4, 5, tzinfo=UTC)],
    "date": [date(1, 1, 1), date(2026, 2, 28)],
    "time": [time(0, 0), time(23, 59, 59, 999999)],
    "timedelta": [timedelta(days=-3, microseconds=1), timedelta(0)],
    "decimal(38, 2)": [Decimal("0.00"), Decimal("-123.45"), Decimal("1" * 30 + ".10")],
    "list[int]": [[], [1, None, 2], None],
    "list[list[str]]": [[["a"], []], []],
    "map[str, float]": [{"a": 1.0, "b": None}, {}],
    "map[int, tuple[int, str]]": [{3: (1, "x"), 1: (2, None)}],
    "tuple[int, str, list[bool]]": [(1, "a", [True]), (None, None, None), (2, "b", [])],
    "row(name: str, number: int)": [
        Row("name", "number")("a", 1),
        Row("name", "number")(None, None),
    ],
    "row(f0: int, f1: row(x: date))": [Row(1, Row(x=date(2026, 1, 1))), Row(None, None)],
}


@pytest.mark.parametrize("shown", FITTING)
def test_what_fits_comes_back(shown: str) -> None:
    values = FITTING[shown]
    form = infer_form(values)
    assert str(form) == shown
    assert ValueForm.from_json(form.to_json()) == form
    codec = ColumnCodec(form)
    assert all(each is None or codec.fits(each) for each in values)
    found = codec.values(codec.array(values))
    assert list(map(dumps, found)) == list(map(dumps, values))


NOT_FITTING: dict[str, tuple[Any, Any]] = {
    "a truth value among integers": (1, True),
    "an integer among floats": (1.0, 1),
    "a large integer": (1, 2**63),
    "a NumPy integer": (1, np.int64(1)),
    "half a surrogate pair": ("a", "\ud800"),
    "a bytearray": (b"a", bytearray(b"a")),
    "another time zone": (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, tzinfo=timezone(timedelta(0), "other")),
    ),
    "the second of two equal hours": (datetime(2026, 1, 1), datetime(2026, 1, 1, fold=1)),  # noqa: DTZ001
    "a moment among dates": (date(2026, 1, 1), datetime(2026, 1, 1)),  # noqa: DTZ001
    "another scale": (Decimal("1.00"), Decimal("1.0")),
    "a negative zero": (Decimal("1.00"), Decimal("-0.00")),
    "not a number": (Decimal("1.00"), Decimal("NaN")),
    "39 digits": (Decimal("1.00"), Decimal("1" * 37 + ".11")),
    "an element of another type": ([1], ["a"]),
    "a tuple among lists": ([1], (1,)),
    "a missing map key": ({"a": 1}, {None: 1}),
    "another length": ((1, 2), (1, 2, 3)),
    "another field": (Row(a=1), Row(b=1)),
    "a retraction": (Row(a=1), Row.of_kind(RowKind.DELETE, a=1)),
    "an instance of a class": (1, Place("x")),
    "a set": ([1], {1}),
    "a time beyond 64 bits of microseconds": (timedelta(1), timedelta.max),
    "a time before them": (timedelta(1), timedelta.min),
}


@pytest.mark.parametrize("what", NOT_FITTING)
def test_what_would_come_back_as_something_else_does_not_fit(what: str) -> None:
    like, other = NOT_FITTING[what]
    assert not ColumnCodec(form_of(like)).fits(other)
    assert infer_form([like, like, other]) == form_of(like)


def test_a_column_is_not_made_for_a_few_of_many_types() -> None:
    assert not infer_form([1, "a", 2.0]).is_known
    assert not infer_form([Place("a"), Place("b"), 1]).is_known
    assert not infer_form([None, None]).is_known
    assert not infer_form([[], [None]]).is_known
    assert not infer_form([()]).is_known


def _value(chance: random.Random, depth: int) -> Any:
    """Any plain value."""
    plain: list[Callable[[], Any]] = [
        lambda: chance.choice([None, True, False]),
        lambda: chance.randrange(-(2**65), 2**65) >> chance.randrange(66),
        lambda: chance.uniform(-1e9, 1e9),
        lambda: "".join(chance.choice("aä\u20ac\ud800") for _ in range(chance.randrange(3))),
        lambda: chance.randbytes(chance.randrange(3)),
        lambda: Decimal(chance.randrange(-999, 999)).scaleb(-chance.randrange(3)),
        lambda: date.fromordinal(chance.randrange(1, 3_000_000)),
        lambda: Place("x"),
    ]
    if depth:
        several = [_value(chance, depth - 1) for _ in range(chance.randrange(3))]
        plain += [
            lambda: several,
            lambda: tuple(several),
            lambda: Row(*several),
            lambda: {chance.choice("abc"): each for each in several},
        ]
    return chance.choice(plain)()


@pytest.mark.parametrize("seed", range(20))
def test_whatever_fits_comes_back_from_any_values(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(100):
        values = [_value(chance, 2) for _ in range(chance.randrange(1, 6))]
        form = infer_form(values)
        if not form.is_known:
            continue
        codec = ColumnCodec(form)
        held = [each for each in values if each is None or codec.fits(each)]
        column = codec.array(held)
        assert column is not None
        assert list(map(dumps, codec.values(column))) == list(map(dumps, held)), form
        assert (codec.array(values) is None) == (len(held) < len(values))
        for at in range(len(held) + 1):  # a batch is a slice of what Parquet gives
            assert list(map(dumps, codec.values(column[at:]))) == list(map(dumps, held[at:])), form
