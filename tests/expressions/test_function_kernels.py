"""Kernels of the string, temporal and collection functions agree with their references."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.expressions.rows import values_of
from tests.expressions.test_kernels import ZONES, check, lit, resolved

from millstream.expressions.functions.registry import function_groups
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    DateType,
    DecimalType,
    DoubleType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    RowType,
    SmallIntType,
    SymbolType,
    TimestampType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    import random

    from millstream.expressions.nodes import Call, Literal

STRING = VarCharType()
BYTES = VarBinaryType()
INT = IntType()
TIMES: list[LogicalType] = [
    DateType(),
    TimestampType(0),
    TimestampType(6),
    TimestampType(9),
    LocalZonedTimestampType(3),
    LocalZonedTimestampType(9),
]
UNITS = "YEAR QUARTER MONTH WEEK DAY DOY DOW ISODOW ISOYEAR HOUR MINUTE SECOND MILLISECOND"
PARTS = "YEAR QUARTER MONTH WEEK DAYOFYEAR DAYOFMONTH DAYOFWEEK HOUR MINUTE SECOND"
PATTERNS = ["yyyy-MM-dd", "yyyy-MM-dd HH:mm:ss", "HH:mm", "dd/MM/yyyy"]


def text(value: str) -> Literal:
    return lit(value, STRING)


def number(value: int) -> Literal:
    return lit(value, INT)


def string_calls() -> list[tuple[str, tuple[LogicalType | Literal, ...]]]:
    found: list[tuple[str, tuple[LogicalType | Literal, ...]]] = []
    for position in (0, 1, 2, 5, -1, -3, -40, 2**31 - 1, -(2**31)):
        found.append(("SUBSTRING", (STRING, number(position))))
        found += [
            ("SUBSTRING", (STRING, number(position), number(length)))
            for length in (0, 1, 3, 2**31 - 1, -1)
        ]
        found += [(name, (STRING, number(position))) for name in ("LEFT", "RIGHT")]
    for name in ("LTRIM", "RTRIM", "BTRIM"):
        found += [(name, (STRING,))] + [(name, (STRING, text(cut))) for cut in (" ", "a€b ", "")]
    for name in ("UPPER", "LOWER", "REVERSE", "CHAR_LENGTH"):
        found.append((name, (STRING,)))
    for wanted in ("a", "aA", "", "€", "b"):
        found.append(("REPLACE", (STRING, text(wanted), text("x€"))))
        found.append(("POSITION", (text(wanted), STRING)))
        found += [(name, (STRING, text(wanted))) for name in ("STARTSWITH", "ENDSWITH", "INSTR")]
        found += [("SPLIT_INDEX", (STRING, text(wanted), number(at))) for at in (0, 1, 2, -1)]
    found += [("STARTSWITH", (BYTES, lit(b"\xff", BYTES))), ("||", (BYTES, BYTES))]
    found += [("||", (STRING, STRING)), ("||", (STRING, text("x"))), ("||", (text("x"), STRING))]
    found += [("CONCAT", (STRING, STRING, text("-"), STRING)), ("CONCAT", (STRING,))]
    found += [
        ("CONCAT_WS", (text(", "), STRING, STRING, text("x"))),
        ("CONCAT_WS", (STRING, STRING, STRING)),
        ("CONCAT_WS", (lit(None, STRING), STRING)),
    ]
    return found


def temporal_calls() -> list[tuple[str, tuple[LogicalType | Literal, ...]]]:
    unit = SymbolType(nullable=False)
    found: list[tuple[str, tuple[LogicalType | Literal, ...]]] = []
    for type_ in TIMES:
        found += [("EXTRACT", (lit(word, unit), type_)) for word in UNITS.split()]
        found += [(name, (type_,)) for name in PARTS.split()]
        found += [("DATE_FORMAT", (type_, text(pattern))) for pattern in PATTERNS]
    name = "TO_TIMESTAMP_LTZ"
    for kind in (INT, BigIntType(), SmallIntType(), DoubleType(), DecimalType(12, 2)):
        found += [(name, (kind,)), *((name, (kind, number(digits))) for digits in (0, 1, 3))]
    return [*found, (name, (INT, lit(None, INT))), (name, (INT, number(6)))]


def other_calls() -> list[tuple[str, tuple[LogicalType | Literal, ...]]]:
    row = RowType.of(a=IntType(nullable=False), b=STRING)
    return [
        ("CARDINALITY", (ArrayType(INT),)),
        ("ROW", (INT, STRING)),
        ("ROW", (INT, text("x"))),
        ("OBJECT_OF", (text("app.User"), text("a"), INT, text("b"), text("x"))),
        ("GET", (row, number(0))),
        ("GET", (row, text("b"))),
        *(("HASH_CODE", (kind,)) for kind in (INT, BigIntType(), SmallIntType(), STRING)),
    ]


def calls(of: list[tuple[str, tuple[LogicalType | Literal, ...]]]) -> list[Call]:
    return [call for name, types in of if (call := resolved(name, *types)) is not None]


GROUPS = {
    "string": calls(string_calls()),
    "temporal": calls(temporal_calls()),
    "other": calls(other_calls()),
}


@pytest.mark.parametrize("group", GROUPS)
def test_agree_kernel_and_reference(group: str) -> None:
    for seed, call in enumerate(GROUPS[group]):
        check(call, seed, ZONES[seed % len(ZONES)])


def _plain(kind: LogicalType, count: int, chance: random.Random) -> list[Any]:
    """Kernels leave it to the references if a single text is not of ASCII."""
    if isinstance(kind, VarCharType):
        return [chance.choice([None, "", "a", "ab", "Aa a"]) for _ in range(count)]
    return values_of(kind, count, chance)


def _nulls(kind: LogicalType, count: int, chance: random.Random) -> list[Any]:
    return [None] * count if kind.is_nullable else values_of(kind, count, chance)


@pytest.mark.parametrize("group", GROUPS)
def test_agree_on_plain_texts_on_nulls_and_on_nothing(group: str) -> None:
    for seed, call in enumerate(GROUPS[group]):
        for rows, count in ((_plain, 20), (_nulls, 2), (values_of, 0)):
            check(call, seed, ZONES[0], rows, count)


@pytest.mark.soak
@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("seed", range(1, 20))
def test_agree_kernel_and_reference_on_many_rows(group: str, seed: int) -> None:
    for at, call in enumerate(GROUPS[group]):
        check(call, seed * 1000 + at, ZONES[(seed + at) % len(ZONES)])


def test_every_kernel_is_tried() -> None:
    tried = {call.function for group in GROUPS.values() for call in group}
    clocks = {"CURRENT_DATE", "LOCALTIME", "LOCALTIMESTAMP", "CURRENT_TIMESTAMP", "PROCTIME"}
    clocks |= {"CURRENT_ROW_TIMESTAMP", "CURRENT_WATERMARK", "LOCATE"}
    ours = {"string", "temporal", "collection", "json", "value construction", "hash"}
    kernels = {
        definition.name
        for group in function_groups()
        if group.name in ours
        for definition in group.definitions
        if definition.kernel is not None
    }
    assert kernels - clocks == tried
