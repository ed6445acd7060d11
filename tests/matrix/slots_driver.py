"""The driver of a job of the crash matrix on slots, as a function for a process.

What it is: the job of ``pipelined_driver.py`` with a fault armed in driver and slots.  The job is
restarted by its restart strategy, and fails when a newer driver has taken over.
"""

from __future__ import annotations

import random
import sys
import traceback
from typing import TYPE_CHECKING

from tests.matrix import pipelined_driver
from tests.matrix.matrix_driver import FENCED, GAVE_UP, RESTARTS, arm, prepare
from tests.support.disturbed_slots import DisturbedSlots
from tests.support.faults import Rendezvous

from millstream.crash_points import points_of
from millstream.engines.pipelined.engine import PipelinedEngine, slots_of
from millstream.errors import FencedError
from millstream.execution.driver import check_job, start_job

if TYPE_CHECKING:
    from tests.matrix.matrix_driver import DriverPlan
    from tests.matrix.matrix_targets import MatrixTarget

__all__ = ["drive_slots"]

#: Of slots that are stopped the driver hears nothing for so long.
SILENCE = "1 s"


def drive_slots(plan: DriverPlan) -> None:
    """Run the job to its end, in a process of its own that is the leader of its group."""
    target = prepare(plan)
    fault = arm(plan, target)
    # Forks the process that slots come from: what is armed is armed there, too.
    host = DisturbedSlots(Rendezvous(plan.directory), plan.fault, plan.seed)
    if fault is not None:
        fault.pool = fault.slots = host
    code = _run_until_done(plan, target, host)
    sys.stdout.flush()
    sys.exit(code)


def overtakes(plan: DriverPlan) -> bool:
    """Whether barriers overtake records: in half of the drivers, and where that is disturbed."""
    if plan.point.partition(":")[0] in points_of("unaligned task"):
        return True
    if plan.point.startswith("barrier.align."):
        return False  # hardly ever passed then
    return random.Random(f"{plan.seed} {plan.point} {plan.kind}").random() < 0.5


def _run_until_done(plan: DriverPlan, target: MatrixTarget, host: DisturbedSlots) -> int:
    settings = {
        "heartbeat.timeout": SILENCE,
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": str(RESTARTS),
        "restart-strategy.fixed-delay.delay": "1 ms",
        "state.backend.type": plan.state_backend,
        "millstream.local-directory": str(plan.checkpoints.parent / "local"),
    }
    if overtakes(plan):
        settings["execution.checkpointing.unaligned"] = "true"
    env = pipelined_driver.environment(
        target, str(plan.checkpoints), settings, regions=plan.regions
    )
    graph = env.get_job_graph("matrix")
    check_job(graph)
    try:
        start_job(graph, PipelinedEngine(slots_of(graph), host)).get_job_execution_result()
    except FencedError:
        traceback.print_exc()
        return FENCED
    except Exception:  # noqa: BLE001 - told by the exit code
        traceback.print_exc()
        return GAVE_UP
    return 0
