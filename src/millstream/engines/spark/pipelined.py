"""The pipelined engine on Spark: the slots of a run are the tasks of one barrier stage.

Spark never runs a failed barrier stage again: the driver begins a new run from the last checkpoint,
as it must.  Properties of Spark that decide here:

- It reports a job as over while Python workers of it still run (``engines/spark/presence.py``).  -
A task that was cancelled is interrupted after up to 4 s: ``MonitorThread`` checks every 2 s and
waits 2 s more (``spark.python.task.killTimeout``).  So slots end by their control connections, and
only those that are stuck wait for that.  - A cancelled group cancels its current jobs only, unless
later ones are cancelled as well.  - A worker that is silent for ``idleTimeoutSeconds`` may be
killed, and a slot is silent: a dedicated session of the run has that switched off, whatever the
user's has.  - A stage with fewer task slots than tasks is retried every 15 s; after the loss of an
executor that would take long, so the job begins when there are enough.  - Speculation leaves
barrier stages alone; so does ``spark.task.maxFailures``.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JError

from millstream.configuration import options
from millstream.engines.pipelined.engine import PipelinedEngine, require_pipelined, slots_of
from millstream.engines.pipelined.failover import SlotHost
from millstream.engines.spark.engine import one_line, original_error, raised_in_python
from millstream.engines.spark.java import JavaProcess
from millstream.engines.spark.presence import Presence
from millstream.engines.spark.session import WARM_UP, SlotLimits, counted, get_session, why_never
from millstream.engines.spark.slot_function import SlotFunction
from millstream.errors import EngineError, MillstreamError, WorkerLostError
from millstream.execution.driver import check_job, start_job
from millstream.runtime.last_given import last_of_run
from millstream.runtime.pipelined.main_loop import run_slot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import SparkSession

    from millstream.execution.driver import JobDriver
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import SlotSettings


_LOG: Final = logging.getLogger("millstream")
#: Characters of a job's description, and jobs, that a message has room for.
_DESCRIPTION: Final = 60
_MOST_JOBS: Final = 5


class TaskSlots:
    """The tasks that a session can run at once."""

    def __init__(self, session: SparkSession) -> None:
        self._context = session.sparkContext
        self._master = str(self._context.master)
        option: Callable[[str, str], str] = self._context.getConf().get
        self._limits = SlotLimits(self._master, option, self.total)

    @property
    def on_this_machine(self) -> bool:
        """Return whether executors are on the machine of the driver, as the master says."""
        return self._master.startswith("local")

    def require(self, slots: int) -> None:
        """Refuse what Spark will never start.

        Raises:
            EngineError: Spark allocates dynamically, or can never have so many.
        """
        reason = self._limits.why_never(slots)
        if reason is not None:
            raise EngineError(reason)

    def total(self) -> int:
        """Return how many there are now, on executors that have registered, taken or not."""
        context: Any = self._context._jsc.sc()  # noqa: SLF001 - PySpark has no way of its own
        profile = context.resourceProfileManager().defaultResourceProfile()
        return int(context.maxNumConcurrentTasks(profile))

    def free_for(self, slots: int) -> int:
        """Return how many a job can have that has some now: those, and what no other job is on."""
        tracker: Any = self._context._jsc.sc().statusTracker()  # noqa: SLF001
        taken = sum(int(each.numRunningTasks()) for each in tracker.getExecutorInfos())
        return self.total() - max(0, taken - slots)

    def has_started(self, slots: int, own: str) -> bool:
        """Return whether Spark has started so many tasks of a job group, as far as it tells.

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
        """Return why so many slots do not come, as far as Spark tells, and what to do."""
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
        """Return where the cores are."""
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
    """Return what a Scala sequence holds."""
    return [sequence.apply(index) for index in range(sequence.size())]


