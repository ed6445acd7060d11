"""Killed workers and executors, restarts, a second driver: results stay exactly once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.small_disk import SmallDisk, may_mount
from tests.spark.conftest import JOB

from millstream.checkpoint.inspect import list_checkpoints, verify_checkpoints
from millstream.checkpoint.local_storage import LocalStorage, seal_of
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.common import Types
from millstream.datastream import (
    KeyedProcessFunction,
    MapFunction,
    RestartStrategies,
    RuntimeContext,
)
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import (
    DirectoryError,
    FencedError,
    JobError,
    MillstreamError,
    SignatureError,
    StateError,
    UserFunctionError,
)
from millstream.execution import driver
from millstream.metrics.progress import SilentProgressReporter

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.spark

#: Seconds; what a program takes on a machine that is busy with other work.
LONGEST = 400


class Leaves(MapFunction):
    """Ends its process."""

    def map(self, value: Any) -> Any:
        sys.exit(3)


class KeepsLock(KeyedProcessFunction):
    """Keep what cannot be pickled."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.lock = runtime_context.get_state(ValueStateDescriptor("lock"))

    def process_element(self, value: Any, ctx: Any) -> Any:
        del ctx
        self.lock.update(threading.Lock())
        return [value]


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_errors_of_tasks_come_without_the_lines_of_spark(make: Make, execution: str) -> None:
    settings = {"restart-strategy.type": "none", "millstream.execution": execution}
    env = make(1, settings)
    env.from_collection([1]).map(Leaves()).name("leaver").sink_to(DiscardingSink())
    with pytest.raises(UserFunctionError, match=r"of operator 'leaver'.*SystemExit: 3") as left:
        env.execute("leaves")
    env = make(1, settings)
    keyed = env.from_collection([1]).key_by(lambda n: n).process(KeepsLock()).name("keeper")
    keyed.sink_to(DiscardingSink())
    with pytest.raises(StateError, match=r"operator 'keeper'.*cannot be pickled") as kept:
        env.execute("keeps")
    for caught in (left, kept):
        assert "py4j" not in "".join(traceback.format_exception(caught.value))


def test_killed_worker_without_restart(make: Make, job: Any, tmp_path: Path) -> None:
    """The job fails with a readable error; a second start finishes it.

    Its checkpoints are signed: driver and workers read the key.
    """
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text(os.urandom(32).hex())  # whitespace at a key's ends does not count
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "millstream.checkpoint.hmac-key-file": str(key),
    }
    for attempt in range(2):
        env = make(2, settings)
        job.add_job(env, tmp_path / "output", second=job.KillWorker(33, tmp_path / "flag"))
        if attempt == 0:
            with pytest.raises(MillstreamError, match=r"(?i)worker.*(crash|exit|kill|terminat)"):
                env.execute("counting")
            ids = [number for _, number, _ in job.rows(tmp_path / "output")]
            assert len(ids) == len(set(ids)) < job.NUMBERS
        else:
            env.execute("counting")
    assert job.problem(tmp_path / "output") is None
    with pytest.raises(SignatureError):
        list_checkpoints(LocalStorage(tmp_path / "checkpoints"))
    signed = LocalStorage(tmp_path / "checkpoints", seal=seal_of(str(key)))
    assert list_checkpoints(signed).runs == 2
    assert verify_checkpoints(signed).ok


@pytest.mark.usefixtures("spark")  # which sets PYTHONPATH
def test_killed_executors(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, str(JOB), "executors", str(tmp_path)],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=LONGEST)
        finally:
            _end(process)
    said = (tmp_path / "log").read_text()
    assert process.returncode == 0, said
    assert output.splitlines() == ["first: None True", "second: None True"]
    # A line for each executor that was lost, and for each restart that this took.
    lines = said.splitlines()
    assert len([line for line in lines if line.startswith("Spark: Lost executor ")]) == 2, said
    rest = [line for line in lines if not line.startswith(("Spark: Lost ", "restarting in "))]
    assert rest == [], said


