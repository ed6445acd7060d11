"""Reads expressions of SQL for tests of functions: as much of the language as they need.

What it is: ``bind``, from a text to a bound expression, and ``evaluate``, to the text of its value.

What it is not: the parser and the binder (``millstream.sql``): these tests hold without them.
"""

from __future__ import annotations

import re
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.expressions import json_calls
from millstream.expressions.context import EvaluationContext
from millstream.expressions.evaluator import compile_expression
from millstream.expressions.nodes import Expression, InputReference, Literal
from millstream.expressions.resolution import resolve_call, resolve_cast
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DateType,
    DayTimeIntervalType,
    DecimalType,
    DoubleType,
    FloatType,
    IntType,
    LocalZonedTimestampType,
    LogicalType,
    MapType,
    NullType,
    SmallIntType,
    SymbolType,
    TimestampType,
    TimeType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
    YearMonthIntervalType,
)
from millstream.types.value_texts import days_of_civil
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["NOW", "bind", "evaluate", "value_and_type"]

#: 2026-01-31 13:05:00.250 UTC.
NOW: Final = 1_769_864_700_250
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<bytes>[xX]'[0-9a-fA-F]*')|(?P<string>'(?:[^']|'')*')"
    r"|(?P<double>\d+(?:\.\d*)?[eE][+-]?\d+)|(?P<decimal>\d+\.\d*)|(?P<integer>\d+)"
    r"|(?P<word>[A-Za-z_][\w$]*)|(?P<mark>\|\||<>|<=|>=|[-+*/%=<>(),.\[\]]))"
)
_UNITS: Final = re.compile(
    "MILLENNIUM|CENTURY|DECADE|YEAR|QUARTER|MONTH|WEEK|DAY|DOY|DOW|ISODOW|ISOYEAR|HOUR|MINUTE"
    "|SECOND|MILLISECOND|MICROSECOND|NANOSECOND|EPOCH|BOTH|LEADING|TRAILING"
)
_NILADIC: Final = frozenset(
    ["CURRENT_DATE", "CURRENT_TIME", "CURRENT_TIMESTAMP", "LOCALTIME", "LOCALTIMESTAMP"]
)
_JSON: Final = frozenset(["JSON_EXISTS", "JSON_VALUE", "JSON_QUERY", "JSON_OBJECT", "JSON_ARRAY"])
_NANOS: Final = 1_000_000_000


