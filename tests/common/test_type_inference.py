"""Types of functions, by their annotations."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, NamedTuple, NewType, Optional

import pytest

from millstream.types.types import TypeInformation, Types, infer_return_type, infer_type

Name = NewType("Name", str)


@dataclass
class Inner:
    x: int


@dataclass
class Outer:
    inner: Inner | None
    names: list[str]
    anything: object
    me: Outer | None = None


@dataclass
class Base:
    a: int


@dataclass
class Derived(Base):
    b: int


class Pair(NamedTuple):
    a: int
    b: int


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        (int, Types.LONG()),
        (str, Types.STRING()),
        (Name, Types.STRING()),
        (float, Types.DOUBLE()),
        (bool, Types.BOOLEAN()),
        (bytes, Types.PRIMITIVE_ARRAY(Types.BYTE())),
        (dt.datetime, Types.SQL_TIMESTAMP()),
        (dt.date, Types.SQL_DATE()),
        (dt.time, Types.SQL_TIME()),
        (Decimal, Types.BIG_DEC()),
        (int | None, Types.LONG()),
        (Optional[str], Types.STRING()),  # noqa: UP045 - the older form is used as well
        (tuple[int, str], Types.TUPLE([Types.LONG(), Types.STRING()])),
        (tuple[int, Any], Types.TUPLE([Types.LONG(), Types.PICKLED_BYTE_ARRAY()])),
        (list[list[int]], Types.LIST(Types.LIST(Types.LONG()))),
        (dict[str, float], Types.MAP(Types.STRING(), Types.DOUBLE())),
        (Inner, Types.DATACLASS(Inner)),
        (list[Inner], Types.LIST(Types.DATACLASS(Inner))),
    ],
)
def test_annotations_with_a_type(annotation: object, expected: TypeInformation) -> None:
    assert infer_type(annotation) == expected


@pytest.mark.parametrize(
    "annotation",
    [
        *(Any, object, None, list, dict, tuple, tuple[int, ...], tuple[()], set[int]),
        *(int | str, list[Any], dict[str, Any], Pair, Base, Callable[[], int], complex, "int"),
    ],
)
def test_annotations_without_a_type(annotation: object) -> None:
    assert infer_type(annotation) is None


def test_dataclass_fields() -> None:
    info = Types.DATACLASS(Outer)
    assert [str(kind) for kind in info.get_field_types()] == [
        "DataclassTypeInfo<Inner>(x: Long)",
        "ListTypeInfo<String>",
        "PickledByteArrayTypeInfo",
        "PickledByteArrayTypeInfo",
    ]
    values = [Outer(Inner(1), ["a"], {1}, Outer(None, [], 2)), Outer(None, [], None)]
    assert info.from_arrow(info.to_arrow(values)) == values


def to_text(value: int) -> str:
    return str(value)


def words(line: str) -> Iterator[tuple[str, int]]:
    yield line, 1


def numbers() -> Generator[int, None, None]:
    yield 1


def optional_words() -> list[str] | None:
    return None


def iterable() -> Iterable[Inner]:
    return []


def optional_record() -> tuple[int, int] | None:
    return None


def unresolvable() -> Missing:  # type: ignore[name-defined]  # noqa: F821
    return None


def plain(value):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201
    return value


class Mapper:
    def map(self, value: str) -> int:
        return len(value)

    def __call__(self, value: str) -> float:
        return 0.0


def test_functions() -> None:
    assert infer_return_type(to_text) == Types.STRING()
    assert infer_return_type(functools.partial(to_text, 1)) == Types.STRING()
    assert infer_return_type(Mapper().map) == Types.LONG()
    assert infer_return_type(Mapper()) == Types.DOUBLE()
    assert infer_return_type(str) == Types.STRING()
    for function in (lambda x: x, plain, unresolvable, len, optional_record, words):
        assert infer_return_type(function) is None


def test_functions_that_give_many_values() -> None:
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])
    assert infer_return_type(words, unwrap=True) == pair
    assert infer_return_type(numbers, unwrap=True) == Types.LONG()
    assert infer_return_type(optional_words, unwrap=True) == Types.STRING()
    assert infer_return_type(iterable, unwrap=True) == Types.DATACLASS(Inner)
    assert infer_return_type(to_text, unwrap=True) is None
    assert infer_return_type(plain, unwrap=True) is None
