"""Adapters that run a function as a function of another kind, and open and close it.

They give MapFunction and its relatives keyed state after ``key_by``, and run CoMapFunction and
CoFlatMapFunction as process functions of two inputs.  Plain callables need no adapter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.functions.functions import CoProcessFunction, Function, KeyedProcessFunction

if TYPE_CHECKING:
    from collections.abc import Iterable

    from millstream.functions.functions import RuntimeContext


class Wrapper(Function):
    """Opens and closes the user's function.

    Args:
        wrapped: the function; a plain callable has nothing to open.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def open(self, runtime_context: RuntimeContext) -> None:
        if isinstance(self.wrapped, Function):
            self.wrapped.open(runtime_context)

    def close(self) -> None:
        if isinstance(self.wrapped, Function):
            self.wrapped.close()


class KeyedMap(Wrapper, KeyedProcessFunction):
    """A MapFunction with keyed state."""

    def process_element(self, value: object, ctx: KeyedProcessFunction.Context) -> list[object]:
        del ctx
        return [self.wrapped.map(value)]


class KeyedFlatMap(Wrapper, KeyedProcessFunction):
    """A FlatMapFunction with keyed state."""

    def process_element(
        self, value: object, ctx: KeyedProcessFunction.Context
    ) -> Iterable[object] | None:
        del ctx
        records: Iterable[object] | None = self.wrapped.flat_map(value)
        return records


class KeyedFilter(Wrapper, KeyedProcessFunction):
    """A FilterFunction with keyed state."""

    def process_element(self, value: object, ctx: KeyedProcessFunction.Context) -> list[object]:
        del ctx
        return [value] if self.wrapped.filter(value) else []


class CoMapAdapter(Wrapper, CoProcessFunction):
    """A CoMapFunction; None stands for no record, as in PyFlink."""

    def process_element1(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> tuple[object, ...] | None:
        del ctx
        result = self.wrapped.map1(value)
        return None if result is None else (result,)

    def process_element2(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> tuple[object, ...] | None:
        del ctx
        result = self.wrapped.map2(value)
        return None if result is None else (result,)


class CoFlatMapAdapter(Wrapper, CoProcessFunction):
    """A CoFlatMapFunction."""

    def process_element1(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> Iterable[object] | None:
        del ctx
        records: Iterable[object] | None = self.wrapped.flat_map1(value)
        return records

    def process_element2(
        self, value: object, ctx: CoProcessFunction.Context
    ) -> Iterable[object] | None:
        del ctx
        records: Iterable[object] | None = self.wrapped.flat_map2(value)
        return records