_LOOPBACK: Final = "127.0.0.1"
#: Seconds after which is said why slots do not come: that others have the cores, anything else;
#: and between two looks for executors.
_SOON: Final = 1.0
_SLOTS_WARNING: Final = 5.0
_POLL: Final = 0.1
#: Seconds that executors may take to register before there is a warning.
_EXECUTORS: Final = 30.0
#: Seconds that Spark may take to kill a worker that does not end by itself.
_KILL: Final = 15.0
#: Seconds by which this host is ahead of the engine, which gives up a run for missing slots as well
#: and knows less about it.
_AHEAD: Final = 0.5
#: What Spark says of a barrier stage ahead of what has become of its task.
_BARRIER_FAILED: Final = "finished unsuccessfully."
#: What Spark says when an executor has ended, and the tasks on it.
_EXECUTOR_LOST: Final = "ExecutorLostFailure"
_OPTIONS: Final = {
    "spark.sql.execution.pyspark.udf.idleTimeoutSeconds": "0",
    "spark.sql.execution.pyspark.udf.killOnIdleTimeout": "false",
}


class SparkSlotHost(SlotHost):
    """Starts slots as the tasks of a barrier stage."""

    def __init__(
        self,
        session: SparkSession,
        java: JavaProcess,
        job_name: str,
        *,
        timeout: float,
        run: Callable[[SlotSettings], None] = run_slot,
    ) -> None:
        self._session = session
        self._java = java
        self._job_name = job_name
        self._timeout = timeout
        self._run = run
        self._task_slots = TaskSlots(session)
        self._job: _BarrierJob | None = None
        self._run_id = ""
        #: What a process of the run did last that is gone, once that is known.
        self._given = ""

    @property
    def driver_host(self) -> str:
        """This machine's address for executors: the loopback interface where they are on it."""
        if self._task_slots.on_this_machine:
            return _LOOPBACK
        host = self._session.sparkContext.getConf().get("spark.driver.host", _LOOPBACK)
        return str(host)

    @property
    def listen_host(self) -> str:
        """``spark.driver.bindAddress``, as Spark's own driver does."""
        if self._task_slots.on_this_machine:
            return _LOOPBACK
        options = self._session.sparkContext.getConf()
        return str(options.get("spark.driver.bindAddress", self.driver_host))

    def most_slots(self, slots: int) -> int:
        """Return how many slots a job could have that has some now, on executors that are there."""
        try:
            return max(slots, self._task_slots.free_for(slots))
        except (Py4JError, OSError):
            return slots  # the JVM has ended, which the run will tell

    def require(self, slots: int) -> None:
        """Refuse what Spark would wait for without end and without a word."""
        self._java.require()
        self._task_slots.require(slots)

    def start(self, settings: Sequence[SlotSettings]) -> None:
        careful = self._job is not None and bool(self._job.crashed)
        settings = [replace(each, careful=careful) for each in settings]
        self._run_id, self._given = settings[0].run_id, ""
        presence = Presence(self.driver_host, self.listen_host, list(settings))
        function = SlotFunction(list(settings), presence.address, self._run)
        self._job = _BarrierJob(
            self._session, self._task_slots, presence, function, settings, self._job_name
        )
        self._job.start(self._timeout)

    def lost(self) -> BaseException | None:
        """Return what Spark says of the job that has ended.

        That slots do not come; that one has gone.
        """
        job = self._job
        if job is None:
            return None
        if job.error is not None:
            # That nothing can run any more is what says most.
            return self._java.lost() or self._with_note(job.error)
        if job.crashed:
            return self._with_note(
                WorkerLostError(
                    f"the Python worker that was slot {job.crashed[0]} was killed or has crashed;"
                    " the log of its executor may show why"
                )
            )
        return None

    def _with_note(self, error: BaseException) -> BaseException:
        """Add what a process of this machine that is gone did last."""
        self._given = self._given or last_of_run(self._run_id)
        if not self._given or not isinstance(error, WorkerLostError):
            return error
        return WorkerLostError(f"{error}{self._given}")

    def stop(self, patience: float) -> None:
        if self._job is not None:
            self._job.stop(patience)

    def original_error(self, error: BaseException) -> BaseException:
        return original_error(error)


