"""Sinks to derive from: ``TwoPhaseCommitSinkFunction`` and ``UpsertSink``."""

from __future__ import annotations

import copy
import logging
import time
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Generic, Self, TypedDict, TypeVar, cast

from millstream.connectors.commit_protocols.staged_values import (
    StagedCommitter,
    StagingWriter,
    attempt_name,
    drop_unnamed,
    read_staged,
    required_storage,
    staging_directory,
)
from millstream.connectors.error_classification import is_permanent
from millstream.connectors.transaction_timeouts import require_outlives
from millstream.contracts.sink import (
    Committer,
    CommitterContext,
    Sink,
    SinkKind,
    SinkWriter,
    fence_of,
)
from millstream.crash_points import crash_point
from millstream.errors import PermanentSinkError, SinkError
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.connectors.commit_protocols.staged_values import StagedPart
    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import CommitRequest, Committable, WriterContext


_LOG: Final = logging.getLogger("millstream")
#: The smallest long: there has been no watermark.
_NO_WATERMARK: Final = -(1 << 63)

IN = TypeVar("IN")
TXN = TypeVar("TXN")


@dataclass(slots=True)
class SinkContext:
    """Time and watermark of the record given to ``invoke`` (Flink's ``SinkFunction.Context``)."""

    _timestamp: int | None
    _watermark: int

    def current_processing_time(self) -> int:
        """Milliseconds since 1970."""
        return _now()

    def current_watermark(self) -> int:
        """The event time that the sink has reached in this epoch, in milliseconds."""
        return self._watermark

    def timestamp(self) -> int | None:
        """The record's, in milliseconds; None if it has none."""
        return self._timestamp


class _Transaction(TypedDict):
    """The committable."""

    handle: object
    #: Where the handle is kept in the checkpoint directory; "" in a harness.
    note: str
    #: Milliseconds since 1970.
    begun: int


class TwoPhaseCommitSinkFunction(Sink, Generic[IN, TXN]):
    """A sink made of seven methods of its target, for transactions that outlive a process.

    A transaction belongs to one epoch and attempt of one subtask.  The task begins it, writes into
    it and pre-commits; its handle travels in the manifest; the driver commits it once the manifest
    is published.  A handle is also kept in the checkpoint directory when its transaction begins, so
    that one whose task died can be aborted.  Where a transaction can be at a crash:

    1. Begun, its handle not kept -> nobody knows it; the target's own timeout ends it.
    2. Kept, in no manifest -> ``recover_and_abort`` at the start of the next run, or after the
       commit of the next epoch.
    3. In a published manifest -> ``recover_and_commit``, until it succeeds.
    4. Committed, the handle not deleted -> as 3; the target is asked and has nothing to do.

    What can never happen: a transaction that a manifest names is aborted, or one that none names is
    committed.

    Contract:
      1. ``TXN`` is picklable and names the transaction to any process.  (runtime)
      2. After ``pre_commit`` the transaction survives the task and can be committed.  (author)
      3. ``recover_and_commit`` and ``recover_and_abort`` recognise a transaction that was ended
         before.  (conformance suite)
    """

    kind = SinkKind.TWO_PHASE

    # Of the class, so that a subclass need not call super().__init__().
    #: In a task: who writes, for the names of transactions.
    writer_context: WriterContext | None = None
    _timeout: int | None = None
    _warning_ratio: float | None = None
    _ignore_failures: bool = False
    _opened: bool = False

    # -- what the author writes ----------------------------------------------------------------

    def open(self) -> None:
        """Connect; called in each process before anything else."""

    @abstractmethod
    def begin_transaction(self) -> TXN:
        """Begin a transaction; ``self.writer_context.attempt`` is a name that nobody else uses."""

    @abstractmethod
    def invoke(self, transaction: TXN, value: IN, context: SinkContext) -> None:
        """Write a record into the transaction."""

    @abstractmethod
    def pre_commit(self, transaction: TXN) -> None:
        """Flush and make the transaction survive this process."""

    @abstractmethod
    def commit(self, transaction: TXN) -> None:
        """Make it visible; in the driver, which did not begin it."""

    @abstractmethod
    def abort(self, transaction: TXN) -> None:
        """Drop it; in the task that began it."""

    def recover_and_commit(self, transaction: TXN) -> None:
        """Commit what may be committed already."""
        self.commit(transaction)

    def recover_and_abort(self, transaction: TXN) -> None:
        """Abort, in the driver, what a failed attempt left and what may be gone already."""
        self.abort(transaction)

    # -- settings ------------------------------------------------------------------------------

    def set_transaction_timeout(self, transaction_timeout: int) -> Self:
        """Say after how many milliseconds the target ends a transaction by itself.

        An epoch whose transaction is older at the pre-commit is given up and run again.  A job
        whose outages may last longer is refused at submit.
        """
        if transaction_timeout <= 0:
            message = f"the transaction timeout must be positive, not {transaction_timeout} ms"
            raise SinkError(message)
        self._timeout = transaction_timeout
        return self

    def ignore_failures_after_transaction_timeout(self) -> Self:
        """Go on when a recovered transaction cannot be committed and is older than the timeout.

        **Its records are lost**, and an error is logged.  Without this the job stops.
        With it the timeout is not compared with the length of an outage at submit.
        """
        self._ignore_failures = True
        return self

    def enable_transaction_timeout_warnings(self, warning_ratio: float) -> Self:
        """Log a warning when a transaction that is committed is older than a part of its timeout.

        Args:
            warning_ratio: 0 to 1.
        """
        if not 0 <= warning_ratio <= 1:
            message = f"the warning ratio must be between 0 and 1, not {warning_ratio}"
            raise SinkError(message)
        self._warning_ratio = warning_ratio
        return self

    # -- the contract of sinks -----------------------------------------------------------------

    def validate_configuration(self, configuration: Configuration) -> None:
        """Check that a pre-committed transaction outlives an outage, as far as that is known.

        Raises:
            ConfigurationError: an epoch that is published could be lost; with the numbers to set.
        """
        if self._timeout is not None and not self._ignore_failures:
            name = "set_transaction_timeout()"
            require_outlives(configuration, self._timeout, name, f"sink {type(self).__name__}")

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer with a transaction of its own."""
        self.ensure_open()
        self.writer_context = context
        return _TransactionWriter(self, context)

    def create_committer(self) -> Committer:
        """The committer, with a copy of this function."""
        return _TransactionCommitter(copy.deepcopy(self))

    def ensure_open(self) -> None:
        """Open once per copy."""
        if not self._opened:
            self.open()
            self._opened = True

    def require_in_time(self, transaction: _Transaction) -> None:
        """Refuse to acknowledge a transaction that the target may have ended; raises SinkError."""
        age = _now() - transaction["begun"]
        if self._timeout is not None and age > self._timeout:
            message = (
                f"the transaction is {age} ms old at the pre-commit, its timeout is"
                f" {self._timeout} ms: the target may have ended it. Make checkpoints more"
                " frequent, or the timeout longer"
            )
            raise SinkError(message)

    def finish(self, transaction: _Transaction, request: CommitRequest) -> None:
        """Commit in the driver; raises what the author's methods raise."""
        handle = cast("TXN", transaction["handle"])
        age = _now() - transaction["begun"]
        timeout = self._timeout
        ratio = self._warning_ratio
        if timeout is not None and ratio is not None and age > ratio * timeout:
            _LOG.warning(
                "transaction %r of checkpoint %d is %d ms old, its timeout is %d ms",
                handle,
                request.epoch,
                age,
                timeout,
            )
        if not request.retried:
            self.commit(handle)
            return
        try:
            self.recover_and_commit(handle)
        except Exception:
            if not self._ignore_failures or timeout is None or age <= timeout:
                raise
            _LOG.exception(
                "transaction %r of checkpoint %d timed out (%d ms) and is dropped: ITS RECORDS ARE"
                " LOST, as ignore_failures_after_transaction_timeout() allows",
                handle,
                request.epoch,
                age,
            )


