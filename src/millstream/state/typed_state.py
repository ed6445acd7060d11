"""Holding state to its declared types: values are checked where the user's function writes them.

What it is: handles around those of states whose descriptor names types.  Reading goes straight to
the handle inside; what is written is checked first, so that the error arises in the line of the
program that is wrong, with the record and key at hand.

What it is not: a conversion.  State keeps the Python objects that it is given, as pickles.

Read next: ``types/value_check.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.functions.descriptors import check_of, writer
from millstream.functions.handles import ListState, MapState, ReducingState, ValueState
from millstream.state.value_state import KeyedValueState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.functions.handles import State

__all__ = ["hold_to_types"]

S = TypeVar("S")


def hold_to_types(handle: S, descriptor: Any) -> S:
    """The handle, or one around it that checks what is written if types were declared."""
    kinds = [descriptor.type_info, getattr(descriptor, "key_type_info", None)]
    wrapper = _WRAPPERS.get(descriptor.kind)
    if wrapper is None or all(check_of(kind, "") is None for kind in kinds):
        return handle
    return cast("S", wrapper(handle, descriptor))


def _set(handle: State, **methods: Callable[..., Any]) -> None:
    """Let methods of the handle be those of the one inside: a call through costs half as much."""
    for name, method in methods.items():
        setattr(handle, name, method)


class _TypedValue(ValueState[Any]):
    """A value that is checked."""

    __slots__ = ("clear", "update", "value")

    def __init__(self, inner: ValueState[Any], descriptor: Any) -> None:
        what = f"state {descriptor.name!r}"
        check = check_of(descriptor.type_info, what)
        if check is not None and isinstance(inner, KeyedValueState):
            update = inner.checked_update(*check)
        else:
            update = writer(descriptor.type_info, what, inner.update)
        _set(self, value=inner.value, clear=inner.clear, update=update)


class _TypedReducing(ReducingState[Any]):
    """A reduced value; what the function returns is checked by ``descriptor.reduce``."""

    __slots__ = ("add", "clear", "get")

    def __init__(self, inner: ReducingState[Any], descriptor: Any) -> None:
        add = writer(descriptor.type_info, f"state {descriptor.name!r}", inner.add)
        _set(self, get=inner.get, clear=inner.clear, add=add)


class _TypedList(ListState[Any]):
    """A list whose elements are checked."""

    __slots__ = ("_check", "_inner", "add", "clear", "get")

    def __init__(self, inner: ListState[Any], descriptor: Any) -> None:
        self._inner = inner
        what = f"state {descriptor.name!r}, element"
        add = writer(descriptor.type_info, what, inner.add)
        _set(self, get=inner.get, clear=inner.clear, add=add)
        self._check = writer(descriptor.type_info, what)

    def add_all(self, values: Sequence[Any]) -> None:
        values = list(values)
        for value in values:
            self._check(value)
        self._inner.add_all(values)

    def update(self, values: Sequence[Any]) -> None:
        values = list(values)
        for value in values:
            self._check(value)
        self._inner.update(values)


class _TypedMap(MapState[Any, Any]):
    """A map whose keys and values are checked."""

    __slots__ = (
        "_check_key",
        "_check_value",
        "_inner",
        "clear",
        "contains",
        "get",
        "is_empty",
        "items",
        "remove",
    )

    def __init__(self, inner: MapState[Any, Any], descriptor: Any) -> None:
        self._inner = inner
        _set(self, get=inner.get, contains=inner.contains, items=inner.items)
        _set(self, is_empty=inner.is_empty, remove=inner.remove, clear=inner.clear)
        state = f"state {descriptor.name!r}"
        self._check_key = writer(descriptor.key_type_info, f"{state}, map key")
        self._check_value = writer(descriptor.type_info, f"{state}, map value")

    def put(self, key: Any, value: Any) -> None:
        self._check_key(key)
        self._check_value(value)
        self._inner.put(key, value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        for key, value in dict_value.items():
            self.put(key, value)


_WRAPPERS: dict[str, Callable[[Any, Any], State]] = {
    "value": _TypedValue,
    "list": _TypedList,
    "map": _TypedMap,
    "reducing": _TypedReducing,
}
