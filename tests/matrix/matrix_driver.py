"""The driver of a job of the crash matrix: a running count per key, as a function for a process.

It restarts the run after an error, as a restart strategy does, and ends when a newer driver has
taken over.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import signal
import socket
import sys
import traceback
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.databases.database_job import EVENT, Count
from tests.databases.targets import RESULT
from tests.matrix.matrix_targets import Result, make_target
from tests.support.faults import ArmedFault, Fault
from tests.support.unprotected import Protection, remove

from millstream import crash_points
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.common import Row
from millstream.datastream import CheckpointingMode, StreamExecutionEnvironment
from millstream.testing.crash import record_everything
from millstream.testing.process_cluster import ProcessCluster, WorkerPool

if TYPE_CHECKING:
    from pathlib import Path

    from tests.matrix.matrix_targets import MatrixTarget

    from millstream.graph.model import JobGraph

RECORDS = 120
PER_EPOCH = 20
#: Exit codes.
GAVE_UP = 3
FENCED = 4
RESTARTS = 6
#: Seconds to wait for a lock that nobody lets go of, because a protection is missing.
IN_VAIN = 0.3


@dataclass(frozen=True, slots=True)
class DriverPlan:
    """What one driver process is to do."""

    kind: str
    address: str
    checkpoints: Path
    #: Where its output, passings and signs go; fresh for each process.
    directory: Path
    seed: int
    #: ``name:n``; empty: none.
    point: str = ""
    fault: Fault = Fault.KILL_DRIVER
    #: Only count the passings of all points.
    record: bool = False
    state_backend: str = "hashmap"
    #: Protections that are taken away.
    without: tuple[Protection, ...] = ()
    #: Of the job; that of epochs has one.
    regions: int = 1
    #: A file that is there while records travel slowly; the fault waits for that moment.
    moment: Path | None = None


def events() -> list[Row]:
    """The records, in the order in which they are read."""
    return [Row(id=i, key=f"key-{i * i % 13}") for i in range(RECORDS)]


def expected() -> list[Result]:
    """The rows that the job writes."""
    rows = []
    counts: dict[str, int] = {}
    for event in events():
        counts[event.key] = counts.get(event.key, 0) + 1
        rows.append((event.key, counts[event.key], event.id))
    return sorted(rows)


def job_graph(
    target: MatrixTarget,
    mode: CheckpointingMode = CheckpointingMode.EXACTLY_ONCE,
    parallelism: int = 2,
) -> JobGraph:
    """The job."""
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(parallelism)
    env.enable_checkpointing(1, mode)
    stream = env.from_collection(events(), EVENT).uid("events")
    counts = stream.key_by(lambda row: row.key).process(Count(), RESULT).uid("counts")
    for number, sink in enumerate(target.sinks()):
        counts.sink_to(sink).uid(f"sink-{number}")
    return env.get_job_graph("matrix")


def prepare(plan: DriverPlan) -> MatrixTarget:
    """Make this process the leader of its group, and as unprotected as planned; the target."""
    os.setpgid(0, 0)
    output = os.open(plan.directory / "output.txt", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    # A driver that hangs is asked where.
    faulthandler.register(signal.SIGUSR2, file=output, all_threads=True)
    for protection in plan.without:
        remove(protection)
    target = make_target(plan.kind, plan.address)
    if Protection.SESSION_END in plan.without:
        target.options["lock_timeout"] = IN_VAIN
    return target


def drive(plan: DriverPlan) -> None:
    """Run the job to its end, in a process of its own that is the leader of its group."""
    target = prepare(plan)
    fault = arm(plan, target)
    pool = WorkerPool(orphans_die=False)
    if fault is not None:
        fault.pool = pool
    code = _run_until_done(plan, target, pool)
    pool.close()
    sys.stdout.flush()
    sys.exit(code)


def arm(plan: DriverPlan, target: MatrixTarget) -> ArmedFault | None:
    """Arm what is to happen, in this process and those forked from it."""
    if plan.record:
        os.environ[crash_points.COUNT_VARIABLE] = str(plan.directory)
        crash_points.arm(record_everything())
    if not plan.point:
        return None
    return ArmedFault(
        plan.point,
        plan.fault,
        plan.directory,
        server_error=target.server_error,
        own_parts=target.parts,
        local_root=plan.checkpoints / "local",
        seed=plan.seed,
        moment=plan.moment,
    )


def _run_until_done(plan: DriverPlan, target: MatrixTarget, pool: WorkerPool) -> int:
    before, own = _newest_owner(plan.checkpoints), f"{socket.gethostname()}:{os.getpid()}"
    for number in range(RESTARTS):
        cluster: ProcessCluster | None = None
        try:
            cluster = ProcessCluster(
                pool,
                job_graph(target),
                plan.checkpoints,
                limits=itertools.repeat(PER_EPOCH),
                seed=100 * plan.seed + number,
                state_backend=plan.state_backend,
            )
            cluster.run()
        except Exception:  # noqa: BLE001 - as a restart strategy does
            traceback.print_exc()
            owner = _newest_owner(plan.checkpoints)
            if owner not in {before, own}:
                return FENCED
        else:
            return 0
        finally:
            if cluster is not None:
                cluster.coordinator.close()
    return GAVE_UP


def _newest_owner(checkpoints: Path) -> str:
    """Whose the newest generation is; a third one's means that this driver was overtaken."""
    owners = [entry.owner for entry in ManifestLog(LocalStorage(checkpoints)).entries()]
    return owners[-1] if owners else ""
