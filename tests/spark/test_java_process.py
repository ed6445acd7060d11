"""A session whose JVM is gone: what is said of it; no generation is claimed without one."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, cast

import pytest
from py4j.protocol import Py4JNetworkError

from millstream.checkpoint.manifest_log import ManifestLog
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.engines.spark.engine import SparkEngine
from millstream.engines.spark.java import JavaProcess
from millstream.errors import EngineError
from millstream.execution.driver import JobDriver
from millstream.execution.job import Job
from millstream.execution.restart import FixedDelay, GiveUpOnRepeats, NoRestart

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Java:
    """The calls that ``JavaProcess`` makes, on a process of any kind."""

    def __init__(self, code: str) -> None:
        self.proc = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE)
        self.sparkContext = self._gateway = self._jsc = self
        self.broken = self.stopped = False

    def sc(self) -> Java:
        if self.broken or self.proc.poll() is not None:
            self.broken = False
            message = "connection refused"
            raise Py4JNetworkError(message)
        return self

    def isStopped(self) -> bool:  # noqa: N802 - Java's
        return self.stopped


@pytest.fixture
def start() -> Iterator[Callable[[str], Java]]:
    started: list[Java] = []

    def begin(code: str = "input()") -> Java:
        started.append(Java(code))
        return started[-1]

    yield begin
    for java in started:
        java.proc.kill()
        java.proc.communicate()


def test_how_it_ended(start: Callable[..., Any]) -> None:
    java = start()
    process = JavaProcess(java)
    java.broken = True
    process.require()  # a broken connection is not a dead JVM
    java.proc.kill()
    java.proc.wait()
    with pytest.raises(
        EngineError, match=rf"process {java.proc.pid}\) was killed with SIGKILL.*memory"
    ):
        process.require()


@pytest.mark.parametrize(
    ("code", "said"), [(52, "heap is full. Raise spark.driver.memory"), (7, "exit code 7")]
)
def test_its_exit_code(start: Callable[..., Any], code: int, said: str) -> None:
    java = start(f"input(); raise SystemExit({code})")
    process = JavaProcess(java)
    java.proc.communicate(b"\n")
    with pytest.raises(EngineError, match=said):
        process.require()


def test_a_stopped_session_is_final(start: Callable[..., Any]) -> None:
    java = start()
    process = JavaProcess(java)
    java.stopped = True
    error = process.lost()
    assert error is not None
    assert "session was stopped" in str(error)
    assert GiveUpOnRepeats(FixedDelay(9, 0.0)).next_delay(0.0, error) is None


def test_no_generation_is_claimed_without_it(start: Callable[..., Any]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1], Types.LONG()).map(lambda n: n, Types.LONG()).print()
    java = start()
    job = Job(env.get_job_graph("no engine"))
    driver = JobDriver(job, SparkEngine(cast("Any", java), [], JavaProcess(cast("Any", java))))
    java.proc.kill()
    java.proc.wait()
    with pytest.raises(EngineError):
        driver.execute_once(NoRestart())
    assert list(ManifestLog(job.storage).entries()) == []
    job.clean_up(finished=False)
