"""The pipelined engine on Spark: its slots are the tasks of a barrier stage.

What it is: Spark's part of such a job: the session, the JVM's health, the host of the slots.
What it is not: the engine (``engines/pipelined/engine.py``), which is the same wherever slots live.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.configuration import options
from millstream.engines.pipelined.engine import PipelinedEngine, require_pipelined, slots_of
from millstream.engines.spark.errors import in_a_line
from millstream.engines.spark.java import JavaProcess
from millstream.engines.spark.session import get_session, why_never
from millstream.engines.spark.slots import SparkSlotHost
from millstream.errors import EngineError
from millstream.execution.driver import check_job, start_job

if TYPE_CHECKING:
    from millstream.execution.driver import JobDriver
    from millstream.graph.model import JobGraph


def submit(job_graph: JobGraph, *, spark_dataframes: list[Any] | None = None) -> JobDriver:
    """Check a job and start it in slots on Spark.

    Args:
        job_graph: the job.
        spark_dataframes: of ``env.from_spark``, which needs epochs.

    Returns:
        A handle; the job runs in a thread of this process, its tasks on Spark's executors.

    Raises:
        ProgramError: the program reads a Spark DataFrame.
        EngineError: Spark can never run all slots of the job side by side.
        SourceError, SinkError, ConfigurationError, CheckpointError, DirectoryError,
        UnpicklableFunctionError:
            the job cannot run as it is; nothing was written.
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
    """Runs a job in slots on a Spark session.

    Args:
        slots: how many the job has.
        host: starts them.
        java: the session's JVM.
    """

    def __init__(self, slots: int, host: SparkSlotHost, java: JavaProcess) -> None:
        super().__init__(slots, host)
        self._java = java

    def lost(self) -> EngineError | None:
        """The error to end with if the JVM is gone."""
        return self._java.lost()

    def in_a_line(self, error: BaseException) -> str:
        """The first line of Spark's hundreds."""
        return in_a_line(error)
