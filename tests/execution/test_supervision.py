"""Supervision: which ends of a driver lead to another one, signals, and what dies with whom."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from millstream.directories import is_alive
from millstream.errors import EngineError, JobError
from millstream.execution import supervision
from millstream.execution.restart import FixedDelay, NoRestart, RestartStrategy
from millstream.execution.supervision import (
    STARTS_AGAIN,
    VARIABLE,
    Supervisor,
    accept_supervision,
    exit_code_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE: Final = 30.0
#: A driver that writes its number into a file of the directory, and runs a statement then.
DRIVER: Final = """
import json, os, signal, sys, time
from pathlib import Path
place, statement = Path(sys.argv[1]), sys.argv[2]
report = json.loads(os.environ["MILLSTREAM_SUPERVISION"])
life = report["restarts"]
place.joinpath(f"new-{life}").write_text(json.dumps([os.getpid(), report]))
place.joinpath(f"new-{life}").rename(place / f"life-{life}")
exec(statement)
"""
#: The command line without Spark: a supervisor in a process of its own.
SUPERVISOR: Final = """
import signal, sys
from millstream.execution.restart import FixedDelay
from millstream.execution.supervision import Supervisor
# Whoever started the tests may ignore it, as nohup does; then nothing is passed on.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
try:
    sys.exit(Supervisor(sys.argv[2:], FixedDelay(99, float(sys.argv[1]))).run())
except KeyboardInterrupt:
    sys.exit(130)
"""
#: A driver as ``millstream run`` starts it.
WAITS: Final = """
from millstream.execution.supervision import accept_supervision
accept_supervision()
place.joinpath("ready").touch()
time.sleep(600)
"""


def supervise(place: Path, statement: str, strategy: RestartStrategy) -> int:
    return Supervisor([sys.executable, "-c", DRIVER, str(place), statement], strategy).run()


def lives(place: Path) -> int:
    return len(list(place.glob("life-*")))


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("code", [0, 1, 3])
def test_a_driver_that_ends_by_itself_is_not_started_again(code: int, tmp_path: Path) -> None:
    assert supervise(tmp_path, f"os._exit({code})", FixedDelay(9, 0)) == code
    assert lives(tmp_path) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSEGV, signal.SIGTERM])
def test_a_driver_that_is_killed_is_started_again(number: signal.Signals, tmp_path: Path) -> None:
    """Also by SIGTERM, if that does not come through the supervisor."""
    statement = f"os.kill(os.getpid(), {number.value}) if life < 2 else os._exit(4)"
    before = time.time_ns() // 1_000_000
    assert supervise(tmp_path, statement, FixedDelay(9, 0)) == 4
    reports = [json.loads(tmp_path.joinpath(f"life-{n}").read_text())[1] for n in range(3)]
    assert [report["restarts"] for report in reports] == [0, 1, 2]
    assert reports[0]["failed_at"] == 0
    assert before <= reports[1]["failed_at"] <= reports[2]["failed_at"]


def test_a_driver_whose_engine_has_ended_is_started_again(tmp_path: Path) -> None:
    statement = f"os._exit({STARTS_AGAIN} if life < 1 else 0)"
    assert supervise(tmp_path, statement, FixedDelay(9, 0)) == 0
    assert lives(tmp_path) == 2


@pytest.mark.parametrize(
    ("statement", "code"),
    [("os.kill(os.getpid(), 9)", 128 + 9), (f"os._exit({STARTS_AGAIN})", 1)],
)
def test_the_restart_strategy_ends_it(
    statement: str, code: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert supervise(tmp_path, statement, FixedDelay(2, 0)) == code
    assert lives(tmp_path) == 3
    assert caplog.records[-1].message.endswith("no restart after 2")


def test_without_a_strategy_there_is_no_restart(tmp_path: Path) -> None:
    assert supervise(tmp_path, "os.kill(os.getpid(), 9)", NoRestart()) == 128 + 9
    assert lives(tmp_path) == 1


def test_processes_of_a_dead_driver_are_killed_before_the_next_one(tmp_path: Path) -> None:
    statement = """
if life == 0:
    child = os.fork()
    if child == 0:
        time.sleep(600)
    place.joinpath("child").write_text(str(child))
    os.kill(os.getpid(), signal.SIGKILL)
