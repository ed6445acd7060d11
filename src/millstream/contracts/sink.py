"""The sink contract (Flink's Sink V2): writers that pre-commit, a committer, and abort.

In the tasks a writer writes an epoch's records to a place nobody sees and *pre-commits* them:
durable, invisible, described by committables.  These go into the manifest; when it is published
(the commit point) the committer in the driver makes them visible.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeGuard

from millstream.object_stores import OpensStores

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.batch import Batch
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.types.types import TypeInformation


#: Bits of a fence that are the epoch's.
_EPOCH_BITS: Final = 32

#: The key of committables that say how far a subtask is; see ``Sink.wants_progress``.
PROGRESS: Final = "progress"

#: What a writer hands to the committer: any picklable value (dicts of plain values age best).
Committable = object


def says_progress(committable: Committable) -> TypeGuard[dict[str, Any]]:
    """Return whether a committable says how far a subtask is, and names no output."""
    return isinstance(committable, dict) and PROGRESS in committable


class DeliveryGuarantee(Enum):
    """The guarantee of a sink when its job is checkpointed exactly-once."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"
    NONE = "none"


class SinkKind(Enum):
    """How a sink comes to its guarantee; with it the plan says what a weaker one is due to."""

    #: Output cannot be taken back nor recognised.
    ANY = "any"
    #: Writing again changes nothing: rows replace those of the same key.
    IDEMPOTENT = "idempotent"
    #: Results are kept in the checkpoint and written when it is complete.
    WRITE_AHEAD = "write-ahead"
    #: Output is pre-committed where nobody sees it, and committed with the checkpoint.
    TWO_PHASE = "two-phase"


@dataclass(frozen=True, slots=True)
class WriterContext:
    """The identity of a writer and its attempt."""

    job_id: str
    sink_uid: str
    subtask: int
    parallelism: int
    epoch: int
    #: Unique for this attempt of the task: use it in the name of everything that is written.
    attempt: str
    #: Of the run that the attempt belongs to.
    generation: int = 0
    #: The checkpoint directory, for what shall be found again by the committer; None in a harness.
    storage: CheckpointStorage | None = None
    #: What messages call the sink; empty: its uid.
    label: str = ""

    @property
    def sink(self) -> str:
        """The sink, for messages."""
        return f"sink {self.label or self.sink_uid}"

    @property
    def fence(self) -> int:
        """What tells newer output from older where it is seen before its epoch is published."""
        return fence_of(self.generation, self.epoch)

    @property
    def location(self) -> str:
        """Sink, epoch and subtask, for messages."""
        return f"{self.sink}, checkpoint {self.epoch}, subtask {self.subtask}"


def fence_of(generation: int, epoch: int) -> int:
    """A number that is greater in each newer run, and within a run in each later epoch.

    The epoch alone is not: with long-running tasks a run writes epochs that are not published; the
    next one begins again after the last that is, with others in each: a row of an epoch that never
    came to be would be safe from what the newer run writes earlier.

    Args:
        generation: of the run, below 2 ** 31.
        epoch: below 2 ** 32; the number is this one if the generation is 0.
    """
    return generation << _EPOCH_BITS | epoch


@dataclass(frozen=True, slots=True)
class CommitterContext:
    """The job and the run of a committer."""

    job_id: str
    sink_uid: str
    #: Of this run; output of newer ones is not its own to abort.
    generation: int
    #: The checkpoint directory that the writers had.
    storage: CheckpointStorage
    #: Seconds after which a call is given up (``millstream.commit.timeout``).  A client that can
    #: give up by itself should do so before; then the commit can be tried again.
    timeout: float = 600.0
    #: What messages call the sink; empty: its uid.
    label: str = ""

    @property
    def sink(self) -> str:
        """The sink, for messages."""
        return f"sink {self.label or self.sink_uid}"


@dataclass(frozen=True, slots=True)
class CommitRequest:
    """One committable with its history."""

    committable: Committable
    epoch: int
    #: True when an earlier run or try may already have committed it.
    retried: bool
    #: True when the run that committed it said so as it ended.  A target that knows nothing of it
    #: any more, because it forgets or because consumers take things away, has lost nothing.
    confirmed: bool = False
    #: False in the modes AT_LEAST_ONCE and NONE: no manifest names it.  In the first, a run that
    #: dies now writes the epoch again, so the target may hold other output of it, from runs that
    #: did; that is no error.
    published: bool = True


