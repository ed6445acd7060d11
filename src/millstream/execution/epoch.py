"""Making the plan of an epoch from the last manifest; the same on every engine.

Read next: ``runtime/plan.py``, ``runtime/task.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millstream.runtime.plan import EpochPlan, OperatorRestore
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from millstream.checkpoint.model import Manifest, OperatorAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.execution.offsets import Offset
    from millstream.runtime.plan import SplitAssignment

__all__ = ["make_plan"]


def make_plan(
    *,
    epoch: int,
    assignments: list[SplitAssignment],
    stop: Offset,
    last: Manifest | None,
    job_id: str,
    run_id: str,
    generation: int,
    storage: CheckpointStorage,
    local_root: str,
    state_backend: str,
    fsync: bool,
) -> EpochPlan:
    """The plan of the epoch that reads up to ``stop``, restored from manifest ``last``."""
    operators: dict[str, OperatorRestore] = {}
    if last is not None:
        for assignment in assignments:
            _restore_split(assignment, last)
        operators = {uid: _restore(acks) for uid, acks in last.operators.items()}
    return EpochPlan(
        job_id=job_id,
        run_id=run_id,
        generation=generation,
        epoch=epoch,
        processing_time=cast("int", stop["time"]),
        assignments=assignments,
        operators=operators,
        final=bool(stop["final"]),
        storage=storage,
        local_root=local_root,
        state_backend=state_backend,
        fsync=fsync,
    )


def _restore_split(assignment: SplitAssignment, last: Manifest) -> None:
    state = last.splits.get(assignment.source_uid, {}).get(assignment.split.id)
    if state is not None:
        assignment.was_idle = state.idle
    if state is not None and state.generator is not None:
        assignment.operators = cast("dict[str, tuple[int, bytes | None]]", loads(state.generator))


def _restore(acks: list[OperatorAck]) -> OperatorRestore:
    return OperatorRestore(
        handles=[ack.state for ack in acks],
        watermarks=[ack.watermark for ack in acks],
        idle=[ack.idle for ack in acks],
        operator_states=[ack.operator_state for ack in acks],
    )
