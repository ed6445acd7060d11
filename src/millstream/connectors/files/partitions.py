"""Partitions of files: a directory ``column=value`` for each value, as Hive's and Flink's.

What it is: how a batch is dealt out to them.  The columns of the partition are in the names alone,
not in the files.
What it is not: the names (``connectors/files/partition_names.py``), or reading them
(``connectors/files/file_columns.py``).

Read next: ``connectors/files/sink.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.files.partition_names import directory_of, value_text
from millstream.connectors.files.sink import BatchSplitter
from millstream.contracts.batch import Batch
from millstream.types.types import RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["PartitionSplitter"]


class PartitionSplitter(BatchSplitter):
    """Deals rows out to the directories of their partitions.

    Args:
        columns: of the partition, from the top directory down.
        default_name: stands for NULL and for the empty text.
    """

    def __init__(self, columns: tuple[str, ...], default_name: str) -> None:
        self._columns = columns
        self._default_name = default_name

    def split(self, batch: Batch) -> Iterator[tuple[str, Batch]]:
        arrow, kind = batch.arrow, batch.type_info
        names = arrow.schema.names
        texts = [self._texts(arrow.column(names.index(name))) for name in self._columns]
        places: dict[tuple[str, ...], list[int]] = {}
        for at, place in enumerate(zip(*texts, strict=True)):
            places.setdefault(place, []).append(at)
        kept = [at for at, name in enumerate(names) if name not in self._columns]
        rest = batch
        if isinstance(kind, RowTypeInfo):
            types = kind.get_field_types()
            rest = Batch(
                RowTypeInfo([types[at] for at in kept], [names[at] for at in kept]),
                arrow=arrow.select(kept),
                timestamps=batch.raw_timestamps,
                row_kinds=batch.row_kinds,
            )
        for values, indices in places.items():
            directory = directory_of(zip(self._columns, values, strict=True))
            yield directory, rest if len(places) == 1 else rest.take(indices)

    def _texts(self, column: pa.Array) -> list[str]:
        return [value_text(value, self._default_name) for value in column.to_pylist()]
