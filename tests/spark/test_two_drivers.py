"""Two driver processes of one job on Spark, in micro-batches: one publishes, the other one ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.conftest import JOB

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.usefixtures("spark")]

#: Seconds after which the older driver has ended, once the newer one has taken the job over.
SOON = 40
#: What Spark says where two queries write one log.
CONCURRENT = "CONCURRENT_STREAM_LOG_UPDATE"


@dataclass
class Driver:
    """A process that runs the job, with what it has logged."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def text(self) -> str:
        return self.log.read_text()

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Driver]]:
    """Start a driver of the job, whose second half waits for the file ``go``."""
    drivers: list[Driver] = []

    def started() -> Driver:
        log = tmp_path / f"log-{len(drivers)}"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, str(JOB), "wait", str(tmp_path)],
                cwd=tmp_path,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        drivers.append(Driver(process, log))
        return drivers[-1]

    yield started
    for each in drivers:
        if each.is_running:
            os.killpg(each.process.pid, signal.SIGKILL)
            each.process.wait()


def _generations(directory: Path) -> set[int]:
    storage = LocalStorage(directory / "checkpoints", fsync=False)
    return {entry.generation for entry in ManifestLog(storage).entries()}


def _check_loser(loser: Driver, waited: float) -> None:
    assert loser.process.returncode == 1, loser.text
    assert waited <= SOON, loser.text
    last = loser.text.strip().splitlines()[-1]
    assert "FencedError: " in last, loser.text
    assert "restarting in" not in loser.text


def _check_winner(winner: Driver) -> None:
    assert winner.process.wait(SOON * 5) == 0, winner.text
    # It may have to start its query again while the older one still writes, and says so.
    assert "restarting in" not in winner.text
    if CONCURRENT in winner.text:
        assert "an older driver still writes to Spark's log" in winner.text


def test_the_older_driver_ends_while_the_job_is_idle(
    start: Callable[[], Driver], job: Any, tmp_path: Path, eventually: Eventually
) -> None:
    output = tmp_path / "output"
    older = start()

    def half_done() -> bool:
        assert older.is_running, older.text
        return bool(len(job.rows(output)) == job.NUMBERS // 2)

    eventually(half_done, "the first half by the older driver")
    newer = start()

    def taken_over() -> bool:
        assert newer.is_running, newer.text
        return 2 in _generations(tmp_path)

    eventually(taken_over, "the newer driver to open the log")
    began = time.monotonic()
    eventually(lambda: not older.is_running, "the older driver to end")
    _check_loser(older, time.monotonic() - began)
    (tmp_path / "go").touch()
    _check_winner(newer)
    assert max(_generations(tmp_path)) == 2, "nobody else has taken the job over"
    assert job.problem(output) is None


def test_of_two_drivers_that_start_together_one_publishes(
    start: Callable[[], Driver], job: Any, tmp_path: Path, eventually: Eventually
) -> None:
    output = tmp_path / "output"
    drivers = [start(), start()]

    def both_took_over() -> bool:
        return 2 in _generations(tmp_path)

    eventually(both_took_over, "both drivers to open the log")
    began = time.monotonic()
    eventually(lambda: sum(each.is_running for each in drivers) == 1, "one driver to end")
    waited = time.monotonic() - began
    (winner,) = [each for each in drivers if each.is_running]
    (loser,) = [each for each in drivers if each is not winner]
    _check_loser(loser, waited)
    (tmp_path / "go").touch()
    _check_winner(winner)
    assert job.problem(output) is None
