"""Pure field accessors are recognised, everything else is not."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from millstream.types.field_access import column_of, field_of
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

OUTSIDE = 1


def named(record: Any) -> Any:
    """With a docstring."""
    return record.origin


class Selector:
    def get_key(self, value: Any) -> Any:
        return value["key"]

    def of_self(self, value: Any) -> Any:
        return self.other

    @staticmethod
    def static(value: Any) -> Any:
        return value.x

    other = 1


def closure(index: int) -> Callable[[Any], Any]:
    return lambda r: r[index]


@pytest.mark.parametrize(
    ("function", "field"),
    [
        (lambda r: r.origin, "origin"),
        (lambda r, _t: r.origin, "origin"),
        (lambda r: r["origin"], "origin"),
        (lambda r: r[1], 1),
        (lambda r: r[0], 0),
        (lambda r: r[-1], -1),
        (lambda r: r[1000], 1000),
        (named, "origin"),
        (Selector().get_key, "key"),
        (Selector.static, "x"),
        (operator.attrgetter("origin"), "origin"),
        (operator.itemgetter(2), 2),
        (operator.itemgetter("k"), "k"),
    ],
)
def test_accessors(function: Callable[..., object], field: str | int) -> None:
    assert field_of(function) == field


@pytest.mark.parametrize(
    "function",
    [
        lambda r: r,
        lambda r: r.a.b,
        lambda r: r.a + 1,
        lambda r: r[0][1],
        lambda r: r[True],
        lambda r: r[OUTSIDE],
        lambda r: r[0:1],
        lambda r: r[1.0],
        lambda r: -r[1],
        lambda _r, t: t.a,
        lambda r: r.a(),
        lambda r: (yield r.a),
        lambda r: r.a if r.b else None,
        lambda: 1,
        lambda *r: r[0],
        closure(1),
        Selector().of_self,
        operator.attrgetter("a.b"),
        operator.attrgetter("a", "b"),
        operator.itemgetter(0, 1),
        len,
        str,
        Selector(),
    ],
)
def test_everything_else(function: Callable[..., object]) -> None:
    assert field_of(function) is None


class Pair(NamedTuple):
    a: int
    b: int


@dataclass
class Record:
    a: int
    b: int


def test_columns() -> None:
    row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LONG()])
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    record = Types.DATACLASS(Record)
    assert [column_of(row, f) for f in ("b", "c", 0, -1, 2, -3, None)] == [
        1,
        None,
        0,
        1,
        *[None] * 3,
    ]
    assert [column_of(pair, f) for f in ("f0", 1, -2, 2)] == [None, 1, 0, None]
    assert [column_of(record, f) for f in ("a", "c", 0)] == [0, None, None]
    assert [column_of(Types.NAMED_TUPLE(Pair), f) for f in ("b", 1, -2, "c", 2)] == [
        *(1, 1, 0),
        *[None] * 2,
    ]
    assert column_of(Types.STRING(), 0) is None
    assert column_of(Types.PICKLED_BYTE_ARRAY(), "a") is None
