"""The progress display: what it says, how often, and where."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest

from millstream.metrics.progress import (
    LineProgressReporter,
    LiveProgressReporter,
    Progress,
    SilentProgressReporter,
    create_progress_reporter,
    format_bytes,
    format_watermark,
    is_reported,
)

if TYPE_CHECKING:
    from pathlib import Path


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_line_is_written_at_first_then_every_ten_seconds_and_at_the_end() -> None:
    lines: list[str] = []
    clock = Clock()
    reporter = LineProgressReporter("job", lines.append, 10.0, clock)
    for epoch in range(25):
        reporter.update(Progress(epoch, 1000 * epoch, 1000.0, 1_357_035_300_000, 2048, 0.5))
        clock.now += 1.0
    reporter.close()
    reporter.close()
    assert [line.split(" | ")[0] for line in lines] == [
        "job: checkpoint 0",
        "job: checkpoint 10",
        "job: checkpoint 20",
        "job: checkpoint 24",
    ]
    assert lines[1] == (
        "job: checkpoint 10 | 10,000 records | 1,000/s | watermark 2013-01-01 10:15:00 | "
        "2.0 KiB written | 0.50 s"
    )


def test_why_a_job_waits_to_be_started_again_stands_before_the_figures() -> None:
    lines: list[str] = []
    clock = Clock()
    reporter = LineProgressReporter("job", lines.append, 10.0, clock)
    reporter.update_failure("the checkpoint directory /x is full\nmore")
    clock.now += 10.0
    reporter.update(Progress(1, 10, 5.0, 0, 0, 2.0))
    assert lines[0] == "job: waiting to start again: the checkpoint directory /x is full ..."
    assert lines[1].startswith("job: checkpoint 1 | ")
    terminal = Terminal()
    live = LiveProgressReporter("job", terminal)
    live.update(Progress(1, 10, 5.0, 0, 0, 2.0))
    live.update_failure("the disk is full")
    live.close()
    assert "job: waiting to start again: the disk is full | checkpoint 1 |" in terminal.getvalue()


def test_what_is_pending_is_told_when_a_line_is_due() -> None:
    lines: list[str] = []
    clock = Clock()
    reporter = LineProgressReporter("job", lines.append, 10.0, clock)
    reporter.update(Progress(1, 10, 5.0, 0, 0, 2.0))
    for second in range(21):
        reporter.update_pending(3, second)
        clock.now += 1.0
    assert lines[1:] == [
        "job: 3 committables pending, the oldest for 10.0 s",
        "job: 3 committables pending, the oldest for 20.0 s",
    ]


def test_a_terminal_shows_what_is_pending_before_the_last_figures() -> None:
    terminal = Terminal()
    reporter = create_progress_reporter("job", "auto", terminal)
    reporter.update_pending(1, 0.25)
    reporter.update(Progress(7, 1000, 1000.0, 0, 0, 0.5))
    reporter.update_pending(2, 3.0)
    reporter.close()
    shown = terminal.getvalue()
    assert "job: 1 committable pending, the oldest for 0.2 s" in shown
    assert "job: 2 committables pending, the oldest for 3.0 s | checkpoint 7" in shown


def test_a_terminal_gets_a_live_line() -> None:
    terminal = Terminal()
    reporter = create_progress_reporter("job", "auto", terminal)
    assert isinstance(reporter, LiveProgressReporter)
    reporter.update(Progress(7, 1000, 1000.0, 0, 0, 0.5))
    reporter.close()
    reporter.close()
    assert "checkpoint 7" in terminal.getvalue()


def test_without_terminal_and_logging_lines_go_to_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(logging.getLogger("millstream.progress"), "level", logging.WARNING)
    stream = io.StringIO()
    reporter = create_progress_reporter("job", "on", stream)
    reporter.update(Progress(1, 10, 5.0, 0, 0, 2.0))
    assert stream.getvalue().startswith(
        "job: checkpoint 1 | 10 records | 5/s | watermark 1970-01-01"
    )


def test_with_logging_lines_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "millstream"):
        reporter = create_progress_reporter("job", "auto", io.StringIO())
        reporter.update(Progress(1, 10, 5.0, 0, 0, 2.0))
    assert "job: checkpoint 1" in caplog.text


@pytest.mark.parametrize("name", ["millstream", "millstream.progress"])
def test_jobs_that_print_report_progress_if_asked_to(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for each in ("millstream", "millstream.progress"):
        monkeypatch.setattr(logging.getLogger(each), "level", logging.NOTSET)
    monkeypatch.setattr(logging.getLogger(), "level", logging.INFO)
    logging.getLogger(name).manager._clear_cache()  # type: ignore[attr-defined]
    assert not is_reported("auto", shows_records=True)
    assert isinstance(
        create_progress_reporter("job", "auto", Terminal(), shows_records=True),
        SilentProgressReporter,
    )
    assert is_reported("auto", shows_records=False)
    assert is_reported("on", shows_records=True)
    assert not is_reported("off", shows_records=False)
    monkeypatch.setattr(logging.getLogger(name), "level", logging.INFO)
    logging.getLogger(name).manager._clear_cache()  # type: ignore[attr-defined]
    assert is_reported("auto", shows_records=True)


PROGRAM: Final = """
import logging, sys
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

logging.basicConfig(stream=sys.stdout, level=logging.INFO, format="%(message)s")
configuration = Configuration()
configuration.set_string("execution.target", sys.argv[1])
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(1)
env.from_collection([1, 2, 3]).print()
env.execute("rows")
print(list(env.from_collection([4]).execute_and_collect()))
"""


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("target", ["local", "spark"])
def test_a_program_that_logs_to_standard_output_prints_its_rows_alone(
    tmp_path: Path, target: str
) -> None:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    command = [sys.executable, str(path), target]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == "1\n2\n3\n[4]\n"


def test_off_is_silent() -> None:
    stream = Terminal()
    reporter = create_progress_reporter("job", "off", stream)
    assert isinstance(reporter, SilentProgressReporter)
    reporter.update(Progress(1, 10, 5.0, 0, 0, 2.0))
    reporter.close()
    assert stream.getvalue() == ""


@pytest.mark.parametrize(
    ("watermark", "text"),
    [(-(2**63), "none"), (2**63 - 1, "end of input"), (0, "1970-01-01 00:00:00")],
)
def test_watermarks(watermark: int, text: str) -> None:
    assert format_watermark(watermark) == text


@pytest.mark.parametrize(("count", "text"), [(0, "0 B"), (1536, "1.5 KiB"), (3 * 2**40, "3.0 TiB")])
def test_bytes(count: int, text: str) -> None:
    assert format_bytes(count) == text
