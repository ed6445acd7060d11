"""The collect sink of ``execute_and_collect``: pickled values in pending files, exactly once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import cloudpickle
import pyarrow as pa

from millstream.connectors.files.pending_files import (
    PendingFile,
    PendingFileCommitter,
    local_directory,
)
from millstream.connectors.output_names import OutputNames
from millstream.contracts.batch import Batch
from millstream.contracts.sink import Committer, Sink, SinkWriter, WriterContext
from millstream.errors import PermanentSinkError
from millstream.types.pickling import dumps_by_value, find_unpicklable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy as np
    from numpy.typing import NDArray

    from millstream.contracts.sink import Committable
    from millstream.types.types import TypeInformation


_NAME: Final = re.compile(r"collect-[0-9a-f]+-(\d+)-(\d+)(?:-g\d+)?\.pickle")


@dataclass(frozen=True)
class CollectedColumns:
    """A batch as it was collected: its columns, written by Arrow, and the kinds of its rows."""

    columns: bytes
    row_kinds: NDArray[np.int8] | None
    #: Of the records that programs see.
    type_info: TypeInformation

    def batch(self) -> Batch:
        """Return the batch again."""
        with pa.ipc.open_stream(self.columns) as reader:
            arrow = reader.read_next_batch()
        return Batch(self.type_info, arrow=arrow, row_kinds=self.row_kinds)


def _columns_of(batch: Batch, type_info: TypeInformation) -> CollectedColumns:
    stream = pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, batch.arrow.schema) as writer:
        writer.write_batch(batch.arrow)
    return CollectedColumns(stream.getvalue().to_pybytes(), batch.row_kinds, type_info)


class CollectSink(Sink):
    """Keeps records in pickled files of a directory that driver and workers share.

    Args:
        directory: the directory.
        fsync: make files durable.
        columns: keep ``CollectedColumns`` instead of the records, of which the reader makes records
            of this type, or texts; None: keep records.
    """

    outlives_the_run = False
    shows_records = True

    def __init__(
        self,
        directory: str | Path,
        *,
        fsync: bool = True,
        columns: TypeInformation | None = None,
    ) -> None:
        self.directory = local_directory(str(directory))
        self.fsync = fsync
        self.columns = columns

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return _CollectWriter(self, context)

    def create_committer(self) -> Committer:
        return PendingFileCommitter(self.directory, fsync=self.fsync)


class _CollectWriter(SinkWriter):
    def __init__(self, sink: CollectSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._file: PendingFile | None = None

    def write(self, batch: Batch) -> None:
        if len(batch) == 0:
            return
        if self._file is None:
            context = self._context
            name = f"collect-{OutputNames.of(context).tag}-{context.subtask}-{context.epoch}.pickle"
            self._file = PendingFile(self._sink.directory, context, name, fsync=self._sink.fsync)
        try:
            kind = self._sink.columns
            records = batch.values if kind is None else [_columns_of(batch, kind)]
            self._file.stream.write(dumps_by_value(records))
        except (TypeError, AttributeError, ValueError) as error:
            what = find_unpicklable(batch.values)
            message = f"{self._context.sink}: result {what}: collect plain data"
            raise PermanentSinkError(message) from error

    def prepare_commit(self) -> Sequence[Committable]:
        if self._file is None:
            return []
        committable = self._file.seal()
        self._file.sync_directory()
        return [committable]

    def abort(self) -> None:
        if self._file is not None:
            self._file.discard()

    def close(self) -> None:
        if self._file is not None:
            self._file.stream.close()


def collected_files(directory: str | Path) -> list[Path]:
    """The committed files, in order of epoch and subtask."""
    found: list[tuple[int, int, Path]] = []
    base = local_directory(str(directory))
    for path in base.iterdir() if base.is_dir() else ():
        match = _NAME.fullmatch(path.name)
        if match is not None:
            found.append((int(match[2]), int(match[1]), path))
    return [path for _, _, path in sorted(found)]


def read_collected(directory: str | Path) -> Iterator[object]:
    """The records of all committed epochs, in order of epoch, subtask and writing."""
    for path in collected_files(directory):
        for record in read_collected_file(path):
            if isinstance(record, CollectedColumns):
                yield from record.batch().values
            else:
                yield record


def read_collected_file(path: Path) -> Iterator[object]:
    """The records of one committed file, or ``CollectedColumns`` where the sink keeps these."""
    with path.open("rb") as stream:
        while stream.peek(1):
            # Written by this job a moment ago, in a directory of the user's.
            yield from cloudpickle.load(stream)