class SinkWriter(ABC):
    """Writes the records of one epoch in one subtask.

    Contract:
      1. Made again for every epoch and attempt; ``write`` and ``flush``, in any mix, then
         ``prepare_commit`` or ``abort``, then ``close``.  (runtime)
      2. Nothing is visible to readers before the commit, for exactly-once sinks.  (conformance
         suite)
      3. When ``prepare_commit`` returns, the output survives a crash of this machine, and any
         process can commit it.  (suite: a SIGKILL of this process; author: a crash)
      4. What an aborted or killed writer wrote never becomes visible, and is not in the way of the
         next attempt.  (suite)
      5. A writer without records changes nothing.  (suite)
      6. It may be made, written to and asked to pre-commit while output of earlier epochs of the
         same subtask is pre-committed and not committed, and it keeps no commit of those waiting:
         with long-running tasks, epoch N is committed while N + 1 is being written, and with
         several checkpoints in flight N + 1 is pre-committed by then, too.  There is one open
         writer at a time.  (suite)
      7. With ``prepares_aside`` there may be a second one, to which nothing is written any more:
         ``seal`` was called, ahead of the first record of the next one.  If its
         ``prepare_commit`` fails the task fails; then, and if the task is stopped ahead of it,
         ``abort`` and ``close`` follow.  (runtime)
    """

    #: Whether ``prepare_commit`` and ``close`` may be called in another thread, while the next
    #: writer of the subtask is made and written to: with long-running tasks, records do not wait
    #: for the target's answer.  Such calls come one at a time.
    prepares_aside: bool = False

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take records, in order."""

    def write_watermark(self, watermark: int) -> None:
        """Event time has advanced."""
        del watermark

    def flush(self) -> None:
        """Write what is held back, if readers may see it before the checkpoint is complete.

        With long-running tasks, it is called soon after records came, within milliseconds, and not
        more often than costs a tenth of the time.  A writer whose output waits for its commit has
        nothing to do.
        """

    def seal(self) -> None:
        """Take no more records; with ``prepares_aside``, ahead of ``prepare_commit``.

        Called in the thread of ``write``, ahead of the first record of the next writer.  Where the
        target keeps records in the order in which they reach it, these must be there when it
        returns, or the next writer holds its own back until they are.
        """

    @abstractmethod
    def prepare_commit(self) -> Sequence[Committable]:
        """Pre-commit: make the epoch's output durable and invisible; describe it."""

    def abort(self) -> None:
        """The task failed: drop what was written, if that is possible now."""

    def close(self) -> None:
        """Let go of files and connections."""


class Committer(ABC):
    """Makes pre-committed output visible; lives in the driver.

    Contract:
      1. ``commit`` is idempotent: a committable that is already committed is recognised and
         passed over.  (conformance suite)
      2. ``commit`` either commits everything or raises SinkError; it is then called again with
         ``retried=True``, as it is when its process died in the middle.  (suite)
      3. ``abort_orphans`` drops the rest, may be repeated, and never touches what ``keep``
         names, what is committed, nor output of other jobs, other sinks or newer generations of
         this one.  (suite)
      4. ``commit`` gets all committables of the sink in one epoch at once.  (coordinator)
      5. All methods are called in one thread, which no other committer has, and none is called
         while another runs.  A call that takes longer than ``CommitterContext.timeout`` fails the
         run.  (coordinator)
      6. What a call sent that failed may reach the target later, even after the next try or
         while a newer run is at work: it changes nothing then.  (author)
      7. An epoch that a newer run has passed is not committed again: it changes nothing, or is a
         SinkError.  (suite)
      8. ``resume_from`` changes nothing, and raises only if it has *seen* later output of the same
         job and sink.  (author)
      9. Epochs are committed in order; numbers may be left out.  Output of a checkpoint that failed
         while the tasks continued is committed with that of the next, in one call and as of that
         epoch, though its writers were told an earlier one.  (suite)
    """

    #: How messages name the place where the output goes; empty: by the class.
    target: str = ""

    def open(self, context: CommitterContext) -> None:
        """Prepare; called once, before anything is committed or aborted."""
        del context

    def resume_from(self, epoch: int) -> None:
        """Told the last epoch that is published, -1 for none, when a run recovers.

        Called after ``open``, before that epoch is committed again; not after runs with
        AT_LEAST_ONCE, where output may rightly be there before its manifest.  A target that can
        tell, and holds output of a later epoch, shows that the checkpoint directory was put back
        from an older copy.

        Raises:
            SinkError: that is so; going on would repeat the output of those epochs.
        """
        del epoch

    @abstractmethod
    def commit(self, requests: Sequence[CommitRequest]) -> None:
        """Make the output visible."""

    def abort_orphans(
        self, job_id: str, sink_uid: str, keep: Sequence[Committable], generation: int
    ) -> None:
        """Drop pre-committed output of this job that no manifest names.

        Called after recovery, and, where tasks end with each epoch, after each commit.  Where they
        go on, it is called now and then with the generation before, for writers of this one are at
        work.

        Args:
            job_id: the job.
            sink_uid: the sink in it.
            keep: the output of the last manifest.
            generation: that of this run, or the one before.  Output of a newer one
                (``WriterContext.generation``) is not touched: it is of this run, or this run is
                about to be fenced and does not know it yet.
        """
        del job_id, sink_uid, keep, generation

    def close(self) -> None:
        """Let go of connections."""


