"""TypeInformation: types of records and their conversion to Arrow columns and back.

Types are immutable, comparable and picklable.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array as typed_array
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError, StateError, TypeMismatchError, with_article
from millstream.types import pickling
from millstream.types.columns import (
    as_type,
    list_column,
    lists_of,
    map_column,
    maps_of,
    place_of_item,
    values_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.types.columns import ToColumn


class ColumnMismatchError(Exception):
    """A value of a column does not fit.  Internal: becomes a TypeMismatchError further up."""

    def __init__(self, index: int, value: object, expected: str, reason: str = "") -> None:
        super().__init__(index, value, expected, reason)
        self.index = index
        self.value = value
        self.expected = expected
        self.reason = reason
        #: The fields that lead to the value, outermost first.
        self.path: tuple[str, ...] = ()

    def within(self, field: str, index: int | None = None) -> ColumnMismatchError:
        """The same mismatch, seen from the column or row that holds this one."""
        outer = ColumnMismatchError(
            self.index if index is None else index, self.value, self.expected, self.reason
        )
        outer.path = (field, *self.path)
        return outer


_LONGEST_REPR: Final = 200


class TypeInformation(ABC):
    """The type of the records of a stream, or of one field of them.

    Contract:
      1. ``from_arrow(to_arrow(values))`` gives equal values.  (tests)
      2. ``to_arrow`` raises rather than change a value silently; an ``int`` for a FLOAT or DOUBLE,
         a ``bool`` for an integer, 0 and 1 for a BOOLEAN and numpy scalars are the exceptions:
         they are what PyFlink takes, and equal to what they become.  (tests)
      3. Two types are equal if their ``str`` and their Arrow types are.  (this class)
    """

    @property
    @abstractmethod
    def arrow_type(self) -> pa.DataType:
        """The type of a column that holds such values as a field of a record."""

    @abstractmethod
    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """The values as a column, null where they are None.

        Raises:
            ColumnMismatchError: a value is not of this type.
        """

    @abstractmethod
    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """The values of a column; of another Arrow type, if that can be cast to this one."""

    @property
    def arrow_schema(self) -> pa.Schema | None:
        """The columns of a stream of this type; None if it is untyped (pickled)."""
        return pa.schema([("f0", self.arrow_type)])

    def to_arrow(self, values: Sequence[object]) -> pa.RecordBatch:
        """The records as columns.

        Raises:
            TypeMismatchError: a value is not of this type; names its index and the value.
        """
        try:
            return self._batch_of(values)
        except ColumnMismatchError as mismatch:
            raise TypeMismatchError(mismatch_text(mismatch, self, values)) from mismatch.__cause__

    def from_arrow(self, batch: pa.RecordBatch) -> list[Any]:
        """The records of a batch that ``to_arrow`` made, or one that ``conform`` accepts."""
        return self.column_from_arrow(batch.column(0))

    def conform(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with exactly the columns of ``arrow_schema``; the same object if it has them.

        Raises:
            TypeMismatchError: a column cannot be cast.
        """
        schema = self.arrow_schema
        if schema is None or batch.schema.equals(schema):
            return batch
        columns = [batch.column(position) for position in self._positions(batch.schema)]
        try:
            # Not safe: a reader's nanoseconds are cut to the microseconds that Python has.
            cast = [c.cast(f.type, safe=False) for c, f in zip(columns, schema, strict=True)]
        except pa.ArrowException as error:
            message = f"columns {batch.schema} do not fit {self}: {error}"
            raise TypeMismatchError(message) from error
        return pa.RecordBatch.from_arrays(cast, schema=schema)

    def _positions(self, schema: pa.Schema) -> Sequence[int]:
        """Which columns of a batch hold the fields of this type."""
        if len(schema) != 1:
            message = f"columns {schema.names} do not fit {self}: one is needed"
            raise TypeMismatchError(message)
        return range(1)

    def _batch_of(self, values: Sequence[object]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays([self.column_to_arrow(values)], schema=self.arrow_schema)

    def __eq__(self, other: object) -> bool:
        """Return whether both describe the same records."""
        return (
            isinstance(other, TypeInformation)
            and str(self) == str(other)
            and bool(self.arrow_type.equals(other.arrow_type))
        )

    def __hash__(self) -> int:
        """Equal types have equal hashes."""
        return hash(str(self))

    @abstractmethod
    def __str__(self) -> str:
        """The type as Flink prints it."""

    def __repr__(self) -> str:
        """The same as ``str``."""
        return str(self)


#: What a mismatch in a stream ends with.
_ADVICE: Final = "return such a value or declare another output_type"


def mismatch_text(
    mismatch: ColumnMismatchError,
    declared: TypeInformation,
    values: Sequence[object],
    advice: str = _ADVICE,
) -> str:
    """What to tell a user: which of ``values``, which field of it, what it is and should be."""
    where = f"value {mismatch.index}" + "".join(f", {field}" for field in mismatch.path)
    reason = f" ({mismatch.reason})" if mismatch.reason else ""
    whole = ""
    if mismatch.path:
        whole = f" of the declared type {declared}, in record {_shown(values[mismatch.index])}"
    return (
        f"{where}: {_shown(mismatch.value)} is {with_article(type(mismatch.value).__name__)} and "
        f"does not fit {mismatch.expected}{whole}{reason}; {advice}"
    )


def check_type_argument(given: object, what: str) -> None:
    """Refuse what was given for a type and is none; None stands for no type.

    Raises:
        ProgramError: it is not a TypeInformation.
    """
    if given is None or isinstance(given, TypeInformation):
        return
    shown = getattr(given, "__qualname__", repr(given))
    hint = ""
    if callable(given) and shown.startswith("Types."):
        hint = f"; write {shown}() with parentheses"
    message = f"{what} must be a type such as Types.LONG(), not {shown}{hint}"
    raise ProgramError(message)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_REPR else text[:_LONGEST_REPR] + "..."


def locate_mismatch(
    values: Sequence[object], arrow_type: pa.DataType, expected: str, error: Exception
) -> ColumnMismatchError:
    """Find the value that Arrow refused."""
    for index, value in enumerate(values):
        try:
            pa.array([value], arrow_type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as refused:
            return ColumnMismatchError(index, value, expected, str(refused))
    return ColumnMismatchError(0, values, expected, str(error))


class ArrowTypeInfo(TypeInformation):
    """A column of any Arrow type, with the values that pyarrow gives; for foreign schemas."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self._arrow_type = arrow_type

    @property
    def arrow_type(self) -> pa.DataType:
        """The type it was made for."""
        return self._arrow_type

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """The values as pyarrow takes them."""
        try:
            return pa.array(values, self._arrow_type)
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            raise locate_mismatch(values, self._arrow_type, str(self), error) from error

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """The values as pyarrow gives them."""
        if pa.types.is_integer(array.type) or pa.types.is_floating(array.type):
            return values_of(array)
        values: list[Any] = array.to_pylist()
        return values

    def __str__(self) -> str:
        """``Arrow(uint64)``."""
        return f"Arrow({self._arrow_type})"


class PickledBytesTypeInfo(TypeInformation):
    """Any Python value, pickled.  A stream of it is untyped; a field of it is a binary column."""

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    @property
    def arrow_schema(self) -> pa.Schema | None:
        return None

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """Pickle the values one by one."""
        pickled = [None if value is None else pickling.dumps(value) for value in values]
        return pa.array(pickled, pa.binary())

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        pickled: list[Any] = values_of(array)
        return [None if value is None else pickling.loads(value) for value in pickled]

    def to_arrow(self, values: Sequence[object]) -> pa.RecordBatch:
        """Refused.

        Raises:
            ProgramError: always; an untyped stream has no columns.
        """
        del values
        message = "an untyped stream has no Arrow columns; give the operator an output_type"
        raise ProgramError(message)

    def __str__(self) -> str:
        return "PickledByteArrayTypeInfo"


class StateSerializer(ABC):
    """Writes and reads values that no other type describes; for ``Types.SERIALIZED``.

    Contract:
      1. ``name`` stays the same for as long as there is state of it, and ``version`` grows when
         ``serialize`` writes other bytes: both are recorded in snapshots.  (nobody)
      2. ``deserialize(serialize(value), version)`` is equal to the value, in any process.  (nobody)
      3. Both can be called for many values, and may keep nothing between calls.  (nobody)
    """

    #: Of the bytes that it writes.
    name: str = ""
    version: int = 1

    @abstractmethod
    def serialize(self, value: Any) -> bytes:
        """Return the bytes of a value, which is not None."""

    @abstractmethod
    def deserialize(self, content: bytes, version: int) -> Any:
        """Return the value of some bytes.

        Args:
            content: as ``serialize`` has written it.
            version: of the serializer that has written it.
        """

    def reads(self, version: int) -> bool:
        """Return whether state of a version can be restored; by default that of ``version`` only.

        Values of other versions are converted when the state is restored.
        """
        return version == self.version


class SerializedTypeInfo(TypeInformation):
    """Values of a ``StateSerializer``; a binary column."""

    def __init__(self, serializer: StateSerializer) -> None:
        """Take the serializer, which is shipped with the program.

        Raises:
            ProgramError: it is none, or has no name or no version.
        """
        given: object = serializer
        if not isinstance(given, StateSerializer):
            message = (
                f"Types.SERIALIZED takes an instance of StateSerializer, not {serializer!r}; derive"
                " a class from it and pass an object of the class"
            )
            raise ProgramError(message)
        name, version = serializer.name, serializer.version
        if not (isinstance(name, str) and name and type(version) is int and version > 0):
            message = (
                f"serializer {type(serializer).__qualname__} has name {name!r} and version"
                f" {version!r}; it needs a text and a number above zero, which snapshots record"
            )
            raise ProgramError(message)
        self.serializer = serializer

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.binary()

    def serialized(self, value: Any) -> bytes:
        """Return the bytes of a value.

        Raises:
            StateError: the serializer has failed, or has not returned bytes.
        """
        try:
            content: Any = self.serializer.serialize(value)
        except Exception as error:
            shown = pickling.short_repr(value)
            message = f"{self._title} cannot serialize {shown}: {type(error).__name__}: {error}"
            raise StateError(message) from error
        if type(content) is bytes:
            return content
        message = (
            f"{self._title} returned {type(content).__name__} for a value of type"
            f" {type(value).__name__}; serialize() must return bytes"
        )
        raise StateError(message)

    def deserialized(self, content: bytes) -> Any:
        """Return the value of bytes that this version has written.

        Raises:
            StateError: the serializer has failed.
        """
        try:
            return self.serializer.deserialize(content, self.serializer.version)
        except Exception as error:
            message = (
                f"{self._title} cannot read {len(content)} bytes that its version"
                f" {self.serializer.version} has written: {type(error).__name__}: {error}"
            )
            raise StateError(message) from error

    @property
    def _title(self) -> str:
        return f"serializer {self.serializer.name!r} ({type(self.serializer).__qualname__})"

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """Serialize the values one by one."""
        contents = [None if value is None else self.serialized(value) for value in values]
        return pa.array(contents, pa.binary())

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        contents: list[Any] = values_of(array)
        return [None if value is None else self.deserialized(value) for value in contents]

    def __str__(self) -> str:
        """``SerializedTypeInfo<money, version 2>``."""
        return f"SerializedTypeInfo<{self.serializer.name}, version {self.serializer.version}>"


class SerializedValue(bytes):
    """A value as a serializer has written it, which is not available."""


class StoredSerializer(StateSerializer):
    """Stands for the serializer that has written state, where only its name is known.

    Args:
        name: of the serializer.
        version: of it.
        as_bytes: values are ``bytes`` instead of ``SerializedValue``.
    """

    def __init__(self, name: str, version: int, *, as_bytes: bool) -> None:
        self.name = name
        self.version = version
        self._cls = bytes if as_bytes else SerializedValue

    def serialize(self, value: Any) -> bytes:
        if type(value) is not self._cls:
            message = f"{value!r} is not a value as serializer {self.name!r} writes it"
            raise TypeError(message)
        return bytes(value)

    def deserialize(self, content: bytes, version: int) -> Any:
        del version
        return self._cls(content)


def _without_nulls(kind: TypeInformation, reason: str, items: Sequence[Any]) -> pa.Array:
    column = kind.column_to_arrow(items)
    if column.null_count:
        raise ColumnMismatchError(items.index(None), None, str(kind), reason)
    return column


def _located(convert: ToColumn, values: Sequence[Any], name: Callable[[Any, int], str]) -> ToColumn:
    """Have mismatches of the items of lists or dicts say which of ``values`` they are in."""

    def located(items: Sequence[Any]) -> pa.Array:
        try:
            return convert(items)
        except ColumnMismatchError as mismatch:
            index, place = place_of_item(values, mismatch.index)
            field = name(values[index], place)
            raise mismatch.within(field, index) from mismatch.__cause__

    return located


class _SequenceTypeInfo(TypeInformation):
    """Base of arrays and lists: a Python list whose elements have one type."""

    #: Whether an element may be None.
    _nullable_elements: bool = True

    def __init__(self, element_type: TypeInformation) -> None:
        check_type_argument(element_type, "the type of the elements")
        self.elem_type = element_type

    @property
    def arrow_type(self) -> pa.DataType:
        """A list of the element's type."""
        return pa.list_(self.elem_type.arrow_type)

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """Flatten the lists into one column of elements and the offsets of the lists."""
        if not set(map(type, values)) <= _LISTS:
            values = [self._as_list(index, value) for index, value in enumerate(values)]
        convert = self.elem_type.column_to_arrow
        if not self._nullable_elements:
            convert = partial(_without_nulls, self.elem_type, "must not be None")
        return list_column(values, _located(convert, values, lambda _, at: f"element {at}"))

    def _as_list(self, index: int, value: object) -> object:
        if value is None or isinstance(value, list | tuple):
            return value
        if isinstance(value, np.ndarray | typed_array):
            return value.tolist()
        raise ColumnMismatchError(index, value, str(self))

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """Convert all elements at once, then cut them into lists."""
        return lists_of(as_type(array, self.arrow_type), self.elem_type.column_from_arrow)

    def __str__(self) -> str:
        """``ListTypeInfo<Long>``."""
        return f"{type(self).__name__}<{self.elem_type}>"


_LISTS: Final = frozenset({list, tuple, type(None)})


class ListTypeInfo(_SequenceTypeInfo):
    """A list of elements of one type."""


class BasicArrayTypeInfo(_SequenceTypeInfo):
    """An array of a basic type; elements may be None."""


class ObjectArrayTypeInfo(_SequenceTypeInfo):
    """An array of any type; elements may be None."""


class PrimitiveArrayTypeInfo(_SequenceTypeInfo):
    """An array of a primitive type; elements must not be None.  Of BYTE: Python ``bytes``."""

    _nullable_elements = False

    @property
    def _is_bytes(self) -> bool:
        return bool(self.elem_type.arrow_type.equals(pa.int8()))

    @property
    def arrow_type(self) -> pa.DataType:
        """Binary for bytes, else a list."""
        return pa.binary() if self._is_bytes else super().arrow_type

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """Bytes as they are, other arrays as lists."""
        if not self._is_bytes:
            return super().column_to_arrow(values)
        if not set(map(type, values)) <= _BYTES:
            for index, value in enumerate(values):
                if value is not None and not isinstance(value, bytes | bytearray | memoryview):
                    raise ColumnMismatchError(index, value, str(self), "give bytes")
        return pa.array(values, pa.binary())

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        if not self._is_bytes:
            return super().column_from_arrow(array)
        return values_of(as_type(array, pa.binary()))


_BYTES: Final = frozenset({bytes, type(None)})


class MapTypeInfo(TypeInformation):
    """A dict whose keys have one type and whose values have one type.  Keys are never None."""

    def __init__(self, key_type_info: TypeInformation, value_type_info: TypeInformation) -> None:
        check_type_argument(key_type_info, "the type of the keys of a map")
        check_type_argument(value_type_info, "the type of the values of a map")
        self._key_type = key_type_info
        self._value_type = value_type_info

    @property
    def key_type_info(self) -> TypeInformation:
        """The type of the keys."""
        return self._key_type

    @property
    def value_type_info(self) -> TypeInformation:
        """The type of the values."""
        return self._value_type

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.map_(self._key_type.arrow_type, self._value_type.arrow_type)

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """Flatten the dicts into a column of keys and one of values."""
        for index, value in enumerate(values):
            if value is not None and not isinstance(value, dict):
                raise ColumnMismatchError(index, value, str(self))
        keys = partial(_without_nulls, self._key_type, "a key is None")
        items = self._value_type.column_to_arrow
        return map_column(
            values,
            _located(keys, values, lambda *_: "key"),
            _located(items, values, lambda value, at: f"value of {list(value)[at]!r}"),
        )

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """Convert all keys and values at once, then cut them into dicts."""
        keys, items = self._key_type.column_from_arrow, self._value_type.column_from_arrow
        return maps_of(as_type(array, self.arrow_type), keys, items)

    def __str__(self) -> str:
        """``MapTypeInfo<String, Long>``."""
        return f"MapTypeInfo<{self._key_type}, {self._value_type}>"
