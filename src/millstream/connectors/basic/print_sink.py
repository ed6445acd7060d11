"""The sink that prints records, to the driver's standard output, and the one that discards them.

Unlike Flink's, lines are printed by the driver when their checkpoint is committed, so they are
exactly the lines of committed checkpoints, in order of checkpoint, subtask and record.  They travel
in the manifest (compressed).  A slot's own output is not visible on most clusters.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from typing import IO, TYPE_CHECKING, Final, cast

from millstream.connectors.formats.text_values import texts_of_batch
from millstream.contracts.sink import (
    Committer,
    DeliveryGuarantee,
    Sink,
    SinkKind,
    SinkWriter,
    WriterContext,
)
from millstream.errors import SinkError
from millstream.expressions.casts import JAVA_STYLE, text_function
from millstream.types.row import RowKind
from millstream.types.values import values_of_column

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest, Committable
    from millstream.types.logical_types import RowType


class PrintSink(Sink):
    """Prints records.

    Args:
        sink_identifier: put before every line.
        to_stderr: print to standard error.
        texts: the text of each record of a batch.
    """

    guarantee = DeliveryGuarantee.AT_LEAST_ONCE
    kind = SinkKind.ANY
    shows_records = True

    def __init__(
        self,
        sink_identifier: str | None = None,
        *,
        to_stderr: bool = False,
        texts: Callable[[Batch], Sequence[str]] = texts_of_batch,
    ) -> None:
        self.sink_identifier = sink_identifier
        self.to_stderr = to_stderr
        self._texts = texts

    def create_writer(self, context: WriterContext) -> SinkWriter:
        prefix = self.prefix(context.subtask, context.parallelism)
        return _PrintWriter(prefix, self._texts, context)

    def create_committer(self) -> Committer:
        return _PrintCommitter(to_stderr=self.to_stderr)

    def prefix(self, subtask: int, parallelism: int) -> str:
        """Return what Flink puts before a line: identifier and subtask, if there are several."""
        number = str(subtask + 1) if parallelism > 1 else ""
        parts = [part for part in (self.sink_identifier or "", number) if part]
        return ":".join(parts) + "> " if parts else ""


class _PrintWriter(SinkWriter):
    def __init__(
        self, prefix: str, texts: Callable[[Batch], Sequence[str]], context: WriterContext
    ) -> None:
        self._prefix = prefix
        self._texts = texts
        self._context = context
        self._lines: list[str] = []

    def write(self, batch: Batch) -> None:
        prefix = self._prefix
        self._lines.extend([f"{prefix}{text}\n" for text in self._texts(batch)])

    def prepare_commit(self) -> Sequence[Committable]:
        if not self._lines:
            return []
        text = zlib.compress("".join(self._lines).encode("utf-8", "surrogatepass"))
        return [{"subtask": self._context.subtask, "lines": text}]


class _PrintCommitter(Committer):
    def __init__(self, *, to_stderr: bool) -> None:
        self._to_stderr = to_stderr
        #: (epoch, subtask, which of its parts) printed by this run.
        self._printed: set[tuple[int, int, int]] = set()

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        stream: IO[str] = sys.stderr if self._to_stderr else sys.stdout
        seen: Counter[int] = Counter()
        for request in sorted(requests, key=_subtask):
            # Several of one subtask, if checkpoints before this one failed; always in this order.
            subtask = _subtask(request)
            part = request.epoch, subtask, seen[subtask]
            seen[subtask] += 1
            if part in self._printed or request.confirmed:
                continue
            lines = zlib.decompress(cast("bytes", _parts(request)["lines"]))
            try:
                stream.write(lines.decode("utf-8", "surrogatepass"))
                stream.flush()
            except OSError as error:
                message = f"cannot print: {error}"
                raise SinkError(message) from error
            self._printed.add(part)
        if requests:
            newest = max(request.epoch for request in requests)
            self._printed = {part for part in self._printed if part[0] >= newest - 1}


def _parts(request: CommitRequest) -> dict[str, object]:
    return cast("dict[str, object]", request.committable)


def _subtask(request: CommitRequest) -> int:
    return cast("int", _parts(request)["subtask"])


_KINDS: Final = tuple(RowKind)


class RowTexts:
    """The texts of rows with their kinds; pickled to the workers.

    Args:
        row: of the table.
    """

    def __init__(self, row: RowType) -> None:
        self._row = row

    def __call__(self, batch: Batch) -> Sequence[str]:
        columns = []
        for column, kind in zip(batch.arrow.columns, self._row.children, strict=True):
            write = text_function(kind, "UTC", JAVA_STYLE)
            values = values_of_column(column, kind)
            columns.append(["null" if value is None else write(value) for value in values])
        kinds = [0] * len(batch) if batch.row_kinds is None else batch.row_kinds.tolist()
        rows = zip(*columns, strict=True)
        return [f"{_KINDS[kind]}[{', '.join(row)}]" for kind, row in zip(kinds, rows, strict=True)]


# -- nothing ---------------------------------------------------------------------------------------


class BlackholeSink(Sink):
    """Drops every record."""

    reads_timestamps = False
    #: It commits nothing; nobody sees a record, so nobody sees one twice.
    kind = SinkKind.ANY

    def create_writer(self, context: WriterContext) -> SinkWriter:
        del context
        return _BlackholeWriter()


class _BlackholeWriter(SinkWriter):
    def write(self, batch: Batch) -> None:
        del batch

    def prepare_commit(self) -> Sequence[Committable]:
        return []


#: Flink's name.
DiscardingSink = BlackholeSink
