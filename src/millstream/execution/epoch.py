"""Making the plan of an epoch from the last manifest; the same on every engine.

Read next: ``runtime/plan.py``, ``runtime/task.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from millstream.runtime.plan import EpochPlan, OperatorRestore
from millstream.state.redistribution import own_states, redistribute
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.checkpoint.model import Manifest, OperatorAck, OperatorRecord
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.execution.offsets import Offset
    from millstream.runtime.plan import ChannelStates, SplitAssignment

__all__ = ["make_plan"]


def make_plan(
    *,
    epoch: int,
    assignments: list[SplitAssignment],
    stop: Offset,
    last: Manifest | None,
    program: Mapping[str, OperatorRecord],
    job_id: str,
    run_id: str,
    generation: int,
    storage: CheckpointStorage,
    local_root: str,
    state_backend: str,
    fsync: bool,
    begins: bool = False,
    clock_moves: bool = True,
) -> EpochPlan:
    """The plan of the epoch of ``program`` that reads to ``stop``, restored from ``last``.

    ``begins``: its tasks begin, though within the run that has made ``last``.  ``clock_moves``:
    the time of ``stop`` is of the system's clock.
    """
    operators: dict[str, OperatorRestore] = {}
    if last is not None:
        for assignment in assignments:
            _restore_split(assignment, last)
        # Each subtask goes on with its own states; only where tasks begin they are restored.
        is_restored = begins or last.generation != generation
        operators = {
            uid: _restore(acks, program[uid].parallelism, is_restored=is_restored)
            for uid, acks in last.operators.items()
            if uid in program
        }
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
        clock_moves=clock_moves,
        in_flight=[] if last is None else last.in_flight,
    )


def _restore_split(assignment: SplitAssignment, last: Manifest) -> None:
    state = last.splits.get(assignment.source_uid, {}).get(assignment.split.id)
    if state is not None:
        assignment.was_idle = state.idle
    if state is not None and state.generator is not None:
        assignment.operators = cast("dict[str, tuple[int, ChannelStates]]", loads(state.generator))


def _restore(acks: list[OperatorAck], parallelism: int, *, is_restored: bool) -> OperatorRestore:
    states = [ack.operator_states for ack in acks]
    if is_restored or len(acks) != parallelism:
        parts = redistribute(states, parallelism)
    else:
        parts = list(map(own_states, states))
    return OperatorRestore(
        handles=[ack.state for ack in acks],
        watermarks=[ack.watermark for ack in acks],
        idle=[ack.idle for ack in acks],
        operator_states=parts,
    )