class _Reader:
    def __init__(self, text: str, columns: dict[str, InputReference]) -> None:
        self.text = text
        self.columns = columns
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            assert match is not None, f"cannot read {text[at:]!r}"
            assert match.lastgroup is not None
            self.tokens.append((match.lastgroup, match[match.lastgroup]))
            at = match.end()
        self.at = 0

    # -- tokens

    def peek(self, ahead: int = 0) -> str:
        found = self.tokens[self.at + ahead : self.at + ahead + 1]
        return found[0][1].upper() if found and found[0][0] in {"word", "mark"} else ""

    def accept(self, *words: str) -> bool:
        if [self.peek(at) for at in range(len(words))] != list(words):
            return False
        self.at += len(words)
        return True

    def expect(self, *words: str) -> None:
        assert self.accept(*words), f"{words} expected in {self.text!r} at {self.at}"

    # -- expressions

    def expression(self) -> Expression:
        left = self.sum()
        while True:
            if self.accept("IS", "NOT", "JSON") or self.accept("IS", "JSON"):
                negated = self.tokens[self.at - 2][1].upper() == "NOT"
                kind = next((k for k in ("OBJECT", "ARRAY", "SCALAR") if self.accept(k)), "")
                self.accept("VALUE")
                left = resolve_call(f"IS {'NOT ' if negated else ''}JSON {kind}".strip(), left)
            elif self.accept("IS", "NULL"):
                left = resolve_call("IS NULL", left)
            elif self.peek() in {"=", "<>", "<", "<=", ">", ">="}:
                operator = self.peek()
                self.at += 1
                left = resolve_call(operator, left, self.sum())
            else:
                return left

    def sum(self) -> Expression:
        left = self.postfix()
        while self.peek() in {"||", "+"}:
            operator = self.peek()
            self.at += 1
            left = resolve_call(operator, left, self.postfix())
        return left

    def postfix(self) -> Expression:
        found = self.primary()
        while self.accept("["):
            found = resolve_call("AT", found, self.expression())
            self.expect("]")
        return found

    def primary(self) -> Expression:
        kind, text = self.tokens[self.at]
        word = text.upper()
        if kind == "mark":
            return self.after_mark(word)
        self.at += 1
        if kind == "word":
            return self.after_word(word, text)
        return _literal(kind, text)

    def after_mark(self, mark: str) -> Expression:
        self.at += 1
        if mark == "-":
            found = self.primary()
            assert isinstance(found, Literal)
            assert isinstance(found.value, int | float | Decimal)
            return Literal(-found.value, found.type)
        assert mark == "(", self.text
        parts = self.listed(")")
        if self.accept("OVERLAPS"):
            self.expect("(")
            return resolve_call("OVERLAPS", *parts, *self.listed(")"))
        return parts[0] if len(parts) == 1 else resolve_call("ROW", *parts)

    def after_word(self, word: str, text: str) -> Expression:  # noqa: PLR0911 - a table
        if word in {"TRUE", "FALSE"}:
            return Literal(word == "TRUE", BooleanType(nullable=False))
        if word == "NULL":
            return Literal(None, NullType())
        if word in {"DATE", "TIME", "TIMESTAMP", "INTERVAL"} and self.is_string():
            return self.temporal(word)
        if word in {"ARRAY", "MAP"} and self.accept("["):
            return resolve_call(word, *self.listed("]"))
        if word in {"CAST", "TRY_CAST"}:
            return self.cast(can_fail=word == "CAST")
        if word in _JSON and self.accept("("):
            return self.json(word)
        if self.accept("("):
            return self.call(word)
        if word in _NILADIC:
            return resolve_call(word)
        if _UNITS.fullmatch(word):
            return Literal(word, SymbolType(nullable=False))
        return self.columns[text]

    def call(self, name: str) -> Expression:
        if name == "JSON_STRING":
            return json_calls.json_string(self.listed(")")[0])
        return resolve_call(name, *self.listed(")", "FROM", "FOR", "TO", "IN", "PLACING"))

    def listed(self, end: str, *separators: str) -> list[Expression]:
        parts: list[Expression] = []
        while not self.accept(end):
            parts.append(self.expression())
            # TRIM(BOTH 'a' FROM 'b') has nothing between its first two.
            if not any(self.accept(mark) for mark in (",", *separators)) and self.peek() != end:
                assert parts[-1].type == SymbolType(nullable=False), self.text
        return parts

    def is_string(self) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at][0] == "string"

    def string(self) -> str:
        self.at += 1
        return self.tokens[self.at - 1][1][1:-1].replace("''", "'")

    def temporal(self, word: str) -> Expression:
        text = self.string()
        if word == "INTERVAL":
            return self.interval(text)
        if word == "DATE":
            return Literal(_days(text), DateType(nullable=False))
        digits = len(text.partition(".")[2])
        if word == "TIME":
            return Literal(_of_day(text), TimeType(digits, nullable=False))
        date, _, time = text.partition(" ")
        nanos = _days(date) * 86_400 * _NANOS + _of_day(time)
        return Literal(nanos, TimestampType(digits, nullable=False))

    def interval(self, text: str) -> Expression:
        unit = self.peek()
        self.at += 1
        end = unit
        if self.accept("TO"):
            end = self.peek()
            self.at += 1
        if self.accept("("):
            self.listed(")")
        if unit in {"YEAR", "MONTH"}:
            years, _, months = text.partition("-") if end != unit else ("0", "", text)
            value = (
                int(years) * 12 + int(months) if unit != "YEAR" or end != unit else (int(text) * 12)
            )
            return Literal(value, YearMonthIntervalType(nullable=False))
        if end != unit:
            days, _, time = text.partition(" ")
            millis = int(days) * 86_400_000 + _of_day(time) // 1_000_000
        else:
            each = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000}
            millis = int(text) * each[unit]
        return Literal(millis, DayTimeIntervalType(nullable=False))

    def cast(self, *, can_fail: bool) -> Expression:
        self.expect("(")
        operand = self.expression()
        self.expect("AS")
        target = self.type()
        self.expect(")")
        return resolve_cast(operand, target, can_fail=can_fail)

    def type(self) -> LogicalType:
        name = self.peek()
        self.at += 1
        if name == "ARRAY":
            self.expect("<")
            element = self.type()
            self.expect(">")
            return ArrayType(element)
        if name == "MAP":
            self.expect("<")
            key = self.type()
            self.expect(",")
            value = self.type()
            self.expect(">")
            return MapType(key, value)
        arguments: list[int] = []
        if self.accept("("):
            arguments = [int(str(part.value)) for part in self.listed(")")]  # type: ignore[union-attr]
        plain: dict[str, LogicalType] = {
            "STRING": VarCharType(),
            "INT": IntType(),
            "INTEGER": IntType(),
            "BIGINT": BigIntType(),
            "TINYINT": TinyIntType(),
            "SMALLINT": SmallIntType(),
            "DOUBLE": DoubleType(),
            "FLOAT": FloatType(),
            "BOOLEAN": BooleanType(),
            "BYTES": VarBinaryType(),
            "DATE": DateType(),
        }
        if name in plain:
            return plain[name]
        makers: dict[str, Callable[..., LogicalType]] = {
            "DECIMAL": DecimalType,
            "CHAR": CharType,
            "VARCHAR": VarCharType,
            "TIMESTAMP": TimestampType,
            "TIMESTAMP_LTZ": LocalZonedTimestampType,
        }
        return makers[name](*arguments)

    # -- JSON

    def json(self, name: str) -> Expression:
        if name in {"JSON_OBJECT", "JSON_ARRAY"}:
            return self.json_construction(name)
        operand = self.expression()
        self.expect(",")
        path = self.expression()
        options: dict[str, object] = {}
        if self.accept("RETURNING"):
            options["returning"] = self.type()
        while not self.accept(")"):
            self.json_clause(options)
        if name == "JSON_EXISTS":
            return json_calls.json_exists(operand, path, str(options.get("on_error", "FALSE")))
        call = json_calls.json_value if name == "JSON_VALUE" else json_calls.json_query
        return call(operand, path, **options)  # type: ignore[arg-type]

    def json_clause(self, options: dict[str, object]) -> None:
        if self.accept("WITHOUT"):
            options["wrapper"] = "WITHOUT"
        elif self.accept("WITH"):
            options["wrapper"] = self.peek()
            self.at += 1
        else:
            default = None
            behaviour = self.peek()
            self.at += 1
            if behaviour == "DEFAULT":
                default = self.primary()
            elif behaviour == "EMPTY":
                behaviour = f"EMPTY {self.peek()}"
                self.at += 1
            self.expect("ON")
            event = self.peek()
            self.at += 1
            options[f"on_{event.lower()}"] = behaviour
            if default is not None:
                options[f"default_on_{event.lower()}"] = default
            return
        self.accept("ARRAY")
        self.expect("WRAPPER")

    def json_construction(self, name: str) -> Expression:
        values: list[Expression] = []
        on_null = "NULL" if name == "JSON_OBJECT" else "ABSENT"
        while not self.accept(")"):
            if self.accept("NULL", "ON", "NULL"):
                on_null = "NULL"
            elif self.accept("ABSENT", "ON", "NULL"):
                on_null = "ABSENT"
            else:
                self.accept("KEY")
                values.append(self.expression())
                _ = self.accept("VALUE") or self.accept(",")
        if name == "JSON_ARRAY":
            return json_calls.json_array(values, on_null)
        return json_calls.json_object(list(zip(values[::2], values[1::2], strict=True)), on_null)


