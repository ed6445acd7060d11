"""The Spark engine: a run is a Structured Streaming query, an epoch one of its micro-batches.

A task's error reaches the driver as the text of a Python traceback inside a Java exception.  Where
the task raised a Millstream error, it is made again with its message.

Spark gives a task the worker that has been idle longest, so two partitions exchange workers
whenever one is faster.  What a worker caches is then useless: records that a consumer has fetched
ahead, its producers, its operators.  So a few lines of Java (``WorkerHomes.java``), compiled in the
JVM as the split source is, make Spark reuse the same worker for a partition in each epoch.
"""

from __future__ import annotations

import contextlib
import json
import logging
import re
import tempfile
import threading
import weakref
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from py4j.protocol import Py4JError
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql import DataFrame, functions
from pyspark.sql.types import StructType

from millstream import errors
from millstream.configuration import options
from millstream.directories import run_directory
from millstream.engines.spark.dataframe_sink import DataFrameSink
from millstream.engines.spark.java import JavaProcess, compiled
from millstream.engines.spark.session import get_session, streaming_options
from millstream.engines.spark.stage_function import (
    PLAN_PROPERTY,
    SPARK_SOURCE_DDL,
    PackSparkRows,
    StageFunction,
    plan_text,
)
from millstream.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    JobError,
    WorkerLostError,
)
from millstream.execution.driver import check_job, start_job
from millstream.execution.engine import Engine
from millstream.execution.planned_source import initial_offset
from millstream.execution.run import EpochLoop, FenceWatch
from millstream.object_stores import is_object_store
from millstream.runtime.exchange import FRAME_DDL
from millstream.runtime.last_given import forget_run, last_of_run
from millstream.types.pickling import dumps_by_value, loads

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark import Broadcast, SparkContext
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.errors import EngineError
    from millstream.execution.driver import JobDriver
    from millstream.execution.job import Job
    from millstream.execution.planned_source import Offset
    from millstream.execution.run import Run
    from millstream.graph.model import JobGraph
    from millstream.runtime.plan import EpochPlan


_LOG: Final = logging.getLogger("millstream")
_RAISED: Final = re.compile(
    r"^millstream\.errors\.(?P<name>\w+): (?P<message>.*?)"
    r"(?=\n\n|\n\tat |\nTraceback |\n ?SQLSTATE: |\Z)",
    re.MULTILINE | re.DOTALL,
)


#: Of a worker that cannot even unpickle what it is to do; again and again, however often it is
#: tried.
_NOT_FOUND: Final = "ModuleNotFoundError: No module named 'millstream'"
_NO_MILLSTREAM: Final = (
    "the Python of Spark's workers has no module millstream. Workers of a session run what the"
    " variable PYSPARK_PYTHON names, else the python3 of their machine, whatever runs the program:"
    " set it before the session starts, on all machines to a Python that has Millstream; or leave"
    " the session to Millstream (millstream.spark.master, python.executable)"
)


def _lacks_millstream(error: BaseException) -> bool:
    return raised_in_python(error) == _NOT_FOUND


def original_error(error: BaseException) -> BaseException:
    """The Millstream error that a task raised, if ``error`` tells of one; else ``error``.

    That workers have no Millstream is one, though they cannot say so themselves.
    """
    if isinstance(error, errors.MillstreamError):
        return error
    found = list(_RAISED.finditer(str(error)))
    if not found:
        return errors.EngineError(_NO_MILLSTREAM) if _lacks_millstream(error) else error
    # The last one is what was raised; those before it are its causes.
    name, message = found[-1]["name"], found[-1]["message"].strip()
    kind = getattr(errors, name, None)
    if not (isinstance(kind, type) and issubclass(kind, errors.MillstreamError)):
        return error
    made: BaseException = kind(message)
    return made


#: Of a worker process that has ended in the middle of a task.
_WORKER_LOST: Final = "Python worker exited unexpectedly"


def is_worker_lost(error: BaseException) -> bool:
    """Return whether Spark reports that the process of a Python worker has ended."""
    return _WORKER_LOST in str(error)


