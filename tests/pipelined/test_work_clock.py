"""The clock by which a slot measures its own work."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from millstream.runtime.pipelined import batch_sizing
from millstream.runtime.pipelined.batch_sizing import BatchSizer, WorkClock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_it_stands_still_while_the_thread_waits_for_a_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statistics = tmp_path / "schedstat"
    statistics.write_text("7 0 1\n")
    monkeypatch.setattr(batch_sizing, "_STATISTICS", str(statistics))
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    clock = WorkClock()
    began = clock.seconds()
    now[0] += 5.0
    statistics.write_text("7 3000000000 2\n")
    assert clock.seconds() - began == pytest.approx(2.0)
    clock.close()


@pytest.mark.parametrize("content", [None, "", "no numbers"])
def test_where_the_system_does_not_count_it_is_a_monotonic_clock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    statistics = tmp_path / "schedstat"
    if content is not None:
        statistics.write_text(content)
    monkeypatch.setattr(batch_sizing, "_STATISTICS", str(statistics))
    monkeypatch.setattr("time.monotonic", lambda: 100.0)
    clock = WorkClock()
    assert clock.seconds() == 100.0
    assert clock.waited() == 0.0


def test_it_never_goes_back() -> None:
    clock = WorkClock()
    readings = [clock.seconds() for _ in range(2000)]
    assert readings == sorted(readings)
    clock.close()


@pytest.fixture
def hogs() -> Iterator[list[subprocess.Popen[bytes]]]:
    """Two processes per processor that are busy until they are killed, or for a minute."""
    program = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    command = [sys.executable, "-S", "-c", program]
    started = [subprocess.Popen(command) for _ in range(2 * (os.cpu_count() or 1))]
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.extended
def test_batches_stay_long_beside_cpu_hogs_and_recover(hogs: list[subprocess.Popen[bytes]]) -> None:
    clock, sizer, target = WorkClock(), BatchSizer(1 << 20, 0.02), 0.02

    def work(seconds: float) -> tuple[float, list[int]]:
        """Process records for some seconds; the work that one took, and the lengths of batches."""
        began, records, lengths = clock.seconds(), 0, list[int]()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            before = clock.seconds()
            lengths.append(sizer.limit)
            for each in range(sizer.limit):
                hash(str(each))
            sizer.processed(lengths[-1], clock.seconds() - before)
            records += lengths[-1]
        return (clock.seconds() - began) / records, lengths

    try:
        each, crowded = work(4.0)
        # It has grown to the target in spite of them, and does not collapse: one batch in two has
        # a quarter of the target at least, though a hog may take the processor for several of it.
        usual = sorted(crowded[len(crowded) // 2 :])
        assert usual[len(usual) // 2] >= target / each / 4, (each, crowded)
        for process in hogs:
            process.kill()
        each, free = work(2.0)
        assert max(free[-20:]) >= target / each / 3, (each, free)
    finally:
        clock.close()
