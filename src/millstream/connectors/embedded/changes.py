"""Changes of rows by key, for databases in a file: how they are staged and merged.

What it is: what ``SqliteSink`` and ``DuckDbSink`` do with a key.  Rows are staged with whether they
are gone; at the commit the last of each key counts: it is merged into the table, or deleted from
it.
What it is not: for streams in which a key comes from several subtasks: key the stream by it.

Read next: ``connectors/embedded/sink.py``.
"""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.commit_protocols.table_rows import identifier
from millstream.connectors.files.file_writers import BulkWriter, ParquetWriterFactory
from millstream.contracts.batch import Batch
from millstream.errors import PermanentSinkError
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.types.types import TypeInformation

__all__ = ["GONE", "ChangesWriter", "delete_text", "last_rows", "merge_text", "refuse_null_keys"]

#: The staged column that says whether a row is taken away.
GONE: Final = "millstream_gone"


class ChangesWriter(BulkWriter):
    """Writes changes to a Parquet file: the columns, and whether the row is gone.

    Args:
        stream: of the file.
        type_info: of the records; it must have columns.
    """

    def __init__(self, stream: IO[bytes], type_info: TypeInformation) -> None:
        schema = type_info.arrow_schema
        if schema is None:
            message = (
                "changes by key need a stream with types; give the operator before the sink an"
                " output_type"
            )
            raise PermanentSinkError(message)
        kinds = [ArrowTypeInfo(field.type) for field in schema]
        kinds.append(ArrowTypeInfo(pa.bool_()))
        self._type = RowTypeInfo(kinds, [*schema.names, GONE])
        self._writer = ParquetWriterFactory("none").create(stream, self._type)

    def write(self, batch: Batch) -> None:
        arrow, kinds = batch.arrow, batch.row_kinds
        gone = np.zeros(len(batch), np.bool_) if kinds is None else (kinds & 1).astype(np.bool_)
        columns = [*arrow.columns, pa.array(gone)]
        staged = pa.RecordBatch.from_arrays(columns, names=[*arrow.schema.names, GONE])
        self._writer.write(Batch(self._type, arrow=staged))

    def finish(self) -> None:
        self._writer.finish()

    def abandon(self) -> None:
        self._writer.abandon()


def refuse_null_keys(rows: pa.Table, key: Sequence[str], target: str) -> None:
    """Refuse rows without a key, which no constraint would find again.

    Args:
        rows: columns with the names of the table's.
        key: columns of the table.
        target: for messages.

    Raises:
        PermanentSinkError: there is one.
    """
    for name in key:
        if rows.column(name).null_count:
            message = f"{target}: a row has no value in {name!r}, a column of its key"
            raise PermanentSinkError(message)


def last_rows(
    rows: Iterable[tuple[Any, ...]], places: Sequence[int]
) -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """What counts of rows whose last value says whether they are gone.

    Args:
        rows: in order.
        places: of the values that are the key.

    Returns:
        The keys that are gone, and the rows to merge, without their last value.
    """
    last: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    for row in rows:
        key = tuple(row[place] for place in places)
        last.pop(key, None)  # in the order of their last changes
        last[key] = row
    gone = [key for key, row in last.items() if row[-1]]
    return gone, [row[:-1] for row in last.values() if not row[-1]]


def merge_text(table: str, columns: Sequence[str], key: Sequence[str], rows: str) -> str:
    """The statement that inserts rows, or replaces those of the same key.

    Args:
        table: in SQL.
        columns: of the table.
        key: columns with a unique constraint.
        rows: ``VALUES ...``, or a query.
    """
    names, keys = ", ".join(map(identifier, columns)), ", ".join(map(identifier, key))
    others = [identifier(name) for name in columns if name not in key]
    changes = ", ".join(f"{name} = excluded.{name}" for name in others)
    action = f"UPDATE SET {changes}" if changes else "NOTHING"
    return f"INSERT INTO {table} ({names}) {rows} ON CONFLICT ({keys}) DO {action}"


def delete_text(table: str, key: Sequence[str]) -> str:
    """The statement that deletes the row of a key, given as parameters."""
    wanted = " AND ".join(f"{identifier(name)} = ?" for name in key)
    return f"DELETE FROM {table} WHERE {wanted}"
