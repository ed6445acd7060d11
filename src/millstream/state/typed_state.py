"""Holding state to its declared types: values are checked where the user's function writes them.

What it is: handles around those of states whose descriptor names types.  Reading goes straight to
the handle inside; what is written is checked first, so that the error arises in the line of the
program that is wrong, with the record and key at hand.

What it is not: a conversion.  State keeps the Python objects that it is given, as pickles.

Read next: ``common/value_check.py``.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from millstream.common.type_information import TypeInformation
from millstream.common.value_check import compile_check, misfit
from millstream.errors import TypeMismatchError
from millstream.state.handles import ListState, MapState, ReducingState, ValueState
from millstream.state.value_state import KeyedValueState

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.state.handles import State

__all__ = ["CheckedAggregate", "checked_reduce", "hold_to_types", "writer"]

S = TypeVar("S")
_ADVICE = "write such a value, or declare another type in the state's descriptor"


def writer(
    kind: object, place: str, write: Callable[[Any], None] | None = None
) -> Callable[[Any], None]:
    """A function that checks one value and then hands it to ``write``.

    Args:
        kind: the type that was declared; None: nothing is checked.
        place: what is written, for the message: "state 'n'", "state 'n', map key".
        write: takes the value; None: the value is only checked.
    """
    take = write or _nothing
    check = _check_of(kind, place)
    if check is None:
        return take
    fits, refuse = check

    def check_and_write(value: Any) -> None:  # noqa: ANN401 - any user value
        if not fits(value):
            refuse(value)
        take(value)

    return check_and_write


def _nothing(value: object) -> None:
    del value


def _check_of(
    kind: object, place: str
) -> tuple[Callable[[Any], bool], Callable[[Any], None]] | None:
    """A quick predicate, and what raises for a value that it is false of; None: any value fits."""
    if not isinstance(kind, TypeInformation):
        return None
    fits = compile_check(kind)
    return None if fits is None else (fits, partial(_refuse, kind, place))


def _refuse(kind: TypeInformation, place: str, value: object) -> None:
    """Raise TypeMismatchError unless the value fits after all (a numpy number, a subclass)."""
    text = misfit(kind, value, _ADVICE)
    if text is not None:
        message = f"{place} is declared as {kind}: {text}"
        raise TypeMismatchError(message)


def hold_to_types(handle: S, descriptor: Any) -> S:  # noqa: ANN401 - any descriptor
    """The handle, or one around it that checks what is written if types were declared."""
    kinds = [descriptor.type_info, getattr(descriptor, "key_type_info", None)]
    wrapper = _WRAPPERS.get(descriptor.kind)
    if wrapper is None or all(_check_of(kind, "") is None for kind in kinds):
        return handle
    return cast("S", wrapper(handle, descriptor))


def _set(handle: State, **methods: Callable[..., Any]) -> None:
    """Let methods of the handle be those of the one inside: a call through costs half as much."""
    for name, method in methods.items():
        setattr(handle, name, method)


class _TypedValue(ValueState[Any]):
    """A value that is checked."""

    __slots__ = ("clear", "update", "value")

    def __init__(self, inner: ValueState[Any], descriptor: Any) -> None:  # noqa: ANN401
        place = f"state {descriptor.name!r}"
        check = _check_of(descriptor.type_info, place)
        if check is not None and isinstance(inner, KeyedValueState):
            update = inner.checked_update(*check)
        else:
            update = writer(descriptor.type_info, place, inner.update)
        _set(self, value=inner.value, clear=inner.clear, update=update)


class _TypedReducing(ReducingState[Any]):
    """A reduced value; what the function returns is checked by ``descriptor.reduce``."""

    __slots__ = ("add", "clear", "get")

    def __init__(self, inner: ReducingState[Any], descriptor: Any) -> None:  # noqa: ANN401
        add = writer(descriptor.type_info, f"state {descriptor.name!r}", inner.add)
        _set(self, get=inner.get, clear=inner.clear, add=add)


class _TypedList(ListState[Any]):
    """A list whose elements are checked."""

    __slots__ = ("_check", "_inner", "add", "clear", "get")

    def __init__(self, inner: ListState[Any], descriptor: Any) -> None:  # noqa: ANN401
        self._inner = inner
        place = f"state {descriptor.name!r}, element"
        add = writer(descriptor.type_info, place, inner.add)
        _set(self, get=inner.get, clear=inner.clear, add=add)
        self._check = writer(descriptor.type_info, place)

    def add_all(self, values: Sequence[Any]) -> None:
        """Add elements at the end."""
        values = list(values)
        for value in values:
            self._check(value)
        self._inner.add_all(values)

    def update(self, values: Sequence[Any]) -> None:
        """Replace all elements."""
        values = list(values)
        for value in values:
            self._check(value)
        self._inner.update(values)


class _TypedMap(MapState[Any, Any]):
    """A map whose keys and values are checked."""

    __slots__ = (
        "_check_key", "_check_value", "_inner", "clear", "contains", "get", "is_empty", "items",
        "remove",
    )  # fmt: skip

    def __init__(self, inner: MapState[Any, Any], descriptor: Any) -> None:  # noqa: ANN401
        self._inner = inner
        _set(self, get=inner.get, contains=inner.contains, items=inner.items)
        _set(self, is_empty=inner.is_empty, remove=inner.remove, clear=inner.clear)
        state = f"state {descriptor.name!r}"
        self._check_key = writer(descriptor.key_type_info, f"{state}, map key")
        self._check_value = writer(descriptor.type_info, f"{state}, map value")

    def put(self, key: Any, value: Any) -> None:  # noqa: ANN401
        """Set the value of a map key."""
        self._check_key(key)
        self._check_value(value)
        self._inner.put(key, value)

    def put_all(self, dict_value: Mapping[Any, Any]) -> None:
        """Set several."""
        for key, value in dict_value.items():
            self.put(key, value)


_WRAPPERS: dict[str, Callable[[Any, Any], State]] = {
    "value": _TypedValue,
    "list": _TypedList,
    "map": _TypedMap,
    "reducing": _TypedReducing,
}


def checked_reduce(
    reduce: Callable[[Any, Any], Any], kind: object, name: str
) -> Callable[[Any, Any], Any]:
    """``reduce``, whose results are checked if a type was declared."""
    check = writer(kind, f"state {name!r}, what its reduce function returned")
    if check is _nothing:
        return reduce

    def reduce_and_check(one: Any, other: Any) -> Any:  # noqa: ANN401
        result = reduce(one, other)
        check(result)
        return result

    return reduce_and_check


class CheckedAggregate:
    """An AggregateFunction whose accumulators are checked."""

    def __init__(self, function: Any, kind: object, name: str) -> None:  # noqa: ANN401
        """Take the function, the type of its accumulators and the name of the state."""
        self._function = function
        self._check = writer(kind, f"state {name!r}, the accumulator that add() returned")
        self.create_accumulator = function.create_accumulator
        self.get_result = function.get_result

    def add(self, value: Any, accumulator: Any) -> Any:  # noqa: ANN401
        """Add and check."""
        result = self._function.add(value, accumulator)
        self._check(result)
        return result