class _BarrierJob:
    """The Spark job of one run."""

    def __init__(
        self,
        session: SparkSession,
        task_slots: TaskSlots,
        presence: Presence,
        function: SlotFunction,
        settings: Sequence[SlotSettings],
        job_name: str,
    ) -> None:
        slots = len(settings)
        self._session = session
        self._context = session.sparkContext
        self._task_slots = task_slots
        self._function = function
        self._slots = slots
        self._group = f"millstream-{settings[0].run_id}"
        self._description = f"Millstream job {job_name!r} in {slots} slots"
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._presence = presence
        #: The slots that had crashed before Spark was told to kill what is left.
        self._crashed: list[int] | None = None
        #: Why the run cannot continue, once that is known.
        self.error: BaseException | None = None

    @property
    def crashed(self) -> list[int]:
        """The slots whose process has ended by neither driver nor job, in that order."""
        return self._presence.crashed if self._crashed is None else self._crashed

    def start(self, timeout: float) -> None:
        """Begin, in threads."""
        self._running = threading.Thread(target=self._main, name="millstream-slots", daemon=True)
        self._watching = threading.Thread(
            target=self._watch, args=(timeout,), name="millstream-slots-watch", daemon=True
        )
        self._running.start()
        self._watching.start()

    def stop(self, patience: float) -> None:
        """Wait until the job is over and its processes are gone.

        Cases:

        1. All slots have come, and were told to end or were fenced -> their processes end by
           themselves, and with these the job.
        2. Some have not come (Spark waits for cores, say) -> the job is cancelled at once; a worker
           that starts nevertheless is refused, and its task fails.
        3. One does not end in time (it was stopped, or is in the midst of a system call) -> the job
           is cancelled, and Spark kills the workers of its tasks.
        4. Its machine gives no answer -> the connection counts as ended after some seconds.

        What can never happen: this returns while a process runs that is known to.
        """
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._presence.refuse()
        deadline = time.monotonic() + patience
        if self._presence.came < self._slots:
            self._cancel()
        if not self._presence.wait_until_gone(patience):
            _LOG.warning("slots %s do not end by themselves", self._presence.here())
            self._cancel()
            deadline = time.monotonic() + _KILL
            self._presence.wait_until_gone(_KILL)
        # Their ends, for what they hold of the JVM's they release by then.
        self._running.join(max(_POLL, deadline - time.monotonic()))
        if self._running.is_alive():
            self._cancel()
            self._running.join(_KILL)
        self._watching.join(_KILL)
        here = self._presence.here()
        self._presence.close()
        if here:
            message = f"Spark has not ended the processes of slots {here} in {_KILL:g} s"
            raise WorkerLostError(message)

    def _cancel(self) -> None:
        """Have Spark give up the job, also if it is only about to begin."""
        if self._crashed is None:
            self._crashed = self._presence.crashed
        # If the JVM is gone so is the job.
        with contextlib.suppress(Py4JError, OSError):
            context: Any = self._context._jsc.sc()  # noqa: SLF001 - PySpark cancels only what runs
            context.cancelJobGroupAndFutureJobs(self._group)

    def _main(self) -> None:
        try:
            while self._task_slots.total() < self._slots:
                if self._stopping.wait(_POLL):
                    return
            self._context.setJobGroup(self._group, self._description)
            session = self._session.newSession()
            for key, value in _OPTIONS.items():
                session.conf.set(key, value)
            rows = session.range(0, self._slots, 1, self._slots)
            rows.mapInArrow(self._function, "nothing int", barrier=True).collect()
        except BaseException as error:  # noqa: BLE001 - told to who asks for it
            # Of fenced slots Spark says that they have crashed.
            if self.error is None and (not self._stopping.is_set() or _EXECUTOR_LOST in str(error)):
                self.error = _slot_error(error)
        finally:
            self._over.set()

    def _watch(self, timeout: float) -> None:
        """Say why slots do not come; after ``timeout`` seconds the run is aborted for that."""
        began = time.monotonic()
        limit = max(timeout / 2, timeout - _AHEAD)
        said = min(_SLOTS_WARNING, limit)
        soon = min(_SOON, said)
        try:
            if soon < said and self._waits(soon) and self._are_taken():
                _LOG.warning("%s", self._missing(soon))
            # That Python takes long to start on a busy machine is nothing to look at.
            elif self._waits(said - soon if soon < said else said) and not self._have_started():
                self._warn_missing(said, min(_EXECUTORS, limit))
            left = max(0.0, limit - (time.monotonic() - began))
            if self._waits(left) and self.error is None:
                self.error = WorkerLostError(self._missing(timeout))
        except (Py4JError, OSError):
            _LOG.debug("Spark's JVM gives no answer", exc_info=True)  # the job tells of it

    def _warn_missing(self, said: float, late: float) -> None:
        """Warn that slots are missing; if executors have yet to register, only when it is late.

        Args:
            said: seconds that have passed.
            late: seconds that executors of a cluster may take: they are processes on other
                machines, and a warning at each start would be read by nobody.
        """
        if self._task_slots.total() < self._slots and said < late:
            _LOG.info("%s", self._missing(said))
            if not self._waits(late - said) or self._have_started():
                return
            said = late
        _LOG.warning("%s", self._missing(said))

    def _waits(self, seconds: float) -> bool:
        """Whether slots are missing after some seconds, and nothing else is known of the job."""
        came = self._presence.wait_for_all(seconds)
        return not (came or self._over.is_set() or self._stopping.is_set())

    def _have_started(self) -> bool:
        return self._task_slots.has_started(self._slots, self._group)

    def _are_taken(self) -> bool:
        return not self._have_started() and self._task_slots.are_taken(self._slots, self._group)

    def _missing(self, seconds: float) -> str:
        came = self._presence.came
        why = self._task_slots.shortage(self._slots, self._group)
        return f"after {seconds:g} s {came} of {self._slots} slots have started: {why}"


