"""The program meets its checkpoint directory: is it this job's, and does the program fit?

What it is: the same steps for every engine.  ``claim_directory`` is for when a job is submitted:
nothing was written then, and no older run is fenced, if the program is refused.  ``fit`` is
asked again of the manifest that a run really goes on from.

What it is not: the rules, which are in ``checkpoint/program.py``.

Read next: ``checkpoint/program.py``.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from millstream.checkpoint.job_directories import JobIdentity
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.model import OperatorRecord
from millstream.checkpoint.program import require_fit, stored_max_parallelism
from millstream.checkpoint.signature import seal_of
from millstream.configuration import options
from millstream.contracts.operator import refusal_of, sections_of
from millstream.contracts.sink import Sink
from millstream.errors import IncompatibleProgramError
from millstream.execution.job_start import start_of
from millstream.graph.validation import edge_names

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.operator import OperatorFactory, StateSection
    from millstream.execution.job_start import JobStart
    from millstream.graph.model import JobGraph, StreamNode

__all__ = ["claim_directory", "describe_start", "fit", "planned_start", "program_of"]


def claim_directory(storage: CheckpointStorage, graph: JobGraph) -> tuple[str, Manifest | None]:
    """Take a checkpoint directory for a job, or check that the job can go on in it.

    Args:
        storage: the checkpoint directory.
        graph: the job; takes over what the program leaves open (``fit``).

    Returns:
        The job's id, and the newest checkpoint; None if there is none.

    Raises:
        ForeignCheckpointError: the directory belongs to another job.
        IncompatibleProgramError: the program does not fit the newest checkpoint.
        UnknownFormatError, CorruptCheckpointError: the directory cannot be read.
    """
    job_id = JobIdentity.claim(storage, graph.job_name, program_of(graph))
    last = ManifestLog(storage).latest()
    fit(graph, storage, last)
    return job_id, last


def fit(graph: JobGraph, storage: CheckpointStorage, last: Manifest | None) -> None:
    """Let a job go on from a checkpoint: take the number of key groups over from it.

    Args:
        graph: the job; operators whose max parallelism the program leaves open get that of their
            state.
        storage: the checkpoint directory.
        last: the checkpoint; None if there is none.

    Raises:
        IncompatibleProgramError: the program would not find what the checkpoint holds.
    """
    if last is None:
        return
    stored = last.program
    require_fit(
        storage.location,
        last,
        stored,
        program_of(graph),
        ignore_unclaimed=graph.configuration.get(options.IGNORE_UNCLAIMED_STATE),
        refusal=partial(_refusal, {node.uid: node.factory for node in graph.nodes.values()}),
    )
    _require_edges(graph, storage.location, last)
    for number, node in graph.nodes.items():
        groups = stored_max_parallelism(last, node.uid)
        if groups is not None and groups != node.max_parallelism:
            graph.nodes[number] = replace(node, max_parallelism=groups)


def describe_start(
    graph: JobGraph, storage: CheckpointStorage, last: Manifest | None, *, temporary: bool = False
) -> JobStart:
    """Describe how a run of a job starts: from ``last``, which it fits, or from scratch.

    Args:
        graph: the job.
        storage: the checkpoint directory.
        last: the checkpoint; None if there is none.
        temporary: whether the directory is deleted at the end of the job.
    """
    return start_of(
        graph.job_name,
        "" if temporary else storage.location,
        last,
        {} if last is None else last.program,
        program_of(graph),
    )


def planned_start(graph: JobGraph) -> list[str]:
    """How a run of a job would start now, some lines of text; nothing is written.

    Raises:
        CheckpointError: it would be refused.
        DirectoryError: the checkpoint directory cannot be read.
    """
    configuration = graph.configuration
    directory = configuration.get(options.CHECKPOINTS_DIRECTORY)
    if not directory:
        return start_of(graph.job_name, "", None, {}, {}).lines()
    seal = seal_of(configuration.get(options.CHECKPOINT_HMAC_KEY_FILE))
    storage = LocalStorage(directory, seal=seal)
    identity = JobIdentity.load(storage)
    last = None
    if identity is not None:
        identity.require_name(graph.job_name, storage.location)
        last = ManifestLog(storage).latest()
        fit(graph, storage, last)
    return describe_start(graph, storage, last).lines()


def _require_edges(graph: JobGraph, where: str, last: Manifest) -> None:
    """Check that the program has a place for what is in flight in a checkpoint.

    Cases, of an edge with frames in flight:

    1. It still leads from task to task, or within one behind an exchange -> they are processed
       first of all, at whatever parallelism.
    2. It is gone -> refused, or dropped, as state is, with
       ``execution.state-recovery.ignore-unclaimed-state``.
    3. It lies within a task that reads a source now -> refused: time is kept there per split, and
       what is in flight is of none.
    """
    levels = {
        name: graph.level(edge.target)
        for edge, name in zip(graph.edges, edge_names(graph).values(), strict=True)
    }
    ignores = graph.configuration.get(options.IGNORE_UNCLAIMED_STATE)
    for name in dict.fromkeys(name for frames in last.in_flight for name in frames.edges):
        if levels.get(name, 0 if not ignores else 1) > 0:
            continue
        gone = "is not in the program" if name not in levels else "lies within one task now"
        message = (
            f"the program does not fit checkpoint {last.epoch} in {where}: records are in flight in"
            f" it from {_title(last, name.source)} to {_title(last, name.target)}, and that edge"
            f" {gone}. Run the job with the program and the parallelism that it had, and stop it:"
            " nothing is in flight in the checkpoint that stop() makes. Nothing in the directory"
            " was changed."
        )
        raise IncompatibleProgramError(message)


def _title(last: Manifest, uid: str) -> str:
    return (last.program.get(uid) or OperatorRecord(uid, "operator")).title


def _refusal(
    factories: Mapping[str, OperatorFactory | None], uid: str, stored: StateSection
) -> str | None:
    return refusal_of(factories[uid], stored)


def program_of(graph: JobGraph) -> dict[str, OperatorRecord]:
    """The operators of a job as a manifest records them, by uid."""
    return {node.uid: _record(graph, node) for node in graph.nodes.values()}


def _record(graph: JobGraph, node: StreamNode) -> OperatorRecord:
    name = "" if node.source is None else type(node.source).__name__
    if node.sink is not None:
        name = node.sink.connector
    return OperatorRecord(
        uid=node.uid,
        kind=node.kind,
        name=node.name,
        location=node.location,
        has_own_uid=node.has_own_uid,
        connector="DataFrame" if node.spark_index is not None else name,
        commits=node.sink is not None
        and type(node.sink).create_committer is not Sink.create_committer,
        inputs=tuple(graph.nodes[edge.source].uid for edge in graph.inputs(node.id)),
        sections=tuple(sections_of(node.factory)),
        details=node.details,
        max_parallelism=node.max_parallelism,
        max_parallelism_is_set=node.max_parallelism_is_set,
        parallelism=node.parallelism,
        ignores_unclaimed=graph.configuration.get(options.IGNORE_UNCLAIMED_STATE),
    )
