"""Filters in JSON paths: ``[?(@.price < 10 && @.name == 'a')]``.

What it is: a parser that gives a condition on a value.  Values of different kinds are neither equal
nor in an order.

What it is not: regular expressions (``=~``) and Jayway's rarer operators; they are refused by name.

Read next: ``expressions/json/paths.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

__all__ = ["Filter", "FilterParser"]

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
