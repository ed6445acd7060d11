"""Rows of messages: decoders and encoders of tables, and records of any kind as rows.

A message may hold no row, one or several; a row has a kind (+I, -U, +U, -D) where the format has
one.
"""

from __future__ import annotations

import dataclasses
import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from millstream.connectors.formats.file_format import columns_of, type_of_schema
from millstream.contracts.serialization import NO_RECORD, DeserializationSchema
from millstream.errors import PermanentSinkError, TypeMismatchError, ValidationError
from millstream.types import logical_types as lt
from millstream.types.composite_types import CompositeTypeInfo
from millstream.types.row import Row

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray

    from millstream.connectors.formats.file_format import SchemaLike
    from millstream.types.types import TypeInformation


#: Values of ``RowKind``.
INSERT: Final = 0
UPDATE_BEFORE: Final = 1
UPDATE_AFTER: Final = 2
DELETE: Final = 3


@dataclass(frozen=True)
class Changes:
    """The rows of many messages, in order."""

    rows: pa.RecordBatch
    kinds: NDArray[np.int8]
    #: For each row the position of its message.
    messages: NDArray[np.int64]


class RowDecoder(ABC):
    """Makes rows of messages; pickled to the workers.

    Contract:
      1. ``decode`` gives the rows of one message in their order, as (kind, values); values are
         what ``pyarrow.array`` takes for the column's type: times as numbers.  (tests)
      2. ``decode`` raises ValueError for a message that does not parse.  (the connector names it)
      3. ``columns`` and ``changes_at_once`` give the same rows as ``decode`` for each message, or
         None.  (tests)
      4. ``narrowed`` gives the same rows, without the other columns; a value in these is not looked
         at.  (tests)
    """

    def __init__(self, row: lt.RowType) -> None:
        self.row = row

    @abstractmethod
    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        """The rows of a message: the columns, then what ``metadata`` names."""

    def columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        """One inserted row per message, all at once; None: look at them one by one."""
        del messages
        return None

    def changes_at_once(self, messages: Sequence[bytes]) -> Changes | None:
        """The rows of messages whatever their kind, all at once; None: look at them one by one."""
        del messages
        return None

    def narrowed(self, row: lt.RowType) -> RowDecoder | None:
        """A decoder of some of the columns alone; None: it reads all.

        Args:
            row: with some of the fields, in their order, and at least one.
        """
        del row
        return None

    #: What the format says of each row beside its columns: by key, those that are wanted.
    metadata: Mapping[str, lt.LogicalType] = {}


class RowEncoder(ABC):
    """Makes a message of each row; pickled to the workers."""

    def __init__(self, row: lt.RowType) -> None:
        self.row = row

    @abstractmethod
    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        """A message per row; ``kinds`` None: all are inserts.  Raises ValueError."""

    def validate(self) -> None:
        """Check, when a job is submitted, that rows can be written; by default nothing.

        Raises:
            MillstreamError: they cannot.
        """


def arrow_schema(row: lt.RowType) -> pa.Schema:
    """The columns of a row."""
    return pa.schema([(each.name, each.type.to_arrow()) for each in row.fields])


def columns_of_rows(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def row_of_columns(row: lt.RowType, names: Collection[str]) -> lt.RowType:
    """A row with some of its columns; the one that costs least if there would be none."""
    fields = tuple(each for each in row.fields if each.name in names)
    return lt.RowType(fields or (min(row.fields, key=_cost),), nullable=row.is_nullable)


def _cost(field: lt.RowField) -> int:
    """How much it takes to read a column, compared with others."""
    kind = field.type.to_arrow()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return 0
    return 1 if pa.types.is_primitive(kind) else 2 + pa.types.is_nested(kind)


# -- records of any kind ---------------------------------------------------------------------------


def named_values(value: object) -> dict[str, object]:  # noqa: PLR0911 - one per kind of value
    """The columns of a record of an untyped stream."""
    if isinstance(value, dict):
        return {str(key): item for key, item in value.items()}
    if isinstance(value, Row):
        names = value.get_field_names()
        if names:
            return dict(zip(names, value, strict=True))
        return {f"f{index}": item for index, item in enumerate(value)}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple):
        names = getattr(value, "_fields", None)  # a named tuple
        if names:
            return dict(zip(names, value, strict=True))
        return {f"f{index}": item for index, item in enumerate(value)}
    return {"f0": value}


def table_of_values(values: Sequence[object]) -> pa.Table:
    """The records of an untyped stream as columns.

    Raises:
        PermanentSinkError: the values of a column have no common type.
    """
    rows = [named_values(value) for value in values]
    names = list(dict.fromkeys(name for row in rows for name in row))
    columns = []
    for name in names:
        try:
            columns.append(pa.array([row.get(name) for row in rows]))
        except (pa.ArrowException, ValueError, TypeError) as error:
            message = (
                f"the values of column {name!r} have no common type: {error}; "
                "give the operator before the sink an output_type"
            )
            raise PermanentSinkError(message) from error
    return pa.Table.from_arrays(columns, names=names)


