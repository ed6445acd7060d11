"""The operator contract, between the task loop (``runtime/task.py``) and ``runtime/operators/``."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol

from millstream.contracts.json_form import INT, TEXT, mapping, record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from millstream.configuration.configuration import Configuration
    from millstream.contracts.batch import Batch
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore, StateFile
    from millstream.contracts.metrics import MetricValue
    from millstream.types.types import TypeInformation


#: The name of what watermark generators keep.
GENERATOR_STATE: Final = "generator"


class OperatorStateKind(StrEnum):
    """The distribution of state when a job is restored."""

    #: At another parallelism its elements are dealt out, in order; at the same one each subtask
    #: has its own again.
    LIST = "list"
    #: Every subtask gets the elements of all, in order of the subtasks.
    UNION = "union"
    #: The same map in every subtask, so each gets one of the copies.
    BROADCAST = "broadcast"

    @property
    def label(self) -> str:
        """Return what it is called in messages."""
        return {"list": "list state", "union": "union list state"}.get(self, "broadcast state")


@dataclass(frozen=True, slots=True)
class OperatorStateHandle:
    """One named state of one subtask in a checkpoint."""

    kind: OperatorStateKind
    #: How many elements; of broadcast state, entries.
    count: int
    #: The elements where they are small; else they are in the file.  Each is in the encoding of
    #: its recorded type (``state/value_codec.py``), of which a pickle is one form; without a
    #: recorded type it is pickled.
    inline: tuple[bytes, ...] = ()
    file: StateFile | None = None
    #: The declared type, for people; empty if there is none.
    type: str = ""
    #: All of a union, as the subtask was given it, which has not asked for it: the others have the
    #: same, and it counts once.
    is_copy: bool = False
    #: The declared types of elements ("schema") and of the keys of a map ("key_schema"), as
    #: ``types/recorded_types.py`` has them; empty if there are none.
    schemas: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatePart:
    """The elements ``[first, stop)`` of a state in a checkpoint."""

    handle: OperatorStateHandle
    first: int
    stop: int

    @classmethod
    def whole(cls, handle: OperatorStateHandle) -> StatePart:
        """Return all elements of a state."""
        return cls(handle, 0, handle.count)

    @property
    def is_whole(self) -> bool:
        """Return whether it is all of it."""
        return self.first == 0 and self.stop == self.handle.count


class PendingCalls(Protocol):
    """What an operator has under way of a split."""

    @property
    def records(self) -> int:
        """Return of how many records."""

    @property
    def is_ready(self) -> bool:
        """Return whether some of it can be emitted without waiting."""


class OperatorListState(Protocol):
    """A list; ``get`` gives a copy."""

    def get(self) -> list[Any]:
        """Return the elements."""

    def add(self, element: object) -> None:
        """Append an element."""

    def update(self, elements: Iterable[object]) -> None:
        """Take these elements in place of all others."""

    def clear(self) -> None:
        """Remove all elements."""


class OperatorBroadcastState(Protocol):
    """A map.  Whoever changes a value in place has to put it again."""

    def get(self, key: Any) -> Any:
        """Return the value of a key, None if there is none."""

    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key."""

    def put_all(self, entries: Mapping[Any, Any]) -> None:
        """Set the values of several keys."""

    def remove(self, key: Any) -> None:
        """Remove a key, if it is there."""

    def contains(self, key: Any) -> bool:
        """Return whether there is such a key."""

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Return keys and values."""

    def clear(self) -> None:
        """Remove all keys."""


class OperatorStateStore(Protocol):
    """The operator states of one subtask.

    Contract:
      1. A state is asked for in ``restore``, each time, and holds what the checkpoint has for this
         subtask.  (operators)
      2. What it holds when ``snapshot`` of the operator returns is in the checkpoint.  (runtime)
      3. A name that a checkpoint has and nobody asks for is kept, as in Flink.  (test kit)
      4. A name that a checkpoint has as another kind, or of another declared type, is refused.
         (runtime)
    """

    def list_state(self, name: str, type_info: TypeInformation | None = None) -> OperatorListState:
        """Return the list whose elements are dealt out at another parallelism."""

    def union_list_state(
        self, name: str, type_info: TypeInformation | None = None
    ) -> OperatorListState:
        """Return the list of which every subtask gets the elements of all."""

    def broadcast_state(
        self,
        name: str,
        key_type: TypeInformation | None = None,
        value_type: TypeInformation | None = None,
    ) -> OperatorBroadcastState:
        """Return the map that is the same in all subtasks."""


@dataclass(frozen=True, slots=True)
class StateSection:
    """One thing that an operator keeps.

    Contract:
      1. A program that has a section of this name with other ``layout``, ``version`` or
         ``details`` would not find what is stored, or take it for something else.  (nobody)
      2. All texts are for people too: the error that refuses such a program has them.  (nobody)
    """

    #: What it is, among what the operator keeps: "windows".
    name: str
    #: How it is laid out: "panes of partial aggregates".
    layout: str
    #: Of the layout.
    version: int = 1
    #: What else decides whether it is found and understood: "content" -> "reduce".
    details: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Layout and details in a line."""
        rest = [f"{key}: {value}" for key, value in self.details.items()]
        version = f" (version {self.version})" if self.version > 1 else ""
        return "; ".join([f"{self.layout}{version}", *rest])


