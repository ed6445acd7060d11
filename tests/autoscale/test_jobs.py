"""Jobs that are scaled while they run: their results are exact, whatever happens meanwhile."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments, wait_until

from millstream.common import Types, WatermarkStrategy
from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.connectors.basic.data_generator import DataGeneratorSource
from millstream.datastream import KeyedProcessFunction, RuntimeContext
from millstream.datastream.state import ValueStateDescriptor

if TYPE_CHECKING:
    from millstream.datastream import StreamExecutionEnvironment

DEADLINE = 60.0
KEYS = 8
#: Records per second; those between the two numbers take this long, others nothing.
RATE, SLOW, SECONDS = 150, (150, 2000), 0.009
COUNT = 3200
#: Far below Flink's, which are for loads that change within hours.
OPTIONS = {
    "execution.checkpointing.interval": "200 ms",
    "job.autoscaler.enabled": "true",
    "job.autoscaler.metrics.window": "3 s",
    "job.autoscaler.stabilization.interval": "500 ms",
    "job.autoscaler.catch-up.duration": "0 s",
}


class Number(KeyedProcessFunction):
    """Numbers the records of a key; some take long."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        if SLOW[0] <= value < SLOW[1]:
            time.sleep(SECONDS)
        number = (self.count.value() or 0) + 1
        self.count.update(number)
        yield value % KEYS, number


def build(
    directory: Path, mode: str, more: dict[str, str] | None = None, target: str = "local"
) -> Any:
    engine = {"execution.target": target, "millstream.execution": mode}
    settings = {
        **OPTIONS,
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        **(more or {}),
    }
    env: StreamExecutionEnvironment = environments(directory, engine)(1, settings)
    source = DataGeneratorSource(int, COUNT, RATE, Types.LONG(), splits=1)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    keyed = numbers.key_by(lambda n: n % KEYS, Types.LONG())
    numbered = keyed.process(Number(), Types.TUPLE([Types.LONG(), Types.LONG()])).uid("numbered")
    numbered.sink_to(CollectSink(directory / "output")).uid("output")
    return env


def require_exact(directory: Path) -> None:
    """Each key has all its numbers, each once."""
    records: Any = read_collected(directory / "output")
    found: Counter[tuple[int, int]] = Counter((key, number) for key, number in records)
    assert found == Counter((key, n) for key in range(KEYS) for n in range(1, COUNT // KEYS + 1))


@pytest.mark.slow
def test_a_job_is_scaled_up_and_down_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "millstream")
    client = build(tmp_path, "pipelined").execute_async("a job")
    client.get_job_execution_result().result()
    scaled = [each.message for each in caplog.records if "another parallelism" in each.message]
    changes = [each.rpartition(": ")[2] for each in scaled]
    assert changes[0] == "numbered to 2", changes
    # On a machine that is busy with other work the source is scaled as well, up and down.
    assert any(each.endswith(" to 1") for each in changes[1:]), changes
    require_exact(tmp_path)


@pytest.mark.slow
def test_a_job_in_micro_batches_is_scaled_up(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "millstream")
    client = build(tmp_path, "epochs").execute_async("a job")
    client.get_job_execution_result().result()
    scaled = [each.message for each in caplog.records if "another parallelism" in each.message]
    assert scaled[0].endswith("numbered to 2")
    require_exact(tmp_path)


def test_a_dry_run_only_reports(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "millstream")
    more = {"job.autoscaler.scaling.enabled": "false"}
    client = build(tmp_path, "pipelined", more).execute_async("a job")
    try:
        wait_until(lambda: "should have parallelism 2" in caplog.text, "a report", DEADLINE)
    finally:
        client.cancel().result()
    assert "another parallelism" not in caplog.text


def scalings(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [each.message for each in caplog.records if "another parallelism" in each.message]
    return [each.rpartition(": ")[2] for each in found]


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("mode", ["pipelined", "epochs"])
def test_a_job_on_spark_is_scaled_within_the_cores(
    mode: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The session has two cores, and the load would need more."""
    caplog.set_level("INFO", "millstream")
    client = build(tmp_path, mode, target="spark").execute_async("a job")
    client.get_job_execution_result().result()
    changes = scalings(caplog)
    assert changes[0] == "numbered to 2", changes
    kept = json.loads((tmp_path / "checkpoints" / "autoscaler.json").read_text())
    assert max(kept.values()) <= 2
    require_exact(tmp_path)


@pytest.mark.slow
@pytest.mark.usefixtures("spark")
def test_a_dry_run_on_spark_only_reports(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "millstream")
    more = {"job.autoscaler.scaling.enabled": "false"}
    client = build(tmp_path, "pipelined", more, "spark").execute_async("a job")
    try:
        wait_until(lambda: "should have parallelism 2" in caplog.text, "a report", DEADLINE)
    finally:
        client.cancel().result()
    assert scalings(caplog) == []
    assert not (tmp_path / "checkpoints" / "autoscaler.json").exists()


def test_a_job_that_is_stopped_meanwhile_stops(tmp_path: Path) -> None:
    client = build(tmp_path, "pipelined").execute_async("a job")
    kept = tmp_path / "checkpoints" / "autoscaler.json"
    wait_until(kept.exists, "a scaling", DEADLINE)
    client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
    again = build(tmp_path, "pipelined").execute_async("a job")
    again.get_job_execution_result().result()
    require_exact(tmp_path)


@pytest.mark.slow
def test_drivers_are_killed_before_and_after_it_is_scaled(tmp_path: Path) -> None:
    kept = tmp_path / "checkpoints" / "autoscaler.json"
    manifests = tmp_path / "checkpoints"
    for wanted in (manifests, kept, None):
        driver = subprocess.Popen(
            [sys.executable, __file__, str(tmp_path)],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )
        try:
            if wanted is not None:
                wait_until(wanted.exists, f"{wanted}", DEADLINE)
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
                continue
            assert driver.wait(DEADLINE) == 0
        finally:
            if driver.poll() is None:
                os.killpg(driver.pid, signal.SIGKILL)
                driver.wait()
    require_exact(tmp_path)


if __name__ == "__main__":
    build(Path(sys.argv[1]), "pipelined").execute("a job")