def with_names(value: Any, kind: TypeInformation) -> Any:
    """A record whose rows, in lists too, are dicts with the names of their types."""
    element: TypeInformation | None = getattr(kind, "elem_type", None)
    if isinstance(kind, CompositeTypeInfo) and value is not None:
        names = kind.get_field_names()
        if isinstance(value, dict):
            fields = [value.get(name) for name in names]
        elif isinstance(value, Row) and set(value.get_field_names() or ()) == set(names):
            fields = [value[name] for name in names]
        elif isinstance(value, tuple | list):
            fields = list(value)
        else:
            fields = [getattr(value, name) for name in names]
        parts = zip(names, fields, kind.get_field_types(), strict=True)
        return {name: with_names(field, part) for name, field, part in parts}
    if element is not None and isinstance(value, list | tuple):
        return [with_names(item, element) for item in value]
    return value


class RowDeserialization(DeserializationSchema):
    """Messages that are parsed together as lines.

    Args:
        schema: the row type.
        ignore_parse_errors: whether messages that do not parse are passed over.
    """

    def __init__(self, schema: SchemaLike, *, ignore_parse_errors: bool = False) -> None:
        self._type = type_of_schema(schema)
        self._columns = columns_of(self._type)
        self._ignore_parse_errors = ignore_parse_errors

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def deserialize(self, message: bytes) -> object:
        """One row; ``NO_RECORD`` for a message that is passed over."""
        try:
            return self._type.from_arrow(self._type.conform(self._parse([message])))[0]
        except (ValueError, pa.ArrowException, TypeMismatchError):
            if not self._ignore_parse_errors:
                raise
            return NO_RECORD

    def deserialize_columns(self, messages: Sequence[bytes]) -> pa.RecordBatch | None:
        try:
            return self._type.conform(self._parse(messages))
        except (ValueError, pa.ArrowException):
            return None

    def _parse(self, messages: Sequence[bytes]) -> pa.RecordBatch:
        """One row per message; raises ValueError if that is not what comes out."""
        return self._rows_of(b"\n".join(messages), len(messages))

    def _rows_of(self, block: bytes, count: int) -> pa.RecordBatch:
        table = self._read(block, count - 1)
        if table.num_rows != count:
            message = f"{count} messages parse as {table.num_rows} records"
            raise ValueError(message)
        (batch,) = table.combine_chunks().to_batches(max_chunksize=count + 1)
        return batch

    def _read(self, block: bytes, breaks: int) -> pa.Table:
        raise NotImplementedError


# -- raw messages ----------------------------------------------------------------------------------


#: Of the module ``struct``.
_WIDTHS: Final[dict[type, str]] = {
    lt.BooleanType: "?",
    lt.TinyIntType: "b",
    lt.SmallIntType: "h",
    lt.IntType: "i",
    lt.BigIntType: "q",
    lt.FloatType: "f",
    lt.DoubleType: "d",
}


def _only(row: lt.RowType) -> lt.LogicalType:
    if len(row) != 1:
        names = ", ".join(row.names) or "none"
        message = f"The 'raw' format only supports single physical column. It has: {names}."
        raise ValidationError(message)
    kind = row.fields[0].type
    plain = (lt.CharType, lt.VarCharType, lt.BinaryType, lt.VarBinaryType)
    if not isinstance(kind, plain) and type(kind) not in _WIDTHS:
        message = f"The 'raw' format doesn't supports '{kind.as_summary_string()}' as column type."
        raise ValidationError(message)
    return kind


def _number(kind: lt.LogicalType, *, little: bool) -> struct.Struct:
    return struct.Struct(("<" if little else ">") + _WIDTHS[type(kind)])


class RawDecoder(RowDecoder):
    """The message as the only column; a message without a value is a row with NULL.

    Raises:
        ValidationError: the table has other columns, or of another type.
    """

    def __init__(self, row: lt.RowType, charset: str = "UTF-8", *, little: bool = False) -> None:
        super().__init__(row)
        self._kind, self._charset, self._little = _only(row), charset, little

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        return [(INSERT, (None if message is None else self._value(message),))]

    def _value(self, message: bytes) -> Any:
        kind = self._kind
        if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
            return message
        if isinstance(kind, lt.CharType | lt.VarCharType):
            return message.decode(self._charset)
        form = _number(kind, little=self._little)
        if len(message) != form.size:
            reason = (
                f"Size of data received for deserializing {kind.as_summary_string()} type is not "
                f"{form.size}."
            )
            raise ValueError(reason)
        return form.unpack(message)[0]


class RawEncoder(RowEncoder):
    """The only column as the message; NULL is a message without a value."""

    def __init__(self, row: lt.RowType, charset: str = "UTF-8", *, little: bool = False) -> None:
        super().__init__(row)
        self._kind, self._charset, self._little = _only(row), charset, little

    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        del kinds
        write = self._writer()
        return [None if each is None else write(each) for each in columns.column(0).to_pylist()]

    def _writer(self) -> Callable[[Any], bytes]:
        kind, charset = self._kind, self._charset
        if isinstance(kind, lt.BinaryType | lt.VarBinaryType):
            return bytes
        if isinstance(kind, lt.CharType | lt.VarCharType):
            return lambda text: str(text).encode(charset)
        return _number(kind, little=self._little).pack