#: What functions keep by name; found by name, whatever the function is.
FUNCTION_STATES: Final = StateSection("states of the function", "by key and name")


#: A section in a manifest or a store.
SECTION: Final = record(StateSection, name=TEXT, layout=TEXT, version=INT, details=mapping(TEXT))


#: The type of values that are pickled, whatever they are.
_ANYTHING: Final = "PickledByteArrayTypeInfo"


def describe_type(type_info: object) -> str | None:
    """A declared type as it is recorded; None if nothing was declared or it says nothing."""
    if type_info is None:
        return None
    text = str(type_info)
    return None if text == _ANYTHING else text


class Output(Protocol):
    """Where an operator sends what it makes: chained operators and exchanges."""

    def emit(self, batch: Batch) -> None:
        """Send records on the main output.  An empty batch is allowed and dropped."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Send records on the side output called ``tag``; dropped if nobody reads it."""

    def emit_watermark(self, watermark: int) -> None:
        """Send a watermark (milliseconds) after everything emitted so far."""

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        """Say that this output is idle (True) or active again (False)."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """The context of an operator instance (one worker, one subtask)."""

    uid: str
    name: str
    #: "file.py:12", where the user's program made the operator.
    location: str
    subtask: int
    parallelism: int
    max_parallelism: int
    job_name: str
    configuration: Configuration
    #: Type of the records on the main output.
    output_type: TypeInformation
    #: Type of the records per side output tag.
    side_types: dict[str, TypeInformation]
    #: Tags that have a reader.  Work for other tags may be saved.
    read_tags: frozenset[str]
    #: BATCH runtime mode: the only watermark is the maximum at the end of the input; timers fire
    #: and keyed reductions emit their final values then.
    batch_mode: bool = False
    #: Whether the uid is the program's: only then it says something to people.
    has_own_uid: bool = True
    #: Where files of ``pipeline.cached-files`` are, by name.
    cached_files: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class RestoreContext:
    """The state that an operator is restored from."""

    #: The epoch that begins: what is processed now belongs to the checkpoint of this number.
    epoch: int
    #: Unique for this attempt of this task; names everything durable that it writes.
    attempt: str
    #: Milliseconds since 1970, the same in every task and in every replay by the same driver.
    processing_time: int
    #: Tells the time while records are processed, for state that expires, in milliseconds; None:
    #: it is ``processing_time`` until the operator is told another.
    clock: Callable[[], int] | None = field(default=None, kw_only=True)
    #: The store restored to the previous checkpoint; None if the operator keeps no keyed state.
    #: It stays open until the operator is restored again, or closed.
    store: KeyValueStore | None
    #: The operator's watermark at the previous checkpoint.
    watermark: int
    #: What belongs to the subtask, by name.
    operator_states: OperatorStateStore
    #: What the planner knows of a source split: whether it is idle.  None where it does not know
    #: (a Spark DataFrame, an operator that is no source).
    source_idle: bool | None = None
    #: Whether a long-running task begins here, at the start of a run: the time since the checkpoint
    #: was none in which an input could have been silent.
    resumes: bool = False
    job_id: str = ""
    #: Of the run that the attempt belongs to.
    generation: int = 0
    #: Where sinks and snapshots may put temporary files of this worker.
    scratch_directory: str = ""
    #: The checkpoint directory; None in a harness.
    storage: CheckpointStorage | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The context of a snapshot of an operator."""

    #: The number of the checkpoint; that of the epoch which ends with it.
    epoch: int
    #: Names what is written from here on, in epoch ``epoch + 1``.  None: nothing is processed
    #: after this snapshot until the operator is restored.
    next_attempt: str | None = None


class PendingOutput(Protocol):
    """Output of a sink that is fixed, and not pre-committed yet.

    ``finish`` or ``abandon`` is called, once, in another thread than that of the operator, which
    may continue and be closed meanwhile.
    """

    def finish(self) -> list[object]:
        """Pre-commit it; returns what the sink committer gets."""

    def abandon(self) -> None:
        """Drop it: its task is stopped."""


