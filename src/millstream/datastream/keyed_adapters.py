"""Function classes on a keyed stream, run as keyed process functions so that they have state.

What it is: as in PyFlink, a MapFunction behind ``key_by`` may use keyed state from its runtime
context.  What it is not: used for plain callables, which have no context.

Read next: ``datastream/keyed_stream.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.functions.functions import KeyedProcessFunction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.functions.functions import (
        FilterFunction,
        FlatMapFunction,
        MapFunction,
        RuntimeContext,
    )

__all__ = ["KeyedFilter", "KeyedFlatMap", "KeyedMap"]


class KeyedMap(KeyedProcessFunction):
    """A MapFunction with keyed state."""

    def __init__(self, function: MapFunction) -> None:
        """Take the user's function."""
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        self._function.open(runtime_context)

    def close(self) -> None:
        """Close the user's function."""
        self._function.close()

    def process_element(self, value: object, ctx: KeyedProcessFunction.Context) -> list[object]:
        """One record out."""
        del ctx
        return [self._function.map(value)]


class KeyedFlatMap(KeyedProcessFunction):
    """A FlatMapFunction with keyed state."""

    def __init__(self, function: FlatMapFunction) -> None:
        """Take the user's function."""
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        self._function.open(runtime_context)

    def close(self) -> None:
        """Close the user's function."""
        self._function.close()

    def process_element(
        self, value: object, ctx: KeyedProcessFunction.Context
    ) -> Iterable[object] | None:
        """Any number out."""
        del ctx
        records: Iterable[object] | None = self._function.flat_map(value)
        return records


class KeyedFilter(KeyedProcessFunction):
    """A FilterFunction with keyed state."""

    def __init__(self, function: FilterFunction) -> None:
        """Take the user's function."""
        self._function = function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        self._function.open(runtime_context)

    def close(self) -> None:
        """Close the user's function."""
        self._function.close()

    def process_element(self, value: object, ctx: KeyedProcessFunction.Context) -> list[object]:
        """The record, or nothing."""
        del ctx
        return [value] if self._function.filter(value) else []
