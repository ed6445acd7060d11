"""``Types``: factories of the types of streams and state, under PyFlink's names."""

from __future__ import annotations

import collections.abc
import dataclasses
import datetime as dt
import functools
import types
import typing
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.types.basic_types import (
    BasicType,
    BasicTypeInfo,
    BigDecimalTypeInfo,
    DateTypeInfo,
    DecimalTypeInfo,
    InstantTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
)
from millstream.types.composite_types import (
    DataclassTypeInfo,
    NamedTupleTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    record_fields,
)
from millstream.types.row import Row, RowKind
from millstream.types.type_information import (
    ArrowTypeInfo,
    BasicArrayTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    SerializedTypeInfo,
    StateSerializer,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = [
    "ArrowTypeInfo",
    "BasicArrayTypeInfo",
    "BasicType",
    "BasicTypeInfo",
    "BigDecimalTypeInfo",
    "DataclassTypeInfo",
    "DateTypeInfo",
    "DecimalTypeInfo",
    "InstantTypeInfo",
    "ListTypeInfo",
    "MapTypeInfo",
    "NamedTupleTypeInfo",
    "ObjectArrayTypeInfo",
    "PickledBytesTypeInfo",
    "PrimitiveArrayTypeInfo",
    "Row",
    "RowKind",
    "RowTypeInfo",
    "SerializedTypeInfo",
    "SqlTimeTypeInfo",
    "StateSerializer",
    "TimeTypeInfo",
    "TimestampTypeInfo",
    "TupleTypeInfo",
    "TypeInformation",
    "Types",
    "dataclass_type",
    "from_arrow_schema",
    "from_arrow_type",
    "infer_return_type",
    "infer_type",
    "named_tuple_type",
]


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
    return DataclassTypeInfo(cls, _field_types(cls, "dataclass", outer))


def named_tuple_type(cls: type) -> NamedTupleTypeInfo:
    """The type of the instances of a ``NamedTuple`` class, by the annotations of its fields.

    Fields whose annotation stands for no type are pickled, named tuples among them.

    Raises:
        ProgramError: it is no such class, has no fields, or its annotations do not resolve.
    """
    if dataclasses.is_dataclass(cls) or record_fields(cls) is None:
        message = f"{cls!r} is not a NamedTuple class; derive it from typing.NamedTuple"
        raise ProgramError(message)
    return NamedTupleTypeInfo(cls, _field_types(cls, "named tuple", ()))


def _field_types(cls: type, what: str, outer: tuple[type, ...]) -> list[TypeInformation]:
    """The types of the fields of a class by their annotations; pickled where there is none."""
    try:
        hints = typing.get_type_hints(cls)
    except Exception as error:  # a name in a string annotation can raise anything
        message = (
            f"the annotations of {what} {cls.__qualname__} do not resolve ({error}); define the "
            "names they use at the top level of a module"
        )
        raise ProgramError(message) from error
    return [
        _infer(hints.get(name), (*outer, cls)) or PickledBytesTypeInfo()
        for name in record_fields(cls) or ()
    ]


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


_PRIMITIVES = ("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "Character")


class Types:
    """The types of streams and state, under PyFlink's names."""

    @staticmethod
    def STRING() -> TypeInformation:
        """``str``."""
        return BasicTypeInfo("String")

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """``bool``."""
        return BasicTypeInfo("Boolean")

    @staticmethod
    def BYTE() -> TypeInformation:
        """``int`` of 8 bits."""
        return BasicTypeInfo("Byte")

    @staticmethod
    def SHORT() -> TypeInformation:
        """``int`` of 16 bits."""
        return BasicTypeInfo("Short")

    @staticmethod
    def INT() -> TypeInformation:
        """``int`` of 32 bits."""
        return BasicTypeInfo("Integer")

    @staticmethod
    def LONG() -> TypeInformation:
        """``int`` of 64 bits."""
        return BasicTypeInfo("Long")

    @staticmethod
    def FLOAT() -> TypeInformation:
        """``float``, rounded to 32 bits."""
        return BasicTypeInfo("Float")

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """``float``."""
        return BasicTypeInfo("Double")

    @staticmethod
    def CHAR() -> TypeInformation:
        """``str`` of one character (not checked)."""
        return BasicTypeInfo("Character")

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """``int`` of up to 38 digits."""
        return DecimalTypeInfo(38, 0, integers=True)

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """``decimal.Decimal`` of any size, kept digit for digit (a text column)."""
        return BigDecimalTypeInfo()

    @staticmethod
    def DECIMAL(precision: int, scale: int) -> TypeInformation:
        """``decimal.Decimal`` of up to 38 digits, ``scale`` of them after the point."""
        return DecimalTypeInfo(precision, scale)

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """``datetime.date``."""
        return DateTypeInfo()

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """``datetime.time`` without time zone."""
        return TimeTypeInfo()

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """``datetime.datetime`` without time zone."""
        return TimestampTypeInfo()

    @staticmethod
    def TIMESTAMP_LTZ() -> TypeInformation:
        """``datetime.datetime`` with time zone; comes back in UTC."""
        return SqlTimeTypeInfo("TimestampLtz")

    @staticmethod
    def INSTANT() -> TypeInformation:
        """``Instant``."""
        return InstantTypeInfo()

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any value, pickled."""
        return PickledBytesTypeInfo()

    @staticmethod
    def ROW(field_types: Sequence[TypeInformation]) -> RowTypeInfo:
        """``Row`` with fields ``f0``, ``f1``, ...; a row itself must not be None."""
        return RowTypeInfo(field_types)

    @staticmethod
    def ROW_NAMED(
        field_names: Sequence[str], field_types: Sequence[TypeInformation]
    ) -> RowTypeInfo:
        """``Row`` with the given fields; a row itself must not be None."""
        return RowTypeInfo(field_types, field_names)

    @staticmethod
    def TUPLE(field_types: Sequence[TypeInformation]) -> TupleTypeInfo:
        """``tuple``; a tuple itself must not be None."""
        return TupleTypeInfo(field_types)

    @staticmethod
    def DATACLASS(dataclass: type) -> DataclassTypeInfo:
        """Instances of a dataclass; the types of its fields are read from its annotations.

        A field whose annotation has no type of its own is pickled.

        Raises:
            ProgramError: it is no dataclass, has no fields, or its annotations do not resolve.
        """
        return dataclass_type(dataclass)

    @staticmethod
    def NAMED_TUPLE(named_tuple: type) -> NamedTupleTypeInfo:
        """Instances of a ``NamedTuple``; the types of its fields are read from its annotations.

        A field whose annotation has no type, or is another ``NamedTuple``, is pickled.

        Raises:
            ProgramError: it is no such class, has no fields, or its annotations do not resolve.
        """
        return named_tuple_type(named_tuple)

    @staticmethod
    def SERIALIZED(serializer: StateSerializer) -> SerializedTypeInfo:
        """Values that a serializer of the program writes and reads.

        Raises:
            ProgramError: it is no ``StateSerializer``, or has no name or version.
        """
        return SerializedTypeInfo(serializer)

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``list`` of a primitive type without None; ``bytes`` if the type is BYTE.

        Raises:
            ProgramError: the element type is not primitive.
        """
        if str(element_type) not in _PRIMITIVES:
            message = f"invalid element type for a primitive array: {element_type}"
            raise ProgramError(message)
        return PrimitiveArrayTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``list`` of a basic type.

        Raises:
            ProgramError: the element type is not basic.
        """
        if str(element_type) not in (*_PRIMITIVES, "String"):
            message = f"invalid element type for a basic array: {element_type}"
            raise ProgramError(message)
        return BasicArrayTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``list`` of any type."""
        return ObjectArrayTypeInfo(element_type)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """``dict``; keys must not be None."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """``list`` of any type."""
        return ListTypeInfo(element_type_info)


_BYTES: Final = PrimitiveArrayTypeInfo(Types.BYTE())
_BASIC: Final = ("Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double", "String")
_SAME: Final[dict[pa.DataType, TypeInformation]] = {
    **{info.arrow_type: info for info in map(BasicTypeInfo, _BASIC)},
    **dict.fromkeys((pa.large_string(), pa.string_view()), Types.STRING()),
    **dict.fromkeys((pa.binary(), pa.large_binary()), _BYTES),
    **dict.fromkeys((pa.date32(), pa.date64()), Types.SQL_DATE()),
}


def from_arrow_schema(schema: pa.Schema, names: Sequence[str] | None = None) -> RowTypeInfo:
    """The type of rows with the columns of an Arrow schema.

    Columns of a type that has several widths (large strings, nanoseconds) get the usual one; bring
    the batches into the same form with ``TypeInformation.conform``.

    Args:
        schema: the columns.
        names: names for the fields, one per column; those of the columns by default.

    Raises:
        ProgramError: the numbers of names and columns differ, or a name occurs twice.
    """
    types = [from_arrow_type(field.type) for field in schema]
    return RowTypeInfo(types, schema.names if names is None else names)


def from_arrow_type(data_type: pa.DataType) -> TypeInformation:  # noqa: PLR0911 - a table
    """The type of the values of a column; an ArrowTypeInfo where Flink has no such type."""
    known = _SAME.get(data_type)
    if known is not None:
        return known
    kinds = pa.types
    if kinds.is_timestamp(data_type):
        return Types.SQL_TIMESTAMP() if data_type.tz is None else Types.TIMESTAMP_LTZ()
    if kinds.is_time(data_type):
        return Types.SQL_TIME()
    if kinds.is_decimal128(data_type):
        return DecimalTypeInfo(data_type.precision, data_type.scale)
    if kinds.is_dictionary(data_type):
        return from_arrow_type(data_type.value_type)
    if kinds.is_list(data_type) or kinds.is_large_list(data_type):
        return ListTypeInfo(from_arrow_type(data_type.value_type))
    if kinds.is_map(data_type):
        return MapTypeInfo(
            from_arrow_type(data_type.key_type), from_arrow_type(data_type.item_type)
        )
    if kinds.is_struct(data_type) and data_type.num_fields:
        return from_arrow_schema(pa.schema(list(data_type)))
    return ArrowTypeInfo(data_type)