class _TransactionWriter(SinkWriter):
    def __init__(self, function: TwoPhaseCommitSinkFunction[Any, Any], ctx: WriterContext) -> None:
        self._function = function
        self._context = ctx
        self._watermark = _NO_WATERMARK
        begun = _now()
        handle = function.begin_transaction()
        self._transaction: _Transaction = {"handle": handle, "note": "", "begun": begun}
        try:
            self._keep(handle)
        except Exception:
            function.abort(handle)
            raise

    def _keep(self, handle: object) -> None:
        storage = required_storage(self._context.storage, type(self._function).__name__)
        try:
            content = dumps(handle)
        except Exception as error:
            message = (
                f"{type(self._function).__name__}.begin_transaction() returned a"
                f" {type(handle).__name__}, which cannot be pickled ({error}): return a name or"
                " number by which another process finds the transaction"
            )
            raise SinkError(message) from error
        name = attempt_name(self._context, "transaction")
        crash_point("transaction.handle.before")
        storage.write(name, content)
        crash_point("transaction.handle.after")
        self._transaction["note"] = name

    def write(self, batch: Batch) -> None:
        invoke, handle = self._function.invoke, self._transaction["handle"]
        if batch.raw_timestamps is None:
            context = SinkContext(None, self._watermark)
            for value in batch.values:
                invoke(handle, value, context)
            return
        for value, timestamp in zip(batch.values, batch.timestamp_list, strict=True):
            invoke(handle, value, SinkContext(timestamp, self._watermark))

    def write_watermark(self, watermark: int) -> None:
        self._watermark = watermark

    def prepare_commit(self) -> Sequence[Committable]:
        self._function.pre_commit(self._transaction["handle"])
        self._function.require_in_time(self._transaction)
        return [self._transaction]

    def abort(self) -> None:
        self._function.abort(self._transaction["handle"])


