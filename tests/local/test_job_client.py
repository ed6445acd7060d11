"""The futures and metrics of a job that really runs, and restarts by its failure rate."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.datastream import (
    JobStatus,
    MapFunction,
    RestartStrategies,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import JobError, UserFunctionError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]


class Measured(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        group = runtime_context.get_metrics_group()
        self.values = group.distribution("values")
        subtask = runtime_context.get_index_of_this_subtask()
        group.gauge("subtask", lambda: subtask)

    def map(self, value: Any) -> Any:
        self.values.update(value)
        return value


def test_a_running_job_answers_and_is_cancelled(make: Make, eventually: Eventually) -> None:
    env = make(2)
    numbers = env.from_sequence(0, 10**12).uid("numbers").map(Measured()).uid("measured")
    numbers.sink_to(DiscardingSink())
    client = env.execute_async("endless")
    result = client.get_job_execution_result()
    eventually(lambda: "measured.subtask" in client.get_accumulators().result(), "an epoch")
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert env.get_jobs() == [client]
    assert not result.done()
    cancelled = client.cancel()
    assert cancelled.result() is None
    assert client.get_job_status().result() is JobStatus.CANCELED
    totals = result.result().get_all_accumulator_results()
    assert totals["measured.subtask"] == {"0": 0, "1": 1}
    values: Any = totals["measured.values"]
    assert values["count"] == result.result().get_accumulator_result("measured.numRecordsIn")
    assert set(totals) == {"measured.subtask", "measured.values"}
    assert values["mean"] == values["sum"] / values["count"]
    assert env.get_jobs() == []


class Fails(MapFunction):
    """Fails at every try, and notes each."""

    def __init__(self, notes: Path) -> None:
        self.notes = notes

    def map(self, value: Any) -> Any:
        with self.notes.open("a") as file:
            file.write("try\n")
        message = f"refused after {self.notes.stat().st_size} bytes"
        raise ValueError(message)


def test_a_job_is_run_again_until_failures_are_too_many(make: Make, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    env = make(1, {"millstream.user-error.max-repeats": "100"})
    env.set_restart_strategy(RestartStrategies.failure_rate_restart(2, 600_000, 1))
    env.from_collection([1]).map(Fails(notes)).sink_to(DiscardingSink())
    future = env.execute_async("failing").get_job_execution_result()
    with pytest.raises((JobError, UserFunctionError), match="refused after 12 bytes"):
        future.result()
    assert isinstance(future.exception(), Exception)
    assert notes.read_text() == "try\n" * 3
