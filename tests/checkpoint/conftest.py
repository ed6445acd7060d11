"""Crash points of this process raise instead of kill."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.checkpoint.toy_checkpoint_job import Killed

from millstream import crash_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture
def crash_at(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Arm crash points of this process; they raise ``Killed``.  Passings start from 0 each time."""
    arms = 0

    def kill() -> None:
        raise Killed

    def arm(value: str) -> None:
        nonlocal arms
        arms += 1
        counts = tmp_path / f"passings-{arms}"
        counts.mkdir()
        monkeypatch.setenv(crash_points.COUNT_VARIABLE, str(counts))
        crash_points.arm(value)

    monkeypatch.setattr(crash_points, "kill_driver_group", kill)
    yield arm
    crash_points.arm("")
