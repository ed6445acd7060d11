"""Commands about running jobs, against a REST API with example answers and a real directory."""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING, Final

import pexpect
import pyte
import pytest
from tests.cli.test_savepoint_command import running
from tests.ui.example_answers import JOB
from tests.ui.example_server import ExampleServer

from millstream.cli.job_figures import format_duration, format_rate
from millstream.cli.main import main
from millstream.datastream import JobStatus
from millstream.execution.announcements import announce_address

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_DEADLINE: Final = 30.0


@pytest.fixture
def example() -> Iterator[ExampleServer]:
    with ExampleServer() as server:
        yield server


@pytest.fixture
def address(example: ExampleServer) -> str:
    return f"{example.url}#/jobs/{JOB}"


def test_jobs_of_an_address_are_listed(
    example: ExampleServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["list", example.url]) == 0
    shown = capsys.readouterr().out
    assert [name in shown for name in ("orders-revenue", "RESTARTING", "nightly-import")]
    assert JOB in shown


def test_the_address_of_one_of_several_jobs_is_needed(
    example: ExampleServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", example.url]) == 1
    said = capsys.readouterr().err
    assert "several jobs are at" in said
    assert f"{example.url}#/jobs/{JOB} ('orders-revenue')" in said
    assert main(["status", f"{example.url}#/jobs/nobody"]) == 1
    assert "no such job" in capsys.readouterr().err


def test_status(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["status", address]) == 0
    shown = capsys.readouterr().out
    assert "RUNNING for 2 d 13 h" in shown
    assert "418 completed, 3 failed" in shown
    assert "took 900 ms" in shown
    assert "amount is negative" in shown


def test_metrics_are_found_by_their_names(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", address, "*lastCheckpointStateSize"]) == 0
    shown = capsys.readouterr().out
    assert "revenue_per_customer.lastCheckpointStateSize" in shown
    assert "numRecordsIn" not in shown
    assert main(["metrics", address, "numRecordsOf"]) == 1
    assert "no metric that matches 'numRecordsOf'" in capsys.readouterr().err


def test_logs(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["logs", address]) == 0
    assert capsys.readouterr().out.endswith("amount is negative (shop/orders.py:38)")
    assert main(["logs", address, "--slot", "slot-1"]) == 1
    assert "slot 'slot-1' of job 'orders-revenue' writes no log file" in capsys.readouterr().err


def test_savepoint_stop_and_cancel_by_the_api(
    example: ExampleServer, address: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert main(["savepoint", address, str(tmp_path), "--format", "native"]) == 0
    assert capsys.readouterr().out == "/savepoints/savepoint-5c1bf3-9a\n"
    assert main(["stop", address, "--drain"]) == 0
    assert main(["cancel", address, "--timeout", "1"]) == 1  # the example does not end
    assert "has not ended within 1 s" in capsys.readouterr().err
    assert example.sent == [
        (
            "POST",
            f"/jobs/{JOB}/savepoints",
            {"formatType": "NATIVE", "target-directory": str(tmp_path)},
        ),
        ("POST", f"/jobs/{JOB}/stop", {"formatType": "CANONICAL", "drain": True}),
        ("PATCH", f"/jobs/{JOB}?mode=cancel", None),
    ]


def test_a_token_is_read_from_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text("s3cret\n")
    with ExampleServer(token="s3cret") as server:
        assert main(["list", server.url]) == 1
        assert "A token is needed. (--token-file FILE)" in capsys.readouterr().err
        assert main(["list", server.url, "--token-file", str(file)]) == 0
    assert main(["list", server.url]) == 1
    assert "does not answer" in capsys.readouterr().err
    assert main(["list", server.url, "--token-file", str(tmp_path)]) == 1
    assert "cannot be read" in capsys.readouterr().err


def test_a_job_without_an_api_is_reached_by_its_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = running(tmp_path, "epochs", {})
    checkpoints = str(tmp_path / "checkpoints")
    job_id = client.get_job_id()
    assert main(["list"]) == 0
    line = next(each for each in capsys.readouterr().out.splitlines() if job_id in each)
    assert "RUNNING" in line
    assert checkpoints in line
    for name in (checkpoints, job_id, job_id[:8]):
        assert main(["status", name]) == 0
        assert "runs on this machine, without a REST API" in capsys.readouterr().out
    assert main(["top", checkpoints]) == 1
    assert "has no REST API" in capsys.readouterr().err
    assert main(["cancel", job_id]) == 0
    assert "cancelled job 'numbers'" in capsys.readouterr().out
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert main(["status", checkpoints]) == 0
    assert "does not run on this machine" in capsys.readouterr().out
    assert main(["status", job_id]) == 1
    assert "no running job" in capsys.readouterr().err


def test_the_announced_api_of_a_directory_is_used(
    tmp_path: Path, example: ExampleServer, capsys: pytest.CaptureFixture[str]
) -> None:
    client = running(tmp_path, "epochs", {})
    announce_address(client.get_job_id(), example.url)
    assert main(["list"]) == 0
    assert "no answer" in capsys.readouterr().out  # the example has no such job
    assert main(["status", str(tmp_path / "checkpoints")]) == 1
    assert "There is nothing at" in capsys.readouterr().err
    client.cancel().result()


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "-"), (0, "0/s"), (950, "950/s"), (12_345, "12.3k/s"), (4.5e6, "4.5M/s")],
)
def test_rates(value: float | None, written: str) -> None:
    assert format_rate(value) == written


