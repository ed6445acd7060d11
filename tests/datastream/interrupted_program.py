"""A program whose job never ends by itself, run without Spark: ``interrupted_program.py MODE GO``.

The modes are ways to wait for the job, or not to.  The job ends once the file GO exists.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.checkpoint.commit import PendingCommits
from millstream.checkpoint.savepoint import SavepointFormatType
from millstream.common import Types
from millstream.datastream import JobExecutionResult, JobStatus, StreamExecutionEnvironment
from millstream.datastream.environment import execution_context
from millstream.errors import JobError, ProgramError
from millstream.execution.monitor import JobStart
from millstream.state.query import StateQueryResult
from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph
    from millstream.metrics.progress import OperatorTime

MODE, GO = sys.argv[1], Path(sys.argv[2])


class MiniClient:
    """A job on a MiniCluster, in a thread."""

    def __init__(self, graph: JobGraph) -> None:
        self.status = JobStatus.RUNNING
        self.error: JobError | None = None
        self.cancelled = threading.Event()
        self.ended = threading.Event()
        self.cluster = MiniCluster(graph, limits=iter(lambda: 10, None))
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        while not self.cancelled.is_set() and not GO.exists():
            self.cluster.run_epoch()
            print("running", flush=True)
        if MODE == "failing":
            self.error = JobError("what went wrong")
        self.status = JobStatus.CANCELED if self.cancelled.is_set() else JobStatus.FINISHED
        self.ended.set()

    def get_job_id(self) -> str:
        return self.cluster.job_id

    def get_job_status(self) -> JobStatus:
        return self.status

    def cancel(self) -> None:
        self.cancelled.set()
        self.ended.wait()

    def stop(self, *, drain: bool = False) -> str:
        raise ProgramError("drain" if drain else "stop")

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        del format_type
        return self.stop(drain=drain or directory is None)

    def trigger_savepoint(
        self,
        directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        raise ProgramError(directory or format_type.value)

    def query_state(self, uid: str, state: str, key: object) -> StateQueryResult:
        return StateQueryResult(1, 2, (uid, state, key))

    def get_job_execution_result(self) -> JobExecutionResult:
        while not self.ended.wait(0.2):
            pass
        if self.error is not None:
            raise self.error
        return JobExecutionResult(self.get_job_id(), "endless", 0)

    def get_accumulators(self) -> dict[str, object]:
        return {}

    def get_metrics(self) -> dict[str, object]:
        return {}

    def get_last_checkpoint(self) -> None:
        return None

    def get_start(self) -> JobStart:
        return JobStart("job", "")

    def get_pending_commits(self) -> PendingCommits:
        return PendingCommits()

    def get_watermarks(self) -> dict[str, OperatorTime]:
        return {}


def submit(job_graph: JobGraph, *, spark_dataframes: list[object]) -> MiniClient:
    del spark_dataframes
    return MiniClient(job_graph)


def main() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    stream = env.from_sequence(0, 10**9).map(lambda n: n, Types.LONG())
    if MODE in {"collect", "leave"}:
        records = stream.filter(lambda n: n == 0).execute_and_collect("endless")
        try:
            for record in records:
                print("got", record, flush=True)
                if MODE == "leave":
                    return
        except KeyboardInterrupt:
            print("jobs left:", env.get_jobs())
        return
    stream.print()
    if MODE == "execute":
        try:
            env.execute("endless")
        except KeyboardInterrupt:
            print("jobs left:", env.get_jobs())
        return
    client = env.execute_async("endless")
    assert env.get_jobs() == [client]
    print("the program ends", flush=True)
    if MODE == "raising":
        message = "a bug of the program"
        raise ValueError(message)


with execution_context(submitter=submit):
    main()
