"""How many tasks Spark can ever run side by side, as far as options tell.

What it is: why a pipelined job can never run, of a session that is there or of one that would be
started.  Nothing of PySpark's is imported, so that ``millstream plan`` can ask as well.

What it is not: what a session has, and who is at work on it (``engines/spark/task_slots.py``).

Read next: ``engines/spark/task_slots.py``, ``engines/spark/local_session.py``.
"""

from __future__ import annotations

import os
import re
import sys
from typing import TYPE_CHECKING, Final

from millstream.configuration import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.configuration.configuration import Configuration

__all__ = ["WARM_UP", "SlotLimits", "counted", "given_master", "is_submitted", "why_never"]

#: The description of a job of our own, which has the workers' daemon started.
WARM_UP: Final = "Millstream: Python workers are started"
_LOCAL: Final = re.compile(r"local(?:\[\s*(\d+)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER: Final = re.compile(r"local-cluster\[\s*(\d+)\s*,\s*(\d+)\s*,.*")
_EPOCHS: Final = "millstream.execution: epochs"
#: Set by spark-submit, whose JVM starts this process.
_SUBMITTED: Final = "PYSPARK_GATEWAY_PORT"


def is_submitted() -> bool:
    """Whether spark-submit runs this program."""
    return _SUBMITTED in os.environ


def given_master(configuration: Configuration) -> str | None:
    """The master that a job's options name; None: that of spark-submit, or all of this machine."""
    if configuration.contains(options.SPARK_MASTER):
        return configuration.get(options.SPARK_MASTER) or None
    return configuration.get_string("spark.master", "") or None


def why_never(configuration: Configuration, slots: int) -> str | None:
    """Why a job can never run in slots of the session that would be started for it; None: it may.

    Args:
        configuration: the job's.
        slots: how many are wanted, side by side.
    """
    # What is asked of a session that is there is that session's to say.
    sql = sys.modules.get("pyspark.sql")
    if sql is not None and sql.SparkSession.getActiveSession() is not None:
        return None
    master = given_master(configuration)
    if master is None:
        if is_submitted():
            return None
        master = "local[*]"
    return SlotLimits(master, configuration.get_string).why_never(slots)


class SlotLimits:
    """What master and options of a session allow.

    Args:
        master: Spark's.
        option: the value of one of Spark's options, or what is given for it.
        total: how many task slots there are, where all are in one process; not given before it
            runs.
    """

    def __init__(
        self,
        master: str,
        option: Callable[[str, str], str],
        total: Callable[[], int] | None = None,
    ) -> None:
        self._master = master
        self._option = option
        self._total = total
        #: Cores that each task takes.
        self.task_cpus = int(option("spark.task.cpus", "1"))

    @property
    def _in_one_process(self) -> bool:
        return self._master == "local" or self._master.startswith("local[")

    def why_never(self, slots: int) -> str | None:
        """Why Spark will never start so many tasks together, and what to do; None: it may."""
        dynamic = self._option("spark.dynamicAllocation.enabled", "false").lower() == "true"
        if dynamic and not self._in_one_process:
            return (
                "Spark runs no barrier stage, which a pipelined job is, with dynamic allocation:"
                " set spark.dynamicAllocation.enabled to false and spark.executor.instances to what"
                f" the job needs, or run it with {_EPOCHS}"
            )
        most, why = self._most()
        if most is None or most >= slots:
            return None
        return (
            f"the job needs {counted(slots, 'task slot')} side by side, as many as its widest"
            f" stage has subtasks, and Spark can have {most} ({why}). {self.remedy(slots)}, or"
            f" run it with {_EPOCHS}"
        )

    def _most(self) -> tuple[int | None, str]:
        """How many there will ever be, if that is known, and why."""
        cpus = self.task_cpus
        each = "" if cpus == 1 else f", spark.task.cpus {cpus}"
        if self._in_one_process:
            return self._in_this_process(), f"master {self._master}{each}"
        cluster = _LOCAL_CLUSTER.fullmatch(self._master)
        if cluster is not None:
            executors, cores = map(int, cluster.groups())
            return executors * (cores // cpus), f"master {self._master}{each}"
        limit = self._option("spark.cores.max", "")
        if self._master.startswith("spark:"):
            # It takes all cores that it can have, whatever spark.executor.instances says.
            return (int(limit) // cpus, f"spark.cores.max {limit}{each}") if limit else (None, "")
        instances = self._option("spark.executor.instances", "")
        cores_each = self._option("spark.executor.cores", "")
        if instances and cores_each:
            words = f"spark.executor.instances {instances}, spark.executor.cores {cores_each}{each}"
            return int(instances) * (int(cores_each) // cpus), words
        return None, ""

    def _in_this_process(self) -> int | None:
        if self._total is not None:
            return self._total()
        cores = _LOCAL.fullmatch(self._master)
        return None if cores is None else int(cores[1] or 1) // self.task_cpus

    def remedy(self, slots: int) -> str:
        """What a user can do who wants so many."""
        cores = slots * self.task_cpus
        words = f"Lower its parallelism, or give the session {counted(cores, 'core')}"
        if self._in_one_process:
            return f"{words}: master local[{cores}]"
        if self._master.startswith("local-cluster"):
            return words
        if self._master.startswith("spark:"):
            return (
                f"{words}: look at spark.cores.max and at the workers and applications of the"
                " master"
            )
        return f"{words}: spark.executor.instances times spark.executor.cores"


def counted(number: int, thing: str) -> str:
    """So many things, in words."""
    return f"{number} {thing}" if number == 1 else f"{number} {thing}s"
