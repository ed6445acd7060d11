"""The delivery guarantee of each sink of a job: that of its weakest part.

What it is: computed from the graph alone, at submit, so that it can be shown with the plan.  Three
things count: whether all sources above the sink can be read again, what kind of sink it is, and
the checkpointing mode.  ``guarantee_table`` computes all combinations for
``docs/concepts/guarantees.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.contracts.sink import DeliveryGuarantee, SinkKind

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph, StreamNode


_EXACTLY: Final = DeliveryGuarantee.EXACTLY_ONCE
_AT_LEAST: Final = DeliveryGuarantee.AT_LEAST_ONCE

_BY_KEY: Final = (
    "rows are replaced by key: while the job recovers, readers may see values go back; a replay"
    " must make the same keys"
)
_BY_RUN: Final = (
    f"as long as the driver lives: {options.CHECKPOINTS_DIRECTORY.key} is not set, so a driver that"
    " is started again begins anew"
)
#: The rows of the table: what to call a sink, its kind, what it promises.
_ROWS: Final = (
    ("any sink (print)", SinkKind.ANY, _AT_LEAST),
    ("idempotent (`UpsertSink`)", SinkKind.IDEMPOTENT, _EXACTLY),
    ("write-ahead, number written after the values", SinkKind.WRITE_AHEAD, _AT_LEAST),
    ("write-ahead, number written with the values", SinkKind.WRITE_AHEAD, _EXACTLY),
    ("two-phase (files, collect)", SinkKind.TWO_PHASE, _EXACTLY),
)


@dataclass(frozen=True, slots=True)
class SinkGuarantee:
    """What the records of one sink can rely on."""

    node: int
    #: "exactly-once", "at-least-once", "at-most-once" or "none".
    guarantee: str
    #: Why it is not more; empty for exactly-once.
    reasons: tuple[str, ...] = ()
    #: What the guarantee means here, where that needs saying.
    notes: tuple[str, ...] = ()


def combine(
    kind: SinkKind,
    own: DeliveryGuarantee,
    mode: CheckpointingMode,
    lost: tuple[str, ...] = (),
    *,
    pipelined: bool = False,
    commits: bool = True,
) -> tuple[str, tuple[str, ...]]:
    """The guarantee of a sink in a job, and the reasons why it is not exactly-once.

    Args:
        kind: how the sink works.
        own: what it promises in mode EXACTLY_ONCE.
        mode: the job's.
        lost: a reason for each source above it that cannot be read again.
        pipelined: the tasks go on from checkpoint to checkpoint.
        commits: the sink shows what it writes when the checkpoint is complete, not before.
    """
    key = options.CHECKPOINTING_MODE.key
    if own is DeliveryGuarantee.NONE:
        return "none", ("the sink promises nothing", *lost)
    if mode is CheckpointingMode.NONE and pipelined and not commits:
        # How far sources are read is known behind a barrier, and the sink does not wait for that.
        return "none", (f"{key} is NONE: what came behind a checkpoint is shown again", *lost)
    if mode is CheckpointingMode.NONE:
        return "at-most-once", (f"{key} is NONE: an epoch that fails is not run again", *lost)
    repeated = []
    if own is DeliveryGuarantee.AT_LEAST_ONCE:
        repeated.append("the sink may write records again after a failure")
    elif kind is SinkKind.TWO_PHASE and not commits:
        repeated.append("the sink has no committer, so it writes records again after a failure")
    # Epochs repeat output alone; tasks that go on count records twice in their state as well.
    if mode is CheckpointingMode.AT_LEAST_ONCE and (pipelined or kind is not SinkKind.IDEMPOTENT):
        repeated.append(f"{key} is AT_LEAST_ONCE")
    if lost and repeated:
        word = "none"
    elif lost:
        word = "at-most-once"
    else:
        word = "at-least-once" if repeated else "exactly-once"
    return word, (*lost, *repeated)


def sink_guarantees(job_graph: JobGraph) -> list[SinkGuarantee]:
    """The guarantee of each sink, in order of node id."""
    mode = CheckpointingMode[job_graph.configuration.get(options.CHECKPOINTING_MODE)]
    return [
        _guarantee(job_graph, node, mode)
        for _, node in sorted(job_graph.nodes.items())
        if node.sink is not None
    ]


def guarantee_table() -> str:
    """All combinations as a table in Markdown, a footnote mark where ``notes`` has something."""
    columns = [(mode, replayable) for replayable in (True, False) for mode in CheckpointingMode]
    titles = [
        f"{mode.name}, {'replayable' if replayable else 'not replayable'}"
        for mode, replayable in columns
    ]
    lines = [
        "| sink \\ mode, source | " + " | ".join(titles) + " |",
        "|---" * (len(columns) + 1) + "|",
    ]
    for title, kind, own in _ROWS:
        cells = []
        for mode, replayable in columns:
            word, _ = combine(kind, own, mode, () if replayable else ("not replayable",))
            noted = word == "exactly-once" and kind is SinkKind.IDEMPOTENT
            cells.append(f"{word} *" if noted else word)
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _guarantee(job_graph: JobGraph, node: StreamNode, mode: CheckpointingMode) -> SinkGuarantee:
    lost = tuple(
        f"source '{source.name}' cannot be read again after a failure"
        for source in _sources(job_graph, node.id)
        if source.source is not None and not source.source.replayable
    )
    if node.sink is None:
        return SinkGuarantee(node.id, "none")
    kind = node.sink.kind
    word, reasons = combine(
        kind,
        node.sink.guarantee,
        mode,
        lost,
        pipelined=job_graph.configuration.get(options.EXECUTION) == "pipelined",
        commits=node.sink.create_committer() is not None,
    )
    notes: tuple[str, ...] = ()
    if kind is SinkKind.IDEMPOTENT and not getattr(node.sink, "fenced", False):
        notes = (_BY_KEY,)
    # What is collected goes to the driver, and dies with it.
    outlives = node.sink.outlives_the_run
    if outlives and not job_graph.configuration.get(options.CHECKPOINTS_DIRECTORY):
        # The others may repeat and lose anyway.
        notes += (_BY_RUN,) if word in {"exactly-once", "at-most-once"} else ()
    return SinkGuarantee(node.id, word, reasons, notes)


def _sources(job_graph: JobGraph, node: int) -> list[StreamNode]:
    """All sources upstream of ``node``, in order of id."""
    upstream = sorted(job_graph.upstream(job_graph.inputs(node)), key=lambda each: each.id)
    return [each for each in upstream if each.kind == "source"]
