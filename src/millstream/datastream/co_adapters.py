"""CoMapFunction and CoFlatMapFunction, run as process functions of two inputs.

What it is: what gives them, on keyed streams, keyed state from their runtime context.
What it is not: the operator (``runtime/operators/co_process.py``).

Read next: ``datastream/connected_streams.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.functions.co_functions import CoProcessFunction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.functions.co_functions import CoFlatMapFunction, CoMapFunction
    from millstream.functions.functions import Function, RuntimeContext

__all__ = ["CoFlatMapAdapter", "CoMapAdapter"]


class _Adapter(CoProcessFunction):
    """Opens and closes what it wraps."""

    wrapped: Function

    def open(self, runtime_context: RuntimeContext) -> None:
        """Open the user's function."""
        self.wrapped.open(runtime_context)

    def close(self) -> None:
        """Close the user's function."""
        self.wrapped.close()


class CoMapAdapter(_Adapter):
    """A CoMapFunction; None stands for no record, as in PyFlink."""

    def __init__(self, function: CoMapFunction) -> None:
        """Take the user's function."""
        self.wrapped = self._function = function

    def process_element1(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> tuple[object, ...] | None:
        """At most one record out."""
        del ctx
        result = self._function.map1(value)
        return None if result is None else (result,)

    def process_element2(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> tuple[object, ...] | None:
        """At most one record out."""
        del ctx
        result = self._function.map2(value)
        return None if result is None else (result,)


class CoFlatMapAdapter(_Adapter):
    """A CoFlatMapFunction."""

    def __init__(self, function: CoFlatMapFunction) -> None:
        """Take the user's function."""
        self.wrapped = self._function = function

    def process_element1(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> Iterable[object] | None:
        """Any number out."""
        del ctx
        records: Iterable[object] | None = self._function.flat_map1(value)
        return records

    def process_element2(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> Iterable[object] | None:
        """Any number out."""
        del ctx
        records: Iterable[object] | None = self._function.flat_map2(value)
        return records
