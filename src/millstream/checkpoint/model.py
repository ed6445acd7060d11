"""Acknowledgements of tasks and manifests of checkpoints: dataclasses with a JSON form.

Values that only Python understands (committables, operator state) are pickled and written as
base64.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field, replace
from operator import itemgetter, not_
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.json_form import (
    BYTES,
    FLAG,
    INT,
    OBJECT,
    TEXT,
    Form,
    mapping,
    optional,
    record,
    sequence,
)
from millstream.contracts.key_value_store import StateFile, StateHandle
from millstream.contracts.operator import SECTION, OperatorStateHandle, OperatorStateKind
from millstream.errors import UnknownFormatError
from millstream.graph.validation import EdgeName

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from millstream.contracts.metrics import InstanceFigures, Measure, MetricValue
    from millstream.contracts.operator import StateSection


#: Version of the format of manifests and of ``job.json``.  Readers refuse any other.
FORMAT_VERSION: Final = 1


def require_format(version: object, location: str) -> None:
    """Refuse what was written in another format version.

    Raises:
        UnknownFormatError: it is another one than this release reads.
    """
    if version == FORMAT_VERSION:
        return
    message = (
        f"{location} has format version {version!r}; this release of Millstream reads format"
        f" version {FORMAT_VERSION}. Run the job with the release that wrote it, or start with an"
        " empty checkpoint directory."
    )
    raise UnknownFormatError(message)


@dataclass(frozen=True, slots=True)
class OperatorRecord:
    """One operator of the program that wrote a checkpoint, or of the one that is to continue."""

    uid: str
    #: "source", "operator" or "sink".
    kind: str
    name: str = ""
    #: "job.py:12".
    location: str = ""
    #: Whether the uid is the program's, not made from the operator's place in it.
    has_own_uid: bool = True
    #: Class of the source or sink.
    connector: str = ""
    #: A sink whose output may wait for its commit.
    commits: bool = False
    #: Uids of the operators that it reads.
    inputs: tuple[str, ...] = ()
    sections: tuple[StateSection, ...] = ()
    #: States of the user's function -> kind and type; known once it has run.
    states: dict[str, str] = field(default_factory=dict)
    #: Types of the keys that it has met, sorted; empty where nothing is known of them.
    key_types: tuple[str, ...] = ()
    #: What an operator of SQL computes: keys, aggregates, columns that it keeps, and others.
    details: dict[str, tuple[str, ...]] = field(default_factory=dict)
    #: State that the program does not ask for may be left behind; only of one that is to run.
    ignores_unclaimed: bool = False
    #: Number of key groups, and of subtasks; only of a program that is to run.
    max_parallelism: int = 0
    parallelism: int = 0

    @property
    def title(self) -> str:
        """``operator 'count' (job.py:14)``; the uid stands for a name that is not known."""
        if not self.name:
            return f"{self.kind} with uid {self.uid!r}"
        uid = f", uid {self.uid!r}" if self.has_own_uid else ""
        return f"{self.kind} {self.name!r} ({self.location}{uid})"


@dataclass(slots=True)
class OperatorAck:
    """The acknowledgement of one operator in one subtask."""

    uid: str
    subtask: int
    #: Milliseconds; the operator's event time at the end of the epoch.
    watermark: int
    #: Whether its outputs are idle.
    idle: bool = False
    state: StateHandle | None = None
    #: By name.
    operator_states: dict[str, OperatorStateHandle] = field(default_factory=dict)
    #: Each pickled.
    committables: list[bytes] = field(default_factory=list)
    metrics: dict[str, MetricValue] = field(default_factory=dict)
    #: The user's keyed states: name -> kind and type; the manifest has them once per operator.
    states: dict[str, str] = field(default_factory=dict)
    #: Keyed and operator states that the program did not ask for; not in the manifest.
    unused_states: frozenset[str] = frozenset()
    unused_operator_states: frozenset[str] = frozenset()
    #: Of the keys that were processed; the manifest has them once per operator.
    key_types: list[str] = field(default_factory=list)

    def files(self) -> Iterator[StateFile]:
        """The files of the checkpoint that it needs."""
        if self.state is not None:
            yield from self.state["files"]
        for handle in self.operator_states.values():
            if handle.file is not None:
                yield handle.file


@dataclass(frozen=True, slots=True)
class FramesInFlight:
    """What was on its way into one task when a barrier overtook it.

    It comes after the snapshots of those that have sent it, and ahead of that of the task.
    """

    stage: int
    subtask: int
    #: The edges that it lies on.
    edges: tuple[EdgeName, ...]
    #: How many frames.
    count: int
    file: StateFile
    #: By what the records of each edge were shared out (``runtime/frames_in_flight.py``).
    cuts: tuple[str, ...] = ()

    def cut(self, edge: EdgeName) -> str:
        """That of an edge; empty if it is not known."""
        return dict(zip(self.edges, self.cuts, strict=False)).get(edge, "")


@dataclass(slots=True)
class SplitState:
    """Where reading of one source split stands."""

    source_uid: str
    split_id: str
    #: The offset that the next epoch reads from.
    position: int
    #: The split will not grow and is read to its end: it holds no watermark back any more.
    finished: bool
    #: Milliseconds; the watermark of the split.
    watermark: int
    idle: bool = False
    #: Pickled state of its watermark generator.
    generator: bytes | None = None
    #: Records read in this epoch.
    records: int = 0


@dataclass(slots=True)
class TaskAck:
    """The acknowledgement of one task: everything of its subtask is durable."""

    epoch: int
    stage: int
    subtask: int
    attempt: str
    operators: list[OperatorAck] = field(default_factory=list)
    splits: list[SplitState] = field(default_factory=list)
    #: (stage, subtask, attempt) of each producer whose frames this task read.  Tasks of one epoch
    #: must agree on them: a producer that ran twice may have made different records.
    consumed: list[tuple[int, int, str]] = field(default_factory=list)
    #: "host:pid" of the worker, seconds it took, its peak memory in bytes.
    worker: str = ""
    seconds: float = 0.0
    peak_memory: int = 0
    #: Seconds of CPU time of its process while it ran; of tasks that end with their checkpoint.
    cpu: float = 0.0
    #: Of long-running tasks: milliseconds since 1970, when the first barrier came; seconds from it
    #: to the last one; and seconds in which nothing was processed.
    barrier: int | None = None
    aligning: float = 0.0
    pause: float = 0.0
    figures: InstanceFigures | None = None
    #: Requests of its process to object stores since its last acknowledgement, by kind, and bytes.
    requests: dict[str, int] = field(default_factory=dict)
    #: Milliseconds of processing time at which something can change in this task without a record
    #: (a timer, a watermark that is due); None: never.
    next_due: int | None = None
    #: What the task acknowledged, or would have, of epochs before this one that it does not know to
    #: be published, oldest first (``checkpoint/publish.py``); without state.
    earlier: list[TaskAck] = field(default_factory=list)
    #: None: no barrier has overtaken anything on its way here.
    in_flight: FramesInFlight | None = None


@dataclass(slots=True)
class Manifest:
    """Checkpoint ``epoch``: everything needed to resume from its end.  Published = committed."""

    epoch: int
    generation: int
    job_id: str
    #: Milliseconds since 1970.
    started: int
    published: int
    #: The source planner's position after this epoch (JSON).
    offsets: dict[str, object]
    #: Operator uid -> its acks in order of subtask.
    operators: dict[str, list[OperatorAck]]
    #: Source uid -> split id -> state.  Finished splits are left out.
    splits: dict[str, dict[str, SplitState]]
    #: Stage level -> parallelism, as the epoch ran.
    stages: dict[int, int]
    max_parallelism: int
    #: The bounded job is over.
    final: bool = False
    #: Sums over all epochs so far: "numRecordsIn" of sources and the like, "uid.metric" -> value.
    totals: dict[str, int] = field(default_factory=dict)
    #: Gauges, meters and distributions of user functions, "uid.metric" -> as ``added`` makes it.
    measures: dict[str, Measure] = field(default_factory=dict)
    #: Operator uid -> what it was and what it keeps.
    program: dict[str, OperatorRecord] = field(default_factory=dict)
    #: Its output was committed before it was published: mode AT_LEAST_ONCE.
    committed: bool = False
    #: In order of stage and subtask; of this epoch alone.
    in_flight: list[FramesInFlight] = field(default_factory=list)
    #: Requests to object stores, and bytes, since the manifest before (``object_stores.Requests``);
    #: that of the manifest itself is counted in the next one.
    requests: dict[str, int] = field(default_factory=dict)

    def files(self) -> Iterator[StateFile]:
        """The files that it needs; one may come more than once."""
        for acks in self.operators.values():
            for ack in acks:
                yield from ack.files()
        for frames in self.in_flight:
            yield frames.file

    def committable_counts(self) -> dict[str, int]:
        """Sink uid -> how many committables, of the sinks that have any."""
        counts = {
            uid: sum(len(ack.committables) for ack in acks) for uid, acks in self.operators.items()
        }
        return {uid: count for uid, count in counts.items() if count}

    def without_committables(self) -> Manifest:
        """The checkpoint for a run that has nothing to commit of it: its output is committed."""
        operators = {
            uid: [replace(ack, committables=[]) for ack in acks]
            for uid, acks in self.operators.items()
        }
        return replace(self, operators=operators, committed=True)


# -- JSON forms ------------------------------------------------------------------------------------

_FILE: Final = record(StateFile, itemgetter, local=TEXT, remote=TEXT, size=INT, digest=TEXT)
#: Files are told apart by name, so that those of an epoch are few changes of those before.
_FILES: Final = Form(
    lambda files: {
        file["local"]: {"remote": file["remote"], "size": file["size"], "digest": file["digest"]}
        for file in files
    },
    lambda files: [_FILE.read({"local": local, **file}) for local, file in files.items()],
)
_HANDLE: Final = record(
    StateHandle, itemgetter, backend=TEXT, id=TEXT, key_groups=sequence(INT, tuple), files=_FILES
)
OPERATOR_STATE: Final = record(
    OperatorStateHandle,
    kind=Form(lambda kind: kind.value, OperatorStateKind),
    count=INT,
    type=TEXT.left_out_if_empty(),
    schemas=OBJECT.left_out_if_empty(),
    is_copy=FLAG.left_out_if_empty("copy"),
    inline=sequence(BYTES, tuple).left_out_if_empty("elements"),
    file=optional(_FILE).left_out_if_empty(),
)
_OPERATOR: Final = record(
    OperatorAck,
    uid=TEXT,
    subtask=INT,
    watermark=INT,
    idle=FLAG,
    state=optional(_HANDLE),
    operator_states=mapping(OPERATOR_STATE),
    committables=sequence(BYTES),
    metrics=mapping(Form(OBJECT.write, lambda e: dict(e) if isinstance(e, dict) else int(e))),
)


def _edge_of(value: list[Any]) -> EdgeName:
    source, target, input_index, tag, number = value
    tag = None if tag is None else str(tag)
    return EdgeName(str(source), str(target), int(input_index), tag, int(number))


EDGE: Final = Form(list, _edge_of)
_FRAMES: Final = record(
    FramesInFlight,
    stage=INT,
    subtask=INT,
    edges=sequence(EDGE, tuple),
    cuts=sequence(TEXT, tuple),
    count=INT,
    file=_FILE,
)
#: Of one split, without the names that it is found by.
_SPLIT: Final = record(
    dict,
    position=INT,
    finished=FLAG,
    watermark=INT,
    idle=FLAG,
    generator=optional(BYTES),
    records=INT,
)
_SPLITS: Final = Form(
    mapping(mapping(_SPLIT)).write,
    lambda value: {
        uid: {key: SplitState(uid, key, **_SPLIT.read(split)) for key, split in splits.items()}
        for uid, splits in value.items()
    },
)
#: Of one operator, without its uid.
_RECORD: Final = record(
    dict,
    kind=TEXT,
    name=TEXT,
    location=TEXT.left_out_if_empty(),
    has_own_uid=Form(not_, not_).left_out_if_empty("generated"),
    connector=TEXT.left_out_if_empty(),
    commits=FLAG.left_out_if_empty(),
    inputs=sequence(TEXT, tuple).left_out_if_empty(),
    sections=sequence(SECTION, tuple).left_out_if_empty(),
    states=mapping(TEXT).left_out_if_empty(),
    key_types=sequence(TEXT, tuple).left_out_if_empty("keys"),
    details=mapping(sequence(TEXT, tuple)).left_out_if_empty(),
)
PROGRAM: Final = Form(
    mapping(_RECORD).write,
    lambda value: {uid: OperatorRecord(uid, **_RECORD.read(each)) for uid, each in value.items()},
)
MANIFEST: Final = record(
    Manifest,
    epoch=INT,
    generation=INT,
    job_id=TEXT,
    started=INT,
    published=INT,
    offsets=OBJECT,
    operators=mapping(sequence(_OPERATOR)),
    splits=_SPLITS,
    stages=mapping(INT, int),
    max_parallelism=INT,
    final=FLAG,
    totals=mapping(INT),
    measures=mapping(OBJECT),
    program=PROGRAM,
    committed=FLAG,
    in_flight=sequence(_FRAMES),
    requests=mapping(INT).left_out_if_empty(),
)

_BLOCK: Final = 1 << 20


def digest_of(blocks: Iterable[bytes]) -> tuple[int, str]:
    """Return size in bytes and digest of some content, given in pieces."""
    size = 0
    sha256 = hashlib.sha256()
    for block in blocks:
        size += len(block)
        sha256.update(block)
    return size, f"sha256:{sha256.hexdigest()}"


def blocks_of(path: Path) -> Iterator[bytes]:
    """The content of a file in pieces of a mebibyte."""
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            yield block


def difference(blocks: Iterable[bytes], file: StateFile) -> str | None:
    """Describe how a copy of ``file`` differs from what was uploaded; None if it does not."""
    algorithm = file["digest"].partition(":")[0]
    if algorithm != "sha256":
        return f"its digest is of an unknown kind, {algorithm!r}"
    size, digest = digest_of(blocks)
    if size != file["size"]:
        return f"it has {size} bytes instead of {file['size']}"
    return None if digest == file["digest"] else f"its digest is {digest}, not {file['digest']}"
