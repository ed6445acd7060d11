"""A job that is started again and again, each time killed at another point, with a reader beside.

After each kill, and all the time while the job runs, a reader must see no row twice, none that is
wrong and, per key, n = 1, 2, 3, ... without a hole; at the end it sees all of them.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
from tests.databases.database_job import expected
from tests.forked import run_forked

from millstream.testing.crash import Run, run_once

if TYPE_CHECKING:
    from tests.databases.targets import Target

JOB = Path(__file__).parent / "database_job.py"


class KillChain:
    """One job with one target, whose table is made here."""

    def __init__(self, kind: str, target: Target, directory: Path) -> None:
        self.kind = kind
        self.target = target
        self.directory = directory
        self.wanted = expected()
        self.starts = 0
        self.looks = 0
        target.create()

    def kill_at(self, *points: str) -> None:
        """Start once per point (``name`` or ``name:n``) and be killed there."""
        for point in points:
            run = self.start(point if ":" in point else f"{point}:2")
            assert run.killed, f"crash point {point} was not reached\n{run.output}"

    def finish(self) -> None:
        """Start without a kill: all rows are there, nothing is left over."""
        run = self.start()
        assert run.exit_code == 0, run.output
        seen = self.target.read("SELECT key, n, id FROM results")
        assert sorted(seen) == self.wanted
        assert list(self.target.leftovers()) == []
        assert self.looks > 0, "the reader beside the job never came to read"

    def start(self, crash: str = "") -> Run:
        """Start the job, with a reader beside it; it is killed, or ends."""
        self.starts += 1
        arguments = [self.kind, self.target.address, str(self.directory / "checkpoints")]
        runs = self.directory / f"run-{self.starts}"
        over = threading.Event()
        wrong: list[BaseException] = []
        reader = threading.Thread(target=self._read_on, args=(over, wrong))
        reader.start()
        try:
            if crash:
                run = run_forked(JOB, arguments, directory=runs, crash=crash, deadline=300.0)
            else:
                command = [sys.executable, str(JOB), *arguments]
                run = run_once(command, directory=runs, deadline=300.0)
        finally:
            over.set()
            reader.join()
        assert not wrong, f"during start {self.starts} ({crash}): {wrong[0]!r}"
        check(self.target.read("SELECT key, n, id FROM results"), self.wanted)
        return run

    def _read_on(self, over: threading.Event, wrong: list[BaseException]) -> None:
        while not over.wait(0.05):
            try:
                seen = self.target.read("SELECT key, n, id FROM results")
                check(seen, self.wanted)
            except duckdb.Error:  # the job has the file open
                continue
            except Exception as error:  # noqa: BLE001 - it fails the test in its own thread
                wrong.append(error)
                return
            self.looks += 1


def check(seen: list[tuple[Any, ...]], wanted: list[tuple[str, int, int]]) -> None:
    """Every row is right and there once; each key's are there from the first on."""
    assert not Counter(seen) - Counter(wanted), f"wrong or twice: {Counter(seen) - Counter(wanted)}"
    counts = Counter(key for key, _, _ in seen)
    highest: dict[str, int] = {}
    for key, number, _ in seen:
        highest[key] = max(highest.get(key, 0), number)
    assert counts == highest, "a key's rows have a hole"
