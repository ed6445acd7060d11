"""The sink operator: creates a writer for each checkpoint, writes and pre-commits.

A writer is created at the first record after a checkpoint; a snapshot asks it to pre-commit and
holds its committables.
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from millstream.connectors.error_classification import sink_error
from millstream.contracts.operator import Operator, OperatorSnapshot
from millstream.contracts.sink import PROGRESS, WriterContext
from millstream.crash_points import crash_point
from millstream.errors import MillstreamError, SinkError, TypeMismatchError
from millstream.object_stores import OpensStores
from millstream.runtime.user_code import private_copy, user_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import Checkpoint, RestoreContext
    from millstream.contracts.sink import Sink, SinkWriter
    from millstream.object_stores import StoreAccess


#: How much longer than a flush the pause after it is.
_FLUSH_PAUSE: Final = 9


class SinkOperator(Operator):
    """Writes records to a sink, pre-commits at the end of each epoch."""

    counted: ClassVar[Mapping[str, str]] = {
        "numRecordsIn": "_records",
        "numRecordsOut": "_records",
    }

    def __init__(self, sink: Sink, seconds: Callable[[], float] = time.monotonic) -> None:
        """Take a copy of the sink for this subtask; ``seconds`` is the clock of flushes."""
        self._sink = private_copy(sink)
        self._seconds = seconds
        #: Whether the writer has records that it was not reason to flush.
        self._unflushed = False
        self._next_flush = 0.0
        self._writer: SinkWriter | None = None
        self._restored: RestoreContext | None = None
        #: Context of the writer, for messages.
        self._where: WriterContext | None = None
        self._records = 0
        self._watermark: int | None = None
        self._is_idle = False
        self._is_over = False
        self._now: int | None = None
        #: Until when snapshots are wanted though no record comes.
        self._due: int | None = None

    def restore(self, restored: RestoreContext) -> None:
        """Start an epoch; the writer is made when the first record comes."""
        self._drop_writer()
        self._restored = restored
        self._records = 0
        if self._due is None:
            self._note_due()  # for what the subtask, or another in its place, has written before

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        if not len(batch):
            return
        self._records += len(batch)
        self._note_due()
        try:
            if self._writer is None:
                self._writer = self._make_writer()
            self._writer.write(batch)
            self._unflushed = True
        except Exception as error:
            self._drop_writer()
            raise self._wrapped(error, "writing") from error

    def process_processing_time(self, now: int) -> None:
        self._now = now

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        self._is_idle = idle
        super().process_idle(idle)

    def end_input(self) -> None:
        self._is_over = True

    def process_watermark(self, watermark: int) -> None:
        self._watermark = watermark
        if self._writer is not None:
            try:
                self._writer.write_watermark(watermark)
            except Exception as error:
                self._drop_writer()
                raise self._wrapped(error, "writing a watermark") from error
        self.output.emit_watermark(watermark)

    def flush(self) -> None:
        """Let the writer write what it holds back; takes a tenth of the time at most."""
        began = self._seconds()
        if self._writer is None or not self._unflushed or began < self._next_flush:
            return
        try:
            self._writer.flush()
        except Exception as error:
            self._drop_writer()
            raise self._wrapped(error, "flushing") from error
        self._unflushed = False
        ended = self._seconds()
        self._next_flush = ended + _FLUSH_PAUSE * (ended - began)

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Pre-commit; what comes after it is another writer's, with names of its own."""
        writer, self._writer = self._writer, None
        pending = _Output(writer, self._wrapped_at(self._where))
        resumes = self._restored is not None and self._restored.resumes
        aside = writer is not None and writer.prepares_aside and resumes
        committables: list[object] = []
        if aside:
            pending.seal()
        else:
            committables = pending.finish()
        if self._is_over:
            self._end_sink()
        if self._sink.wants_progress:
            committables = [*committables, {PROGRESS: self._progress()}]
        self._unflushed = False
        metrics = self.take_metrics()
        if self._restored is not None and checkpoint.next_attempt is not None:
            self._restored = replace(
                self._restored, epoch=checkpoint.epoch + 1, attempt=checkpoint.next_attempt
            )
        output = pending if aside else None
        due = self._due if self._due is not None and self._time() < self._due else None
        return OperatorSnapshot(
            committables=committables, output=output, metrics=metrics, next_due=due
        )

    def _end_sink(self) -> None:
        try:
            self._sink.end_input()
        except Exception as error:
            raise self._wrapped(error, "writing the last records") from error

    def _note_due(self) -> None:
        if self._sink.wants_ticks is not None:
            self._due = self._time() + self._sink.wants_ticks + 1

    def _time(self) -> int:
        return int(time.time() * 1000) if self._now is None else self._now

    def _progress(self) -> dict[str, object]:
        """Return how far the subtask is."""
        return {
            "subtask": self.context.subtask,
            "parallelism": self.context.parallelism,
            "run": -1 if self._restored is None else self._restored.generation,
            "watermark": self._watermark,
            "idle": self._is_idle,
            "ended": self._is_over,
            "now": self._time(),
        }

    def committed(self, epoch: int) -> Callable[[], None]:
        """Let the sink know."""
        return partial(self._sink.committed, epoch)

    def close(self) -> None:
        """Abort what is in flight: an epoch that succeeded has left no writer."""
        self._drop_writer()
        self._sink.close()

    def _make_writer(self) -> SinkWriter:
        context, restored = self.context, self._restored
        if restored is None:
            message = "a record came before restore"
            raise SinkError(message)
        self._where = WriterContext(
            job_id=restored.job_id,
            sink_uid=context.uid,
            subtask=context.subtask,
            parallelism=context.parallelism,
            epoch=restored.epoch,
            attempt=restored.attempt,
            generation=restored.generation,
            storage=restored.storage,
            label="" if context.has_own_uid else context.name,
        )
        writer: SinkWriter = self._sink.create_writer(self._where)
        return writer

    def _drop_writer(self) -> None:
        """Abort and close; an error here must not hide the one that led here."""
        writer, self._writer = self._writer, None
        if writer is not None:
            _abort_and_close(writer)

    def _wrapped(self, error: Exception, doing: str) -> MillstreamError:
        return self._wrapped_at(self._where)(error, doing)

    def _wrapped_at(
        self, where: WriterContext | None
    ) -> Callable[[Exception, str], MillstreamError]:
        """Makes errors that say where the output of a writer goes, also when another is there."""
        epoch = self._restored.epoch if self._restored is not None else -1
        return partial(self._located, where, epoch)

    def _located(
        self, where: WriterContext | None, epoch: int, error: Exception, doing: str
    ) -> MillstreamError:
        if isinstance(error, TypeMismatchError) and error.is_located:
            return error  # of the operator that made the records
        if isinstance(error, TypeMismatchError):
            message = f"input of sink {self.context.name!r} ({self.context.location}): {error}"
            return TypeMismatchError(message)
        if isinstance(error, MillstreamError) and not isinstance(error, SinkError):
            return error
        context = self.context
        uid = f", uid {context.uid}" if context.has_own_uid else ""
        place = (
            f"sink {context.name!r} ({context.location}{uid}) failed while {doing} in"
            f" checkpoint {epoch}, subtask {context.subtask}"
        )
        # What a serializer, an assigner of buckets or another function of the user's raised.
        line = user_line(error.__cause__ or error)
        at = "" if line is None else f"\n  at {line}"
        if not isinstance(error, SinkError):
            return sink_error(f"{place}: {type(error).__name__}: {error}{at}", error)
        # Writers say where they are, too.
        reason = str(error) if where is None else str(error).removeprefix(f"{where.location}: ")
        return type(error)(f"{place}: {reason}{at}")


