"""The print sink: records on the driver's standard output.

What it is: Flink's ``print``, with one difference: lines are printed by the driver when their
epoch is committed, so they are exactly the lines of committed epochs, in order of epoch, subtask
and record.  They travel in the manifest (compressed), so this is for looking at results, not
for moving data.

Where tasks go on, too, they wait for their checkpoint: a slot's own output is nowhere to be seen on
most clusters.

What it is not: exactly-once.  A terminal cannot be asked what it has shown: when the driver dies
while it prints, the lines of that epoch are printed again by the next run (at-least-once).
Within one run nothing is printed twice, nor behind one that has ended in an orderly way: by an
interrupt, or of a failure that restarts it.

Read next: ``connectors/formats/text_values.py``.
"""

from __future__ import annotations

import sys
import zlib
from collections import Counter
from typing import IO, TYPE_CHECKING, cast

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

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest, Committable

__all__ = ["PrintSink"]


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