class Sink(OpensStores, ABC):
    """Where results go.  Instances are pickled to the workers.

    ``guarantee`` is what the sink promises when the job is checkpointed exactly-once.
    """

    guarantee: DeliveryGuarantee = DeliveryGuarantee.EXACTLY_ONCE
    kind: SinkKind = SinkKind.TWO_PHASE
    #: Whether what was written is still there when the driver has ended.
    outlives_the_run: bool = True
    #: Whether the program shows the records (print, collect): progress between them is in the way.
    shows_records: bool = False
    #: Whether records are written with their timestamps, or go where these say; else tables need
    #: not carry them.
    reads_timestamps: bool = True
    #: Whether each subtask also says how far it is with every snapshot, though it has no records:
    #: ``{PROGRESS: {"subtask", "parallelism", "run", "watermark", "idle", "ended", "now"}}``, the
    #: run by its generation, times in milliseconds, the watermark None before the run's first.
    wants_progress: bool = False
    #: For so many milliseconds after its last record a subtask is to have a snapshot though no
    #: record comes, and one after them; None: it need not.
    wants_ticks: int | None = None

    @property
    def connector(self) -> str:
        """Whose committables these are: a checkpoint keeps them from another connector's sink.

        A sink that hands all on to another one says what that one is.
        """
        return type(self).__name__

    def describe(self) -> str:
        """A few words for plans, errors and progress: what it is, and where it writes."""
        return type(self).__name__

    def validate(self) -> None:
        """Check, in the driver before anything is written, that the sink can be used.

        Raises:
            SinkError: it cannot, saying what to do.
        """

    def validate_input(self, type_info: TypeInformation) -> None:
        """Check, right after ``validate``, that records of a type can be written.

        Args:
            type_info: of the stream that ends in the sink; called for each, if there are several.

        Raises:
            SinkError: they cannot, saying what to do.
        """
        del type_info

    def validate_configuration(self, configuration: Configuration) -> None:
        """Check, in the driver before anything is written, that the job's settings suit the sink.

        Raises:
            ConfigurationError: they could lose data (pre-committed output that does not outlive an
                outage, say), with the numbers to set.
        """
        del configuration

    def validate_parallelism(self, parallelism: int) -> None:
        """Check, right after ``validate``, that so many writers can work side by side.

        Raises:
            SinkError: they cannot, saying what to do.
        """
        del parallelism

    @abstractmethod
    def create_writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one epoch, called in the task."""

    def create_committer(self) -> Committer | None:
        """The committer, called in the driver; None for sinks that make output visible at once."""
        return None

    def committed(self, epoch: int) -> None:
        """Learn, with long-running tasks, that output up to that of ``epoch`` is committed.

        Called in the worker, in the thread and in turn with ``SinkWriter.prepare_commit`` aside.
        It is a help, not a promise: it does not come for what an older run has written, nor where
        tasks end with each epoch.
        """
        del epoch

    def end_input(self) -> None:
        """Told in the worker that the subtask's input is over and all of it prepared.

        Here a sink waits for what its writers have not waited for.
        """

    def close(self) -> None:
        """Let go of what writers shared; called in a worker when its subtask moves or ends."""
