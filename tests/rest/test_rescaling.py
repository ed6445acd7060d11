"""Jobs that are rescaled by a request: their results are exact, and impossible requests refused."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.rest.conftest import DEADLINE, Client, RunningJob
from tests.support.environments import environments, wait_until

from millstream.common import Types, WatermarkStrategy
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.basic.data_generator import DataGeneratorSource
from millstream.datastream import KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor
from millstream.rest import running

if TYPE_CHECKING:
    from pathlib import Path

KEYS = 8
COUNT = 10**9
RATE = 400


class Number(KeyedProcessFunction):
    """Numbers the records of a key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value, number


def start(directory: Path, mode: str, parallelism: int = 1) -> RunningJob:
    engine = {"execution.target": "local", "millstream.execution": mode}
    settings = {
        "execution.checkpointing.interval": "200 ms",
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "rest.port": "0",
    }
    env: Any = environments(directory, engine)(parallelism, settings)
    source = DataGeneratorSource(int, COUNT, RATE, Types.LONG(), splits=1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    keyed = numbers.key_by(lambda n: n % KEYS, Types.LONG())
    numbered = keyed.process(Number(), Types.TUPLE([Types.LONG(), Types.LONG()])).uid("numbered")
    numbered.sink_to(CollectSink(directory / "output")).uid("output")
    job = env.execute_async("numbering")
    job_id = job.job.get_job_id()
    server = next(
        each for each in running.servers() if any(v.job_id == job_id for v in each.jobs.all())
    )
    return RunningJob(job, Client(server.server.url), job_id)


def bounds(job: RunningJob, lower: int, upper: int) -> dict[str, Any]:
    return {
        vertex: {"parallelism": {"lowerBound": lower, "upperBound": upper}}
        for vertex in job.get("/resource-requirements")
    }


def put(job: RunningJob, body: Any) -> tuple[int, Any]:
    path = f"/jobs/{job.id}/resource-requirements"
    answer = job.client.request(path, "PUT", body)
    return answer.status, answer.body


def rescale(job: RunningJob, parallelism: int) -> None:
    """Rescale a job, and wait until it runs with that and has completed a checkpoint."""

    def is_accepted() -> bool:
        status, body = put(job, bounds(job, 1, parallelism))
        assert status == 200 or "ask again later" in str(body), body
        return status == 200

    def is_scaled() -> bool:
        found = {each["parallelism"] for each in job.get()["vertices"]}
        return found == {parallelism} and job.get()["state"] == "RUNNING"

    wait_until(is_accepted, "the request is accepted", DEADLINE)
    wait_until(is_scaled, f"parallelism {parallelism}", DEADLINE)
    before = job.get("/checkpoints")["counts"]["completed"]
    wait_until(
        lambda: job.get("/checkpoints")["counts"]["completed"] > before, "a checkpoint", DEADLINE
    )


def require_exact(directory: Path) -> None:
    """All records up to some are there once, each with its number among those of its key."""
    records: Any = read_collected(directory / "output")
    found: Counter[tuple[int, int]] = Counter((value, number) for value, number in records)
    assert found
    assert found == Counter((value, value // KEYS + 1) for value in range(len(found)))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["pipelined", "epochs"])
def test_results_are_exact_after_rescaling_up_and_down(tmp_path: Path, mode: str) -> None:
    job = start(tmp_path, mode)
    rescale(job, 2)
    rescale(job, 1)
    job.job.job.stop()
    require_exact(tmp_path)


@pytest.mark.slow
def test_a_driver_that_is_started_again_keeps_the_parallelism(tmp_path: Path) -> None:
    job = start(tmp_path, "pipelined")
    rescale(job, 2)
    job.job.job.stop()
    again = start(tmp_path, "pipelined")
    assert {each["parallelism"] for each in again.get()["vertices"]} == {2}
    again.job.job.stop()
    # The program gives another one: that takes precedence.
    other = start(tmp_path, "pipelined", 3)
    assert 2 not in {each["parallelism"] for each in other.get()["vertices"]}
    other.job.job.stop()
    require_exact(tmp_path)


def test_requests_that_are_refused(tmp_path: Path) -> None:
    job = start(tmp_path, "pipelined")
    try:
        wait_until(lambda: job.get()["state"] == "RUNNING", "the job runs", DEADLINE)
        wanted = bounds(job, 1, 1)
        first, *_ = wanted
        for body, words in (
            ({}, "must have all vertices"),
            ({**wanted, "0" * 32: wanted[first]}, "unknown"),
            ({**wanted, first: {}}, "must be"),
            (bounds(job, 2, 1), "the lower one first"),
            (bounds(job, 0, 1), "bounds are from 1"),
            (bounds(job, 1, 10**6), "maximum parallelism"),
        ):
            status, answer = put(job, body)
            assert (status, words in str(answer)) == (400, True), answer

        def is_refused() -> bool:
            status, answer = put(job, bounds(job, 100, 100))
            assert status == 400
            return "there are cores for" in str(answer)

        wait_until(is_refused, "the cores do not suffice", DEADLINE)
        assert put(job, wanted)[0] == 200
        assert job.get()["state"] == "RUNNING"
    finally:
        job.job.job.cancel()
