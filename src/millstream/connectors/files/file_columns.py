"""Columns that a file's place says: its path, size and time, and the partition that it lies in.

What it is: a file format that adds columns to those of another, the same value for each record of a
file.  Partitions are directories named ``column=value``, as Hive's.
What it is not: a choice of files; that is the source's.

Read next: ``connectors/formats/file_format.py``, ``connectors/files/source.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from millstream.connectors.formats.file_format import FileFormat, resolve, split_path
from millstream.errors import SourceError
from millstream.types.row import with_kind_column, without_kind_column
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from millstream.contracts.source import SourceBatch, Split
    from millstream.types.types import TypeInformation

__all__ = ["FILE_COLUMNS", "FileColumns", "partition_of"]

_MODIFIED: Final = "modified"


def _name(split: Split) -> str:
    return split_path(split).rstrip("/").rpartition("/")[2]


def _modified(split: Split) -> int:
    return int(str(split.properties[_MODIFIED]))


#: What the place of a file says, by Flink's key of metadata: its type, and its value.
FILE_COLUMNS: Final[dict[str, tuple[pa.DataType, Callable[[Split], Any]]]] = {
    "file.path": (pa.string(), split_path),
    "file.name": (pa.string(), _name),
    "file.size": (pa.int64(), lambda split: int(str(split.properties["size"]))),
    "file.modification-time": (pa.timestamp("ms", "UTC"), _modified),
}


def partition_of(path: str) -> dict[str, str]:
    """The values of the partition that a file lies in, by column, as texts."""
    parts = (each.partition("=") for each in path.split("/")[:-1])
    return {unquote(name): unquote(value) for name, found, value in parts if found}


class FileColumns(FileFormat):
    """Another format with more columns behind its own.

    Args:
        inner: reads the files.
        said: name of a column -> key of ``FILE_COLUMNS``.
        partition: name of a column -> what makes its value of the text in the path.
        types: of the columns of the partition.
        default_name: the text that stands for NULL in paths.
        base: the path below which directories are partitions.
        notes_time: whether the time of files is noted although it is not among ``said``.
    """

    def __init__(
        self,
        inner: FileFormat,
        said: Mapping[str, str],
        partition: Mapping[str, Callable[[str], Any]] | None = None,
        types: Sequence[pa.DataType] = (),
        default_name: str = "",
        base: str = "",
        *,
        notes_time: bool = False,
    ) -> None:
        self._inner = inner
        self._said = dict(said)
        self._partition = dict(partition or {})
        self._types = list(types)
        self._default_name = default_name
        self._base = base
        self._notes_time = notes_time or "file.modification-time" in self._said.values()
        self.initial_limit = inner.initial_limit
        self.tells_positions = inner.tells_positions

    @property
    def produced_type(self) -> TypeInformation:
        inner = self._inner.produced_type.arrow_schema
        assert inner is not None  # noqa: S101 - formats of tables have columns
        fields = [(field.name, field.type) for field in inner]
        fields += list(zip(self._partition, self._types, strict=True))
        fields += [(name, FILE_COLUMNS[key][0]) for name, key in self._said.items()]
        return RowTypeInfo([ArrowTypeInfo(kind) for _, kind in fields], [n for n, _ in fields])

    @property
    def needs_a_file(self) -> bool:
        return self._inner.needs_a_file

    def prepare(self, path: str) -> None:
        self._inner.prepare(path)

    def properties(self, path: str, size: int) -> dict[str, object]:
        found = self._inner.properties(path, size)
        if self._notes_time:
            filesystem, inside = resolve(path)
            nanoseconds = filesystem.get_file_info(inside).mtime_ns
            found[_MODIFIED] = 0 if nanoseconds is None else nanoseconds // 1_000_000
        return found

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        return self._inner.next_stop(split, start, limit, end)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        schema = self.produced_type.arrow_schema
        assert schema is not None  # noqa: S101 - made above
        values = [*self._place(split), *(FILE_COLUMNS[k][1](split) for k in self._said.values())]
        for batch in self._inner.read(split, start, stop):
            if batch.arrow is None:
                yield batch
                continue
            columns, kinds = without_kind_column(batch.arrow)
            width = columns.num_columns
            more = [
                pa.repeat(pa.scalar(value, field.type), columns.num_rows)
                for value, field in zip(values, list(schema)[width:], strict=True)
            ]
            arrays = [*columns.columns, *more]
            made = pa.RecordBatch.from_arrays(arrays, schema=schema)
            if kinds is not None:
                made = with_kind_column(made, kinds)
            yield replace(batch, arrow=made)

    def _place(self, split: Split) -> list[Any]:
        if not self._partition:
            return []
        path = split_path(split)
        found = partition_of(path.removeprefix(self._base))
        made = []
        for name, parse in self._partition.items():
            if name not in found:
                message = (
                    f"{path!r} is in no partition by {name!r}; the directories of a partitioned "
                    f"table are as '{name}=value'"
                )
                raise SourceError(message)
            text = found[name]
            try:
                made.append(None if text == self._default_name else parse(text))
            except (ValueError, ArithmeticError) as error:
                message = f"{path!r}: the partition's {name!r} cannot be read: {error}"
                raise SourceError(message) from error
        return made
