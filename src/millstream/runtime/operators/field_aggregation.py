"""The reduce functions behind ``sum("field")``, ``min``, ``max``, ``min_by`` and ``max_by``.

What it is: as in Flink, ``sum``, ``min`` and ``max`` keep the other fields of the *first* record;
``min_by`` and ``max_by`` keep the whole record that holds the extreme, the earlier of equals.
Records may be Rows, tuples, lists, dicts, dataclasses or plain scalars (field 0).

What it is not: the vectorised aggregates of windows (``runtime/columnar/aggregates.py``).

Read next: ``runtime/operators/keyed_reduce.py``.
"""

from __future__ import annotations

import copy
import dataclasses
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError, with_article
from millstream.functions.functions import ReduceFunction

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["FieldAggregation"]

_KINDS: Final = ("sum", "min", "max", "min_by", "max_by")


class FieldAggregation(ReduceFunction):
    """Folds one field of two records."""

    def __init__(self, kind: str, field: str | int = 0) -> None:
        """Take the kind of aggregation and the field's name or position.

        Raises:
            ProgramError: there is no such kind.
        """
        if kind not in _KINDS:
            message = f"unknown aggregation {kind!r}; there are {', '.join(_KINDS)}"
            raise ProgramError(message)
        self._kind = kind
        self._field = field

    def reduce(self, value1: Any, value2: Any) -> Any:
        field, kind = self._field, self._kind
        get = _getter(value1, field)
        first, second = get(value1), get(value2)
        if kind == "sum":
            return _replaced(value1, field, first + second)
        wins = second < first if kind in ("min", "min_by") else second > first
        if not wins:
            return value1
        return value2 if kind.endswith("_by") else _replaced(value1, field, second)


def _getter(record: Any, field: str | int) -> Callable[[Any], Any]:
    if isinstance(record, dict):
        return lambda r: r[field]
    if isinstance(record, (list, tuple)):
        if isinstance(field, int):
            return lambda r: r[field]
        if isinstance(record, list):
            return lambda r: r[field]  # a Row
        return lambda r: getattr(r, field)  # a named tuple
    if dataclasses.is_dataclass(record):
        name = _dataclass_field(record, field)
        return lambda r: getattr(r, name)
    if field == 0:
        return lambda r: r
    message = f"{with_article(type(record).__name__)} has no field {field!r} to aggregate"
    raise ProgramError(message)


def _replaced(record: Any, field: str | int, value: object) -> Any:
    """A copy of ``record`` with one field changed; the record itself may already be emitted."""
    if isinstance(record, dict):
        return {**record, field: value}
    if isinstance(record, tuple):
        if isinstance(field, str):
            return record._replace(**{field: value})  # type: ignore[attr-defined] # a named tuple
        position = field % len(record)
        changed = (*record[:position], value, *record[position + 1 :])
        return type(record)(*changed) if hasattr(record, "_fields") else changed
    if isinstance(record, list):
        duplicate = copy.copy(record)
        duplicate[field] = value  # type: ignore[index] # a Row takes names as well
        return duplicate
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return dataclasses.replace(record, **{_dataclass_field(record, field): value})
    return value


def _dataclass_field(record: Any, field: str | int) -> str:
    return field if isinstance(field, str) else dataclasses.fields(record)[field].name