@dataclass(slots=True)
class OperatorSnapshot:
    """The acknowledgement of a checkpoint by an operator, beside its state stores."""

    #: What the sink committer gets, pickled into the manifest.
    committables: list[object] = field(default_factory=list)
    #: What these are still to be got from; only of operators that were restored to continue.
    output: PendingOutput | None = None
    #: Since the snapshot before, or since it was restored: numbers are what the operator counts by
    #: itself (``numRecordsIn``, ``numLateRecordsDropped``), measures are of user functions.
    metrics: Mapping[str, MetricValue] = field(default_factory=dict)
    #: Milliseconds of processing time at which the operator has something to do though no record
    #: comes; None: never.
    next_due: int | None = None
    #: The user's keyed states: name -> kind and type, for people.
    states: dict[str, str] = field(default_factory=dict)
    #: Those of them that the function did not ask for since the operator was restored.
    unused_states: list[str] = field(default_factory=list)
    #: Of the keys since the snapshot before, as far as it was looked at (``state/key_codec.py``).
    key_types: list[str] = field(default_factory=list)


class Operator(ABC):
    """The logic of one operator in one subtask.

    There are two kinds of engines.  One works in epochs: each restores an instance, feeds it, takes
    one snapshot and closes the store; the next epoch may run in another worker.  The other restores
    once and feeds it on and on, with a snapshot at every checkpoint while the store stays open.
    The first is a case of the second, and an operator does not know which one it is in.

    Contract:
      1. ``setup`` then ``open`` are called once; ``close`` once at the end, also after a failure.
         (runtime)
      2. ``restore`` comes before anything is processed.  It may come again after a snapshot, with
         this or any other snapshot of this operator: what the instance holds counts no more.
         (runtime; the test kit restores what it lost)
      3. ``restore`` emits nothing: operators downstream of this one may not be restored yet.  Then
         ``process_processing_time`` is called, which may.  (test kit)
      4. Behind it come, in any mix, ``process_batch``, ``process_watermark``, ``process_idle``,
         ``process_processing_time`` and ``write_some``.  Watermarks and times only grow between two
         ``restore``.  The first time after it says what time it is; further ones say that time
         passes while records flow: every few milliseconds, and at ``due``.  (runtime)
      5. ``snapshot`` may come at any moment between two of these calls, and again and again.  It
         may emit: that belongs to the checkpoint.  When it returns, everything that later results
         depend on is in the store, in operator states, or was emitted.  (test kit, which goes on in
         another instance, in the same one restored, or in the same one as it is)
      6. A snapshot counts from the one before it: committables and metrics of neither are in the
         other.  What an operator counts by itself is in ``counted``.  (test kit)
      7. Nothing is processed after a snapshot that names no next attempt, until ``restore``.
         (runtime)
      8. An exception leaves the instance unusable: it is closed and built again.  (runtime)
      9. A batch that was received is not changed.  (nobody)
    """

    #: True when the operator wants a KeyValueStore.
    keyed: bool = False
    #: Whether a large batch costs it less than several small ones, and records may come to it ahead
    #: of a watermark that was sent before them: engines may put batches together.
    gathers_batches: ClassVar[bool] = False
    #: Records that it processes at the same time: a batch of fewer takes as long as one of so many.
    concurrency: int = 1
    #: What it counts by itself: name of the metric -> attribute that has the number.
    counted: ClassVar[Mapping[str, str]] = {}

    context: OperatorContext
    output: Output

    def setup(self, context: OperatorContext, output: Output) -> None:
        """Take the surroundings; called once, before ``open``."""
        self.context = context
        self.output = output

    def open(self) -> None:
        """Open user functions; called once per instance."""

    def close(self) -> None:
        """Close user functions; called once per instance, also after a failure."""

    def restore(self, restored: RestoreContext) -> None:
        """Go on from a checkpoint, or from nothing."""

    @abstractmethod
    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process records of one input, in order."""

    def process_watermark(self, watermark: int) -> None:
        """Advance event time to ``watermark``; the combined minimum over all inputs."""
        self.output.emit_watermark(watermark)

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        """All inputs became idle, or one is active again."""
        self.output.emit_idle(idle)

    def process_processing_time(self, now: int) -> None:
        """The clock has come to ``now``, in milliseconds: timers that are due fire."""

    def process_pause(self, milliseconds: int) -> None:
        """The task waited for its consumers for so long, up to the time that it is told next.

        Nothing could come.  Who judges by silence whether its input is idle leaves this time out.
        """

    def process_lag(self, milliseconds: int) -> None:
        """What came in the last so many milliseconds, up to the time told next, may be unprocessed.

        Who judges by silence judges as of before; other than a pause, this time counts later.
        """

    def due(self) -> int | None:
        """When the clock has something to do here, between snapshots; quick to say.

        Returns:
            Milliseconds of processing time; at or after it ``process_processing_time`` is to be
            called.  None: not before something else was processed.
        """
        return None

    def write_some(self, deadline: float) -> bool:
        """Write some of what the next snapshot would have to write, so that it is short.

        Called between batches, by an engine whose tasks live on; it emits nothing.

        Args:
            deadline: when to stop, by ``time.monotonic()``; once begun, one small portion is
                written in any case.

        Returns:
            Whether there is more that is worth writing now.
        """
        del deadline
        return False

    def flush(self) -> None:
        """Show or send what is held back to be handled in larger batches.

        With long-running tasks, it comes every few milliseconds, between any two calls of rule 4;
        in micro-batch execution never: the snapshot has the same effect.
        """

    def finish_pending(self) -> None:
        """Emit all that is under way, and wait for it: records of another split follow.

        Called between any two calls of rule 4, where the output is switched to another channel.
        """

    def suspend_pending(self) -> PendingCalls | None:
        """Set aside what is under way, which continues meanwhile: records of another split follow.

        Called like ``finish_pending``, where the output is switched back before
        ``resume_pending``.

        Returns:
            What is under way; None: nothing is, or it was waited for.
        """
        self.finish_pending()
        return None

    def resume_pending(self, pending: PendingCalls) -> None:
        """Emit what is done of what was set aside, and the rest as if it had not been."""
        del pending

    def committed(self, epoch: int) -> Callable[[], None] | None:
        """Learn that checkpoint ``epoch`` is committed; with long-running tasks.

        Returns:
            What is to be done about it in the thread of ``PendingOutput``; None: nothing.
        """
        del epoch
        return None

    def aborted(self, epoch: int) -> None:
        """Learn that checkpoint ``epoch`` was aborted; with long-running tasks."""
        del epoch

    def current_metrics(self) -> dict[str, MetricValue]:
        """Return what was counted and measured since the snapshot before; nothing is taken.

        Called at any moment, also from another thread.
        """
        return {name: getattr(self, attribute) for name, attribute in self.counted.items()}

    def take_metrics(self) -> dict[str, MetricValue]:
        """Return what was counted and measured since the last time, and start again."""
        taken: dict[str, MetricValue] = {
            name: getattr(self, attribute) for name, attribute in self.counted.items()
        }
        for attribute in self.counted.values():
            setattr(self, attribute, 0)
        return taken

    def read_gauges(self) -> None:
        """Read the gauges of user functions, for ``current_metrics``; between any two calls."""

    def end_input(self) -> None:
        """All inputs of a bounded job are over (after the maximum watermark)."""

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        """Write everything through to the store, and say the rest; see rules 5 to 7."""
        del checkpoint
        return OperatorSnapshot()


class OperatorFactory(Protocol):
    """A picklable maker of an operator in the graph, which makes one instance per subtask.

    One whose instances keep keyed state also has ``state_sections() -> list[StateSection]``, which
    says what they keep without making one; see ``sections_of``.  If they can convert what another
    operator kept, it has ``refusal`` as well; see ``refusal_of``.  One whose instances emit only at
    watermarks has ``waits_for_watermarks = True``.  One whose instances make event time has
    ``per_channel = True``; see ``is_per_channel``.  One of several inputs may have
    ``first_input``; see the function of this name.
    """

    @property
    def keyed(self) -> bool:
        """True when instances want a KeyValueStore (a class attribute will do)."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""