from millstream.directories import is_alive
os._exit(8 if is_alive(int(place.joinpath("child").read_text())) else 7)
"""
    assert supervise(tmp_path, statement, FixedDelay(9, 0.1)) == 7


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[[str, float], subprocess.Popen[str]]]:
    made: list[subprocess.Popen[str]] = []

    def start(statement: str, delay: float) -> subprocess.Popen[str]:
        driver = [sys.executable, "-c", DRIVER, str(tmp_path), statement]
        command = [sys.executable, "-c", SUPERVISOR, str(delay), *driver]
        with (tmp_path / "errors").open("w") as errors:
            made.append(subprocess.Popen(command, stderr=errors, text=True))
        return made[-1]

    yield start
    for process in made:
        process.kill()
        process.wait()
    for path in tmp_path.glob("life-*"):
        pid = json.loads(path.read_text())[0]
        wait_for(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]


@pytest.mark.parametrize(
    ("number", "code"),
    [(signal.SIGTERM, -signal.SIGTERM), (signal.SIGHUP, -signal.SIGHUP), (signal.SIGINT, 130)],
)
def test_a_signal_ends_driver_and_supervisor(
    number: signal.Signals,
    code: int,
    tmp_path: Path,
    started: Callable[[str, float], subprocess.Popen[str]],
) -> None:
    process = started("signal.signal(2, signal.SIG_DFL)" + WAITS, 0.0)
    wait_for((tmp_path / "ready").exists)
    process.send_signal(number)
    assert process.wait(DEADLINE) == code
    assert lives(tmp_path) == 1


def test_the_exit_code_of_a_driver_that_handles_a_signal_is_kept(
    tmp_path: Path, started: Callable[[str, float], subprocess.Popen[str]]
) -> None:
    process = started("signal.signal(15, lambda *_: os._exit(5))" + WAITS, 0.0)
    wait_for((tmp_path / "ready").exists)
    process.terminate()
    assert process.wait(DEADLINE) == 5


def test_other_signals_reach_the_driver(
    tmp_path: Path, started: Callable[[str, float], subprocess.Popen[str]]
) -> None:
    handler = "signal.signal(signal.SIGUSR1, lambda *_: os._exit(6))"
    process = started(handler + WAITS, 0.0)
    wait_for((tmp_path / "ready").exists)
    process.send_signal(signal.SIGUSR1)
    assert process.wait(DEADLINE) == 6


def test_a_signal_ends_the_wait_for_a_restart(
    tmp_path: Path, started: Callable[[str, float], subprocess.Popen[str]]
) -> None:
    process = started("os.kill(os.getpid(), 9)", 600.0)
    wait_for((tmp_path / "life-0").exists)
    pid = json.loads((tmp_path / "life-0").read_text())[0]
    wait_for(lambda: not Path(f"/proc/{pid}").exists())  # reaped, so it waits
    process.terminate()
    assert process.wait(DEADLINE) == -signal.SIGTERM
    assert lives(tmp_path) == 1


@pytest.mark.parametrize("hangs", [False, True])
def test_the_driver_of_a_killed_supervisor_ends(
    hangs: bool,
    tmp_path: Path,
    started: Callable[[str, float], subprocess.Popen[str]],
) -> None:
    """Also one that does not end by SIGTERM; that takes some seconds."""
    ignores = "signal.signal(15, signal.SIG_IGN)\n" if hangs else ""
    shorter = "import millstream.execution.supervision as s\ns._GRACE = 0.2\n"
    process = started(ignores + shorter + WAITS, 0.0)
    wait_for((tmp_path / "ready").exists)
    driver = json.loads((tmp_path / "life-0").read_text())[0]
    process.kill()
    wait_for(lambda: not is_alive(driver))
    assert (tmp_path / "errors").read_text() == (
        "millstream: the supervisor has gone, so the driver ends\n"
    )


def test_the_environment_of_processes_of_the_driver_has_no_supervision(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert not accept_supervision()
    assert supervision.supervision() is None
    reading, writing = os.pipe()
    monkeypatch.setattr(supervision, "_current", None)
    monkeypatch.setattr(supervision, "_end_with_supervisor", os.close)
    monkeypatch.setenv(VARIABLE, json.dumps({"pipe": reading, "restarts": 3, "failed_at": 7}))
    assert accept_supervision()
    assert VARIABLE not in os.environ
    assert supervision.supervision() == supervision.Supervision(reading, 3, 7)
    os.close(writing)


def test_the_exit_code_tells_a_supervisor_that_the_engine_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ended = EngineError("the JVM was killed")
    ended.has_ended = True
    job = JobError("x")
    job.__cause__ = ended
    assert [exit_code_of(each) for each in (ended, job)] == [1, 1]
    monkeypatch.setattr(supervision, "_current", supervision.Supervision(0))
    errors = (ended, job, EngineError("no Java"), JobError("x"))
    assert [exit_code_of(each) for each in errors] == [STARTS_AGAIN, STARTS_AGAIN, 1, 1]
