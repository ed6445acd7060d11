"""kill -9 at crash points of a job with sessions, early firing, a user's trigger and timers.

As ``test_kill_driver.py``, with another job and without Spark.  Which crash points a seed takes
is its own choice; ``MILLSTREAM_KILL_POINTS=40`` takes them all.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
from tests.recovery.recovery_data import write_input
from tests.recovery.session_data import (
    Result,
    expected_counted,
    expected_sessions,
    expected_sorted,
    visible,
)
from tests.recovery.test_kill_driver import DECISIVE, FIRST, Chain, _kill_at

from millstream.crash_points import points_of

pytestmark = pytest.mark.slow

SEEDS: Final = [int(seed) for seed in os.environ.get("MILLSTREAM_KILL_SEEDS", "1").split(",")]
POINTS: Final = int(os.environ.get("MILLSTREAM_KILL_POINTS", "5"))
RECORDS: Final = 900


class SessionChain(Chain):
    """The job of ``session_job.py``, started again and again."""

    job = Path(__file__).parent / "session_job.py"

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.seed = seed
        self.master = "mini"
        self.starts = 0
        events = write_input(directory / "input", seed, RECORDS)
        self.counted = expected_counted(events)
        self.sessions = expected_sessions(events)
        self.sorted = expected_sorted(events)

    def check(self, *, whole: bool) -> None:
        """What a reader sees now is right, and at the end complete."""
        rows: dict[str, list[Result]] = {"continuous": [], "counted": [], "sorted": []}
        for row in visible(self.directory / "output"):
            rows[row.kind].append(row)  # an alarm is a timer that was not deleted
        counted = Counter(rows["counted"])
        assert counted <= self.counted, f"{self}: wrong results: {counted - self.counted}"
        in_order = rows["sorted"]
        assert len(in_order) == len(set(in_order)), f"{self}: a row is visible twice"
        assert set(in_order) <= set(self.sorted), f"{self}: a wrong row is visible"
        for kind in ("continuous", "sorted"):
            last: dict[str, int] = {}
            for row in rows[kind]:
                number = row.number if kind == "continuous" else row.n
                assert number == last.get(row.key, 0) + 1, f"{self}: {kind} of {row.key}: {row}"
                last[row.key] = number
        if whole:
            assert counted == self.counted, f"{self}: lost: {self.counted - counted}"
            assert len(in_order) == len(self.sorted), f"{self}: rows are lost"
            finals = {}
            for row in rows["continuous"]:
                finals[row.key, row.end] = (row.key, row.start, row.end, row.n, row.total)
            missing = self.sessions - set(finals.values())
            assert not missing, f"{self}: sessions are lost: {missing}"


@pytest.mark.timeout(3000)
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("seed", SEEDS)
def test_sessions_early_firing_and_timers(seed: int, tmp_path: Path) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed} MILLSTREAM_KILL_POINTS={POINTS}")
    chance = random.Random(seed)
    chain = SessionChain(tmp_path, seed)
    others = sorted(set(points_of("driver", "task", "file sink")) - set(FIRST) - set(DECISIVE))
    chance.shuffle(others)
    decisive = chance.sample(DECISIVE, min(len(DECISIVE), (POINTS + 1) // 2))
    points = (decisive + others + [each for each in DECISIVE if each not in decisive])[:POINTS]
    chance.shuffle(points)
    _kill_at(chain, points, chance)
    assert chain.start(slow=False).exit_code == 0
