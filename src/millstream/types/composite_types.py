"""Composite types: rows, tuples and dataclasses, one Arrow column per field.

The fields are columns of the record batch for a stream, and a struct column for a field of another
record.
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from itertools import chain
from operator import attrgetter
from types import MethodType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pyarrow as pa

from millstream.errors import ProgramError, TypeMismatchError
from millstream.types.columns import as_type, record_column, records_of
from millstream.types.row import (
    ROW_KIND_COLUMN,
    Row,
    kinds_of,
    row_class,
    set_kinds,
    with_kind_column,
)
from millstream.types.type_information import (
    ColumnMismatchError,
    TypeInformation,
    check_type_argument,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def _fields(count: int) -> str:
    return f"{count} field{'' if count == 1 else 's'}"


class CompositeTypeInfo(TypeInformation):
    """Base of types of several named fields."""

    def __init__(self, names: Sequence[str], types: Sequence[TypeInformation]) -> None:
        self.types = list(types)
        for kind in self.types:
            check_type_argument(kind, f"the type of a field of {type(self).__name__}")
        self._names = tuple(names)
        if not self._names or len(self._names) != len(self.types):
            message = (
                f"{type(self).__name__} needs one name per type and at least one field; it got "
                f"names {list(names)} and types {[str(t) for t in types]}"
            )
            raise ProgramError(message)
        if len(set(self._names)) != len(self._names):
            message = f"{type(self).__name__} has a field name twice: {list(names)}"
            raise ProgramError(message)
        self._schema: pa.Schema | None = None

    def __getstate__(self) -> dict[str, object]:
        """All but what is made again at need."""
        return {**self.__dict__, "_schema": None}

    def get_field_names(self) -> list[str]:
        """The names of the fields."""
        return list(self._names)

    def get_field_types(self) -> list[TypeInformation]:
        """The types of the fields."""
        return self.types

    def get_field_index(self, field_name: str) -> int:
        """The position of the field; -1 if there is none of that name, as in Flink."""
        return self._names.index(field_name) if field_name in self._names else -1

    @property
    def arrow_type(self) -> pa.DataType:
        return pa.struct([(n, t.arrow_type) for n, t in zip(self._names, self.types, strict=True)])

    @property
    def arrow_schema(self) -> pa.Schema | None:
        if self._schema is None:
            self._schema = pa.schema(list(self.arrow_type))
        return self._schema

    @abstractmethod
    def _to_columns(self, values: Sequence[Any]) -> Sequence[Sequence[object]]:
        """The fields of all values, none of them None.

        Raises:
            ColumnMismatchError: a value is no such record.
        """

    @abstractmethod
    def _from_columns(self, columns: list[list[Any]]) -> list[Any]:
        """The records."""

    def record_of(self, values: Sequence[Any]) -> Any:
        """The record with these values of its fields, in their order."""
        return self._from_columns([[value] for value in values])[0]

    def _to_arrays(self, values: Sequence[Any]) -> list[pa.Array]:
        columns = self._to_columns(values) if values else [()] * len(self.types)
        arrays = []
        for name, kind, column in zip(self._names, self.types, columns, strict=True):
            try:
                arrays.append(kind.column_to_arrow(column))
            except ColumnMismatchError as mismatch:
                label = f"field {name!r}"
                raise mismatch.within(label) from mismatch.__cause__
        return arrays

    def _batch_of(self, values: Sequence[object]) -> pa.RecordBatch:
        return pa.RecordBatch.from_arrays(self._to_arrays(values), schema=self.arrow_schema)

    def from_arrow(self, batch: pa.RecordBatch) -> list[Any]:
        """The records of a batch; columns are found by name, or by position if names differ.

        Raises:
            TypeMismatchError: the number of columns is not that of the fields.
        """
        return self._from_columns(self._columns_of(batch))

    def _columns_of(self, batch: pa.RecordBatch) -> list[list[Any]]:
        return [
            kind.column_from_arrow(batch.column(position))
            for kind, position in zip(self.types, self._positions(batch.schema), strict=True)
        ]

    def _positions(self, schema: pa.Schema) -> Sequence[int]:
        names = schema.names
        if names != list(self._names) and set(names) >= set(self._names):
            return [names.index(name) for name in self._names]
        if len(names) < len(self._names):
            message = f"columns {names} do not fit {self}"
            raise TypeMismatchError(message)
        return range(len(self._names))

    def column_to_arrow(self, values: Sequence[object]) -> pa.Array:
        """Records as a struct column; None is a null."""
        try:
            return record_column(values, self._to_arrays, self.arrow_type)
        except ColumnMismatchError as mismatch:
            present = [index for index, value in enumerate(values) if value is not None]
            mismatch.index = present[mismatch.index]
            raise

    def column_from_arrow(self, array: pa.Array) -> list[Any]:
        fields = [kind.column_from_arrow for kind in self.types]
        return records_of(as_type(array, self.arrow_type), fields, self._from_columns)

    def _transposed(self, values: Sequence[Any]) -> Sequence[Sequence[object]]:
        """The fields of records that are sequences, all of the right length."""
        count = len(self._names)
        if set(map(len, values)) <= {count}:
            # Not zip: so many iterators at a time set the garbage collector going.
            flat = list(chain.from_iterable(values))
            return [flat[at::count] for at in range(count)]
        index = next(i for i, value in enumerate(values) if len(value) != count)
        reason = f"it has {_fields(len(values[index]))} instead of {len(self._names)}"
        raise ColumnMismatchError(index, values[index], str(self), reason)

    def _fields_text(self) -> str:
        pairs = zip(self._names, self.types, strict=True)
        return ", ".join(f"{name}: {kind}" for name, kind in pairs)


class RowTypeInfo(CompositeTypeInfo):
    """Rows.  Values may be rows, tuples, lists or dicts; what comes back are rows with names.

    A Row with the same names in another order, and a dict, are matched by name; anything else by
    position.
    """

    def __init__(
        self, field_types: Sequence[TypeInformation], field_names: Sequence[str] | None = None
    ) -> None:
        """Take the types of the fields and their names (``f0``, ``f1``, ... by default).

        Raises:
            ProgramError: the numbers of types and names differ, or a name occurs twice.
        """
        names = [f"f{i}" for i in range(len(field_types))] if field_names is None else field_names
        super().__init__(names, field_types)

    def to_row_class(self) -> type[Row]:
        """The class of the rows that come back; called with one iterable of values."""
        return row_class(self._names)

    def _to_columns(self, values: Sequence[Any]) -> Sequence[Sequence[object]]:
        kinds = set(map(type, values))
        if not any(map(self._needs_care, kinds)):
            return self._transposed(values)
        positions = self._positions_in(kinds)
        if positions is not None:
            columns = self._transposed(values)
            return [columns[position] for position in positions]
        return self._transposed(
            [self._in_order(index, value) for index, value in enumerate(values)]
        )

    def _positions_in(self, kinds: set[type]) -> list[int] | None:
        """Where the fields are in rows of these classes; None if there is no one answer."""
        rows = [kind for kind in kinds if issubclass(kind, Row)]
        if len(rows) < len(kinds):
            return None
        names, *others = {kind._fields for kind in rows}
        if others or names is None or len(names) != len(self._names):
            return None
        return [names.index(name) for name in self._names]

    def _needs_care(self, kind: type) -> bool:
        """Return whether values of that class are not simply sequences in the right order."""
        if issubclass(kind, Row):
            return self._is_shuffled(kind)
        return not issubclass(kind, tuple | list)

    def _is_shuffled(self, kind: type[Row]) -> bool:
        names = kind._fields
        return names not in {None, self._names} and set(names or ()) == set(self._names)

    def _in_order(self, index: int, value: Any) -> Sequence[object]:
        if isinstance(value, dict):
            if not set(value) <= set(self._names):
                reason = f"unknown names {sorted(set(value) - set(self._names), key=str)}"
                raise ColumnMismatchError(index, value, str(self), reason)
            return [value.get(name) for name in self._names]
        if isinstance(value, Row) and self._is_shuffled(type(value)):
            return [value[name] for name in self._names]
        if isinstance(value, tuple | list):
            return value
        raise ColumnMismatchError(index, value, str(self), "a row must not be None" * (not value))

    def _batch_of(self, values: Sequence[object]) -> pa.RecordBatch:
        batch = super()._batch_of(values)
        kinds = kinds_of(values)
        return batch if kinds is None else with_kind_column(batch, kinds)

    def from_arrow(self, batch: pa.RecordBatch) -> list[Any]:
        """The rows of a batch, with the names of this type, and their kinds if it holds them."""
        rows = super().from_arrow(batch)
        if batch.schema.names[-1] == ROW_KIND_COLUMN:
            set_kinds(rows, batch.column(batch.num_columns - 1).to_numpy())
        return rows

    def _from_columns(self, columns: list[list[Any]]) -> list[Any]:
        # The class takes one iterable; type checkers see Row's own signature.
        return list(map(row_class(self._names), zip(*columns, strict=True)))

    def __str__(self) -> str:
        """``RowTypeInfo(f0: String, f1: Long)``."""
        return f"RowTypeInfo({self._fields_text()})"


class TupleTypeInfo(CompositeTypeInfo):
    """Tuples.  A list or Row is taken as well; what comes back are tuples."""

    def __init__(self, field_types: Sequence[TypeInformation]) -> None:
        """Take the types of the fields.

        Raises:
            ProgramError: there is none.
        """
        super().__init__([f"f{i}" for i in range(len(field_types))], field_types)

    def _to_columns(self, values: Sequence[Any]) -> Sequence[Sequence[object]]:
        if not set(map(type, values)) <= {tuple, list}:
            for index, value in enumerate(values):
                if not isinstance(value, tuple | list):
                    raise ColumnMismatchError(index, value, str(self))
        return self._transposed(values)

    def _from_columns(self, columns: list[list[Any]]) -> list[Any]:
        return list(zip(*columns, strict=True))

    def __str__(self) -> str:
        """``TupleTypeInfo(String, Long)``."""
        return f"TupleTypeInfo({', '.join(map(str, self.types))})"


class RecordClassTypeInfo(CompositeTypeInfo):
    """Base of types of the instances of exactly one class with named fields."""

    def __init__(self, cls: type, names: Sequence[str], types: Sequence[TypeInformation]) -> None:
        """Take the class, and the names and types of its fields in their order."""
        super().__init__(names, types)
        self.cls = cls

    @abstractmethod
    def maker(self) -> Callable[..., Any]:
        """Return what makes an instance of the values of all fields, in their order."""

    def _check_class(self, values: Sequence[Any]) -> None:
        if not set(map(type, values)) <= {self.cls}:
            for index, value in enumerate(values):
                if type(value) is not self.cls:
                    raise ColumnMismatchError(index, value, str(self))

    def __str__(self) -> str:
        """``DataclassTypeInfo<Flight>(origin: String, ...)``."""
        return f"{type(self).__name__}<{self.cls.__qualname__}>({self._fields_text()})"


class DataclassTypeInfo(RecordClassTypeInfo):
    """Instances of exactly one dataclass.

    They come back as they were: where the class computes fields or overrides ``__init__``, fields
    are restored without calling it, as pickle does.
    """

    def __init__(self, cls: type, types: Sequence[TypeInformation]) -> None:
        """Take the class and the types of its fields, in their order."""
        super().__init__(cls, record_fields(cls) or (), types)
        self._plain = _has_plain_init(cls)
        self._restore: Callable[..., object] | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**super().__getstate__(), "_restore": None}

    def _to_columns(self, values: Sequence[Any]) -> Sequence[Sequence[object]]:
        self._check_class(values)
        return [list(map(attrgetter(name), values)) for name in self._names]

    def _from_columns(self, columns: list[list[Any]]) -> list[Any]:
        return list(map(self.maker(), *columns))

    def maker(self) -> Callable[..., Any]:
        if self._plain:
            return self.cls
        if self._restore is None:
            self._restore = _restorer(self.cls, self._names)
        return self._restore


class NamedTupleTypeInfo(RecordClassTypeInfo):
    """Instances of exactly one ``NamedTuple`` class, restored without calling its ``__new__``."""

    def __init__(self, cls: type, types: Sequence[TypeInformation]) -> None:
        """Take the class and the types of its fields, in their order."""
        super().__init__(cls, record_fields(cls) or (), types)

    def _to_columns(self, values: Sequence[Any]) -> Sequence[Sequence[object]]:
        self._check_class(values)
        return self._transposed(values)

    def _from_columns(self, columns: list[list[Any]]) -> list[Any]:
        return list(map(self.maker(), *columns))

    def maker(self) -> Callable[..., Any]:
        cls: Any = self.cls
        new = tuple.__new__
        return lambda *values: new(cls, values)


def record_fields(cls: object) -> tuple[str, ...] | None:
    """Return the names of the fields of a dataclass or ``NamedTuple`` class; None for others."""
    if isinstance(cls, type) and dataclasses.is_dataclass(cls):
        return tuple(field.name for field in dataclasses.fields(cls))
    if isinstance(cls, type) and issubclass(cls, tuple):
        names = getattr(cls, "_fields", None)
        is_named = isinstance(names, tuple) and isinstance(getattr(cls, "_make", None), MethodType)
        return names if is_named else None
    return None


def _has_plain_init(cls: type) -> bool:
    """Return whether ``cls(*fields)`` sets the fields and does nothing else."""
    parameters = cast("Any", cls).__dataclass_params__
    return (
        parameters.init
        and not parameters.frozen  # __init__ of a frozen class is slower than restoring
        and not hasattr(cls, "__post_init__")
        and _is_inherited(cls, "__new__")
        and _is_inherited(cls, "__setattr__")
        and all(field.init and not field.kw_only for field in dataclasses.fields(cls))
        and _has_generated_init(cls)
    )


def _is_inherited(cls: type, name: str) -> bool:
    """Return whether a method is that of all objects."""
    return all(name not in vars(each) for each in cls.__mro__[:-1])


def _has_generated_init(cls: type) -> bool:
    """Return whether ``__init__`` is what ``dataclass`` has made for the fields of ``cls``."""
    owner = next(each for each in cls.__mro__ if "__init__" in vars(each))
    decorated = next(each for each in cls.__mro__ if "__dataclass_params__" in vars(each))
    code = getattr(owner.__init__, "__code__", None)  # type: ignore[misc]
    # ``dataclass`` leaves an ``__init__`` alone that the class has, and tells nobody; its own is
    # compiled from a string.
    if owner is not decorated or code is None or code.co_filename != "<string>":
        return False
    names = [field.name for field in dataclasses.fields(cls)]
    return list(code.co_varnames[1 : code.co_argcount]) == names


def _restorer(cls: type, names: tuple[str, ...]) -> Callable[..., object]:
    """A function from field values to an instance, without ``__init__``."""
    new = object.__new__
    if not hasattr(new(cls), "__dict__") or any(is_slot(cls, name) for name in names):

        def restore_slots(*values: object) -> object:
            instance: object = new(cls)
            for name, value in zip(names, values, strict=True):
                object.__setattr__(instance, name, value)
            return instance

        return restore_slots

    # Written out, as dataclasses do for __init__: three times as fast as a loop over the names.
    arguments = [f"a{i}" for i in range(len(names))]
    lines = [f"def restore({', '.join(arguments)}):", " instance = new(cls)"]
    lines += [" fields = instance.__dict__"]
    lines += [f" fields[{n!r}] = {a}" for n, a in zip(names, arguments, strict=True)]
    lines += [" return instance"]
    scope: dict[str, Any] = {"new": new, "cls": cls}
    exec("\n".join(lines), scope)  # noqa: S102 - made of field names, quoted
    restore: Callable[..., object] = scope["restore"]
    return restore


def is_slot(cls: type, name: str) -> bool:
    """Return whether the attribute is a data descriptor (a slot), not an entry of ``__dict__``."""
    return hasattr(getattr(cls, name, None), "__set__")


class TaggedUnion(NamedTuple):
    """A record and the number of its input."""

    #: 0 for the first stream, 1 for the second.
    input_index: int
    value: Any

    def is_one(self) -> bool:
        """Return whether it is a record of the first stream."""
        return self.input_index == 0

    def is_two(self) -> bool:
        """Return whether it is a record of the second stream."""
        return self.input_index == 1

    def get_one(self) -> Any:
        """Return the record if it is of the first stream, else None."""
        return self.value if self.input_index == 0 else None

    def get_two(self) -> Any:
        """Return the record if it is of the second stream, else None."""
        return self.value if self.input_index == 1 else None
