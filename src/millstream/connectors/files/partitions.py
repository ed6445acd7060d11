"""Partitions of files: a directory ``column=value`` for each value, as Hive's and Flink's.

What it is: how values become names of directories, and how a batch is dealt out to them.  The
columns of the partition are in the names alone, not in the files.
What it is not: reading them (``connectors/files/file_columns.py``).

Read next: ``connectors/files/sink.py``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from millstream.connectors.files.sink import BatchSplitter
from millstream.contracts.batch import Batch
from millstream.types.typeinfo import RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

__all__ = ["PartitionSplitter", "escaped"]

#: What Flink does not write into names of directories.
_SPECIAL: Final = re.compile(r"[\x00-\x1f\"#%'*/:=?\\\x7f{\[\]^]")


def escaped(text: str) -> str:
    """A text as part of a directory's name."""
    return _SPECIAL.sub(lambda found: f"%{ord(found[0]):02X}", text)


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
            pairs = zip(self._columns, values, strict=True)
            directory = "/".join(f"{escaped(name)}={escaped(value)}" for name, value in pairs)
            yield directory, rest if len(places) == 1 else rest.take(indices)

    def _texts(self, column: pa.Array) -> list[str]:
        return [self._text(value) for value in column.to_pylist()]

    def _text(self, value: Any) -> str:
        if value is None or value == "":
            return self._default_name
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)
