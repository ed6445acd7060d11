"""The task slots of a Spark session: how many there are, can be, and who has them.

What it is: what Spark would let a pipelined run wait for without a word, put into words.  All slots
of a run are tasks of one barrier stage, which Spark starts together or not at all: it looks again
every 15 s for 10 minutes if it has too few slots, and for ever if others are at work on them.

What it is not: what options allow (``engines/spark/limits.py``), nor what runs there
(``engines/spark/slots.py``).

Read next: ``engines/spark/slots.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.engines.spark.limits import WARM_UP, SlotLimits, counted
from millstream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

__all__ = ["TaskSlots"]

#: Characters of a job's description, and jobs, that a message has room for.
_DESCRIPTION: Final = 60
_MOST_JOBS: Final = 5


class TaskSlots:
    """What room a session has for tasks.

    Args:
        session: the session.
    """

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._master = str(self._context.master)
        option: Callable[[str, str], str] = self._context.getConf().get
        self._limits = SlotLimits(self._master, option, self.total)

    @property
    def on_this_machine(self) -> bool:
        """Whether executors are on the machine of the driver, as the master says."""
        return self._master.startswith("local")

    def require(self, slots: int) -> None:
        """Refuse what Spark will never start.

        Args:
            slots: how many are wanted, side by side.

        Raises:
            EngineError: Spark allocates dynamically, or can never have so many.
        """
        reason = self._limits.why_never(slots)
        if reason is not None:
            raise EngineError(reason)

    def total(self) -> int:
        """How many there are now, on executors that have registered, taken or not."""
        context: Any = self._context._jsc.sc()  # noqa: SLF001 - PySpark has no way of its own
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))

    def has_started(self, slots: int, own: str) -> bool:
        """Whether Spark has started so many tasks of a job group, as far as it tells.

        How many tasks a job has at work its store knows late; how many there are in all it does
        know, and of a barrier stage all are started at once.
        """
        tracker: Any = self._context._jsc.sc().statusTracker()  # noqa: SLF001
        if sum(each.numRunningTasks() for each in tracker.getExecutorInfos()) < slots:
            return False
        running = self._running_jobs()
        mine = [job for job in running if _group_of(job) == own]
        return len(mine) == len(running) or any(job.numActiveTasks() for job in mine)

    def are_taken(self, slots: int, own: str) -> bool:
        """Whether there are so many, and other jobs of the session are on them or wait for them."""
        return self.total() >= slots and bool(self._jobs_but(own))

    def shortage(self, slots: int, own: str) -> str:
        """Why so many slots do not come, as far as Spark tells, and what to do.

        Args:
            slots: how many are wanted.
            own: the job group of those who want them.
        """
        total = self.total()
        has = f"Spark has {counted(total, 'task slot')} ({self._executors()})"
        if total < slots:
            return (
                f"{has}, and the job needs {slots}. Executors may still be starting, or the cluster"
                f" may have no cores left. {self._limits.remedy(slots)}"
            )
        if self.has_started(slots, own):
            return (
                f"{has} and has started the tasks, but their Python workers do not come: they are"
                " still starting, cannot start, or cannot reach the driver; the logs of the"
                " executors may say why"
            )
        others = self._jobs_but(own)
        if not others:
            return (
                f"{has}, and no other job of this session runs on them, but has not started the"
                " tasks yet. If they do not come soon, the log of Spark's driver says why it does"
                " not start a barrier stage"
            )
        return (
            f"{has}, on which the session runs other jobs: {others}. Wait for their end, stop them,"
            f" or give the session {slots * self._limits.task_cpus} cores more"
        )

    def _executors(self) -> str:
        """Where the cores are."""
        store: Any = self._context._jsc.sc().statusStore()  # noqa: SLF001
        active_only = True
        found = [each for each in _items(store.executorList(active_only)) if each.maxTasks()]
        if not found:
            return "no executor has registered"
        return ", ".join(
            f"executor {each.id()} at {each.hostPort()} with {counted(each.totalCores(), 'core')}"
            for each in found
        )

    def _running_jobs(self) -> list[Any]:
        store: Any = self._context._jsc.sc().statusStore()  # noqa: SLF001
        return [job for job in _items(store.jobsList(None)) if str(job.status()) == "RUNNING"]

    def _jobs_but(self, own: str) -> str:
        """The jobs of the session that run, or wait themselves, but for those of one group."""
        lines = []
        for job in self._running_jobs():
            group = _group_of(job)
            if group == own:
                continue
            described = job.description().get() if job.description().isDefined() else job.name()
            if described == WARM_UP:
                continue  # over in a moment, and nobody's to stop
            words = " ".join(str(described).split())[:_DESCRIPTION]
            of = f" of group {group!r}" if group else ""
            lines.append(f"job {job.jobId()}{of} ({words})")
        more = len(lines) - _MOST_JOBS
        return ", ".join(lines[:_MOST_JOBS]) + (f" and {more} more" if more > 0 else "")


def _group_of(job: Any) -> str:
    group = job.jobGroup()
    return str(group.get()) if group.isDefined() else ""


def _items(sequence: Any) -> list[Any]:
    """What a Scala sequence holds."""
    return [sequence.apply(index) for index in range(sequence.size())]
