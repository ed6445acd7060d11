"""A time limit for the tests of ``make test``: ten seconds, whatever else the machine does.

What it is: the time that a test takes is not the time that it is to blame for.  On a machine that
is busy with other work it waits for a core, on a slow one it computes for longer.  So a test that
took more than the limit is judged by what it must have taken on a calm machine as well, the longest
of three:

- the CPU time of the process of the tests;
- the CPU time of the children that it has waited for, divided among the cores;
- the time in which a core had nothing to do, so that nobody waited for one.

The limit grows with the time that this process needs, at that moment, for a computation that is
always the same.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings
from tests.support.examples import QUICK

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["LIMIT", "Moment", "check", "pace"]

#: Seconds.
LIMIT: Final = 10.0
#: Tests with one of these are not in ``make test``, or need a process that takes long to start.
EXEMPT: Final = ("slow", "extended", "soak", "spark")
#: CPU seconds of ``_compute`` on the machine on which the tests were last measured.
_REFERENCE: Final = 0.05
_CLOCK_TICKS: Final = os.sysconf("SC_CLK_TCK")
_STATISTICS: Final = Path("/proc/stat")


@dataclass(frozen=True, slots=True)
class Moment:
    """What clocks show, in seconds."""

    wall: float
    own: float
    children: float
    #: Of each core, the time without work; empty where the system does not tell.
    idle: tuple[float, ...]

    @staticmethod
    def now() -> Moment:
        """Read the clocks."""
        used = os.times()
        own, children = time.process_time(), used.children_user + used.children_system
        return Moment(time.perf_counter(), own, children, _idle())

    def since(self, before: Moment) -> float:
        """Seconds from ``before`` until now that the machine's other work does not explain."""
        idle = [after - then for after, then in zip(self.idle, before.idle, strict=False)]
        own, children = self.own - before.own, self.children - before.children
        return min(self.wall - before.wall, max(own, children / (os.cpu_count() or 1), *idle, 0.0))


def _idle() -> tuple[float, ...]:
    """Of each core."""
    if not _STATISTICS.exists():
        return ()
    lines = (line.split() for line in _STATISTICS.read_text().splitlines())
    cores = [fields for fields in lines if fields[0].startswith("cpu") and fields[0] != "cpu"]
    return tuple(int(fields[4]) / _CLOCK_TICKS for fields in cores)


def pace() -> float:
    """How many times longer than the reference this process computes now; 1 if it is faster."""
    before = time.process_time()
    _compute()
    return max(1.0, (time.process_time() - before) / _REFERENCE)


def _compute() -> int:
    return sum(number * number % 7 for number in range(500_000))


def check(item: pytest.Item, seconds: float, pace: Callable[[], float] = pace) -> None:
    """Fail a test that took too long.

    Args:
        item: the test.
        seconds: that it took, by ``Moment.since``.
        pace: by how much the machine is slower than others now.
    """
    if any(item.get_closest_marker(name) for name in EXEMPT):
        return
    if settings.get_current_profile_name() != QUICK:
        return  # all examples are tried, five times those of `make test`
    if seconds <= LIMIT or seconds <= LIMIT * (slower := pace()):
        return
    message = (
        f"took {seconds:.1f} s of its own, without what the machine did for others; a test of "
        f"`make test` has {LIMIT * slower:.0f} s.  Make it faster, or mark it `slow`, and "
        "`make test-all` runs it (docs/development/architecture.md, Tests)"
    )
    pytest.fail(message, pytrace=False)