@pytest.mark.parametrize(
    ("value", "written"),
    [(None, "-"), (12, "12 ms"), (4_200, "4.2 s"), (94_000, "1 min 34 s"), (2e8, "2 d 7 h")],
)
def test_durations(value: float | None, written: str) -> None:
    assert format_duration(value) == written


# -- top -------------------------------------------------------------------------------------------


def test_top_without_a_terminal_is_plain_text(
    address: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", address, "--once"]) == 0
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    lines = [each for each in shown.splitlines() if "orders with prices" in each]
    assert len(lines) == 1
    assert [text in lines[0] for text in ("93%", "1 min 3", "756.0 MiB")] == [True] * 3
    source = next(each for each in shown.splitlines() if "-> parse and validate" in each)
    assert "74%" in source
    assert "431,000" in source


class _Terminal:
    """`millstream top` in a terminal whose screen can be read."""

    def __init__(self, columns: int, address: str) -> None:
        self._screen = pyte.Screen(columns, 30)
        self._stream = pyte.ByteStream(self._screen)
        # They would win over the size of the terminal, and processes of tests have them.
        inherited = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}}
        self.process: pexpect.spawn[bytes] = pexpect.spawn(
            sys.executable,
            ["-m", "millstream", "top", address, "--interval", "1"],
            env={**inherited, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)},
            dimensions=(30, columns),
            timeout=_DEADLINE,
        )

    def text(self) -> str:
        return "\n".join(self._screen.display)

    def wait_for(self, text: str) -> None:
        deadline = time.monotonic() + _DEADLINE
        while text not in self.text():
            assert time.monotonic() < deadline, f"{text!r} is not shown:\n{self.text()}"
            try:
                self._stream.feed(self.process.read_nonblocking(65_536, 0.2))
            except pexpect.TIMEOUT:
                continue


@pytest.mark.parametrize("columns", [100, 160])
def test_top_in_a_terminal(columns: int) -> None:
    with ExampleServer() as server:
        terminal = _Terminal(columns, f"{server.url}#/jobs/{JOB}")
        for text in ("orders-revenue  RUNNING", "93%", "431,000", "amount is negative", "q: quit"):
            terminal.wait_for(text)
        port = server.port
    terminal.wait_for("does not answer")
    assert "93%" in terminal.text()  # what was seen last stays
    with ExampleServer(port):
        terminal.wait_for("RUNNING")
        terminal.process.send(b"q")
        terminal.process.expect(pexpect.EOF)
    terminal.process.close()
    assert terminal.process.exitstatus == 0