def _literal(kind: str, text: str) -> Literal:
    if kind == "string":
        value = text[1:-1].replace("''", "'")
        type_ = CharType(len(value)) if value else VarCharType()
        return Literal(value, type_.not_null)
    if kind == "bytes":
        data = bytes.fromhex(text[2:-1])
        return Literal(data, BinaryType(len(data)).not_null)
    if kind == "double":
        return Literal(float(text), DoubleType(nullable=False))
    if kind == "decimal":
        digits = len(text.replace(".", "").lstrip("0")) or 1
        scale = len(text.partition(".")[2])
        return Literal(Decimal(text), DecimalType(max(digits, scale), scale).not_null)
    value_ = int(text)
    type_of = IntType if value_ < 2**31 else BigIntType
    return Literal(value_, type_of(nullable=False))


def _days(text: str) -> int:
    year, month, day = map(int, text.split("-"))
    return days_of_civil(year, month, day)


def _of_day(text: str) -> int:
    clock, _, fraction = text.partition(".")
    hour, minute, second = map(int, clock.split(":"))
    return ((hour * 60 + minute) * 60 + second) * _NANOS + int(fraction.ljust(9, "0"))


def bind(text: str, columns: dict[str, InputReference] | None = None) -> Expression:
    """The bound expression of a text."""
    reader = _Reader(text, columns or {})
    found = reader.expression()
    assert reader.at == len(reader.tokens), f"cannot read all of {text!r}"
    return found


def value_and_type(text: str, zone: str = "UTC") -> tuple[object, LogicalType]:
    """The value of an expression without columns, as functions see it, and its type."""
    expression = bind(text)
    context = EvaluationContext(time_zone=zone, processing_time=NOW)
    batch = pa.record_batch({"n": pa.array([0])})
    column = compile_expression(expression).evaluate(batch, context)
    return values_of_column(column, expression.type)[0], expression.type


def evaluate(text: str, zone: str = "UTC") -> str:
    """The value of an expression without columns, as CAST to STRING writes it."""
    expression = bind(text)
    if not isinstance(expression.type, VarCharType | CharType):
        expression = resolve_cast(expression, VarCharType())
    context = EvaluationContext(time_zone=zone, processing_time=NOW)
    batch = pa.record_batch({"n": pa.array([0])})
    column = compile_expression(expression).evaluate(batch, context)
    found = column[0].as_py()
    return "NULL" if found is None else str(found)