#: Where the text of an error continues with what only helps those who know Spark.
_DETAILS: Final = re.compile(
    r"\n\s*at |\nDriver stacktrace|\nTraceback |\n=== Streaming Query|\n\nJVM stacktrace"
)
_CALL: Final = re.compile(r"^An error occurred while calling \S+\n: ")
_LONGEST: Final = 500


def one_line(error: BaseException) -> str:
    """What an error says, for a line in a log: of Spark's, which have hundreds, the first."""
    text = str(error)
    if not isinstance(error, errors.MillstreamError):
        text = " ".join(_DETAILS.split(_CALL.sub("", text), maxsplit=1)[0].split())[:_LONGEST]
    return text or type(error).__name__


#: The end of a traceback: the first line after the places, which are indented.
_PYTHON: Final = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(?P<said>\S.*)")


def raised_in_python(error: BaseException) -> str | None:
    """Return what a Python worker raised, in a line, if an error of Spark's tells of that."""
    found = [match["said"] for match in _PYTHON.finditer(str(error))]
    # The last one is what was raised; those before it are its causes.
    return found[-1].strip()[:_LONGEST] if found else None


#: The local property that names the run whose partitions have workers of their own; as in the Java.
RUN_PROPERTY: Final = "millstream.run"
_WORKER_HOMES_CLASS: Final = "WorkerHomes"

#: Gateway -> the compiled object.  Once per JVM: py4j remembers methods by the name of their class.
_worker_homes_compiled: Final[weakref.WeakKeyDictionary[Any, Any]] = weakref.WeakKeyDictionary()
_lock: Final = threading.Lock()


def keep_spare_workers(context: SparkContext) -> threading.Thread | None:
    """Do so in a thread: compiling takes some hundredths of a second, and no epoch waits for it."""
    if not (context.master or "").startswith("local"):
        return None  # the workers are not those of this JVM
    thread = threading.Thread(
        target=keep_workers, args=(context,), name="worker homes", daemon=True
    )
    thread.start()
    return thread


def keep_workers(context: SparkContext) -> int:
    """Have tasks of a run get the worker that their partition had before.

    Only workers of daemons that have run a task: so call it once one has.

    Returns:
        Of how many daemons; 0 if this Spark is made otherwise, which costs time and nothing else.
    """
    gateway: Any = context._gateway  # noqa: SLF001 - as engine.py
    try:
        with _lock:
            if gateway not in _worker_homes_compiled:
                nothing = gateway.new_array(gateway.jvm.java.lang.Object, 0)
                _worker_homes_compiled[gateway] = compiled(
                    gateway, _WORKER_HOMES_CLASS
                ).newInstance(nothing)
            return int(_worker_homes_compiled[gateway].get())
    except (Py4JError, OSError) as error:  # the latter where the JVM ends meanwhile
        _LOG.debug("partitions change workers as Spark will have it: %s", error)
        return 0


#: Characters of a plan that travel as a property, with each task; longer ones (of many subtasks
#: with much state) are a part of the functions, which Spark sends once per executor.
_LONGEST_PROPERTY: Final = 64 * 1024


