"""The writer of ORC files.

What it is: batches to ORC by pyarrow.  What it is not: a reader; and not about files, which are
``connectors/files/sink.py``'s.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

import pyarrow as pa
from pyarrow import orc

from millstream.connectors.files.file_writers import BulkWriter, BulkWriterFactory, table_of_values
from millstream.errors import PermanentSinkError

if TYPE_CHECKING:
    from millstream.contracts.batch import Batch
    from millstream.types.types import TypeInformation


class OrcWriterFactory(BulkWriterFactory):
    """ORC files.

    Records of an untyped stream are kept in memory until the file is finished, as for Parquet.

    Args:
        compression: "uncompressed", "zlib", "snappy", "lz4" or "zstd".
    """

    extension = ".orc"

    def __init__(self, compression: str = "zlib") -> None:
        self.compression = compression

    def create(self, stream: IO[bytes], type_info: TypeInformation) -> BulkWriter:
        return _OrcWriter(stream, self.compression, type_info.arrow_schema)


class _OrcWriter(BulkWriter):
    def __init__(self, stream: IO[bytes], compression: str, schema: pa.Schema | None) -> None:
        self._writer = orc.ORCWriter(stream, compression=compression)
        self._schema = schema
        self._values: list[object] = []
        self._wrote = False

    def write(self, batch: Batch) -> None:
        if self._schema is None:
            self._values.extend(batch.values)
            return
        self._append(pa.Table.from_batches([batch.arrow.cast(self._schema)]))

    def _append(self, table: pa.Table) -> None:
        try:
            self._writer.write(table)
        except pa.ArrowException as error:
            message = f"ORC cannot hold columns {table.schema}: {error}"
            raise PermanentSinkError(message) from error
        self._wrote = True

    def finish(self) -> None:
        if self._values:
            self._append(table_of_values(self._values))
        elif not self._wrote and self._schema is not None:
            self._append(self._schema.empty_table())
        self._writer.close()

    def abandon(self) -> None:
        self._writer.close()