class _TransactionCommitter(Committer):
    def __init__(self, function: TwoPhaseCommitSinkFunction[Any, Any]) -> None:
        self.target = type(function).__name__
        self._function = function
        self._context: CommitterContext | None = None

    def open(self, context: CommitterContext) -> None:
        self._context = context

    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Commit each transaction, also if another one cannot be: they may be about to time out.

        Raises:
            SinkError: the first failure, and how many there were.
        """
        context = self._required_context()
        failed: list[tuple[object, Exception]] = []
        for request in requests:
            transaction = cast("_Transaction", request.committable)
            crash_point("transaction.commit.before")
            try:
                self._function.ensure_open()
                self._function.finish(transaction, request)
            except Exception as failure:  # noqa: BLE001 - raised below
                failed.append((transaction["handle"], failure))
                continue
            crash_point("transaction.commit.after")
            context.storage.delete([transaction["note"]])
        if failed:
            handle, error = failed[0]
            message = (
                f"{context.sink}: transaction {handle!r} of checkpoint {requests[0].epoch}"
                f" cannot be committed: {error!r}"
            )
            if len(failed) > 1:
                message += f" ({len(failed)} of {len(requests)} transactions failed)"
            permanent = all(is_permanent(each) for _, each in failed)
            raise (PermanentSinkError if permanent else SinkError)(message) from error

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        context = self._required_context()

        def abort(name: str) -> None:
            handle = loads(context.storage.read(name))
            try:
                self._function.ensure_open()
                self._function.recover_and_abort(handle)
            except Exception as error:
                message = f"sink {sink_uid}: transaction {handle!r} cannot be aborted: {error!r}"
                raise SinkError(message) from error

        kept = {cast("_Transaction", item)["note"] for item in keep}
        directory = staging_directory(job_id, sink_uid)
        drop_unnamed(context.storage, directory, "transaction", kept, generation, abort)

    def close(self) -> None:
        self._function.close()

    def _required_context(self) -> CommitterContext:
        if self._context is None:
            message = f"{type(self._function).__name__}: open() comes before commit()"
            raise SinkError(message)
        return self._context


def _now() -> int:
    return time.time_ns() // 1_000_000


# -- upsert by key ---------------------------------------------------------------------------------


class UpsertSink(Sink):
    """Writes the newest value of each key.

    By default values are written at the end of an epoch, or as they come, before the checkpoint is
    complete: after a failure a value may go back for a moment.  If the replay makes other keys than
    the first run did (because it reads the clock, or random numbers), rows of keys that only the
    first run made stay.  With ``fenced=True`` the rows are staged in the checkpoint directory and
    written when the epoch is committed, so values never go back.

    In both, ``upsert`` gets a number that grows with each run and epoch (``fence_of``).  A target
    that stores it beside the row and refuses to replace a row with a greater one is safe from an
    old driver or task that was thought dead.

    Args:
        fenced: write at the commit and not before.
        batch_size: keys per call of ``upsert``.
    """

    kind = SinkKind.IDEMPOTENT

    # Of the class, for subclasses that do not call super().__init__().
    fenced: bool = False
    batch_size: int = 1000

    def __init__(self, *, fenced: bool = False, batch_size: int = 1000) -> None:
        if batch_size < 1:
            message = f"batch_size is {batch_size}; it must be at least 1"
            raise SinkError(message)
        self.fenced = fenced
        self.batch_size = batch_size

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key of a record; hashable."""

    @abstractmethod
    def upsert(self, rows: Mapping[Any, Any], epoch: int) -> None:
        """Insert or replace rows.

        Args:
            rows: key -> newest value.
            epoch: run and epoch in one number, to be stored beside each row, so that rows with a
                greater one are not replaced.
        """

    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer that upserts, or stages if the sink is fenced."""
        if self.fenced:
            return StagingWriter(context, type(self).__name__)
        return _UpsertWriter(self, context.fence)

    def create_committer(self) -> Committer | None:
        """The committer of a fenced sink."""
        return _UpsertCommitter(copy.deepcopy(self)) if self.fenced else None


class _UpsertWriter(SinkWriter):
    def __init__(self, sink: UpsertSink, epoch: int) -> None:
        self._sink = sink
        self._epoch = epoch
        self._rows: dict[Any, Any] = {}

    def write(self, batch: Batch) -> None:
        self.add(batch.values)

    def add(self, values: Iterable[object]) -> None:
        """Take records; write when there are enough keys."""
        for value in values:
            self._rows[self._sink.get_key(value)] = value
            if len(self._rows) >= self._sink.batch_size:
                self.flush()

    def flush(self) -> None:
        """Write what is held back."""
        if self._rows:
            self._sink.upsert(self._rows, self._epoch)
            self._rows = {}

    def prepare_commit(self) -> Sequence[Committable]:
        self.flush()
        return []


class _UpsertCommitter(StagedCommitter):
    def __init__(self, sink: UpsertSink) -> None:
        super().__init__(sink)
        self._upsert = sink

    def write(self, context: CommitterContext, epoch: int, parts: list[StagedPart]) -> None:
        # That of the run that has staged them: the same if they are committed again.
        generation = max(part["generation"] for part in parts)
        rows = _UpsertWriter(self._upsert, fence_of(generation, epoch))
        rows.add(read_staged(context, parts, epoch))
        rows.flush()