def test_second_driver_fences_the_first(
    make: Make,
    job: Any,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    output, log_path = tmp_path / "output", tmp_path / "log"
    with log_path.open("w") as log:
        first = subprocess.Popen(
            [sys.executable, str(JOB), "wait", str(tmp_path)],
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:

            def half_done() -> bool:
                assert first.poll() is None, log_path.read_text()
                return bool(len(job.rows(output)) == job.NUMBERS // 2)

            eventually(half_done, "the first half by the first driver")
            env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
            env.set_restart_strategy(RestartStrategies.fixed_delay_restart(5, 10))
            job.add_job(env, output, go=tmp_path / "go")
            client = env.execute_async("counting")

            def taken_over() -> bool:
                opened = sorted((tmp_path / "checkpoints" / "log").glob("*.json"))
                return any('"generation":2' in path.read_text() for path in opened)

            eventually(taken_over, "the second driver to open the log")
            (tmp_path / "go").touch()
            client.get_job_execution_result().result()
            first.wait(LONGEST)
        finally:
            _end(first)
    assert first.returncode == 1
    text = log_path.read_text()
    assert f"{FencedError.__name__}: " in text, text
    assert job.problem(output) is None


@pytest.mark.usefixtures("spark")  # which sets PYTHONPATH
def test_a_driver_without_its_jvm_ends_and_leaves_the_job_to_another(
    make: Make, job: Any, tmp_path: Path, eventually: Eventually
) -> None:
    """Else it would start again for ever, and fence the healthy driver each time."""
    output, log_path = tmp_path / "output", tmp_path / "log"
    with log_path.open("w") as log:
        first = subprocess.Popen(
            [sys.executable, str(JOB), "wait", str(tmp_path)],
            cwd=tmp_path,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:

            def half_done() -> bool:
                assert first.poll() is None, log_path.read_text()
                return bool(len(job.rows(output)) == job.NUMBERS // 2)

            eventually(half_done, "the first half by the first driver")
            jvm = _jvm_of(first.pid)
            os.kill(jvm, signal.SIGKILL)
            env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
            job.add_job(env, output, go=tmp_path / "go")
            second = env.execute_async("counting")
            first.wait(60)  # beside the second, which waits
            (tmp_path / "go").touch()
            second.get_job_execution_result().result()
        finally:
            _end(first)
    text = log_path.read_text()
    assert first.returncode == 1, text
    assert f"EngineError: Spark's JVM (process {jvm}) was killed with SIGKILL" in text
    assert "restarting in" not in text
    log_of_manifests = ManifestLog(LocalStorage(tmp_path / "checkpoints", fsync=False))
    assert max(entry.generation for entry in log_of_manifests.entries()) == 2
    assert job.problem(output) is None


def _jvm_of(driver: int) -> int:
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == driver and b"SparkSubmit" in (process / "cmdline").read_bytes():
                return int(process.name)
    message = f"process {driver} has no JVM"
    raise AssertionError(message)


class Recorder(SilentProgressReporter):
    """Keeps what the progress line says of failures."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def update_failure(self, reason: str) -> None:
        self.failures.append(reason)


def test_a_checkpoint_directory_that_is_full_for_a_while(
    make: Make,
    job: Any,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The progress line names it, and the job goes on as its restart strategy says."""
    if not may_mount(tmp_path):
        pytest.skip("only root may mount a small file system")
    progress = Recorder()
    monkeypatch.setattr(driver, "create_progress_reporter", lambda *_, **__: progress)
    disk = SmallDisk(tmp_path / "disk", "16m")
    checkpoints, output = disk.path / "checkpoints", tmp_path / "output"
    try:
        env = make(2, {"execution.checkpointing.dir": str(checkpoints)})
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 200))
        job.add_job(env, output, go=tmp_path / "go")
        client = env.execute_async("counting")
        eventually(lambda: len(job.rows(output)) == job.NUMBERS // 2, "the first half")
        disk.fill()
        (tmp_path / "go").touch()
        eventually(lambda: len(progress.failures) >= 2, "a restart that failed, too")
        full = f"the checkpoint directory {checkpoints} is full"
        assert all(full in told for told in progress.failures)
        disk.free()
        client.get_job_execution_result().result()
        assert job.problem(output) is None
        other = make(2, {"execution.checkpointing.dir": str(checkpoints)})
        job.add_job(other, output)
        disk.fill()
        with pytest.raises(DirectoryError, match=full):
            other.execute_async("counting")
    finally:
        disk.close()


class WaitAndFail(MapFunction):
    """Waits in a task until the test has done what it wants meanwhile, and fails."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def map(self, value: int) -> int:
        (self.directory / "waiting").touch()
        limit = time.monotonic() + LONGEST
        while not (self.directory / "go").exists() and time.monotonic() < limit:
            time.sleep(0.05)
        message = "failed while another run took over"
        raise ValueError(message)


def test_a_fenced_run_does_not_start_again(
    make: Make,
    job: Any,
    tmp_path: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would fence the newer run in turn, and so on."""
    # It notices by its failure, not by looking.
    monkeypatch.setattr("millstream.execution.run._SECONDS", 1e9)
    env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(1000, 10))
    job.add_job(env, tmp_path / "output", first=WaitAndFail(tmp_path))
    client = env.execute_async("counting")
    eventually((tmp_path / "waiting").exists, "a task to run")
    newer = ManifestLog(LocalStorage(tmp_path / "checkpoints", fsync=False))
    assert newer.open_generation() == 2
    (tmp_path / "go").touch()
    with pytest.raises(FencedError, match="does not start again after: operator 'Map'"):
        client.get_job_execution_result().result()
    assert not newer.is_fenced()


def _end(process: subprocess.Popen[Any]) -> None:
    """End the program's process group, which is its own."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


class Failing(MapFunction):
    """Fails at the number 33 until it has failed often enough; counts how often in a file."""

    def __init__(self, log: Path, times: int, *, alike: bool) -> None:
        self.log = log
        self.times = times
        self.alike = alike

    def map(self, value: int) -> int:
        if value == 33:
            failures = len(self.log.read_text()) if self.log.exists() else 0
            if failures < self.times:
                with self.log.open("a") as log:
                    log.write(".")
                message = "always the same" if self.alike else f"failure {failures}"
                raise ValueError(message)
        return value


def test_fixed_delay_restarts(make: Make, job: Any, tmp_path: Path) -> None:
    env = make(2).set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    failing = Failing(tmp_path / "failures", 2, alike=False)
    job.add_job(env, tmp_path / "output", second=failing)
    env.execute("counting")
    assert (tmp_path / "failures").read_text() == ".."
    assert job.problem(tmp_path / "output") is None


@pytest.mark.parametrize(
    ("strategy", "alike", "failures"),
    [
        (RestartStrategies.no_restart(), False, 1),
        (RestartStrategies.fixed_delay_restart(1, 10), False, 2),
        # The same error of user code, millstream.user-error.max-repeats times.
        (RestartStrategies.exponential_delay_restart(10, 20, 1.5, 60_000, 0.1), True, 3),
    ],
    ids=["none", "fixed-delay", "repeats"],
)
def test_restarts_end(
    make: Make,
    job: Any,
    tmp_path: Path,
    strategy: Any,
    alike: bool,
    failures: int,
) -> None:
    # A checkpoint between two failures, ahead of the record, would be progress.
    env = make(2, {"execution.checkpointing.interval": "1 h"}).set_restart_strategy(strategy)
    failing = Failing(tmp_path / "failures", 100, alike=alike)
    job.add_job(env, tmp_path / "output", first=failing)
    with pytest.raises(UserFunctionError) as caught:
        env.execute("counting")
    assert len((tmp_path / "failures").read_text()) == failures
    message = str(caught.value)
    assert "operator 'Map'" in message
    assert "counting_job.py:" in message, "where the operator was made"
    assert "record 33" in message
    assert f"{__file__}:" in message, "where the user's code failed"
    wanted = "always the same" if alike else f"failure {failures - 1}"
    assert f"ValueError: {wanted}" in message
    lines = "".join(traceback.format_exception(caught.value)).splitlines()
    assert len(lines) < 60, "the user's error drowns in Spark's"


def explode(value: Any) -> Any:
    message = "boom"
    raise KeyError(message)


def test_an_error_in_open_names_the_operator(make: Make) -> None:
    class Broken(MapFunction):
        def open(self, runtime_context: object) -> None:
            explode(None)

        def map(self, value: int) -> int:
            return value

    env = make(1)
    env.from_collection([1], Types.LONG()).map(Broken()).name("opener").print()
    with pytest.raises((UserFunctionError, JobError), match="opener") as caught:
        env.execute()
    assert "boom" in str(caught.value)
    assert f"{Path(__file__).name}:" in str(caught.value)