class EpochJob:
    """Runs the tasks of epochs, one at a time.

    Args:
        graph: the job graph.
        graph_broadcast: the same, pickled.
        careful: a worker was lost in the run before.
    """

    def __init__(
        self, graph: JobGraph, graph_broadcast: Broadcast[bytes], *, careful: bool = False
    ) -> None:
        self._careful = careful
        self._stages = graph.stages
        self._files = graph.files
        self._graph_broadcast = graph_broadcast
        #: Whether stage 0 reads the rows of a micro-batch, each of which is another DataFrame.
        self._spark_sources = has_spark_sources(graph)
        self._schema: Final = cast("StructType", StructType.fromDDL(FRAME_DDL))
        self._order: Final = [
            functions.col(name) for name in ("watermark", "edge", "channel", "sequence")
        ]
        self._targets: dict[int, Column] = {}
        #: Invariant: of the session that the rows of every epoch of the run are of.
        self._template: DataFrame | None = None
        #: Partitions have been given workers of their own, as far as that is possible.
        self._at_home = False

    def run(self, rows: DataFrame, plan: EpochPlan) -> list[TaskAck]:
        """Run the tasks of an epoch.

        Returns:
            What the tasks acknowledge, one per subtask and stage.
        """
        context = rows.sparkSession.sparkContext
        context.setLocalProperty(RUN_PROPERTY, plan.run_id)
        try:
            return self._run(rows, plan)
        finally:
            context.setLocalProperty(RUN_PROPERTY, "")
            if not self._at_home:
                self._at_home = True  # now that there are workers
                keep_spare_workers(context)

    def _run(self, rows: DataFrame, plan: EpochPlan) -> list[TaskAck]:
        if self._spark_sources:
            return _acknowledged(self._chain(self._spark_input(rows), plan))
        text = plan_text(plan)
        if len(text) > _LONGEST_PROPERTY:
            return _acknowledged(self._chain(self._empty_input(rows), plan))
        if self._template is None:
            self._template = self._chain(self._empty_input(rows), None)
        context = rows.sparkSession.sparkContext
        context.setLocalProperty(PLAN_PROPERTY, text)
        try:
            # A new query: asking the template itself again would find the shuffled frames of the
            # epoch before.
            return _acknowledged(self._template.select("*"))
        finally:
            context.setLocalProperty(PLAN_PROPERTY, "")

    def _chain(self, data: DataFrame, plan: EpochPlan | None) -> DataFrame:
        for stage in self._stages:
            if stage.level > 0:
                data = self._shuffled(data, stage.parallelism)
            function = StageFunction(
                *(stage.level, self._graph_broadcast, plan, self._files), careful=self._careful
            )
            data = data.mapInArrow(function, self._schema)
        return data

    def _shuffled(self, frames: DataFrame, parallelism: int) -> DataFrame:
        """The frames at the subtasks of a stage, in processing order."""
        target = self._targets.get(parallelism)
        if target is None:
            target = functions.expr(f"cast(pmod(subtask, {parallelism}) as int)")
            self._targets[parallelism] = target
        return frames.repartitionById(parallelism, target).sortWithinPartitions(*self._order)

    def _empty_input(self, rows: DataFrame) -> DataFrame:
        """A task per subtask of stage 0, which reads splits."""
        first = self._stages[0].parallelism
        return rows.sparkSession.range(0, first, 1, first)

    def _spark_input(self, rows: DataFrame) -> DataFrame:
        """The packed rows of all Spark sources, on the subtasks of stage 0."""
        return (
            rows.where("payload is not null")
            .select("source", "subtask", "partition", "sequence", "payload")
            .repartitionById(self._stages[0].parallelism, functions.col("subtask"))
            .sortWithinPartitions("source", "partition", "sequence")
        )


def _acknowledged(frames: DataFrame) -> list[TaskAck]:
    return [cast("TaskAck", loads(bytes(row.payload))) for row in frames.collect()]


def has_spark_sources(graph: JobGraph) -> bool:
    """Whether Spark has rows of its own to read for a job: a DataFrame of ``env.from_spark``."""
    return any(node.spark_index is not None for node in graph.nodes.values())


def spark_source_frame(frame: DataFrame, node: int, parallelism: int) -> DataFrame:
    """A user's streaming DataFrame as rows for stage 0 (see ``PackSparkRows``)."""
    return frame.mapInArrow(PackSparkRows(node, parallelism), SPARK_SOURCE_DDL)


#: Characters of an error that Spark is told; the driver has the error itself.
_SHOWN_TO_SPARK: Final = 500
#: Where Spark's offset log has the time of a micro-batch, in milliseconds.
_BATCH_TIME: Final = "batchTimestampMs"


