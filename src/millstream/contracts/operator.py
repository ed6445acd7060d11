"""The operator contract: what runs inside a task.

What it is: the interface between the task loop (``runtime/task.py``), which delivers batches and
watermarks, and the logic of one operator (``runtime/operators/``).  Nothing here knows Spark.

What it is not: what the user writes.  User functions live in ``datastream/functions.py`` and are
called by operators.

Read next: ``runtime/operators/``, then ``runtime/task.py``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration
    from millstream.contracts.batch import Batch
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore
    from millstream.contracts.state_sections import StateSection
    from millstream.types.typeinfo import TypeInformation

__all__ = [
    "EpochContext",
    "Operator",
    "OperatorContext",
    "OperatorFactory",
    "OperatorSnapshot",
    "Output",
    "sections_of",
]


class Output(Protocol):
    """Where an operator sends what it makes: chained operators and exchanges."""

    def emit(self, batch: Batch) -> None:
        """Send records on the main output.  An empty batch is allowed and dropped."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Send records on the side output called ``tag``; dropped if nobody reads it."""

    def emit_watermark(self, watermark: int) -> None:
        """Send a watermark (milliseconds) behind everything emitted so far."""

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        """Say that this output is idle (True) or active again (False)."""


@dataclass(frozen=True, slots=True)
class OperatorContext:
    """What an operator instance knows for as long as it lives (one worker, one subtask)."""

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


@dataclass(slots=True)
class EpochContext:
    """What an operator is told at the start of an epoch."""

    epoch: int
    #: Unique for this attempt of this task; names everything durable that it writes.
    attempt: str
    #: Milliseconds since 1970, taken when the epoch was planned, the same in every task and in
    #: every replay by the same driver.
    processing_time: int
    #: The store restored to the previous checkpoint; None if the operator keeps no keyed state.
    store: KeyValueStore | None
    #: The operator's watermark at the end of the previous epoch.
    watermark: int
    #: What the operator returned as ``OperatorSnapshot.operator_state`` at the previous epoch's
    #: end in this subtask (None at first).  A value of any picklable type.
    operator_state: object | None
    #: The same of all subtasks of the previous epoch, if there was another number of them; it is
    #: up to the operator what it takes of them.
    rescaled_states: list[object] = field(default_factory=list)
    #: What the planner knows of a source split: whether it is idle.  None where it does not know
    #: (a Spark DataFrame, an operator that is no source).
    source_idle: bool | None = None
    job_id: str = ""
    #: Of the run that the attempt belongs to.
    generation: int = 0
    #: The last epoch of a bounded job: after the maximum watermark ``end_input`` is called.
    final: bool = False
    #: Where sinks and snapshots may put temporary files of this worker.
    scratch_directory: str = ""
    #: The checkpoint directory; None in a harness.
    storage: CheckpointStorage | None = None


@dataclass(slots=True)
class OperatorSnapshot:
    """What an operator votes with at the end of an epoch."""

    #: Small state kept in the manifest itself, given back by subtask.
    operator_state: object | None = None
    #: What the sink committer gets, pickled into the manifest.
    committables: list[object] = field(default_factory=list)
    #: Counters of this epoch, by their metric name (``numRecordsIn``, ``numLateRecordsDropped``).
    metrics: dict[str, int] = field(default_factory=dict)
    #: Milliseconds of processing time at which the operator has something to do though no record
    #: comes; None: never.
    next_due: int | None = None
    #: The user's keyed states: name -> kind and type, for people.
    states: dict[str, str] = field(default_factory=dict)


class Operator(ABC):
    """The logic of one operator in one subtask.

    Contract:
      1. ``setup`` then ``open`` are called once; ``close`` once at the end.  (runtime)
      2. Then for each epoch that this worker gets: ``begin_epoch``, any mix of ``process_batch``,
         ``process_watermark`` and ``process_idle``, then ``end_epoch``.  (runtime)
      3. Watermarks given to ``process_watermark`` only grow.  (runtime)
      4. After ``end_epoch`` nothing is kept that the next epoch's result depends on, except
         through the store and the snapshot: the next epoch may run in another worker.  (test kit)
      5. An exception leaves the instance unusable: it is closed and built again.  (runtime)
      6. A batch that was received is not changed.  (nobody)
    """

    #: True when the operator wants a KeyValueStore.
    keyed: bool = False

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

    def begin_epoch(self, epoch: EpochContext) -> None:
        """Start an epoch on the restored state.  Processing-time timers that are due fire here."""

    @abstractmethod
    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process records of one input, in order."""

    def process_watermark(self, watermark: int) -> None:
        """Advance event time to ``watermark``; the combined minimum over all inputs."""
        self.output.emit_watermark(watermark)

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        """All inputs became idle, or one is active again."""
        self.output.emit_idle(idle)

    def end_input(self) -> None:
        """All inputs of a bounded job are over (after the maximum watermark)."""

    def end_epoch(self) -> OperatorSnapshot:
        """Write everything through to the store and return the vote."""
        return OperatorSnapshot()


class OperatorFactory(Protocol):
    """What the graph holds for an operator: picklable, makes one instance per subtask.

    One whose instances keep keyed state also has ``state_sections() -> list[StateSection]``, which
    says what they keep without making one; see ``sections_of``.
    """

    @property
    def keyed(self) -> bool:
        """True when instances want a KeyValueStore (a class attribute will do)."""

    def create(self) -> Operator:
        """Make a new, unopened instance."""


def sections_of(factory: OperatorFactory | None) -> list[StateSection]:
    """What instances of ``factory`` keep; nothing if it does not say."""
    tell = getattr(factory, "state_sections", None)
    sections: list[StateSection] = [] if tell is None else tell()
    return sections
