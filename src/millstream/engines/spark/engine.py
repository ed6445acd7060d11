"""The engine on Spark: a run is a Structured Streaming query, an epoch one of its micro-batches.

What it is: Spark's part of a job: the session, the JVM's health, the start and the end of a query.
What it is not: the life of the job around it, which is ``execution/driver.py``, nor what a
micro-batch does (``engines/spark/query.py``).

Read next: ``engines/spark/query.py``, ``engines/spark/epoch_job.py``.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.engines.spark.epoch_job import (
    EpochJob,
    has_spark_sources,
    spark_source_frame,
)
from millstream.engines.spark.errors import has_lost_worker, in_a_line, original_error
from millstream.engines.spark.java_process import JavaProcess
from millstream.engines.spark.query import QueryEpochs, require_one_history
from millstream.engines.spark.session import get_session, streaming_options
from millstream.engines.spark.split_source import OffsetServer, split_rows
from millstream.errors import JobError, WorkerLostError
from millstream.execution.driver import check_job, start_job
from millstream.execution.engine import Engine
from millstream.execution.fence_watch import FenceWatch
from millstream.execution.offsets import initial_offset
from millstream.runtime.last_given import last_of_run
from millstream.types.pickling import dumps_by_value

if TYPE_CHECKING:
    import threading

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from millstream.errors import EngineError
    from millstream.execution.driver import JobDriver
    from millstream.execution.run import Run
    from millstream.graph.model import JobGraph

__all__ = ["SparkEngine", "submit"]

_LOG: Final = logging.getLogger("millstream")
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
#: Longer than an older driver takes to notice that it is fenced.
_DISTURBED_SECONDS: Final = 3.0


def submit(job_graph: JobGraph, *, spark_dataframes: list[Any] | None = None) -> JobDriver:
    """Check a job and start it on Spark.

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
    check_job(job_graph)  # before Spark starts, which takes seconds
    session = get_session(job_graph.configuration)
    # Before anything is written: a session whose JVM is gone can run nothing.
    engine = SparkEngine(session, spark_dataframes or [], JavaProcess(session))
    return start_job(job_graph, engine)


class SparkEngine(Engine):
    """Runs a job on a Spark session.

    Args:
        session: the session.
        frames: the DataFrames of ``env.from_spark``, by their ``spark_index``.
        java: the session's JVM.
    """

    def __init__(self, session: SparkSession, frames: list[DataFrame], java: JavaProcess) -> None:
        self._session = session
        self._frames = frames
        self._java = java
        #: A worker was lost in the run before.
        self._is_careful = False

    def lost(self) -> EngineError | None:
        """The error to end with if the JVM is gone."""
        return self._java.lost()

    def original_error(self, error: BaseException) -> BaseException:
        """What a task raised, out of Spark's text."""
        return original_error(error)

    def in_a_line(self, error: BaseException) -> str:
        """The first line of Spark's hundreds."""
        return in_a_line(error)

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        """Run queries until one ends that has asked for data."""
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
                    *(start, _STARTS - 1, in_a_line(error.__cause__ or error)),
                )
        return False

    def _run_query(self, run: Run, cancelled: threading.Event) -> bool:
        context = self._session.sparkContext
        graph = run.job.graph
        broadcast = context.broadcast(dumps_by_value(graph))
        careful, self._is_careful = self._is_careful, False
        epochs = QueryEpochs(run, EpochJob(graph, broadcast, careful=careful))
        with contextlib.ExitStack() as closing:
            closing.callback(broadcast.unpersist)
            # A commit that is under way when the JVM ends goes on in its thread, and uses what the
            # end of the run closes.
            closing.callback(epochs.wait_until_idle, _STOP_SECONDS)
            server = OffsetServer(initial_offset(), epochs.latest_offset)
            query = self._start_query(run, epochs, server)
            closing.callback(query.stop)
            closing.callback(epochs.loop.ending.set)
            # Spark runs the jobs of a query in the group of this name.
            run_id = str(query.runId)
            epochs.cancel_jobs = lambda: context.cancelJobGroup(run_id)
            fence = FenceWatch(run.coordinator)
            while query.isActive and not cancelled.is_set() and not epochs.drained.is_set():
                epochs.drained.wait(_POLL_SECONDS)
                fence.look()
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
        if has_lost_worker(error):
            self._is_careful = True
            message = (
                "a Python worker of Spark was killed or has crashed; the log of its executor may"
                f" say why{last_of_run(run.run_id)}"
            )
            raise WorkerLostError(message) from error

    def _start_query(self, run: Run, epochs: QueryEpochs, server: OffsetServer) -> StreamingQuery:
        job, session = run.job, self._session
        # Spark would make it for everybody to read.
        job.storage.make_directory("spark")
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
                .option("checkpointLocation", str(Path(job.storage.location) / "spark"))
                .start()
            )


class _DisturbedQueryError(Exception):
    """A query met what the query of another driver had written into the same log of Spark's."""


class _UntouchedQueryError(Exception):
    """A query ended before it had asked for an offset: nothing was planned, nothing was read."""
