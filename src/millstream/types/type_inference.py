"""Type inference: from the annotations of functions and dataclasses to types of streams.

What it is: ``int`` is LONG, ``list[str]`` is LIST(STRING), a dataclass is DATACLASS, and so on.
Inference is careful: where a value would not come back as what it was (``tuple[int, ...]``,
named tuples, enums, unions), there is no type, and the value is pickled as in PyFlink.

What it is not: a check of values.  That is done when records become columns.

Read next: ``types/composite_types.py``.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import functools
import types
import typing
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.types.basic_types import BasicTypeInfo, BigDecimalTypeInfo, SqlTimeTypeInfo
from millstream.types.composite_types import DataclassTypeInfo, TupleTypeInfo
from millstream.types.type_information import (
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.type_information import TypeInformation

__all__ = ["dataclass_type", "infer_return_type", "infer_type"]

_SCALARS: Final[dict[object, TypeInformation]] = {
    int: BasicTypeInfo("Long"),
    str: BasicTypeInfo("String"),
    float: BasicTypeInfo("Double"),
    bool: BasicTypeInfo("Boolean"),
    bytes: PrimitiveArrayTypeInfo(BasicTypeInfo("Byte")),
    dt.datetime: SqlTimeTypeInfo("Timestamp"),
    dt.date: SqlTimeTypeInfo("Date"),
    dt.time: SqlTimeTypeInfo("Time"),
    Decimal: BigDecimalTypeInfo(),
}

_ITERABLES: Final = frozenset(
    {
        collections.abc.Iterator,
        collections.abc.Iterable,
        collections.abc.Generator,
        collections.abc.Sequence,
        list,
    }
)


def infer_return_type(
    function: Callable[..., object], *, unwrap: bool = False
) -> TypeInformation | None:
    """The type of what a function returns, by its annotation.

    Args:
        function: a function, a bound method, a partial, or an object that can be called.
        unwrap: the function returns or yields many values (``Iterator[int]``, ``list[int]``), and
            the type of one of them is wanted.

    Returns:
        The type; None if there is no annotation, or none that stands for a type.
    """
    annotation = _return_annotation(function)
    if annotation is None:
        return None
    if unwrap:
        annotation, _ = _without_none(annotation)
        if typing.get_origin(annotation) not in _ITERABLES:
            return None
        annotation = typing.get_args(annotation)[0]
    required, optional = _without_none(annotation)
    inferred = infer_type(required)
    # A record of several fields has no column that could say that all of it is None.
    if optional and isinstance(inferred, DataclassTypeInfo | TupleTypeInfo):
        return None
    return inferred


def infer_type(annotation: object) -> TypeInformation | None:
    """The type that an annotation stands for; None if it stands for none.

    ``X | None`` is X: columns may hold None.
    """
    return _infer(annotation, ())


def dataclass_type(cls: type) -> DataclassTypeInfo:
    """The type of the instances of a dataclass, by the annotations of its fields.

    Fields whose annotation stands for no type are pickled.

    Raises:
        ProgramError: it is no dataclass, has no fields, or its annotations do not resolve.
    """
    if not (isinstance(cls, type) and dataclasses.is_dataclass(cls)):
        message = f"{cls!r} is not a dataclass; decorate the class with @dataclass"
        raise ProgramError(message)
    return _dataclass(cls, ())


def _dataclass(cls: type, outer: tuple[type, ...]) -> DataclassTypeInfo:
    try:
        hints = typing.get_type_hints(cls)
    except Exception as error:  # a name in a string annotation can raise anything
        message = (
            f"the annotations of dataclass {cls.__qualname__} do not resolve ({error}); define the "
            "names they use at the top level of a module"
        )
        raise ProgramError(message) from error
    kinds = [
        _infer(hints[field.name], (*outer, cls)) or PickledBytesTypeInfo()
        for field in dataclasses.fields(cls)
    ]
    return DataclassTypeInfo(cls, kinds)


def _return_annotation(function: Callable[..., object]) -> object | None:
    while isinstance(function, functools.partial):
        function = function.func
    if isinstance(function, type):
        return function
    target: Any = function
    if not isinstance(target, types.FunctionType | types.MethodType):
        target = getattr(type(function), "__call__", None)  # noqa: B004 - its annotations are wanted
    if not hasattr(target, "__annotations__"):
        return None
    try:
        hints = typing.get_type_hints(target)
    except Exception:  # noqa: BLE001 - an annotation that does not resolve says nothing
        return None
    annotation: object | None = hints.get("return")
    return annotation


def _without_none(annotation: object) -> tuple[object, bool]:
    """``X | None`` as (X, True), anything else as it is."""
    if typing.get_origin(annotation) in {typing.Union, types.UnionType}:
        members = typing.get_args(annotation)
        rest = [member for member in members if member is not type(None)]
        if len(rest) == 1 and len(rest) < len(members):
            return rest[0], True
    return annotation, False


def _infer(annotation: object, outer: tuple[type, ...]) -> TypeInformation | None:
    annotation, _ = _without_none(annotation)
    while isinstance(annotation, typing.NewType):
        annotation = annotation.__supertype__
    if annotation in _SCALARS:
        return _SCALARS[annotation]
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is tuple:
        return _infer_tuple(arguments, outer)
    if origin in {list, dict}:
        parts = [_infer(argument, outer) for argument in arguments]
        if None in parts:
            return None
        known = [part for part in parts if part is not None]
        return ListTypeInfo(*known) if origin is list else MapTypeInfo(*known)
    if isinstance(annotation, type) and dataclasses.is_dataclass(annotation):
        return _infer_dataclass(annotation, outer)
    return None


def _infer_tuple(arguments: tuple[object, ...], outer: tuple[type, ...]) -> TypeInformation | None:
    # tuple[()] has no fields; tuple[int, ...] would come back as a list.
    if not arguments or Ellipsis in arguments:
        return None
    return TupleTypeInfo([_infer(a, outer) or PickledBytesTypeInfo() for a in arguments])


def _infer_dataclass(cls: type, outer: tuple[type, ...]) -> TypeInformation | None:
    # An instance of a subclass has fields that the columns would not hold, and a class that holds
    # itself has no finite columns.
    if cls in outer or cls.__subclasses__() or not dataclasses.fields(cls):
        return None
    try:
        return _dataclass(cls, outer)
    except ProgramError:
        return None