class QueryEpochs:
    """The epochs of one query."""

    def __init__(self, run: Run, job: EpochJob) -> None:
        self._run = run
        self._job = job
        self._rows: DataFrame | None = None
        self.loop = EpochLoop(run, self._run_tasks, self._give_up)
        #: Whether Spark has rows of its own to read, so that it starts epochs that nobody planned.
        self._spark_sources = has_spark_sources(run.job.graph)
        self._planned: Offset | None = None
        #: What Spark has logged for the position; it is asked for data by being given another one.
        self._logged: Offset = run.position
        #: Spark has asked for an offset or run a micro-batch.
        self.touched = False
        #: The last epoch, of a bounded job or of one that is to stop, is committed and Spark has
        #: logged that.
        self.drained = threading.Event()
        #: The error that an epoch ended with: Spark's own keeps only its text.
        self.error: BaseException | None = None
        self._idle = threading.Event()
        self._idle.set()
        #: Gives up what Spark is running for the query; set once the query is known.
        self.cancel_jobs: Callable[[], None] = lambda: None

    def latest_offset(self) -> Offset:
        """Answer Spark's question how far the next epoch should read."""
        self.touched = True
        position = self._run.position
        if position["final"] or self._run.stop.is_asked:
            # Spark asks again only once it has logged the commit of the epoch before.
            self.drained.set()
            return position
        offset = self._run.planner.latest_offset(position)
        if offset is position:
            return self._logged
        self._planned = offset
        return offset

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """The body of ``foreachBatch``."""
        self.touched = True
        self._idle.clear()
        self._rows = rows
        try:
            stop = self._offset_of(batch)
            if not self._is_before_all(stop) and not self._is_overtaken(stop):
                self.loop.run_epoch(stop)
        except BaseException as error:  # noqa: BLE001 - told to Spark in short form
            self.error = error
            # Short: Spark looks for an interruption in this text with a regular expression that
            # overflows the stack of its thread on the hundreds of lines of a task's error.
            cause = original_error(error)
            kind = f"{type(cause).__module__}.{type(cause).__qualname__}"
            message = f"{kind}: {str(cause)[:_SHOWN_TO_SPARK]}"
            raise JobError(message) from None
        finally:
            self._idle.set()

    def wait_until_idle(self, seconds: float) -> None:
        """Wait until no epoch runs, at most so long."""
        self._idle.wait(seconds)

    def _run_tasks(self, plan: EpochPlan) -> list[TaskAck]:
        if self._rows is None:
            message = "a checkpoint on Spark is taken within a micro-batch"
            raise RuntimeError(message)
        return self._job.run(self._rows, plan)

    def _give_up(self) -> None:
        self.cancel_jobs()  # asked here, when it is known

    def _is_before_all(self, stop: Offset) -> bool:
        """Return whether nothing is planned yet: Spark's first micro-batch reads up to any offset.

        Even up to the one before the first epoch, which is all there is to say of sources that have
        nothing yet.
        """
        return cast("int", stop["epoch"]) < 0

    def _is_overtaken(self, stop: Offset) -> bool:
        """Whether another engine has continued since Spark logged the micro-batch that it replays.

        Spark's own runs publish the very offset that Spark has logged for an epoch, and none after
        it before Spark has logged the end of its micro-batch.
        """
        last = self._run.last
        if self._spark_sources or last is None or self._planned is not None:
            return False
        epoch = cast("int", stop["epoch"])
        overtaken = epoch < last.epoch or (epoch == last.epoch and stop != last.offsets)
        if overtaken:
            _LOG.info("checkpoint %d ran on another engine; Spark's replay of it is skipped", epoch)
        return overtaken

    def _offset_of(self, batch: int) -> Offset:
        """The offset that Spark logged for a micro-batch.

        Cases:

        1. This run planned it -> it is remembered.
        2. An older run did and Spark replays it -> it is read from Spark's offset log.
        3. Only a Spark DataFrame had new data -> Spark logged our last offset again, and the time
           of the micro-batch beside it, which is the epoch's.

        What can never happen: the micro-batch runs and its offset is not logged.
        """
        planned = self._planned
        if planned is not None and (not self._spark_sources or planned["epoch"] == batch):
            self._logged = planned
            return planned
        self._logged, time_of_batch = _read_offset(self._run.job.storage, batch)
        if self._logged["epoch"] == batch or not self._spark_sources:
            return self._logged
        moment = max(cast("int", self._logged["time"]), time_of_batch)
        return {**self._logged, "epoch": batch, "time": moment}


