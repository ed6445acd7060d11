"""Standby drivers: kill -9 of a driver, and one of those that wait takes over; results stay exact.

Replay with ``MILLSTREAM_KILL_SEEDS=<seed>``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Final

import pytest
from tests.recovery.test_kill_driver import BYTES_PER_EPOCH, FIRST, JOB, OF_EPOCHS, SEEDS, Chain

from millstream.checkpoint.lease import Term, newest_term
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.storages import open_storage
from millstream.crash_points import ENVIRONMENT_VARIABLE, points_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

DEADLINE: Final = 120.0
#: Seconds of the lease: on a busy machine a renewal may be late by a second.
LEASE: Final = 4.0


class StandbyChain(Chain):
    """The job of the kill tests with several drivers, all of which are standbys at first."""

    def __init__(
        self, directory: Path, seed: int, master: str, records: int, checkpoints: str = ""
    ) -> None:
        super().__init__(directory, seed, master, records)
        #: Seconds.  On a busy machine two JVMs take minutes to start.
        self.deadline = DEADLINE if master in {"local", "pipelined"} else 4 * DEADLINE
        self.where = checkpoints or str(directory / "checkpoints")
        self.drivers: list[subprocess.Popen[bytes]] = []

    def add(self, crash: str = "", lease: float = LEASE) -> subprocess.Popen[bytes]:
        """Start a driver, which is killed at a crash point."""
        inputs, output, *_ = self.arguments(slow=True)
        command = [sys.executable, "-m", "millstream", "run", "--standby"]
        command += [f"-Dmillstream.lease.duration={int(lease * 1000)} ms"]
        # As the program sets it: the directory of the lease is that of the job.
        command += [str(JOB), inputs, output, self.where, str(BYTES_PER_EPOCH), self.master]
        with self.log(len(self.drivers)).open("ab") as log:
            driver = subprocess.Popen(
                command,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
                env={**os.environ, **({ENVIRONMENT_VARIABLE: crash} if crash else {})},
            )
        self.drivers.append(driver)
        return driver

    def log(self, number: int) -> Path:
        return self.directory / f"log-{number}"

    def logs(self) -> str:
        return "\n".join(self.log(n).read_text() for n in range(len(self.drivers)))

    def wait_for(self, condition: Callable[[], bool]) -> None:
        limit = time.monotonic() + self.deadline
        while not condition():
            assert time.monotonic() < limit, f"{self}\n{self.logs()}"
            time.sleep(0.01)

    def term(self) -> Term | None:
        return newest_term(open_storage(self.where))

    def holder(self) -> subprocess.Popen[bytes] | None:
        """The driver that has the lease."""
        term = self.term()
        found = [each for each in self.drivers if term and term.owner.endswith(f":{each.pid}")]
        return found[0] if found else None

    def wait_for_holder(self, among: list[subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        self.wait_for(lambda: self.holder() in among)
        found = self.holder()
        assert found is not None
        return found

    def checkpoints(self) -> int:
        """How many versions the manifest log has had."""
        return max(ManifestLog(open_storage(self.where)).versions(), default=-1) + 1

    def finish(self) -> None:
        """Wait for the end: all drivers that live find that the job has finished."""
        for each in self.drivers:
            assert each.wait(self.deadline) in {0, -signal.SIGKILL, 1}, self.logs()
        assert any(each.returncode == 0 for each in self.drivers), self.logs()
        self.check(whole=True)

    def takeovers(self) -> int:
        return self.logs().count("is taken over: ")


@pytest.fixture
def chain(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[StandbyChain]:
    master, records, *on_s3 = request.param
    print(f"replay with MILLSTREAM_KILL_SEEDS={SEEDS[0]}")
    checkpoints = f"{request.getfixturevalue('bucket')}/job" if on_s3 else ""
    made = StandbyChain(tmp_path, SEEDS[0], master, records, checkpoints)
    yield made
    for each in made.drivers:
        if each.poll() is None:
            os.killpg(each.pid, signal.SIGKILL)
            each.wait()


def _kill_the_first_of(drivers: int, chain: StandbyChain) -> None:
    """Several standbys: one runs the job, and when it is killed another one does."""
    added = [chain.add() for _ in range(drivers)]
    first = chain.wait_for_holder(added)
    standbys = [each for each in added if each is not first]
    chain.wait_for(
        lambda: chain.logs().count("standby of job") == len(standbys) and chain.checkpoints() > 2
    )
    assert chain.holder() is first
    os.killpg(first.pid, signal.SIGKILL)
    killed = time.monotonic()
    second = chain.wait_for_holder(standbys)
    print(f"taken over after {time.monotonic() - killed:.2f} s")
    chain.check(whole=False)
    chain.finish()
    assert chain.takeovers() == 2
    assert second.returncode == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "chain",
    [("local", 1_200), ("pipelined", 1_200), ("local", 1_200, "s3"), ("pipelined", 1_200, "s3")],
    indirect=True,
)
def test_one_of_two_standbys_takes_over_a_killed_driver(chain: StandbyChain) -> None:
    _kill_the_first_of(3, chain)


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "chain",
    [
        ("slots:local[2]", 600),
        pytest.param(("local[2]", 600), marks=pytest.mark.extended),
        pytest.param(("slots:local[2]", 600, "s3"), marks=pytest.mark.extended),
    ],
    indirect=True,
)
def test_a_standby_takes_over_a_killed_driver_of_spark(chain: StandbyChain) -> None:
    """Each has a JVM, which ends with its driver."""
    _kill_the_first_of(2, chain)


@pytest.mark.slow
@pytest.mark.parametrize("chain", [("local", 1_200), ("pipelined", 1_200)], indirect=True)
def test_a_driver_that_was_paused_for_longer_than_its_lease_is_fenced(chain: StandbyChain) -> None:
    drivers = [chain.add(lease=2.0) for _ in range(2)]
    first = chain.wait_for_holder(drivers)
    second = drivers[first is drivers[0]]
    chain.wait_for(lambda: "standby of job" in chain.logs() and chain.checkpoints() > 2)
    os.killpg(first.pid, signal.SIGSTOP)
    assert chain.wait_for_holder([second]) is second
    before = chain.checkpoints()
    chain.wait_for(lambda: chain.checkpoints() > before + 1)
    os.killpg(first.pid, signal.SIGCONT)
    chain.finish()
    assert chain.takeovers() == 2
    assert (first.returncode, second.returncode) == (1, 0)
    assert "FencedError" in chain.logs()


@pytest.mark.slow
@pytest.mark.extended
@pytest.mark.timeout(900)
@pytest.mark.parametrize("chain", [("local", 2_400), ("pipelined", 2_400)], indirect=True)
def test_takeovers_at_crash_points(chain: StandbyChain) -> None:
    """Each driver is killed at another point, also while it takes over; one always waits."""
    chance = random.Random(chain.seed)
    points = points_of("driver", "task", "lease")
    if chain.master == "pipelined":
        points = sorted({*points, *points_of("pipelined task")} - set(OF_EPOCHS))
    chosen = ["lease.take.after", "log.open.after"]
    chosen += chance.sample(sorted(set(points) - set(FIRST) - set(chosen)), 4)
    waiting = [chain.add(f"{point}:1") for point in chosen]
    waiting.append(chain.add())
    while len(waiting) > 1:
        waiting = [each for each in waiting if each.poll() is None]
        holder = chain.wait_for_holder(waiting)
        if holder is chain.drivers[-1]:
            break
        assert holder.wait(DEADLINE) == -signal.SIGKILL, f"{chain}\n{chain.logs()}"
        chain.check(whole=False)
    # Those that still wait find that the job has finished, or are killed as they find it.
    chain.finish()
    killed = sum(each.returncode == -signal.SIGKILL for each in chain.drivers)
    assert killed > 0
    assert chain.takeovers() <= killed + 1, chain.logs()
