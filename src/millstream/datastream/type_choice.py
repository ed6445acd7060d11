"""Type of a stream and field of a key, chosen when the program is built.

Types come from the user, else from the function's annotations, else the stream is untyped.
"""

from __future__ import annotations

import difflib
import inspect
import operator
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError, with_article
from millstream.functions.functions import (
    AggregateFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    Partitioner,
    ProcessFunction,
    ProcessJoinFunction,
    ProcessWindowFunction,
)
from millstream.functions.watermark_strategy import WatermarkStrategy
from millstream.types.composite_types import CompositeTypeInfo, RowTypeInfo, TupleTypeInfo
from millstream.types.field_access import field_of
from millstream.types.row import Row
from millstream.types.type_information import MapTypeInfo
from millstream.types.types import Types, infer_return_type

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.types.types import TypeInformation


def method_of(function: object, name: str) -> Callable[..., object]:
    """Return what is called per record: the method of a function object, or the callable."""
    if isinstance(function, Function):
        method: Callable[..., object] = getattr(function, name)
        return method
    if callable(function):
        return function
    message = f"{function!r} cannot be called"
    raise ProgramError(message)


def choose_output_type(
    given: TypeInformation | None, function: Callable[..., object], *, unwrap: bool = False
) -> TypeInformation:
    """The type of what ``function`` returns.

    Args:
        given: the user's ``output_type``.
        function: what is called for each record.
        unwrap: the function returns an iterable of records.
    """
    if given is not None:
        return given
    inferred = infer_return_type(function, unwrap=unwrap)
    return Types.PICKLED_BYTE_ARRAY() if inferred is None else inferred


def require(function: object, kinds: tuple[type, ...], method: str, *, plain: bool = True) -> None:
    """Check what was given as a function.

    Args:
        function: what the user gave.
        kinds: the function classes that are right.
        method: the stream's method, for the message.
        plain: whether a plain callable will do too.

    Raises:
        ProgramError: it is something else.
    """
    if isinstance(function, kinds):
        check_returns(function, method)
        return
    wanted = " or ".join(kind.__name__ for kind in kinds) or "callable"
    if isinstance(function, type) and issubclass(function, Function):
        message = f"{method}() needs an instance: write {function.__name__}() with parentheses"
    elif isinstance(function, Function):
        given = with_article(type(function).__name__)
        message = f"{method}() needs {with_article(wanted)}, not {given}{_hint(function, method)}"
    elif plain and callable(function):
        check_returns(function, method)
        return
    else:
        also = " or a callable" if plain and kinds else ""
        message = f"{method}() needs {with_article(wanted)}{also}, not {function!r}"
    raise ProgramError(message)


def _hint(function: Function, method: str) -> str:
    """Return what to do with a function that is of use elsewhere."""
    if method == "process" and isinstance(function, KeyedProcessFunction):
        return "; call key_by() before process(): its state and timers belong to keys"
    if method == "process" and isinstance(function, ProcessFunction):
        return "; after key_by() derive it from KeyedProcessFunction"
    if isinstance(function, ProcessWindowFunction | AggregateFunction):
        return "; call key_by() and window() before"
    return ""


#: The methods whose functions return one result per record.
_ONE_RESULT: Final = frozenset({"map", "filter", "reduce", "key_by"})


#: What functions are called with.
_ARGUMENTS: Final = {
    "map": ("record",),
    "flat_map": ("record",),
    "filter": ("record",),
    "key_by": ("record",),
    "reduce": ("so far", "new"),
    "process": ("record", "context"),
}
#: What the method of a class is called, where it is not called as that of the stream.
_METHODS: Final = {"key_by": "get_key", "process": "process_element"}


def check_returns(function: object, method: str) -> None:
    """Refuse functions that cannot be called, or return a generator where one result is wanted.

    Raises:
        ProgramError: it is a generator function given to ``map`` or the like, is async, or takes
            another number of arguments.
    """
    code = function
    if isinstance(function, Function):
        code = getattr(function, _METHODS.get(method, method), None)
    if not isinstance(function, ProcessJoinFunction):  # which has a record of each side
        _check_arguments(code, method)
    if inspect.iscoroutinefunction(code):
        message = (
            f"{method}() cannot call an async function; call it with asyncio.run() inside of a "
            "plain one"
        )
        raise ProgramError(message)
    if method in _ONE_RESULT and inspect.isgeneratorfunction(code):
        instead = "; flat_map() takes functions that yield" if method == "map" else ""
        message = (
            f"{method}() needs a function that returns one result, but this one yields: its "
            f"result would be a generator{instead}"
        )
        raise ProgramError(message)


def check_strategy(strategy: object) -> None:
    """Refuse what is no WatermarkStrategy.

    Raises:
        ProgramError: it is something else.
    """
    if isinstance(strategy, WatermarkStrategy):
        return
    message = (
        "a WatermarkStrategy is needed, such as WatermarkStrategy.for_monotonous_timestamps()"
        f".with_timestamp_assigner(...), not {strategy!r}"
    )
    raise ProgramError(message)


def _check_arguments(code: object, method: str) -> None:
    wanted = _ARGUMENTS.get(method)
    if wanted is None or not callable(code):
        return
    try:
        signature = inspect.signature(code)
    except (ValueError, TypeError):
        return  # written in C, without a signature
    try:
        signature.bind(*wanted)
    except TypeError as error:
        name = getattr(code, "__qualname__", repr(code))
        message = (
            f"{method}() calls its function with ({', '.join(wanted)}), but {name}{signature} "
            f"cannot be called so: {error}"
        )
        raise ProgramError(message) from error