def require_one_history(
    storage: CheckpointStorage, last: Manifest | None, *, spark_sources: bool = False
) -> None:
    """Have Spark's offset log not be ahead of the manifests.

    Behind them it may be, for another engine may have gone on; but not if Spark has rows of its own
    to read: only its log says which rows an epoch has, so it would read those of an epoch that
    stands again, beside others, and they would be skipped as a replay.

    Raises:
        CorruptCheckpointError: the two are not of one history.
    """
    names = (name.rsplit("/", 1)[-1] for name in storage.list_names("spark/offsets"))
    batches = [int(name) for name in names if name.isdecimal()]
    newest = max(batches, default=-1)
    done = -1 if last is None else last.epoch
    # Spark logs a micro-batch before its epoch runs, and its numbers are those of the epochs.
    if spark_sources and newest not in {done, done + 1}:
        message = (
            f"Spark's offset log in {storage.location} ends with micro-batch {newest}, the manifest"
            f" log with checkpoint {done} (-1: there is none). Rows of Spark DataFrames would be"
            " lost or"
            " read twice. Put the directory back from one copy, or start with an empty one."
        )
        raise CorruptCheckpointError(message)
    if not batches:
        return
    logged = cast("int", _read_offset(storage, newest)[0]["epoch"])
    if logged > done + 1:
        message = (
            f"Spark has logged the offset of checkpoint {logged}, but the manifest log in"
            f" {storage.location} ends before checkpoint {done + 1}: checkpoints are missing. Put"
            " the directory back from one copy, or start with an empty one."
        )
        raise CorruptCheckpointError(message)


def _read_offset(storage: CheckpointStorage, batch: int) -> tuple[Offset, int]:
    """Return what Spark has logged for a micro-batch: our offset, and the time in milliseconds."""
    content = storage.read(f"spark/offsets/{batch}").decode()
    entries = [json.loads(line) for line in content.splitlines() if line.startswith("{")]
    moment = max((entry.get(_BATCH_TIME, 0) for entry in entries), default=0)
    for entry in entries:
        if "sources" in entry and "epoch" in entry:
            return entry, moment
    message = f"Spark's offset log has no Millstream offset for checkpoint {batch}:\n{content}"
    raise CheckpointError(message)


_CLASS: Final = "SplitSource"


class OffsetServer:
    """Answers the split source from within the driver.

    Args:
        initial: the offset before the first epoch.
        latest: called for the offset up to which the next epoch should read.
    """

    def __init__(self, initial: Offset, latest: Callable[[], Offset]) -> None:
        self._initial = initial
        self._latest = latest
        #: The error that planning raised; the driver prefers it to what Spark makes of it.
        self.error: Exception | None = None

    def apply(self, request: str) -> str:
        """Answer "initial" or "latest" with an offset as JSON; with nothing after an error.

        It is not raised here: py4j would log it, with its traceback, beside what the job says.
        """
        if request == "initial":
            return json.dumps(self._initial)
        try:
            return json.dumps(self._latest())
        except Exception as error:  # noqa: BLE001 - raised again by the driver
            self.error = error  # raised in the driver's loop
            return ""

    class Java:
        """What py4j makes of it."""

        implements: Final = ["java.util.function.Function"]


def split_rows(session: SparkSession, server: OffsetServer) -> DataFrame:
    """A stream without rows, whose offsets the server gives.

    Args:
        session: that runs the query.
        server: it must answer for as long as the query runs.
    """
    gateway: Any = session.sparkContext._gateway  # noqa: SLF001 - as foreachBatch does
    start: Any = ensure_callback_server_started  # which has no annotations
    start(gateway)
    jvm = gateway.jvm
    # The relation is taken from a source of Spark's: how one is made is different in each version.
    rate: Any = session.readStream.format("rate").load()._jdf.queryExecution().analyzed()  # noqa: SLF001
    arguments = gateway.new_array(jvm.java.lang.Object, rate.productArity())
    for index in range(rate.productArity()):
        arguments[index] = rate.productElement(index)
        if rate.productElementName(index) == "table":
            arguments[index] = _compiled(gateway, rate.table().schema(), server)
    relation = rate.makeCopy(arguments)
    dataset = jvm.org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(session._jsparkSession, relation), session)  # noqa: SLF001


