"""Interrupts, and programs that end before their jobs do; with real signals, without Spark."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PROGRAM = Path(__file__).parent / "interrupted_program.py"
DEADLINE = 120
WAITING = "millstream: job 'endless' still runs; waiting for its end (an interrupt cancels it)\n"


class Program:
    """A running program."""

    def __init__(self, command: list[str], directory: Path) -> None:
        self.go = directory / "go"
        self.said = directory / "stderr"
        with self.said.open("w") as said:
            self.process = subprocess.Popen(
                [*command, str(self.go)], stdout=subprocess.PIPE, stderr=said, text=True
            )

    def until(self, start: str) -> None:
        """Wait for a line of its output."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith(start):
                return
        pytest.fail(f"it ended before {start!r}:\n{self.said.read_text()}")

    def end(self) -> tuple[int, list[str], str]:
        """Exit code, what it printed beside the job's output, and what it said."""
        output, _ = self.process.communicate(timeout=DEADLINE)
        lines = [line for line in output.splitlines() if line and not line[:1].isdigit()]
        rest = [line for line in lines if not line.startswith(("running", "got"))]
        return self.process.returncode, rest, self.said.read_text()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Program]]:
    started: list[Program] = []

    def begin(mode: str, *, run: bool = False) -> Program:
        front = [sys.executable, "-m", "millstream", "run"] if run else [sys.executable]
        started.append(Program([*front, str(PROGRAM), mode], tmp_path))
        return started[-1]

    yield begin
    for program in started:
        program.process.kill()
        program.process.communicate()


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("mode", "sign"), [("execute", "running"), ("collect", "got")])
def test_an_interrupt_cancels_the_job_and_waits_for_it(
    start: Callable[..., Program], mode: str, sign: str
) -> None:
    program = start(mode)
    program.until(sign)
    for _ in range(3):  # then it waits, for the job or for a record that does not come
        program.until("running")
    program.process.send_signal(signal.SIGINT)
    assert program.end() == (0, ["jobs left: []"], "")


@pytest.mark.extended
def test_a_program_that_ends_before_its_job_waits_for_it(start: Callable[..., Program]) -> None:
    program = start("async")
    program.until("the program ends")
    program.until("running")
    program.go.touch()
    assert program.end() == (0, [], WAITING)


@pytest.mark.extended
def test_a_job_whose_records_nobody_reads_any_more_is_cancelled(
    start: Callable[..., Program],
) -> None:
    code, rest, said = start("leave").end()
    assert (code, rest) == (0, [])
    assert said == "millstream: cancelling job 'endless', which still runs\n"


def test_its_exit_code_tells_of_a_job_that_failed_afterwards(
    start: Callable[..., Program],
) -> None:
    program = start("failing")
    program.until("running")
    program.go.touch()
    code, _, said = program.end()
    assert (code, said) == (1, f"{WAITING}millstream: JobError: what went wrong\n")


@pytest.mark.extended
def test_an_interrupt_ends_that_wait(start: Callable[..., Program]) -> None:
    program = start("async")
    program.until("the program ends")
    program.until("running")
    program.until("running")
    program.process.send_signal(signal.SIGINT)
    code, _, said = program.end()
    assert (code, said) == (1, f"{WAITING}millstream: interrupted\n")


@pytest.mark.extended
def test_a_program_that_fails_takes_its_jobs_with_it(start: Callable[..., Program]) -> None:
    program = start("raising")
    code, _, said = program.end()
    assert code == 1
    assert "ValueError: a bug of the program" in said
    assert said.endswith("millstream: cancelling job 'endless', which still runs\n")


@pytest.mark.extended
def test_millstream_run_waits_as_well_and_says_one_line_when_interrupted(
    start: Callable[..., Program],
) -> None:
    program = start("async", run=True)
    program.until("the program ends")
    program.until("running")
    program.until("running")
    program.process.send_signal(signal.SIGINT)
    code, _, said = program.end()
    assert (code, said) == (130, f"{WAITING}millstream: interrupted\n")


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("run", [False, True])
def test_a_program_that_never_executes_is_told_so(tmp_path: Path, *, run: bool) -> None:
    program = tmp_path / "forgetful.py"
    program.write_text(
        "from millstream.datastream import StreamExecutionEnvironment\n"
        "env = StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1]).map(str).print()\n"
    )
    front = [sys.executable, "-m", "millstream", "run"] if run else [sys.executable]
    done = subprocess.run([*front, str(program)], capture_output=True, text=True, check=True)
    assert done.stderr == (
        "millstream: the program made 2 operators (the first in forgetful.py:3) and never called"
        " execute()\n"
    )
    program.write_text(program.read_text() + "print(env.get_execution_plan()[:1])\n")
    done = subprocess.run([*front, str(program)], capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("{\n", "")