def _abort_and_close(writer: SinkWriter) -> None:
    # After an error, which is what matters; what the writer raises now must not hide it.
    with contextlib.suppress(Exception):
        writer.abort()
    with contextlib.suppress(Exception):
        writer.close()


class _Output:
    """The output of a writer for an epoch that is over; nobody writes to it any more.

    Args:
        writer: None: there were no records.
        wrapped: makes an error that says where it happened, of one and what was done.
    """

    def __init__(
        self, writer: SinkWriter | None, wrapped: Callable[[Exception, str], MillstreamError]
    ) -> None:
        self._writer = writer
        self._wrapped = wrapped

    def seal(self) -> None:
        """Let the writer take no more; what comes next is another's."""
        if self._writer is None:
            return
        try:
            self._writer.seal()
        except Exception as error:
            self.abandon()
            raise self._wrapped(error, "pre-committing") from error

    def finish(self) -> list[object]:
        """Pre-commit, and close the writer."""
        committables: list[object] = []
        writer = self._writer
        try:
            crash_point("sink.prepare.before")
            if writer is not None:
                committables = list(writer.prepare_commit())
        except Exception as error:
            self.abandon()
            raise self._wrapped(error, "pre-committing") from error
        if writer is not None:
            try:
                writer.close()
            except Exception as error:
                raise self._wrapped(error, "closing the writer") from error
        crash_point("sink.prepare.after")
        return committables

    def abandon(self) -> None:
        """Abort and close the writer."""
        if self._writer is not None:
            _abort_and_close(self._writer)


@dataclass
class SinkFactory(OpensStores):
    """Factory of sink operators."""

    sink: Sink
    keyed: ClassVar[bool] = False

    def opened_with(self, stores: StoreAccess) -> SinkFactory:
        return SinkFactory(self.sink.opened_with(stores))

    def create(self) -> Operator:
        """Make a new, unopened instance."""
        return SinkOperator(self.sink)