def _compiled(gateway: Any, schema: Any, server: OffsetServer) -> Any:
    """The source as an object of the JVM."""
    # No method of it may be called from here: py4j remembers methods by the name of their class,
    # and each run has another class of this name.
    arguments = gateway.jvm.java.util.ArrayList()
    arguments.add(schema)
    arguments.add(server)
    return compiled(gateway, _CLASS).newInstance(arguments.toArray())


_POLL_SECONDS: Final = 0.02
#: As long as Spark waits for a query to stop (``spark.sql.streaming.stopTimeout``).
_STOP_SECONDS: Final = 30.0
#: How often a query is started whose Python process has not connected in time.  Millstream's own
#: source has none; a user's own Python data source, behind ``env.from_spark``, has.
_STARTS: Final = 4
#: What Spark says then.  It waits 10 s for the process, which cannot be changed.
_NOT_CONNECTED: Final = "failed to connect back"
#: What Spark says where two queries write one log: two drivers of a job, till the older one ends.
_CONCURRENT: Final = "CONCURRENT_STREAM_LOG_UPDATE"
#: What it says where both begin it at the same time.
_CONCURRENT_START: Final = "concurrently using metadata"
#: Longer than an older driver takes to notice that it is fenced.
_DISTURBED_SECONDS: Final = 3.0


def submit(job_graph: JobGraph, *, spark_dataframes: list[Any] | None = None) -> JobDriver:
    """Check a job and start it on Spark; raises as ``engines/registry.py`` says."""
    check_job(job_graph)  # before Spark starts, which takes seconds
    _require_directory(job_graph)
    session = get_session(job_graph.configuration)
    # Before anything is written: a session whose JVM is gone can run nothing.
    engine = SparkEngine(session, spark_dataframes or [], JavaProcess(session))
    return start_job(job_graph, engine)


def _require_directory(graph: JobGraph) -> None:
    """Refuse an object store where Spark itself keeps something beside the checkpoints.

    Raises:
        ConfigurationError: a source or sink of the job needs a file system there.
    """
    location = graph.configuration.get(options.CHECKPOINTS_DIRECTORY)
    if not is_object_store(location):
        return
    for node in graph.nodes.values():
        if node.spark_index is not None or isinstance(node.sink, DataFrameSink):
            message = (
                f"{node.kind} {node.name!r} ({node.location}): DataFrames of Spark need checkpoints"
                " on a file system that all machines share, and"
                f" {options.CHECKPOINTS_DIRECTORY.key} is {location}: Spark keeps its own log, and"
                " DataFrames that are not committed yet, beside them"
            )
            raise ConfigurationError(message)


