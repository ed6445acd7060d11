"""JSON text to values and back as Jackson does, and Jayway's JsonPath, as Flink uses them.

Numbers with a point are Decimals, so that their digits stay.  A path is a chain of steps; a step
that may find several values (``*``, ``..``, slices, several indexes, filters) makes it
**indefinite** and its result a list.  A definite path that finds nothing raises ``PathError``.
"""

from __future__ import annotations

import base64
import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeAlias

from millstream.expressions.java.strings import from_units
from millstream.types.bitmaps import VariantType
from millstream.types.logical_types import (
    ArrayType,
    LocalZonedTimestampType,
    MapType,
    RowType,
    TimestampType,
)
from millstream.types.text_values import double_text, json_text, timestamp_text
from millstream.types.type_roots import TypeFamily, TypeRoot
from millstream.types.variants import variant_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.types.logical_types import LogicalType


_BLANKS: Final = re.compile(r"[ \t\r\n]*")


def refuse_constant(name: str) -> NoReturn:
    """Refuse NaN and the like, which are Python's alone.

    Raises:
        ValueError: always.
    """
    message = f"no JSON: {name}"
    raise ValueError(message)


_DECODER: Final = json.JSONDecoder(parse_float=Decimal, parse_constant=refuse_constant)


def parse(text: str, decoder: json.JSONDecoder = _DECODER) -> Any:
    """The first value of a JSON text.

    Raises:
        ValueError: there is none.
    """
    match = _BLANKS.match(text)
    start = match.end() if match is not None else 0
    try:
        value, end = decoder.raw_decode(text, start)
    except RecursionError as error:
        message = "JSON is nested too deeply"
        raise ValueError(message) from error
    behind = text[end : end + 1]
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        if behind and behind not in " \t\r\n":
            message = f"no JSON: {text[start : end + 1]!r}"
            raise ValueError(message)
    elif not isinstance(value, str | list | dict) and (behind.isalnum() or behind in {"_", "$"}):
        message = f"no JSON: {text[start : end + 1]!r}"
        raise ValueError(message)
    return value


class JsonText:
    """A value that is JSON text already, to be written as it is."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Take the text."""
        self.text = text

    def __str__(self) -> str:
        return self.text


def is_scalar(value: Any) -> bool:
    """Return whether a value is neither an array nor an object."""
    return not isinstance(value, list | dict)


