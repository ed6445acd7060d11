"""The contract of table formats: from messages to rows with kinds, and back.

What it is: what a connector whose records are bytes asks of a format.  A message may hold no row,
one or several; a row has a kind (+I, -U, +U, -D) where the format tells one.
What it is not: the schemas of DataStream programs (``connectors/formats/message_formats.py``).
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.files.file_writers import BulkWriter, BulkWriterFactory
from millstream.connectors.formats.line_format import FaultyRecord, LineFormat
from millstream.errors import PermanentSinkError, ValidationError
from millstream.types.logical_types import (
    BigIntType,
    BinaryType,
    BooleanType,
    CharType,
    DoubleType,
    FloatType,
    IntType,
    RowField,
    RowType,
    SmallIntType,
    TinyIntType,
    VarBinaryType,
    VarCharType,
)
from millstream.types.row import with_kind_column
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.batch import Batch
    from millstream.types.logical_types import LogicalType
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

    def __init__(self, row: RowType) -> None:
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

    def narrowed(self, row: RowType) -> RowDecoder | None:
        """A decoder of some of the columns alone; None: it reads all.

        Args:
            row: with some of the fields, in their order, and at least one.
        """
        del row
        return None

    #: What the format says of each row beside its columns: by key, those that are wanted.
    metadata: Mapping[str, LogicalType] = {}


class RowEncoder(ABC):
    """Makes a message of each row; pickled to the workers."""

    def __init__(self, row: RowType) -> None:
        self.row = row

    @abstractmethod
    def encode(
        self, columns: pa.RecordBatch, kinds: NDArray[np.int8] | None
    ) -> Sequence[bytes | None]:
        """A message per row; ``kinds`` None: all are inserts.  Raises ValueError."""


def arrow_schema(row: RowType) -> pa.Schema:
    """The columns of a row."""
    return pa.schema([(each.name, each.type.to_arrow()) for each in row.fields])


def columns_of_rows(schema: pa.Schema, rows: Sequence[Sequence[Any]]) -> pa.RecordBatch:
    """Rows as columns."""
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    arrays = [pa.array(values, field.type) for values, field in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def row_of_columns(row: RowType, names: Collection[str]) -> RowType:
    """A row with some of its columns; the one that costs least if there would be none."""
    fields = tuple(each for each in row.fields if each.name in names)
    return RowType(fields or (min(row.fields, key=_cost),), nullable=row.is_nullable)


def _cost(field: RowField) -> int:
    """How much it takes to read a column, compared with others."""
    kind = field.type.to_arrow()
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return 0
    return 1 if pa.types.is_primitive(kind) else 2 + pa.types.is_nested(kind)


#: Of the module ``struct``.
_WIDTHS: Final[dict[type, str]] = {
    BooleanType: "?",
    TinyIntType: "b",
    SmallIntType: "h",
    IntType: "i",
    BigIntType: "q",
    FloatType: "f",
    DoubleType: "d",
}


def _only(row: RowType) -> LogicalType:
    if len(row) != 1:
        names = ", ".join(row.names) or "none"
        message = f"The 'raw' format only supports single physical column. It has: {names}."
        raise ValidationError(message)
    kind = row.fields[0].type
    plain = (CharType, VarCharType, BinaryType, VarBinaryType)
    if not isinstance(kind, plain) and type(kind) not in _WIDTHS:
        message = f"The 'raw' format doesn't supports '{kind.as_summary_string()}' as column type."
        raise ValidationError(message)
    return kind


def _number(kind: LogicalType, *, little: bool) -> struct.Struct:
    return struct.Struct(("<" if little else ">") + _WIDTHS[type(kind)])


class RawDecoder(RowDecoder):
    """The message as the only column; a message without a value is a row with NULL.

    Raises:
        ValidationError: the table has other columns, or of another type.
    """

    def __init__(self, row: RowType, charset: str = "UTF-8", *, little: bool = False) -> None:
        super().__init__(row)
        self._kind, self._charset, self._little = _only(row), charset, little

    def decode(self, message: bytes | None) -> list[tuple[int, Sequence[Any]]]:
        return [(INSERT, (None if message is None else self._value(message),))]

    def _value(self, message: bytes) -> Any:
        kind = self._kind
        if isinstance(kind, BinaryType | VarBinaryType):
            return message
        if isinstance(kind, CharType | VarCharType):
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

    def __init__(self, row: RowType, charset: str = "UTF-8", *, little: bool = False) -> None:
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
        if isinstance(kind, BinaryType | VarBinaryType):
            return bytes
        if isinstance(kind, CharType | VarCharType):
            return lambda text: str(text).encode(charset)
        return _number(kind, little=self._little).pack


#: Lines of which one that the fast way does not take sends the others the slow one.
_AT_ONCE: Final = 2000


class MessageLines(LineFormat):
    """Each line is a message, of no row, one or several.

    Args:
        decoder: reads messages.
        advice: what to do about a malformed one; empty: that of files without a table.
    """

    def __init__(self, decoder: RowDecoder, advice: str = "") -> None:
        super().__init__()
        self._decoder = decoder
        self._advice = advice
        self._schema = arrow_schema(decoder.row)

    @property
    def advice(self) -> str:
        return self._advice or super().advice

    @property
    def produced_type(self) -> TypeInformation:
        kinds = [ArrowTypeInfo(field.type) for field in self._schema]
        return RowTypeInfo(kinds, list(self._schema.names))

    def parser(self, path: str, header: bytes) -> Callable[[bytes], pa.Table]:
        """Not asked for rows: lines do not have one each."""
        del path, header
        return lambda _: self._schema.empty_table()

    def parts(
        self, parse: Callable[[bytes], pa.Table], block: bytes, offset: int = 0
    ) -> Iterator[pa.Table | FaultyRecord]:
        del parse
        lines = block.split(b"\n")
        for start in range(0, len(lines), _AT_ONCE):
            some = lines[start : start + _AT_ONCE]
            trimmed = [line.rstrip(b"\r") for line in some]
            there = [line for line in trimmed if line.strip()]
            columns = self._decoder.columns(there) if there else None
            if columns is not None:
                yield pa.Table.from_batches([columns])
            else:
                yield from self._one_by_one(some, offset)
            offset += sum(map(len, some)) + len(some)

    def _one_by_one(
        self, lines: Sequence[bytes], position: int
    ) -> Iterator[pa.Table | FaultyRecord]:
        rows: list[Sequence[Any]] = []
        kinds: list[int] = []
        for raw in lines:
            line = raw.rstrip(b"\r")
            try:
                found = self._decoder.decode(line) if line.strip() else []
            except (ValueError, ArithmeticError, LookupError, TypeError) as error:
                yield FaultyRecord(position, raw, str(error))
                found = []
            kinds += [kind for kind, _ in found]
            rows += [row for _, row in found]
            position += len(raw) + 1
        made = columns_of_rows(self._schema, rows)
        if any(kinds):
            made = with_kind_column(made, np.array(kinds, np.int8))
        yield pa.Table.from_batches([made])


class MessageLinesWriterFactory(BulkWriterFactory):
    """A message per line.

    Args:
        encoder: writes messages.
        extension: of the files, with its dot.
    """

    def __init__(self, encoder: RowEncoder, extension: str) -> None:
        self._encoder = encoder
        self.extension = extension

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        del type_info
        return _LinesWriter(stream, self._encoder)


class _LinesWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], encoder: RowEncoder) -> None:
        self._stream = stream
        self._encoder = encoder

    def write(self, batch: Batch) -> None:
        try:
            lines = self._encoder.encode(batch.arrow, batch.row_kinds)
        except (ValueError, ArithmeticError, TypeError) as error:
            message = f"a row cannot be written: {error}"
            raise PermanentSinkError(message) from error
        self._stream.write(b"".join((line or b"") + b"\n" for line in lines))

    def finish(self) -> None:
        pass