def is_per_channel(factory: OperatorFactory | None) -> bool:
    """Return whether an operator keeps event time of its own for every channel (source split).

    At a source such an operator is restored and snapshotted split by split: each has its own
    watermark, and may be read by another subtask from epoch to epoch.
    """
    return bool(getattr(factory, "per_channel", False))


def waits_for_watermarks(factory: OperatorFactory | None) -> bool:
    """Return whether instances of ``factory`` emit nothing but when a watermark comes."""
    return bool(getattr(factory, "waits_for_watermarks", False))


def first_input(factory: OperatorFactory | None) -> int | None:
    """The input that is read to its end before the others begin, in BATCH mode; None: none is.

    The runtime orders the sources; operators do nothing for it.
    """
    number: int | None = getattr(factory, "first_input", None)
    return number


def sections_of(factory: OperatorFactory | None) -> list[StateSection]:
    """Return what instances of ``factory`` keep; nothing if it does not say."""
    tell = getattr(factory, "state_sections", None)
    sections: list[StateSection] = [] if tell is None else tell()
    return sections


def refusal_of(factory: OperatorFactory | None, stored: StateSection) -> str | None:
    """Return what instances of ``factory`` say to a section that they would write otherwise.

    Returns:
        None if they convert it; else why they cannot, empty if there is nothing to say.
    """
    tell = getattr(factory, "refusal", None)
    found: str | None = "" if tell is None else tell(stored)
    return found
