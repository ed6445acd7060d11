"""Files whose lines are messages of a table's format."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.formats.file_writers import BulkWriter, BulkWriterFactory
from millstream.connectors.formats.line_format import FaultyRecord, LineFormat
from millstream.connectors.formats.tables.codec import arrow_schema, columns_of_rows
from millstream.errors import PermanentSinkError
from millstream.types.row import with_kind_column
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.connectors.formats.tables.codec import RowDecoder, RowEncoder
    from millstream.contracts.batch import Batch
    from millstream.types.types import TypeInformation


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
