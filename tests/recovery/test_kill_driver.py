"""kill -9 of the driver's process group at every crash point and at random moments.

Each chain starts the job again and again; each start is killed at another crash point, then
the last is left to finish.  After every kill a reader must see no row twice and no row that is
not in the independent answer; at the end it sees all of them.  A chain is replayed with
``pytest tests/recovery/test_kill_driver.py -k "seed and <seed>"``.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from recovery_data import (
    expected_running,
    expected_windows,
    visible_running,
    visible_windows,
    write_input,
)

from millstream.crash_points import CRASH_POINTS
from millstream.testing.crash import Run, run_once

JOB = Path(__file__).parent / "recovery_job.py"
SEEDS = [int(seed) for seed in os.environ.get("MILLSTREAM_KILL_SEEDS", "1,2,3").split(",")]
BYTES_PER_EPOCH = 1_000
RECORDS = 2_400


def _check_visible(output: Path, running: list[object], windows: list[object], *, whole: bool) -> None:
    seen = visible_running(output)
    assert len(seen) == len(set(seen)), "a row is visible twice"
    assert set(seen) <= set(running), "a row is visible that no clean run makes"
    order: dict[str, int] = {}
    for key, _, number, _ in seen:
        if number > 0:
            assert number == order.get(key, 0) + 1, f"order of key {key} is lost"
            order[key] = number
    seen_windows = visible_windows(output)
    assert len(seen_windows) == len(set(seen_windows)), "a window is visible twice"
    assert set(seen_windows) <= set(windows), "a window is visible that no clean run makes"
    if whole:
        assert sorted(seen) == running
        assert sorted(seen_windows) == windows


@pytest.mark.parametrize("seed", SEEDS)
def test_every_crash_point(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    events = write_input(tmp_path / "input", seed, RECORDS)
    running, windows = expected_running(events), expected_windows(events)
    # Splits are logged when they are discovered, by the first run.
    first = ["splits.log.before", "splits.log.after"]
    points = sorted(set(CRASH_POINTS) - set(first))
    chance.shuffle(points)
    if seed != SEEDS[0]:
        # Every point is reached with the first seed, and at least twenty with each.
        points = points[: 20 - len(first)]
    output = tmp_path / "output"
    never_reached = []
    for number, point in enumerate(first + points):
        passing = 1 if point in first else chance.choice([1, 1, 2])
        report = _run(tmp_path, f"{number}-{point}", f"{point}:{passing}", BYTES_PER_EPOCH)
        if not report.killed:
            never_reached.append(point)
        _check_visible(output, running, windows, whole=False)
    report = _run(tmp_path, "last", "", 0)
    assert report.exit_code == 0, report.output
    _check_visible(output, running, windows, whole=True)
    assert not list(output.rglob(".pending*/**/*.*")), "orphans are left"
    assert not never_reached


@pytest.mark.parametrize("seed", SEEDS)
def test_random_moments(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed * 7919)
    events = write_input(tmp_path / "input", seed, RECORDS)
    running, windows = expected_running(events), expected_windows(events)
    for number in range(3):
        moment = chance.uniform(4.0, 14.0)
        _run(tmp_path, f"{number}", "", BYTES_PER_EPOCH, kill_after=moment)
        _check_visible(tmp_path / "output", running, windows, whole=False)
    report = _run(tmp_path, "last", "", 0)
    assert report.exit_code == 0, report.output
    _check_visible(tmp_path / "output", running, windows, whole=True)


def _run(
    tmp_path: Path,
    name: str,
    crash: str,
    bytes_per_epoch: int,
    kill_after: float | None = None,
) -> Run:
    """One start; killed or, if the crash point is not reached, to the end."""
    command = [
        sys.executable,
        str(JOB),
        str(tmp_path / "input"),
        str(tmp_path / "output"),
        str(tmp_path / "checkpoints"),
        str(bytes_per_epoch),
        "local[2]",
    ]
    return run_once(
        command,
        directory=tmp_path / "runs" / name,
        crash=crash,
        kill_after=kill_after,
    )
