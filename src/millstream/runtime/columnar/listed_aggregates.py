"""Further aggregates that keep their values: JSON_ARRAYAGG, JSON_OBJECTAGG, PERCENTILE, and LAG.

What it is: kernels that go through the rows of a key one by one, in Python.  Values of JSON come as
JSON texts.
What it is not: quick where a key has very many values: they are written as a whole.

Read next: ``runtime/columnar/collecting_aggregates.py``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import UserFunctionError
from millstream.expressions.json.texts import serialise
from millstream.runtime.columnar.collecting_aggregates import RowKernel

if TYPE_CHECKING:
    from collections.abc import Iterable


__all__ = ["JsonArrayAgg", "JsonObjectAgg", "Lag", "Percentile"]

_NULL: Final = "null"


class JsonArrayAgg(RowKernel):
    """JSON_ARRAYAGG: values as they come."""

    def __init__(self, result: pa.DataType, *, absent: bool) -> None:
        """Take the type of the result, and whether NULL is left out."""
        super().__init__(pa.list_(pa.string()), result)
        self._absent = absent

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        text = row[0]
        if text is None:
            if self._absent:
                return
            text = _NULL
        if weight > 0:
            value.append(text)
        elif text in value:
            value.remove(text)

    def result_of(self, value: Any) -> Any:
        return f"[{','.join(value)}]"


class JsonObjectAgg(RowKernel):
    """JSON_OBJECTAGG: a key comes once; keys are in order, as in all JSON that is written."""

    def __init__(self, result: pa.DataType, *, absent: bool) -> None:
        """Take the type of the result, and whether NULL is left out."""
        pair = pa.struct([("key", pa.string()), ("text", pa.string())])
        super().__init__(pa.list_(pair), result)
        self._absent = absent

    def decoded(self, stored: Any) -> Any:
        return {each["key"]: each["text"] for each in stored}

    def encoded(self, value: Any) -> Any:
        return [{"key": key, "text": text} for key, text in value.items()]

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        key, text = row
        if key is None:
            message = "JSON_OBJECTAGG: a key is NULL, which no key of JSON is"
            raise UserFunctionError(message)
        if text is None and self._absent:
            return
        if weight < 0:
            value.pop(key, None)
        elif key in value:
            message = (
                f"Key '{key}' is already present. Duplicate keys are not allowed in "
                "JSON_OBJECTAGG. Please ensure that keys are unique."
            )
            raise UserFunctionError(message)
        else:
            value[key] = _NULL if text is None else text

    def result_of(self, value: Any) -> Any:
        keys = sorted(value, key=lambda key: key.encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{serialise(key)}:{value[key]}" for key in keys) + "}"


class _Counts:
    """How often each number is there, and which shares are asked for."""

    __slots__ = ("counts", "shares")

    def __init__(self, counts: dict[float, int], shares: list[float] | None) -> None:
        self.counts = counts
        self.shares = shares


class Percentile(RowKernel):
    """PERCENTILE: exact, with linear interpolation between two neighbours."""

    def __init__(self, result: pa.DataType) -> None:
        """Take the type of the result: a number, or an array."""
        number = pa.struct([("value", pa.float64()), ("count", pa.int64())])
        parts = [("numbers", pa.list_(number)), ("shares", pa.list_(pa.float64()))]
        super().__init__(pa.struct(parts), result)
        self._is_list = pa.types.is_list(result)

    @property
    def fresh(self) -> list[Any]:
        return [{"numbers": [], "shares": None}]

    def decoded(self, stored: Any) -> Any:
        counts = {each["value"]: each["count"] for each in stored["numbers"]}
        return _Counts(counts, stored["shares"])

    def encoded(self, value: Any) -> Any:
        numbers = [{"value": each, "count": count} for each, count in value.counts.items()]
        return {"numbers": numbers, "shares": value.shares}

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        number, shares = row[:2]
        if value.shares is None:  # those of all rows are the same
            value.shares = _checked(shares if self._is_list else [shares])
        often = row[2] if len(row) > 2 else 1  # noqa: PLR2004 - with a frequency
        if number is None or often is None or often <= 0:
            return
        key = float(number)
        count = value.counts.get(key, 0) + weight * often
        if count:
            value.counts[key] = count
        else:
            value.counts.pop(key, None)

    def result_of(self, value: Any) -> Any:
        there = [(key, count) for key, count in value.counts.items() if count > 0]
        if not there or not value.shares:
            return None
        there.sort(key=lambda each: (math.isnan(each[0]), each[0]))
        found = [_at(there, share) for share in value.shares]
        return found if self._is_list else found[0]


def _checked(shares: Iterable[float | None] | None) -> list[float]:
    found = []
    for share in shares or ():
        if share is None or not 0.0 <= share <= 1.0:
            message = f"Percentage of PERCENTILE should be between [0.0, 1.0], but was '{share}'."
            raise UserFunctionError(message)
        found.append(share)
    return found


def _at(there: list[tuple[float, int]], share: float) -> float:
    """The number at a share of all, which are in order."""
    total = sum(count for _, count in there)
    position = share * (total - 1) + 1
    lower, higher = math.floor(position), math.ceil(position)
    at, before = 0, there[0][1]
    while before < lower:
        at += 1
        before += there[at][1]
    if before >= higher:
        return there[at][0]
    return (higher - position) * there[at][0] + (position - lower) * there[at + 1][0]


class Lag(RowKernel):
    """LAG: the value so many rows before this one; of OVER alone, over rows that only come."""

    def __init__(self, kind: pa.DataType) -> None:
        """Take the type of the values."""
        kept = [("values", pa.list_(kind)), ("offset", pa.int32()), ("default", kind)]
        super().__init__(pa.struct(kept), kind)

    @property
    def fresh(self) -> list[Any]:
        return [{"values": [], "offset": 0, "default": None}]

    def add(self, value: Any, weight: int, row: tuple[Any, ...]) -> None:
        del weight  # of rows that are never taken back
        value["offset"], value["default"] = row[1], row[2]
        kept = value["values"]
        kept.append(row[0])
        del kept[: -row[1] - 1]

    def result_of(self, value: Any) -> Any:
        kept, offset = value["values"], value["offset"]
        return kept[-offset - 1] if len(kept) > offset else value["default"]
