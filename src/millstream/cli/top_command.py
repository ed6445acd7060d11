"""``millstream top``: the tasks of a job with live figures, in a terminal or as plain text."""

from __future__ import annotations

import contextlib
import select
import sys
import termios
import time
import tty
from typing import TYPE_CHECKING, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table as RichTable
from rich.text import Text

from millstream.cli.job_figures import (
    TaskLine,
    checkpoint_words,
    format_count,
    format_duration,
    format_rate,
    format_share,
    format_size,
    load_figures,
)
from millstream.cli.job_targets import ENDED
from millstream.cli.tables import Table
from millstream.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.cli.job_figures import JobFigures
    from millstream.cli.rest_client import RestClient

_COLUMNS: Final = (
    ("Task", False),
    ("Subtasks", True),
    ("In", True),
    ("Out", True),
    ("Busy", True),
    ("Backpressured", True),
    ("Watermark lag", True),
    ("Kafka lag", True),
    ("State", True),
)
#: Shares of a second from which they are shown in a colour.
_HIGH: Final = {"busy": (0.8, 0.95), "backpressured": (0.1, 0.5)}
_COLOURS: Final = {"RUNNING": "green", "FINISHED": "green", "CANCELED": "yellow"}


def show_top(api: RestClient, job_id: str, interval: float, *, once: bool) -> int:
    """Show the tasks of a job until it has ended, or the user presses q.

    Args:
        api: the REST API of the job.
        job_id: the job.
        interval: seconds between two updates.
        once: print the figures of now, and return.

    Returns:
        The exit code: 1 if the job has failed.

    Raises:
        JobError: the API does not answer to the first request.
    """
    figures = load_figures(api, job_id)
    if once or not sys.stdout.isatty():
        while True:
            _print(figures)
            if once or figures.status in ENDED:
                return int(figures.status == "FAILED")
            time.sleep(interval)
            figures = load_figures(api, job_id)
    return _live(api, figures, interval)


def _print(figures: JobFigures) -> None:
    print(f"{figures.name} ({figures.job_id}): {figures.status}", end="")
    print(f" for {format_duration(figures.duration)}")
    print(f"Last checkpoint: {checkpoint_words(figures)}")
    if figures.failure:
        print(f"Last failure: {figures.failure}")
    table = Table(*_COLUMNS)
    for task in figures.tasks:
        table.add(*_cells(task))
    table.print()
    sys.stdout.flush()


def _cells(task: TaskLine) -> tuple[str, ...]:
    return (
        task.name,
        str(task.parallelism),
        format_rate(task.rate_in),
        format_rate(task.rate_out),
        format_share(task.busy),
        format_share(task.backpressured),
        format_duration(task.lag),
        format_count(task.pending),
        format_size(task.state),
    )


def _live(api: RestClient, figures: JobFigures, interval: float) -> int:
    problem = ""
    with (
        _keys(),
        Live(_screen(figures), console=Console(), screen=True, auto_refresh=False) as live,
    ):
        while True:
            live.update(_screen(figures, problem), refresh=True)
            if _pressed(interval) in {"q", "Q", "\x1b"}:
                break
            try:
                figures, problem = load_figures(api, figures.job_id), ""
            except JobError as error:
                # What was seen last stays: the driver may be back in a moment.
                problem = str(error)
    return int(figures.status == "FAILED")


def _screen(figures: JobFigures, problem: str = "") -> Group:
    colour = _COLOURS.get(figures.status, "red")
    head = Text.assemble(
        (figures.name, "bold"),
        "  ",
        (figures.status, f"bold {colour}"),
        f"  for {format_duration(figures.duration)}",
    )
    parts = [head, Text(f"Last checkpoint: {checkpoint_words(figures)}")]
    if figures.restarts:
        parts.append(Text(f"Restarts since the driver started: {figures.restarts}", style="yellow"))
    if figures.failure:
        parts.append(Text(f"Last failure: {figures.failure}", style="red"))
    if problem:
        parts.append(Text(problem, style="bold red"))
    return Group(*parts, Text(""), _table(figures), Text("q: quit", style="dim"))


def _table(figures: JobFigures) -> RichTable:
    table = RichTable(box=None, pad_edge=False, header_style="dim", expand=True)
    for title, is_figure in _COLUMNS:
        # A narrow terminal cuts names, never figures.
        table.add_column(
            title,
            justify="right" if is_figure else "left",
            no_wrap=True,
            overflow="ellipsis",
            ratio=None if is_figure else 1,
            min_width=None if is_figure else 12,
        )
    for task in figures.tasks:
        cells = [Text(each) for each in _cells(task)]
        cells[4].stylize(_style("busy", task.busy))
        cells[5].stylize(_style("backpressured", task.backpressured))
        table.add_row(*cells)
    return table


def _style(kind: str, share: float | None) -> str:
    warn, bad = _HIGH[kind]
    if share is None or share < warn:
        return ""
    return "bold red" if share >= bad else "yellow"


@contextlib.contextmanager
def _keys() -> Iterator[None]:
    """Let single keys be read, without their being shown."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)
    try:
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _pressed(seconds: float) -> str:
    """Wait for a key; empty if none is pressed in time."""
    if not sys.stdin.isatty():
        time.sleep(seconds)
        return ""
    ready, _, _ = select.select([sys.stdin], [], [], seconds)
    return sys.stdin.read(1) if ready else ""