class SparkEngine(Engine):
    """Runs a job on a Spark session."""

    def __init__(self, session: SparkSession, frames: list[DataFrame], java: JavaProcess) -> None:
        self._session = session
        self._frames = frames
        self._java = java
        #: A worker was lost in the run before.
        self._is_careful = False

    def most_subtasks(self) -> int:
        return int(self._session.sparkContext.defaultParallelism)

    def lost(self) -> EngineError | None:
        return self._java.lost()

    def original_error(self, error: BaseException) -> BaseException:
        return original_error(error)

    def one_line(self, error: BaseException) -> str:
        """The first line of Spark's hundreds."""
        return one_line(error)

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        job = run.job
        require_one_history(job.storage, run.last, spark_sources=has_spark_sources(job.graph))
        for start in range(1, _STARTS + 1):
            try:
                return self._run_query(run, cancelled)
            except _DisturbedQueryError as error:
                # If this is the older run, it ends; else the older one does, within seconds.
                if start == _STARTS or run.coordinator.is_fenced():
                    raise error.__cause__ or error from None
                _LOG.info("an older driver still writes to Spark's log: starting the query again")
                cancelled.wait(_DISTURBED_SECONDS)
                run.plan_again()
            except _UntouchedQueryError as error:
                if start == _STARTS:
                    raise error.__cause__ or error from None
                _LOG.warning(
                    "starting the query again (%d of %d): %s",
                    *(start, _STARTS - 1, one_line(error.__cause__ or error)),
                )
        return False

    def _run_query(self, run: Run, cancelled: threading.Event) -> bool:
        context = self._session.sparkContext
        graph = run.job.graph
        broadcast = context.broadcast(dumps_by_value(graph))
        careful, self._is_careful = self._is_careful, False
        epochs = QueryEpochs(run, EpochJob(graph, broadcast, careful=careful))
        with contextlib.ExitStack() as closing:
            closing.callback(forget_run, run.run_id)
            closing.callback(broadcast.unpersist)
            # A commit that is under way when the JVM ends goes on in its thread, and uses what the
            # end of the run closes.
            closing.callback(epochs.wait_until_idle, _STOP_SECONDS)
            server = OffsetServer(initial_offset(), epochs.latest_offset)
            try:
                query = self._start_query(run, epochs, server)
            except Exception as refused:
                if _CONCURRENT_START in str(refused):
                    raise _DisturbedQueryError from refused
                raise
            closing.callback(query.stop)
            closing.callback(epochs.loop.ending.set)
            # Spark runs the jobs of a query in the group of this name.
            run_id = str(query.runId)
            epochs.cancel_jobs = lambda: context.cancelJobGroup(run_id)
            fence = FenceWatch(run.coordinator)
            while query.isActive and not cancelled.is_set() and not epochs.drained.is_set():
                epochs.drained.wait(_POLL_SECONDS)
                fence.check()
            if epochs.drained.is_set():
                return True
            if cancelled.is_set():
                return False
            error = epochs.error or server.error
            if error is not None:
                self._require_workers(run, error)
                raise error
            failure = query.exception() or JobError("query ended")
            if not epochs.touched and _NOT_CONNECTED in str(failure):
                raise _UntouchedQueryError from failure
            if _CONCURRENT in str(failure):
                raise _DisturbedQueryError from failure
            raise failure

    def _require_workers(self, run: Run, error: BaseException) -> None:
        """Raise what a worker did last, if the error is that it has ended."""
        if is_worker_lost(error):
            self._is_careful = True
            message = (
                "a Python worker of Spark was killed or has crashed; the log of its executor may"
                f" show why{last_of_run(run.run_id)}"
            )
            raise WorkerLostError(message) from error

    def _start_query(self, run: Run, epochs: QueryEpochs, server: OffsetServer) -> StreamingQuery:
        job, session = run.job, self._session
        with streaming_options(session):
            rows = split_rows(session, server)
            parallelism = job.graph.stages[0].parallelism
            for node in job.graph.nodes.values():
                if node.spark_index is not None:
                    frame = self._frames[node.spark_index]
                    packed = spark_source_frame(frame, node.id, parallelism)
                    rows = rows.unionByName(packed, allowMissingColumns=True)
            return (
                rows.writeStream.foreachBatch(epochs)
                .trigger(processingTime=f"{job.interval} milliseconds")
                .option("checkpointLocation", str(_log_directory(job)))
                .start()
            )


def _log_directory(job: Job) -> Path:
    """The directory of Spark's own log.

    Millstream's manifests say where a job continues, so a log that is behind them, or empty, will
    do, unless it is the only place that knows what was read of Spark DataFrames.
    """
    # Spark would make it for everybody to read.
    directory = job.storage.directory("spark")
    if directory is None:
        return Path(tempfile.mkdtemp(prefix="spark-log-", dir=run_directory().path))
    return directory


class _DisturbedQueryError(Exception):
    """A query met what the query of another driver had written into the same log of Spark's."""


class _UntouchedQueryError(Exception):
    """A query ended before it had asked for an offset: nothing was planned, nothing was read."""