class FieldSelector:
    """Takes a field by name out of records of a kind not known beforehand."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        """Take the field's name."""
        self.name = name

    def __call__(self, value: object) -> object:
        """The attribute of that name, or the entry of a dictionary."""
        if isinstance(value, dict):
            return value[self.name]
        return getattr(value, self.name)


def as_key_selector(
    selector: Callable[[object], object] | KeySelector | str | int, type_info: TypeInformation
) -> Callable[[object], object]:
    """A function from record to key.

    Args:
        selector: a callable, a KeySelector, a field name or a field index.
        type_info: the type of the records.

    Raises:
        ProgramError: there is no such field.
    """
    if isinstance(selector, KeySelector):
        check_returns(selector, "key_by")
        return selector.get_key
    if isinstance(selector, str | int) and not isinstance(selector, bool):
        return _field_getter(selector, type_info)
    unfit = isinstance(selector, type) and issubclass(selector, KeySelector)
    if unfit or not callable(selector):
        message = (
            "a key is taken by a function, a KeySelector instance, a field name or an index, "
            f"not by {selector!r}"
        )
        raise ProgramError(message)
    check_returns(selector, "key_by")
    return selector


def _field_getter(field: str | int, type_info: TypeInformation) -> Callable[[Any], object]:
    check_field(field, type_info)
    if isinstance(type_info, CompositeTypeInfo):
        names = type_info.get_field_names()
        index = names.index(field) if isinstance(field, str) else field
        if isinstance(type_info, TupleTypeInfo):
            return operator.itemgetter(index)
        return operator.attrgetter(names[index])
    if isinstance(field, str) and not isinstance(type_info, MapTypeInfo):
        return FieldSelector(field)
    return operator.itemgetter(field)


def check_field(field: str | int, type_info: TypeInformation) -> None:
    """Check a field name or index against the type, as far as the type is known.

    Raises:
        ProgramError: there is no such field; near matches are named.
    """
    if not isinstance(type_info, CompositeTypeInfo):
        return
    names = type_info.get_field_names()
    if isinstance(field, int):
        if 0 <= field < len(names):
            return
        message = f"there is no field {field} in {type_info}: it has {len(names)} fields"
        raise ProgramError(message)
    if field in names:
        return
    near = difflib.get_close_matches(field, names, n=3)
    hint = f"; did you mean {' or '.join(repr(each) for each in near)}?" if near else ""
    message = f"there is no field '{field}' in {type_info}{hint}"
    raise ProgramError(message)


class _Projection:
    """Some fields of a tuple, as a tuple; or of a row, as a row of the same kind."""

    def __init__(self, indexes: tuple[int, ...], names: list[str] | None) -> None:
        self._indexes = indexes
        self._names = names

    def __call__(self, value: Any) -> object:
        fields = [value[index] for index in self._indexes]
        if self._names is None:
            return tuple(fields)
        row = Row(*fields)
        row.set_field_names(self._names)
        if isinstance(value, Row):
            row.set_row_kind(value.get_row_kind())
        return row


def projection(
    type_info: TypeInformation, indexes: Sequence[int]
) -> tuple[Callable[[Any], object], TypeInformation]:
    """Return what ``project`` calls for each record, and the type of what that makes.

    Raises:
        ProgramError: the records are neither tuples nor rows, or there is no such field.
    """
    if not isinstance(type_info, TupleTypeInfo | RowTypeInfo):
        message = f"project() takes fields of tuples and rows, not of {type_info}; use map()"
        raise ProgramError(message)
    if not indexes or not all(type(index) is int for index in indexes):
        message = f"project() needs the numbers of one or more fields, not {list(indexes)}"
        raise ProgramError(message)
    for index in indexes:
        check_field(index, type_info)
    types = [type_info.get_field_types()[index] for index in indexes]
    if isinstance(type_info, TupleTypeInfo):
        return _Projection(tuple(indexes), None), Types.TUPLE(types)
    names = [type_info.get_field_names()[index] for index in indexes]
    return _Projection(tuple(indexes), names), Types.ROW_NAMED(names, types)


def check_summable(field: str | int, type_info: TypeInformation) -> None:
    """Refuse the sum of a field that is declared as text or truth value.

    Raises:
        ProgramError: it is.
    """
    kind = type_info
    if isinstance(type_info, CompositeTypeInfo):
        names = type_info.get_field_names()
        kind = type_info.get_field_types()[names.index(field) if isinstance(field, str) else field]
    if str(kind) in {"String", "Character", "Boolean", "Date", "Time", "Timestamp", "TimestampLtz"}:
        message = f"sum({field!r}) needs numbers, but the field is declared as {kind}"
        raise ProgramError(message)


def infer_key_type(
    selector: Callable[[object], object], type_info: TypeInformation
) -> TypeInformation | None:
    """The type of the keys: that of the field read, or of the selector's annotation."""
    field = field_of(selector)
    if field is not None and isinstance(type_info, CompositeTypeInfo):
        names, types = type_info.get_field_names(), type_info.get_field_types()
        if isinstance(field, str):
            return types[names.index(field)] if field in names else None
        return types[field] if -len(types) <= field < len(types) else None
    return infer_return_type(selector)


def as_partitioner(
    partitioner: Callable[[object, int], int] | Partitioner,
) -> Callable[[object, int], int]:
    """A function from key and number of subtasks to subtask."""
    if isinstance(partitioner, Partitioner):
        return partitioner.partition
    require(partitioner, (Partitioner,), "partition_custom")
    return partitioner