def _slot_error(error: BaseException) -> BaseException:
    """Return what a task raised.

    Of Spark's hundreds of lines about anything else, the one to read.
    """
    cause = original_error(error)
    if isinstance(cause, MillstreamError):
        return cause
    raised = raised_in_python(error)
    if raised is not None:
        return WorkerLostError(f"the Python worker of a slot has ended with {raised}")
    words = one_line(error).rpartition(_BARRIER_FAILED)[2].strip()
    return WorkerLostError(f"the Spark job of the slots has ended: {words}")


def submit(job_graph: JobGraph, *, spark_dataframes: list[Any] | None = None) -> JobDriver:
    """Check a job and start it in slots on Spark.

    Raises:
        EngineError: Spark can never run all slots of the job side by side.
        MillstreamError: as of ``engines/registry.py``; the program reads a Spark DataFrame.
    """
    del spark_dataframes
    require_pipelined(job_graph)
    # Before Spark starts, which takes seconds.
    check_job(job_graph)
    reason = why_never(job_graph.configuration, slots_of(job_graph))
    if reason is not None:
        raise EngineError(reason)
    session = get_session(job_graph.configuration)
    java = JavaProcess(session)
    timeout = job_graph.configuration.get(options.SLOT_REQUEST_TIMEOUT) / 1000
    host = SparkSlotHost(session, java, job_graph.job_name, timeout=timeout)
    engine = SparkPipelinedEngine(slots_of(job_graph), host, java)
    engine.require()
    return start_job(job_graph, engine)


class SparkPipelinedEngine(PipelinedEngine):
    """Runs a job in slots on a Spark session."""

    def __init__(self, slots: int, host: SparkSlotHost, java: JavaProcess) -> None:
        super().__init__(slots, host)
        self._spark_slots = host
        self._java = java

    def most_subtasks(self) -> int:
        """Return how many slots there are for it: scaling waits for no executors."""
        return self._spark_slots.most_slots(self._slots)

    def lost(self) -> EngineError | None:
        return self._java.lost()

    def one_line(self, error: BaseException) -> str:
        return one_line(error)
