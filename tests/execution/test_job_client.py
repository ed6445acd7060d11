"""JobClient answers with futures: of what is there, and of what somebody has to wait for."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError

import pytest

from millstream.checkpoint.commit import PendingCommits
from millstream.errors import JobError
from millstream.execution.job_client import (
    CompletableFuture,
    JobClient,
    JobExecutionResult,
    JobID,
    JobStatus,
)
from millstream.execution.monitor import JobStart

DEADLINE = 30


class Job:
    """A job that ends when it is told to."""

    def __init__(self) -> None:
        self.status = JobStatus.RUNNING
        self.error: JobError | None = None
        self.over = threading.Event()
        self.asked = 0

    def end(self, status: JobStatus) -> None:
        self.status = status
        self.over.set()

    def get_job_id(self) -> str:
        return "abc"

    def get_job_status(self) -> JobStatus:
        return self.status

    def cancel(self) -> None:
        self.status = JobStatus.CANCELLING
        assert self.over.wait(DEADLINE)
        self.status = JobStatus.CANCELED

    def get_job_execution_result(self) -> JobExecutionResult:
        self.asked += 1
        assert self.over.wait(DEADLINE)
        if self.error is not None:
            raise self.error
        return JobExecutionResult(
            "abc", "numbers", 12, {"n": 3, "x.numRecordsIn": 5}, frozenset({"n"})
        )

    def get_accumulators(self) -> dict[str, object]:
        return {"n": 3}

    def get_metrics(self) -> dict[str, object]:
        return {"n": 4}

    def get_last_checkpoint(self) -> None:
        return None

    def get_start(self) -> JobStart:
        return JobStart("numbers", "/checkpoints")

    def get_pending_commits(self) -> PendingCommits:
        return PendingCommits()

    def get_watermarks(self) -> dict[str, object]:
        return {}


@pytest.fixture
def job() -> Job:
    return Job()


@pytest.fixture
def client(job: Job) -> JobClient:
    return JobClient(job)  # type: ignore[arg-type]


def test_status_and_accumulators_are_those_of_now(job: Job, client: JobClient) -> None:
    before = client.get_job_status()
    job.status = JobStatus.RESTARTING
    assert (before.done(), before.result()) == (True, JobStatus.RUNNING)
    assert client.get_job_status().result() is JobStatus.RESTARTING
    assert client.get_accumulators().result() == {"n": 3}
    assert not client.get_start().continues
    assert str(before) == "CompletableFuture[completed normally]"
    assert before.exception() is None
    assert not before.cancel()


def test_the_result_comes_with_the_end(job: Job, client: JobClient) -> None:
    future = client.get_job_execution_result()
    assert not future.done()
    assert str(future) == "CompletableFuture[not completed]"
    job.end(JobStatus.FINISHED)
    result = future.result()
    assert future.done()
    assert client.get_job_execution_result().result() is result
    assert job.asked == 1
    assert (result.get_job_id(), result.get_net_runtime()) == ("abc", 12)
    assert result.get_accumulator_result("n") == 3
    assert result.get_accumulator_result("m") is None
    assert str(result) == (
        "Program execution finished\nJob with JobID abc has finished.\nJob Runtime: 12 ms\n"
        "Accumulator Results:\n- n: 3"
    )


def test_the_result_of_a_failed_job_raises(job: Job, client: JobClient) -> None:
    job.error = JobError("no room")
    future = client.get_job_execution_result()
    assert future.exception() is None
    job.end(JobStatus.FAILED)
    with pytest.raises(JobError, match="no room"):
        future.result()
    assert future.exception() is job.error
    assert "completed exceptionally: JobError('no room')" in str(future)


def test_cancel_returns_at_once_and_its_future_when_the_job_has_stopped(
    job: Job, client: JobClient
) -> None:
    future = client.cancel()
    assert not future.done()
    job.end(JobStatus.CANCELLING)
    future.result()
    assert client.get_job_status().result() is JobStatus.CANCELED


def test_a_cancelled_future_leaves_the_job_alone(job: Job, client: JobClient) -> None:
    future = client.get_job_execution_result()
    assert future.cancel()
    assert (future.cancelled(), future.done(), future.exception()) == (True, True, None)
    assert job.status is JobStatus.RUNNING
    with pytest.raises(CancelledError):
        future.result()
    assert str(future) == "CompletableFuture[cancelled]"
    job.end(JobStatus.FINISHED)


def test_a_timeout_that_the_call_raised_is_its_error() -> None:
    def fail() -> None:
        message = "the server does not answer"
        raise TimeoutError(message)

    with pytest.raises(TimeoutError, match="does not answer"):
        CompletableFuture.supply_async(fail).result()


def test_a_job_id_is_text(client: JobClient) -> None:
    job_id = client.get_job_id()
    assert isinstance(job_id, JobID)
    assert (job_id, str(job_id), f"{job_id}/table") == ("abc", "abc", "abc/table")