def scalar_text(value: Any) -> str:
    """A scalar as Java's ``String.valueOf`` writes it, strings without quotes."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return from_units(value) if isinstance(value, str) else str(value)


def serialise(value: Any) -> str:
    """The JSON text of a value, keys in order, without blanks."""
    return from_units(json_text(value, scalar_text))


_SCALARS: Final = frozenset({TypeRoot.BOOLEAN, TypeRoot.NULL})


def supports_json(type_: LogicalType) -> bool:
    """Return whether Flink writes values of a type as JSON: not dates, times and intervals."""
    if isinstance(type_, MapType) and not type_.key.is_a(TypeFamily.CHARACTER_STRING):
        return False
    if isinstance(type_, ArrayType | MapType | RowType):
        return all(map(supports_json, type_.children))
    families = (
        TypeFamily.CHARACTER_STRING,
        TypeFamily.BINARY_STRING,
        TypeFamily.NUMERIC,
        TypeFamily.TIMESTAMP,
    )
    return (
        type_.root in _SCALARS or type_.root is TypeRoot.VARIANT or any(map(type_.is_a, families))
    )


def json_of(  # noqa: PLR0911 - a table
    value: Any, type_: LogicalType, *, raw: bool = False
) -> Any:
    """The JSON value, as ``serialise`` takes it, of an SQL value (``raw``: of JSON text)."""
    if value is None:
        return None
    if raw:
        return parse(value) if value.strip() else None
    if isinstance(type_, VariantType):
        return JsonText(variant_json(value))
    if isinstance(type_, ArrayType):
        return [json_of(element, type_.element) for element in value]
    if isinstance(type_, MapType):
        return {key: json_of(inner, type_.value) for key, inner in value.items()}
    if isinstance(type_, RowType):
        return {
            field.name: json_of(inner, field.type)
            for field, inner in zip(type_, value, strict=True)
        }
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float):
        # Java goes by way of the text of a double, of a FLOAT too.
        return Decimal(double_text(value)) if math.isfinite(value) else double_text(value)
    if isinstance(type_, TimestampType | LocalZonedTimestampType):
        text = timestamp_text(value, 9).rstrip("0").rstrip(".").replace(" ", "T")
        return f"{text}Z" if isinstance(type_, LocalZonedTimestampType) else text
    return value


Filter: TypeAlias = Callable[[Any], bool]
_Operand: TypeAlias = Callable[[Any], Sequence[Any]]

_OPERATORS: Final = re.compile(
    r"\s*(==|!=|<=|>=|<|>|=~|\b(?:in|nin|subsetof|anyof|noneof|size|empty|contains|all|type)\b)",
    re.IGNORECASE,
)
_PATH: Final = re.compile(r"""\s*(@(?:\.[\w$-]+|\[\s*(?:'[^']*'|"[^"]*"|-?\d+)\s*\])*)""")
_STRING: Final = re.compile(r"""\s*(?:'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)")""")
_NUMBER: Final = re.compile(r"\s*(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)")
_WORD: Final = re.compile(r"\s*(true|false|null)\b")
_ARRAY: Final = re.compile(r"\s*(\[[^\]]*\])")
_WORDS: Final = {"true": True, "false": False, "null": None}


class _NoFilterError(Exception):
    """The text is no filter."""


class FilterParser:
    """Reads a filter from ``(`` on."""

    def __init__(self, text: str, at: int, read: Callable[[str, Any], Sequence[Any]]) -> None:
        """Take the text, the position behind ``[?`` and how a path is read."""
        self._text = text
        self._at = at
        self._read = read

    def parse(self) -> tuple[Filter | None, int]:
        """The filter, or None if there is none, and the position behind it.

        Raises:
            ValueError: an operator is not supported.
        """
        try:
            if not self._take("("):
                return None, self._at
            condition = self._any_of()
            return (condition if self._take(")") else None), self._at
        except _NoFilterError:
            return None, self._at

    def _take(self, token: str) -> bool:
        match = re.compile(r"\s*" + re.escape(token)).match(self._text, self._at)
        if match is None:
            return False
        self._at = match.end()
        return True

    def _any_of(self) -> Filter:
        parts = [self._all_of()]
        while self._take("||"):
            parts.append(self._all_of())
        return lambda value: any(part(value) for part in parts)

    def _all_of(self) -> Filter:
        parts = [self._single()]
        while self._take("&&"):
            parts.append(self._single())
        return lambda value: all(part(value) for part in parts)

    def _single(self) -> Filter:
        if self._take("!"):
            inner = self._single()
            return lambda value: not inner(value)
        if self._take("("):
            condition = self._any_of()
            if not self._take(")"):
                raise _NoFilterError
            return condition
        return self._comparison()

    def _comparison(self) -> Filter:
        left = self._operand()
        match = _OPERATORS.match(self._text, self._at)
        if match is None:
            return lambda value: bool(left(value))
        self._at = match.end()
        operator = match[1].lower()
        compare = _COMPARISONS.get(operator)
        if compare is None:
            message = f"the operator {operator} of JSON paths is not supported"
            raise ValueError(message)
        right = self._operand()
        return lambda value: compare(left(value), right(value))

    def _operand(self) -> _Operand:
        if (match := _PATH.match(self._text, self._at)) is not None:
            path = "$" + match[1][1:]
            self._at = match.end()
            return lambda value: self._read(path, value)
        constant = (self._constant(),)
        return lambda _: constant

    def _constant(self) -> Any:
        if (match := _STRING.match(self._text, self._at)) is not None:
            self._at = match.end()
            text = match[1] if match[1] is not None else match[2]
            return re.sub(r"\\(.)", r"\1", text)
        if (match := _NUMBER.match(self._text, self._at)) is not None:
            self._at = match.end()
            return Decimal(match[1])
        if (match := _WORD.match(self._text, self._at)) is not None:
            self._at = match.end()
            return _WORDS[match[1]]
        if (match := _ARRAY.match(self._text, self._at)) is not None:
            self._at = match.end()
            try:
                return json.loads(match[1].replace("'", '"'), parse_float=Decimal)
            except ValueError as error:
                raise _NoFilterError from error
        raise _NoFilterError


def _kind(value: Any) -> type:
    if isinstance(value, bool):
        return bool
    return Decimal if isinstance(value, int) else type(value)


def _equal(left: Sequence[Any], right: Sequence[Any]) -> bool:
    if not left or not right:
        return not left and not right
    return _kind(left[0]) is _kind(right[0]) and bool(left[0] == right[0])


def _ordered(condition: Callable[[Any, Any], bool]) -> Callable[..., bool]:
    def compare(left: Sequence[Any], right: Sequence[Any]) -> bool:
        if not left or not right or _kind(left[0]) is not _kind(right[0]):
            return False
        return isinstance(left[0], int | Decimal | str) and condition(left[0], right[0])

    return compare


def _contained(left: Sequence[Any], right: Sequence[Any]) -> bool:
    return bool(right) and any(_equal(left, (member,)) for member in right[0])


_COMPARISONS: Final[dict[str, Callable[[Sequence[Any], Sequence[Any]], bool]]] = {
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "<": _ordered(lambda left, right: bool(left < right)),
    "<=": _ordered(lambda left, right: bool(left <= right)),
    ">": _ordered(lambda left, right: bool(left > right)),
    ">=": _ordered(lambda left, right: bool(left >= right)),
    "in": _contained,
    "nin": lambda left, right: not _contained(left, right),
}


class PathError(ValueError):
    """The path finds nothing in a value."""


class InvalidPathError(PathError):
    """The text is no path."""


class UnsupportedPathError(ValueError):
    """A path of Jayway's that this house does not support."""


class _Step(ABC):
    """One step of a path."""

    definite = True

    @abstractmethod
    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        """Return what the step finds in a value.

        Args:
            value: any JSON value.
            strict: whether all steps before are definite: then a value of the wrong kind fails.
        """


@dataclass(frozen=True, slots=True)
class _Property(_Step):
    name: str
    is_last: bool = False

    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        if not isinstance(value, dict):
            if strict:
                message = f"no object with {self.name!r}"
                raise PathError(message)
            return
        if self.name in value:
            yield value[self.name]
        elif strict and not self.is_last:
            message = f"no {self.name!r}"
            raise PathError(message)


@dataclass(frozen=True, slots=True)
class _Properties(_Step):
    """Several names: an object of those that there are."""

    names: tuple[str, ...]

    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        if isinstance(value, dict):
            yield {name: value[name] for name in self.names if name in value}
        elif strict:
            message = f"no object with {self.names}"
            raise PathError(message)


def _elements(value: Any, *, strict: bool) -> list[Any] | None:
    if isinstance(value, list):
        return value
    if strict:
        message = "no array"
        raise PathError(message)
    return None


@dataclass(frozen=True, slots=True)
class _Index(_Step):
    index: int

    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        elements = _elements(value, strict=strict)
        if elements is not None and -len(elements) <= self.index < len(elements):
            yield elements[self.index]


class _Many(_Step):
    definite = False


@dataclass(frozen=True, slots=True)
class _Indexes(_Many):
    indexes: tuple[int, ...]

    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        elements = _elements(value, strict=strict)
        if elements is not None:
            for index in self.indexes:
                if -len(elements) <= index < len(elements):
                    yield elements[index]


@dataclass(frozen=True, slots=True)
class _Slice(_Many):
    start: int | None
    stop: int | None

    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        elements = _elements(value, strict=strict)
        if elements is not None:
            yield from elements[self.start : self.stop]


@dataclass(frozen=True, slots=True)
class _Wildcard(_Many):
    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        del strict
        if isinstance(value, dict):
            yield from value.values()
        elif isinstance(value, list):
            yield from value


@dataclass(frozen=True, slots=True)
class _Filtered(_Many):
    condition: Filter

    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        if isinstance(value, dict):
            if self.condition(value):
                yield value
            return
        elements = _elements(value, strict=strict)
        if elements is not None:
            yield from (element for element in elements if self.condition(element))


@dataclass(frozen=True, slots=True)
class _Scan(_Many):
    """``..``: the value and all within it, the step behind it applied to each that it fits."""

    step: _Step

    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        del strict
        yield from self.step.values(value, strict=False)
        inner = value.values() if isinstance(value, dict) else value
        if isinstance(value, dict | list):
            for one in inner:
                yield from self.values(one, strict=False)


@dataclass(frozen=True, slots=True)
class _Length(_Step):
    def values(self, value: Any, *, strict: bool) -> Iterator[Any]:
        del strict
        if isinstance(value, list | dict):
            yield len(value)
        else:
            yield None


@dataclass(frozen=True, slots=True)
class Path:
    """A compiled path.  Made by ``compile_path``."""

    text: str
    steps: tuple[_Step, ...]

    @property
    def is_definite(self) -> bool:
        """Return whether it finds one value at most."""
        return all(step.definite for step in self.steps)

    def read(self, root: Any) -> Any:
        """Return what the path finds: a value, or a list if the path is indefinite.

        Raises:
            PathError: it finds nothing.
        """
        found, strict = [root], True
        for step in self.steps:
            found = [inner for value in found for inner in step.values(value, strict=strict)]
            strict = strict and step.definite
        if not self.is_definite:
            return found
        if not found:
            message = f"nothing at {self.text}"
            raise PathError(message)
        return found[-1]


_BRACKET_NUMBERS: Final = re.compile(r"\[\s*(-?\d+(?:\s*,\s*-?\d+)*)\s*\]")
_BRACKET_SLICE: Final = re.compile(r"\[\s*(-?\d+)?\s*:\s*(-?\d+)?\s*\]")
_BRACKET_WILDCARD: Final = re.compile(r"\[\s*\*\s*\]")
_QUOTED: Final = re.compile(r"""'((?:[^'\\]|\\.)*)'|"((?:[^"\\]|\\.)*)\"""")
_FUNCTION: Final = re.compile(r"\.([a-z]+)\(")


class _PathParser:
    def __init__(self, text: str) -> None:
        self.original = text
        text = text.rstrip()
        if not text:
            message = "an empty path"
            raise InvalidPathError(message)
        self.text = text if text[0] in "$@" else f"$.{text}"
        self.at = 1

    def steps(self) -> tuple[_Step, ...]:
        steps: list[_Step] = []
        while self.at < len(self.text):
            steps.append(self.step())
        if steps and isinstance(steps[-1], _Property):
            steps[-1] = _Property(steps[-1].name, is_last=True)
        return tuple(steps)

    def invalid(self) -> InvalidPathError:
        return InvalidPathError(f"no path: {self.original!r}, position {self.at}")

    def step(self) -> _Step:
        if self.text.startswith("..", self.at):
            self.at += 2
            if self.at >= len(self.text) or self.text[self.at] == ".":
                raise self.invalid()
            return _Scan(self.bracket() if self.text[self.at] == "[" else self.name())
        if self.text[self.at] == "[":
            return self.bracket()
        if self.text[self.at] != ".":
            raise self.invalid()
        function = _FUNCTION.match(self.text, self.at)
        if function is not None:
            return self.function(function)
        self.at += 1
        if self.text[self.at : self.at + 1] == "[":
            return self.bracket()
        return self.name()

    def function(self, match: re.Match[str]) -> _Step:
        if match[1] in {"length", "size"} and self.text[match.end() :] == ")":
            self.at = len(self.text)
            return _Length()
        message = f"JSON path {self.original!r}: the function {match[1]}() is not supported"
        raise UnsupportedPathError(message)

    def name(self) -> _Step:
        if self.text[self.at : self.at + 1] == "*":
            self.at += 1
            return _Wildcard()
        end = self.at
        while end < len(self.text) and self.text[end] not in ".[":
            end += 1
        name = self.text[self.at : end]
        if not name or " " in name or "(" in name:
            raise self.invalid()
        self.at = end
        return _Property(name)

    def bracket(self) -> _Step:
        if (match := _BRACKET_WILDCARD.match(self.text, self.at)) is not None:
            self.at = match.end()
            return _Wildcard()
        if (match := _BRACKET_NUMBERS.match(self.text, self.at)) is not None:
            self.at = match.end()
            indexes = tuple(map(int, match[1].split(",")))
            return _Index(indexes[0]) if len(indexes) == 1 else _Indexes(indexes)
        if (match := _BRACKET_SLICE.match(self.text, self.at)) is not None:
            self.at = match.end()
            return self.slice_of(match)
        if self.text.startswith("[?", self.at):
            return self.filter()
        return self.quoted_names()

    def slice_of(self, match: re.Match[str]) -> _Step:
        start, stop = (None if part is None else int(part) for part in match.groups())
        if start is None and stop is None:
            raise self.invalid()
        return _Slice(start, stop)

    def filter(self) -> _Step:
        parser = FilterParser(self.text, self.at + 2, _value_at)
        condition, self.at = parser.parse()
        if condition is None or not self.text.startswith("]", self.at):
            raise self.invalid()
        self.at += 1
        return _Filtered(condition)

    def quoted_names(self) -> _Step:
        self.at += 1
        names = []
        while True:
            self.skip_blanks()
            match = _QUOTED.match(self.text, self.at)
            if match is None:
                raise self.invalid()
            name = match[1] if match[1] is not None else match[2]
            names.append(re.sub(r"\\(.)", r"\1", name))
            self.at = match.end()
            self.skip_blanks()
            mark = self.text[self.at : self.at + 1]
            self.at += 1
            if mark == "]":
                break
            if mark != ",":
                raise self.invalid()
        return _Property(names[0]) if len(names) == 1 else _Properties(tuple(names))

    def skip_blanks(self) -> None:
        while self.text[self.at : self.at + 1] == " ":
            self.at += 1


def _value_at(path: str, value: Any) -> Sequence[Any]:
    """Return what a path within a filter finds: one value or none."""
    try:
        return (compile_path(path).read(value),)
    except InvalidPathError:
        raise
    except PathError:
        return ()


@lru_cache(maxsize=512)
def compile_path(text: str) -> Path:
    """The path of a text.

    Args:
        text: as ``$.a[0].b``; without ``$`` at the beginning, ``$.`` is put before it.

    Raises:
        InvalidPathError: it is none.
        UnsupportedPathError: it is one of Jayway's that is not supported here.
    """
    return Path(text, _PathParser(text).steps())
