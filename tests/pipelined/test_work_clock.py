"""The clock by which a slot measures its own work."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.runtime.pipelined import batch_sizing
from millstream.runtime.pipelined.batch_sizing import WorkClock

if TYPE_CHECKING:
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
