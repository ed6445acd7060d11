"""kill -9 of drivers that ``millstream run --supervise`` starts again: the results stay exact.

``make soak`` and ``make test-all`` kill 50 of them, at random moments of their lives.  Replay with
``MILLSTREAM_KILL_SEEDS=<seed>``.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.recovery.test_kill_driver import JOB, SEEDS, Chain

from millstream.directories import is_alive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEADLINE: Final = 240.0


class SupervisedChain(Chain):
    """The job of the kill tests below a supervisor."""

    def __init__(self, directory: Path, seed: int, records: int, bytes_per_epoch: int) -> None:
        super().__init__(directory, seed, "local", records)
        self._bytes = bytes_per_epoch
        self._log = directory / "log"
        self.process: subprocess.Popen[bytes] | None = None
        #: Drivers that were killed.
        self.killed: list[int] = []

    def supervise(self) -> None:
        """Start the supervisor."""
        inputs, output, checkpoints, *_ = self.arguments(slow=True)
        arguments = [inputs, output, checkpoints, str(self._bytes), self.master]
        strategy = {"type": "fixed-delay", "fixed-delay.attempts": "999", "fixed-delay.delay": "0"}
        defined = [f"-Drestart-strategy.{key}={value}" for key, value in strategy.items()]
        command = [sys.executable, "-m", "millstream", "run", "--supervise", *defined, str(JOB)]
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *arguments], stdout=log, stderr=subprocess.STDOUT
            )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until something holds; fails if the supervisor ends before."""
        deadline = time.monotonic() + DEADLINE
        while not condition():
            assert self.process is not None
            assert self.process.poll() is None, f"{self}: ended early\n{self._log.read_text()}"
            assert time.monotonic() < deadline, f"{self}\n{self._log.read_text()}"
            time.sleep(0.005)

    def driver(self) -> int | None:
        """The process id of the living driver; None while there is none."""
        assert self.process is not None
        pid = self.process.pid
        found = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        living = [int(each) for each in found if is_alive(int(each))]
        return living[0] if living and living[0] not in self.killed else None

    def kill(self) -> None:
        """Kill the driver alone, so its workers are left to the supervisor."""
        driver = self.driver()
        assert driver is not None
        self.killed.append(driver)
        os.kill(driver, signal.SIGKILL)
        self.check(whole=False)

    def checkpoints(self) -> int:
        """How many versions the manifest log has had."""
        versions = [path.stem for path in (self.directory / "checkpoints" / "log").glob("*.json")]
        return max(map(int, versions), default=-1) + 1

    def finish(self) -> None:
        """Wait for the end, which must be that of the job."""
        assert self.process is not None
        assert self.process.wait(DEADLINE) == 0, self._log.read_text()
        text = self._log.read_text()
        assert text.count("the driver was killed by SIGKILL; starting it again") == len(self.killed)
        self.check(whole=True)


@pytest.fixture
def chains() -> Iterator[list[SupervisedChain]]:
    made: list[SupervisedChain] = []
    yield made
    for each in made:
        if each.process is not None:
            each.process.kill()
            each.process.wait()


def test_a_job_goes_on_after_kills_of_its_driver(
    tmp_path: Path, chains: list[SupervisedChain]
) -> None:
    chain = SupervisedChain(tmp_path, SEEDS[0], 600, 700)
    chains.append(chain)
    chain.supervise()
    for _ in range(2):
        before = chain.checkpoints()
        chain.wait_for(lambda before=before: chain.checkpoints() > before + 2)  # type: ignore[misc]
        chain.kill()
    chain.finish()


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_fifty_kills(tmp_path: Path, chains: list[SupervisedChain]) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={SEEDS[0]}")
    chance = random.Random(SEEDS[0])
    chain = SupervisedChain(tmp_path, SEEDS[0], 4_800, 70)
    chains.append(chain)
    chain.supervise()
    for _ in range(50):
        chain.wait_for(lambda: chain.driver() is not None)
        before, most = chain.checkpoints(), chance.choice([0, 1, 1, 2, 3, 5])
        later = time.monotonic() + chance.uniform(0.0, 4.0)
        chain.wait_for(
            lambda before=before, most=most, later=later: (  # type: ignore[misc]
                chain.checkpoints() > before + most or time.monotonic() > later
            )
        )
        chain.kill()
    chain.finish()


def test_a_new_supervisor_finds_no_orphan(tmp_path: Path, chains: list[SupervisedChain]) -> None:
    chain = SupervisedChain(tmp_path, SEEDS[0], 600, 700)
    chains.append(chain)
    chain.supervise()
    chain.wait_for(lambda: chain.checkpoints() > 2)
    orphan = chain.driver()
    assert chain.process is not None
    assert orphan is not None
    chain.process.kill()
    chain.process.wait()
    deadline = time.monotonic() + DEADLINE
    while is_alive(orphan):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    chain.supervise()
    chain.finish()


def test_supervision_needs_a_checkpoint_directory(tmp_path: Path) -> None:
    job = tmp_path / "job.py"
    job.write_text(
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).print()\n"
        "env.execute('without checkpoints')\n"
    )
    command = [sys.executable, "-m", "millstream", "run", "--supervise", "--target", "local"]
    done = subprocess.run([*command, str(job)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "with --supervise, set execution.checkpointing.dir" in done.stderr
    assert done.stderr.count("without checkpoints") == 1
