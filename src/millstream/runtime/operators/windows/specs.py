"""What a window computes: reduce, aggregate, apply, process, or built-in aggregates.

What it is: plain data that the API puts into a WindowFactory.

What it is not: the logic, which is in ``aligned.py`` and ``columnar.py``.

Read next: ``runtime/operators/windows/aligned.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from millstream.runtime.columnar.aggregates import Aggregates
    from millstream.types.typeinfo import TypeInformation

__all__ = [
    "LEADING_COLUMNS",
    "AggregateSpec",
    "ApplySpec",
    "BuiltInSpec",
    "ProcessSpec",
    "ReduceSpec",
    "WindowSpec",
]

#: Output columns that every built-in window result begins with.
LEADING_COLUMNS: Final = ("key", "window_start", "window_end")


@dataclass
class ReduceSpec:
    """A ReduceFunction or callable, and what is made of its result."""

    function: Any
    window_function: Any = None


@dataclass
class AggregateSpec:
    """An AggregateFunction, and what is made of its result."""

    function: Any
    window_function: Any = None


@dataclass
class ApplySpec:
    """A WindowFunction or callable of (key, window, elements)."""

    function: Any


@dataclass
class ProcessSpec:
    """A ProcessWindowFunction or callable of (key, context, elements)."""

    function: Any


@dataclass
class BuiltInSpec:
    """Built-in aggregates: a dict of name to aggregate, or a list of them."""

    aggregates: Aggregates
    #: Of the records: elements that an evictor left are made columns again, for filters.
    input_type: TypeInformation | None = None


WindowSpec = ReduceSpec | AggregateSpec | ApplySpec | ProcessSpec | BuiltInSpec
