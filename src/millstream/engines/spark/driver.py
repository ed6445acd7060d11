"""The life of a job: submit, run, restart, finish.

What it is: checks the job before anything is written, then runs it in a thread: each run takes
the job over (fencing), recovers, starts a Structured Streaming query and waits for its end; the
restart strategy decides what follows a failure.
What it is not: the work of an epoch, which is in ``engines/spark/epoch_driver.py``.

Read next: ``engines/spark/epoch_driver.py``, ``checkpoint/coordinator.py``.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

import cloudpickle

from millstream import crash_points
from millstream.checkpoint.commit import CommitRetry, PendingCommits
from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.job_directories import JobDirectories, check_directories
from millstream.checkpoint.job_identity import JobIdentity
from millstream.checkpoint.program import labelled, labels
from millstream.configuration import options
from millstream.configuration.checkpointing_mode import CheckpointingMode
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP
from millstream.engines.spark.epoch_driver import EpochDriver, EpochSettings
from millstream.engines.spark.epoch_job import EpochJob, spark_source_frame
from millstream.engines.spark.errors import in_a_line, original_error
from millstream.engines.spark.java_process import JavaProcess
from millstream.engines.spark.session import get_session, streaming_options
from millstream.engines.spark.split_source import OffsetServer, SplitSource
from millstream.errors import (
    DirectoryError,
    EngineError,
    FencedError,
    JobError,
    MillstreamError,
    ProgramError,
    SinkError,
    SourceError,
    UserFunctionError,
)
from millstream.execution.job_client import JobExecutionResult, JobStatus
from millstream.execution.offsets import initial_offset
from millstream.execution.planner import SourcePlanner, plan_sources
from millstream.execution.restart import restart_strategy
from millstream.execution.restored_program import claim_directory, fit, program_of
from millstream.execution.ship_files import ship_files
from millstream.execution.split_log import SplitLog
from millstream.graph.explain import guarantee_words
from millstream.graph.guarantee import sink_guarantees
from millstream.graph.job_files import job_files_of
from millstream.graph.validation import validate_connectors
from millstream.metrics.event_time import EventTimeReader, describe
from millstream.metrics.progress import create_progress_reporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.checkpoint.model import Manifest, TaskAck
    from millstream.contracts.key_value_store import StateHandle
    from millstream.graph.model import JobGraph
    from millstream.metrics.event_time import OperatorTime
    from millstream.metrics.progress import ProgressReporter

__all__ = ["SparkJobClient", "submit"]

_LOG: Final = logging.getLogger("millstream")
_POLL_SECONDS: Final = 0.02
#: As long as Spark waits for a query to stop (``spark.sql.streaming.stopTimeout``).
_STOP_SECONDS: Final = 30.0


def submit(
    job_graph: JobGraph, *, spark_dataframes: list[DataFrame] | None = None
) -> SparkJobClient:
    """Check a job and start it.

    Args:
        job_graph: the job.
        spark_dataframes: the DataFrames of ``env.from_spark``, by their ``spark_index``.

    Returns:
        A handle; the job runs in a thread of this process.

    Raises:
        SourceError, SinkError, ConfigurationError, CheckpointError, DirectoryError,
        UnpicklableFunctionError:
            the job cannot run as it is; nothing was written.
    """
    validate_connectors(job_graph)
    for each in sink_guarantees(job_graph):
        _LOG.info("%s: %s", job_graph.nodes[each.node].name, guarantee_words(each))
    if crash_points.ENVIRONMENT_VARIABLE in os.environ:
        # Workers inherit it from the JVM, so it is set before that starts.
        os.environ[crash_points.GROUP_VARIABLE] = str(os.getpgrp())
    check_directories(job_graph.configuration)  # before Spark starts, which takes seconds
    job_files_of(job_graph.configuration)
    session = get_session(job_graph.configuration)
    # Before anything is written: a session whose JVM is gone can run nothing.
    java = JavaProcess(session)
    job = _Job(job_graph, session, spark_dataframes or [], java)
    client = SparkJobClient(job)
    client.start()
    return client


#: Errors whose message names what is wrong and where.
_PLAIN_ERRORS: Final = (
    *(DirectoryError, EngineError, UserFunctionError, ProgramError, SourceError, SinkError),
)


class _Job:
    """What is fixed when a job is submitted."""

    def __init__(
        self,
        graph: JobGraph,
        session: SparkSession,
        frames: list[DataFrame],
        java: JavaProcess,
    ) -> None:
        self.graph = graph
        self.session = session
        self.frames = frames
        self.java = java
        self.directories = directories = JobDirectories.of(graph.configuration)
        #: Without a checkpoint directory the job is exactly-once for as long as this process
        #: lives; the temporary one is deleted at the end.
        self.temporary = directories.temporary
        self.fsync = graph.configuration.get(options.CHECKPOINT_FSYNC) and not self.temporary
        self.storage = directories.storage
        self.job_id = claim_directory(self.storage, graph)
        #: What people are shown of operators, by uid.
        self.labels = labels(program_of(graph))
        self.local_root = directories.local / self.job_id
        graph.files = ship_files(graph.configuration, self.storage, self.local_root)
        self.event_time = EventTimeReader(graph)
        #: The last checkpoint, for whoever asks.
        self.last: Manifest | None = None
        #: That of the current run; None before the first.
        self.coordinator: Coordinator | None = None

    def new_coordinator(
        self, on_pending: Callable[[PendingCommits], None] = lambda _: None
    ) -> Coordinator:
        """A coordinator for one run; ``on_pending`` as for ManifestCommit."""
        configuration = self.graph.configuration
        committers = {}
        for node in self.graph.nodes.values():
            committer = None if node.sink is None else node.sink.create_committer()
            if committer is not None:
                committers[node.uid] = committer
        return Coordinator(
            self.storage,
            self.job_id,
            committers,
            configuration.get(options.NUM_RETAINED),
            mode=CheckpointingMode[configuration.get(options.CHECKPOINTING_MODE)],
            retry=CommitRetry.exponential(
                configuration.get(options.COMMIT_RETRY_INITIAL),
                configuration.get(options.COMMIT_RETRY_MAXIMUM),
                configuration.get(options.COMMIT_RETRY_ATTEMPTS),
            ),
            commit_timeout=configuration.get(options.COMMIT_TIMEOUT) / 1000,
            labels=self.labels,
            on_pending=on_pending,
        )

    def clean_up(self, *, finished: bool) -> None:
        """Delete what nobody needs after the end."""
        if finished or self.temporary:
            shutil.rmtree(self.local_root, ignore_errors=True)
        if self.temporary:
            if not finished:
                self._settle()
            shutil.rmtree(self.storage.location, ignore_errors=True)

    def _settle(self) -> None:
        """Commit what is published, drop the rest: no run can follow that would do so.

        A transaction that is left prepared holds its locks for ever.  What fails here must not
        hide what the job failed of.
        """
        coordinator = self.new_coordinator()
        try:
            coordinator.open()
            coordinator.recover()
        except (MillstreamError, OSError):
            _LOG.warning(
                "job %r may leave output pre-committed", self.graph.job_name, exc_info=True
            )
        finally:
            coordinator.close()


class SparkJobClient:
    """The JobHandle of a job on Spark."""

    def __init__(self, job: _Job) -> None:
        self._job = job
        self._status = JobStatus.CREATED
        self._error: BaseException | None = None
        self._cancelled = threading.Event()
        self._ended = threading.Event()
        self._totals: dict[str, object] = {}
        self._started = time.monotonic()
        self._seconds = 0.0
        self._thread = threading.Thread(target=self._main, name="millstream-job", daemon=True)

    def start(self) -> None:
        """Begin to run, in a thread."""
        self._thread.start()

    def get_job_id(self) -> str:
        """The id of the job, the same after every restart on the same checkpoint directory."""
        return self._job.job_id

    def get_job_status(self) -> JobStatus:
        """Where the job is."""
        return self._status

    def get_accumulators(self) -> dict[str, object]:
        """Totals so far, by "operator.metric": the uid that the program gives, else the name."""
        return dict(self._totals)

    def get_watermarks(self) -> dict[str, OperatorTime]:
        """The event time of each operator at the last checkpoint, by uid; empty before it."""
        last = self._job.last
        if last is None:
            return {}
        return {time.uid: time for time in self._job.event_time.read(last)}

    def get_pending_commits(self) -> PendingCommits:
        """What is published and not committed yet by the current run."""
        coordinator = self._job.coordinator
        return PendingCommits() if coordinator is None else coordinator.pending_commits

    def cancel(self) -> None:
        """Stop the job; the epoch that runs is given up and its output aborted by the next run."""
        self._cancelled.set()
        if not self._status.is_terminal_state():
            self._status = JobStatus.CANCELLING
        self._ended.wait()

    def get_job_execution_result(self) -> JobExecutionResult:
        """Wait for the end.

        Raises:
            JobError: the job failed; the cause is chained.
        """
        # Waking up now and then lets the main thread take a keyboard interrupt.
        while not self._ended.wait(0.2):
            pass
        if self._error is not None:
            if isinstance(self._error, MillstreamError):
                raise self._error
            message = f"job {self._job.graph.job_name!r} failed: {self._error}"
            raise JobError(message) from self._error
        return JobExecutionResult(
            job_id=self._job.job_id,
            job_name=self._job.graph.job_name,
            net_runtime=int(self._seconds * 1000),
            accumulators=self.get_accumulators(),
        )

    # -- the thread ----------------------------------------------------------------------------

    def _main(self) -> None:
        finished = False
        try:
            finished = self._run_until_over()
            self._status = JobStatus.FINISHED if finished else JobStatus.CANCELED
        except BaseException as error:  # noqa: BLE001 - raised to whoever asks for the result
            self._error = error
            self._status = JobStatus.FAILED
        finally:
            self._seconds = time.monotonic() - self._started
            self._job.clean_up(finished=finished)
            self._ended.set()

    def _run_until_over(self) -> bool:
        """Run, and run again as the restart strategy allows; True when the job has finished."""
        configuration = self._job.graph.configuration
        checkpointing = (configuration.get(options.CHECKPOINTING_INTERVAL) or 0) > 0
        strategy = restart_strategy(configuration, checkpointing=checkpointing)
        progress = create_progress_reporter(
            self._job.graph.job_name, configuration.get(options.PROGRESS)
        )
        try:
            while not self._cancelled.is_set():
                run = _Run(self._job, progress, self._totals, strategy.on_progress)
                self._status = JobStatus.RUNNING
                try:
                    return run.execute(self._cancelled)
                except FencedError:
                    raise  # a newer run has the job: starting again would fence it in turn
                except Exception as error:
                    if self._cancelled.is_set():
                        _LOG.debug("the cancelled job ended with an error", exc_info=error)
                        return False
                    cause = original_error(error)
                    cause = self._job.directories.failure(cause) or cause
                    delay = strategy.next_delay(time.monotonic(), cause)
                    if delay is None:
                        _LOG.debug("what Spark says of it", exc_info=error)
                        # Errors of the user's say all there is; Spark's hundreds of lines about
                        # them would hide that.
                        if isinstance(cause, _PLAIN_ERRORS):
                            raise cause from None
                        raise cause from error
                    self._status = JobStatus.RESTARTING
                    line = in_a_line(cause)
                    _LOG.debug("what Spark says of it", exc_info=error)
                    _LOG.warning("restarting in %.1f s after: %s", delay, line)
                    progress.update_failure(line)
                    self._cancelled.wait(delay)
            return False
        finally:
            # Who has interrupted it has a prompt in that line.
            progress.close(clear=self._cancelled.is_set())


class _Run:
    """One run: from taking the job over to the end of its query."""

    def __init__(
        self,
        job: _Job,
        progress: ProgressReporter,
        totals: dict[str, object],
        on_progress: Callable[[], None],
    ) -> None:
        self._job = job
        self._progress = progress
        self._totals = totals
        self._on_progress = on_progress
        self._records = 0

    def execute(self, cancelled: threading.Event) -> bool:
        """Run until the job is over (True) or cancelled (False); raises if it failed."""
        job = self._job
        # Before the generation: a run that cannot do anything must not stop one that can.
        job.java.require()
        coordinator = job.new_coordinator(self._pending)
        job.coordinator = coordinator
        sources = [node.source for node in job.graph.nodes.values() if node.source is not None]
        started = []
        try:
            JobIdentity.require(job.storage, job.job_id)
            coordinator.open()
            last = coordinator.recover()
            fit(job.graph, job.storage, last)
            if last is not None:
                self._count(last)
                job.last = last
                if last.final:
                    _LOG.info("job %r has finished before", job.graph.job_name)
                    return True
            for source in sources:
                source.start()
                started.append(source)
            return self._run_query(coordinator, cancelled)
        except Exception as error:
            lost = job.java.lost()
            if lost is not None:
                raise lost from error
            if not isinstance(error, FencedError) and coordinator.is_fenced():
                message = (
                    f"a newer run has taken job {job.graph.job_name!r} over, so this one does not "
                    f"start again after: {original_error(error)}"
                )
                raise FencedError(message) from error
            raise
        finally:
            for source in started:
                source.stop()
            coordinator.close()

    def _run_query(self, coordinator: Coordinator, cancelled: threading.Event) -> bool:
        job = self._job
        graph_bytes = cloudpickle.dumps(job.graph)
        broadcast = job.session.sparkContext.broadcast(graph_bytes)
        driver = EpochDriver(
            job.graph,
            EpochJob(job.graph, broadcast),
            coordinator,
            self._planner(),
            self._settings(),
            self._epoch_done,
        )
        with contextlib.ExitStack() as closing:
            closing.callback(broadcast.unpersist)
            # A commit that is under way when the JVM ends goes on in its thread, and uses what the
            # end of the run closes.
            closing.callback(driver.wait_until_idle, _STOP_SECONDS)
            server = OffsetServer(initial_offset(), driver.latest_offset)
            closing.callback(server.close)
            query = self._start_query(driver, server)
            closing.callback(query.stop)
            closing.callback(driver.ending.set)
            # Spark runs the jobs of a query in the group of this name.
            run_id = str(query.runId)
            driver.cancel_jobs = lambda: job.session.sparkContext.cancelJobGroup(run_id)
            while query.isActive and not cancelled.is_set() and not driver.drained.is_set():
                driver.drained.wait(_POLL_SECONDS)
            if driver.drained.is_set():
                return True
            if cancelled.is_set():
                return False
            raise driver.error or server.error or query.exception() or JobError("query ended")

    def _planner(self) -> SourcePlanner:
        job, configuration = self._job, self._job.graph.configuration
        planned = plan_sources(job.graph)
        target = configuration.get(options.TARGET_EPOCH_DURATION) / 1000
        return SourcePlanner(
            planned,
            SplitLog(job.storage),
            target_seconds=max(target, self._interval() / 1000),
            tick_interval=configuration.get(options.TICK_INTERVAL),
            wakes=any(node.needs_processing_time for node in job.graph.nodes.values()),
            retained=configuration.get(options.NUM_RETAINED),
            min_pause=configuration.get(options.CHECKPOINTING_MIN_PAUSE),
        )

    def _settings(self) -> EpochSettings:
        job = self._job
        return EpochSettings(
            job_id=job.job_id,
            run_id=uuid.uuid4().hex,
            storage=job.storage,
            local_root=str(job.local_root),
            state_backend=job.graph.configuration.get(options.STATE_BACKEND),
            fsync=job.fsync,
            timeout=job.graph.configuration.get(options.CHECKPOINTING_TIMEOUT) / 1000,
        )

    def _interval(self) -> int:
        return self._job.graph.configuration.get(options.CHECKPOINTING_INTERVAL) or 0

    def _start_query(self, driver: EpochDriver, server: OffsetServer) -> StreamingQuery:
        job = self._job
        # Spark would make it for everybody to read.
        job.storage.make_directory("spark")
        with streaming_options(job.session):
            job.session.dataSource.register(SplitSource)
            rows = (
                job.session.readStream.format(SplitSource.name())
                .option("socket", server.address)
                .load()
            )
            parallelism = job.graph.stages[0].parallelism
            for node in job.graph.nodes.values():
                if node.spark_index is not None:
                    frame = job.frames[node.spark_index]
                    packed = spark_source_frame(frame, node.id, parallelism)
                    rows = rows.unionByName(packed, allowMissingColumns=True)
            return (
                rows.writeStream.foreachBatch(driver)
                .trigger(processingTime=f"{self._interval()} milliseconds")
                .option("checkpointLocation", str(Path(job.storage.location) / "spark"))
                .start()
            )

    # -- after each epoch ----------------------------------------------------------------------

    def _count(self, manifest: Manifest) -> None:
        self._totals.clear()
        self._totals.update(labelled(manifest.totals, self._job.labels))
        self._records = sum(
            manifest.totals.get(f"{node.uid}.numRecordsIn", 0)
            for node in self._job.graph.nodes.values()
            if node.kind == "source"
        )

    def _epoch_done(self, manifest: Manifest, acks: list[TaskAck], seconds: float) -> None:
        self._count(manifest)
        self._job.last = manifest
        self._on_progress()
        records = sum(split.records for ack in acks for split in ack.splits)
        self._progress.update(
            manifest.epoch,
            self._records,
            records / seconds if seconds else 0.0,
            self._watermark(manifest),
            sum(_uploaded(ack.state) for task in acks for ack in task.operators),
            seconds,
            describe(self._job.event_time.read(manifest), self._job.labels),
        )

    def _pending(self, pending: PendingCommits) -> None:
        seconds = pending.age(time.time_ns() // 1_000_000) / 1000
        self._progress.update_pending(pending.committables, seconds)

    def _watermark(self, manifest: Manifest) -> int:
        """The smallest watermark behind the first exchange, or of the splits if there is none."""
        graph = self._job.graph
        later = [graph.nodes[node].uid for stage in graph.stages[1:] for node in stage.nodes]
        found = [ack.watermark for uid in later for ack in manifest.operators.get(uid, [])]
        if not found:
            splits = [state for many in manifest.splits.values() for state in many.values()]
            found = [state.watermark for state in splits if not state.finished]
        return min(found, default=MAX_TIMESTAMP if manifest.final else MIN_TIMESTAMP)


def _uploaded(handle: StateHandle | None) -> int:
    """Bytes of a snapshot that its epoch uploaded; the other files are those of older ones."""
    if handle is None:
        return 0
    return sum(file["size"] for file in handle["files"] if handle["id"] in file["remote"])
