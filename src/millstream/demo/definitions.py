"""What the job, its check and its driver must agree on: constants and directories.

What it is not: a place for logic.

Read next: ``demo/job.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = [
    "HOUR_MS",
    "MINUTE_MS",
    "OUT_OF_ORDERNESS_MS",
    "PATIENCE_MS",
    "TURNAROUND_MS",
    "OutputDirectories",
    "committed_files",
]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
#: How far the watermark stays behind the latest scheduled departure seen.
OUT_OF_ORDERNESS_MS: Final = 2 * HOUR_MS
#: After so long every flight has left or was cancelled: the year's longest delay is 21 h 41 min.
PATIENCE_MS: Final = 24 * HOUR_MS
#: From arrival at the gate to leaving it again.
TURNAROUND_MS: Final = 30 * MINUTE_MS


class OutputDirectories:
    """Where the job writes, below one directory.  All are sinks of the exactly-once kind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: Every flight as it was read: the job's own account of its input.
        self.flights = directory / "flights"
        self.hourly = directory / "hourly"
        #: Flights that came too late for their window.
        self.late = directory / "late"
        self.missed = directory / "missed"
        #: Flights that came too late for ``MissedFlights``; there should be none.
        self.too_late = directory / "too-late"


def committed_files(directory: Path) -> list[Path]:
    """The files of a sink that a reader should look at: not hidden, not pending."""
    if not directory.is_dir():
        return []
    return sorted(
        path
        for path in directory.rglob("*.parquet")
        if not any(part.startswith((".", "_")) for part in path.relative_to(directory).parts)
    )
