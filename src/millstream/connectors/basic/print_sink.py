"""The sink that prints records, to the driver's standard output, and the one that discards them.

Unlike Flink's, lines are printed by the driver when their checkpoint is committed, so they are
exactly the lines of committed checkpoints, in order of checkpoint, subtask and record.  They travel
in the manifest (compressed).  A slot's own output is not visible on most clusters.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from typing import IO, TYPE_CHECKING, Any, Final, cast

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
from millstream.types import logical_types as lt
from millstream.types.bitmaps import BitmapType, VariantType, bitmap_text
from millstream.types.row import RowKind
from millstream.types.text_values import (
    NANOS_PER_DAY,
    NANOS_PER_SECOND,
    date_text,
    double_text,
    float_text,
)
from millstream.types.values import values_of_column
from millstream.types.variants import variant_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest, Committable


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
        """What Flink puts before a line: identifier and subtask, if there are several."""
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

    def __init__(self, row: lt.RowType) -> None:
        self._row = row

    def __call__(self, batch: Batch) -> Sequence[str]:
        columns = [
            [java_text(value, kind) for value in values_of_column(column, kind)]
            for column, kind in zip(batch.arrow.columns, self._row.children, strict=True)
        ]
        kinds = [0] * len(batch) if batch.row_kinds is None else batch.row_kinds.tolist()
        rows = zip(*columns, strict=True)
        return [f"{_KINDS[kind]}[{', '.join(row)}]" for kind, row in zip(kinds, rows, strict=True)]


def java_text(value: Any, kind: lt.LogicalType) -> str:  # noqa: PLR0911 - a table
    """The text of a value as SQL's functions have it: what Java's ``toString`` says of Flink's."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(kind, lt.FloatType | lt.DoubleType):
        return float_text(value) if isinstance(kind, lt.FloatType) else double_text(value)
    if isinstance(kind, BitmapType):
        return bitmap_text(value)
    if isinstance(kind, VariantType):
        return variant_json(value)
    if isinstance(value, bytes):
        return _listed(str(each - 256 if each > 127 else each) for each in value)  # noqa: PLR2004
    if isinstance(kind, lt.RowType):
        parts = zip(value, kind.children, strict=True)
        return f"+I{_listed(java_text(each, child) for each, child in parts)}"
    if isinstance(kind, lt.ArrayType):
        return _listed(java_text(each, kind.element) for each in value)
    if isinstance(kind, lt.MapType | lt.MultisetType):
        one, other = kind.children if isinstance(kind, lt.MapType) else (kind.element, lt.IntType())
        pairs = (f"{java_text(key, one)}={java_text(each, other)}" for key, each in value.items())
        return "{" + ", ".join(pairs) + "}"
    return _time_text(value, kind)


def _time_text(value: Any, kind: lt.LogicalType) -> str:
    if isinstance(kind, lt.DateType):
        return date_text(value)
    if isinstance(kind, lt.TimeType):
        return _clock_text(value, whole=False)
    if isinstance(kind, lt.TimestampType | lt.LocalZonedTimestampType):
        zoned = isinstance(kind, lt.LocalZonedTimestampType)
        days, of_day = divmod(value, NANOS_PER_DAY)
        return f"{date_text(days)}T{_clock_text(of_day, whole=zoned)}{'Z' if zoned else ''}"
    return str(value)


def _listed(texts: Iterable[str]) -> str:
    return f"[{', '.join(texts)}]"


def _clock_text(of_day: int, *, whole: bool) -> str:
    """``13:05``, with seconds if there are any or ``whole``, and 3, 6 or 9 digits of them."""
    seconds, nanos = divmod(of_day, NANOS_PER_SECOND)
    text = f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}"
    if whole or seconds % 60 or nanos:
        text += f":{seconds % 60:02d}"
    if not nanos:
        return text
    digits = 9 if nanos % 1000 else 6 if nanos % 1_000_000 else 3
    return f"{text}.{nanos:09d}"[: len(text) + 1 + digits]


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
