"""TypeInformation: types of records and their conversion to Arrow columns and back.

Types are immutable, comparable and picklable.  Arrays without nulls go through numpy, whose
``tolist`` runs in C; nulls are inserted afterwards.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array as typed_array
from itertools import chain
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError, TypeMismatchError, with_article
from millstream.types import pickling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


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


class MapKey(dict[Any, Any]):
    """A map that is a key of another one, and must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Equal maps have equal hashes, whatever the order of their entries."""
        return hash(frozenset((key, as_key(item)) for key, item in self.items()))


def as_key(value: Any) -> Any:
    """Return a value as the key of a dict: maps in it become ``MapKey``, lists tuples."""
    if isinstance(value, dict):
        return MapKey(value)
    if isinstance(value, list):
        return tuple(map(as_key, value))
    if type(value) is tuple:
        return tuple(map(as_key, value))
    return value


def values_of(array: pa.Array) -> list[object]:
    """The values of an array of a flat type, None where it is null."""
    if array.null_count == 0 or not _needs_zero(array.type):
        as_list: list[object] = array.to_numpy(zero_copy_only=False).tolist()
        return as_list
    values: list[object] = (
        array.fill_null(pa.scalar(0, pa.int64()).cast(array.type)).to_numpy().tolist()
    )
    for position in null_positions(array):
        values[position] = None
    return values


def _needs_zero(data_type: pa.DataType) -> bool:
    """Return whether numpy has no null for the type, so that a zero has to stand in for it."""
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def temporal_values_of(array: pa.Array) -> list[object]:
    """The values of a date32 or microsecond timestamp array as ``date`` or naive ``datetime``.

    What Python cannot hold (years after 9999) comes out of numpy as an integer, which raises.
    """
    values: list[object] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def null_positions(array: pa.Array) -> list[int]:
    """Where the array is null."""
    positions: list[int] = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    return positions


def offsets_of(values: Sequence[object]) -> tuple[pa.Array, pa.Array | None, list[object]]:
    """Flatten lists (or dicts, or None) for an Arrow list or map array.

    Returns:
        The offsets, the mask of what is None (None if nothing is), and all items in one list.
        Iterating a dict gives its keys.
    """
    lengths = [0 if value is None else len(value) for value in values]  # type: ignore[arg-type]
    offsets: NDArray[np.int32] = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    lists: Iterable[Iterable[object]] = (v for v in values if v is not None)  # type: ignore[misc]
    mask = None
    if None in set(map(_none_or_true, values)):
        mask = pa.array([value is None for value in values], pa.bool_())
    return pa.array(offsets, pa.int32()), mask, list(chain.from_iterable(lists))


def _none_or_true(value: object) -> bool | None:
    return None if value is None else True


def slices_of(array: pa.Array, convert: Callable[[int, int], object]) -> list[object]:
    """One Python value per list of a list or map array: ``convert(first, stop)``, or None.

    The positions count from the first item that any list of the array holds.
    """
    if len(array) == 0:
        return []
    offsets = array.offsets.to_numpy()
    bounds: list[int] = (offsets - offsets[0]).tolist()
    values = [convert(bounds[i], bounds[i + 1]) for i in range(len(array))]
    if array.null_count:
        for position in null_positions(array):
            values[position] = None
    return values


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


def as_type(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """The array cast to a type, unless it has it already."""
    return array if array.type.equals(arrow_type) else array.cast(arrow_type, safe=False)


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
        offsets, mask, items = offsets_of(values)
        try:
            elements = self.elem_type.column_to_arrow(items)
            if elements.null_count and not self._nullable_elements:
                index = items.index(None)
                raise ColumnMismatchError(index, None, str(self.elem_type), "must not be None")  # noqa: TRY301 - gets its list's position below
        except ColumnMismatchError as mismatch:
            bounds = offsets.to_numpy()
            index = int(np.searchsorted(bounds, mismatch.index, side="right")) - 1
            element = f"element {mismatch.index - int(bounds[index])}"
            raise mismatch.within(element, index) from mismatch.__cause__
        return pa.ListArray.from_arrays(offsets, elements, mask=mask)

    def _as_list(self, index: int, value: object) -> object:
        if value is None or isinstance(value, list | tuple):
            return value
        if isinstance(value, np.ndarray | typed_array):
            return value.tolist()
        raise ColumnMismatchError(index, value, str(self))

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """Convert all elements at once, then cut them into lists."""
        array = as_type(array, self.arrow_type)
        if len(array) == 0:
            return []
        first, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
        elements = self.elem_type.column_from_arrow(array.values[first:stop])
        return slices_of(array, lambda a, b: elements[a:b])

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
        offsets, mask, keys = offsets_of(values)
        items = [item for value in values if value is not None for item in value.values()]  # type: ignore[attr-defined]
        bounds = offsets.to_numpy()
        columns = []
        for name, kind, part in (("key", self._key_type, keys), ("value", self._value_type, items)):
            try:
                columns.append(kind.column_to_arrow(part))
                if name == "key" and None in keys:
                    raise ColumnMismatchError(keys.index(None), None, str(kind), "a key is None")  # noqa: TRY301 - gets its map's position below
            except ColumnMismatchError as mismatch:
                index = int(np.searchsorted(bounds, mismatch.index, side="right")) - 1
                place = f"{name} of {keys[mismatch.index]!r}" if name == "value" else name
                raise mismatch.within(place, index) from mismatch.__cause__
        return pa.MapArray.from_arrays(offsets, *columns, mask=mask)

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        """Convert all keys and values at once, then cut them into dicts."""
        array = as_type(array, self.arrow_type)
        if len(array) == 0:
            return []
        first, stop = array.offsets[0].as_py(), array.offsets[-1].as_py()
        keys = self._key_type.column_from_arrow(array.keys[first:stop])
        if pa.types.is_nested(array.type.key_type):
            keys = list(map(as_key, keys))
        items = self._value_type.column_from_arrow(array.items[first:stop])
        return slices_of(array, lambda a, b: dict(zip(keys[a:b], items[a:b], strict=True)))

    def __str__(self) -> str:
        """``MapTypeInfo<String, Long>``."""
        return f"MapTypeInfo<{self._key_type}, {self._value_type}>"
