"""Killed at every step of the sink templates: each record once, all four sinks agree."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path

import pytest
from tests.forked import run_forked
from tests.recovery.template_job import KEYS, LAST

from millstream.crash_points import points_of
from millstream.testing.crash import run_once

JOB = Path(__file__).parent / "template_job.py"
#: Steps of the protocol around them, at which four sinks may be in different states.
PROTOCOL = ["manifest.publish.after", "sink.commit.after:3", "recover.commit.after"]
POINTS = points_of("staged values", "write-ahead sink", "two-phase sink")


@pytest.mark.extended
@pytest.mark.usefixtures("forks")
def test_every_crash_point_of_the_templates(tmp_path: Path) -> None:
    crashes = [f"{point}:{2 + index % 3}" for index, point in enumerate(POINTS)] + PROTOCOL
    for number, crash in enumerate(crashes):
        directory = tmp_path / f"run-{number}"
        run = run_forked(JOB, [str(tmp_path)], directory=directory, crash=crash, deadline=300.0)
        assert run.killed, f"{crash} was not reached:\n{run.output}"
    last = run_once([sys.executable, str(JOB), str(tmp_path)], directory=tmp_path / "last")
    assert last.exit_code == 0, last.output

    numbers = list(range(1, LAST + 1))
    files = [path for path in (tmp_path / "files").iterdir() if not path.name.startswith(".")]
    lines = [int(line) for path in files for line in path.read_text().split()]
    assert sorted(lines) == numbers
    with sqlite3.connect(tmp_path / "results.db") as database:
        rows = [row for (row,) in database.execute("SELECT row FROM results ORDER BY rowid")]
        assert sorted(rows) == numbers
        for key in range(KEYS):  # in order per key
            assert [row for row in rows if row % KEYS == key] == numbers[(key - 1) % KEYS :: KEYS]
        repeated = [row for (row,) in database.execute("SELECT row FROM repeated")]
        assert set(repeated) == set(numbers)
        assert len(repeated) > LAST, "a kill between writing and noting repeats an epoch"
        totals = dict(database.execute("SELECT name, total FROM totals").fetchall())
    assert totals == {number % KEYS: number for number in numbers}
    left = [p for p in (tmp_path / "files").iterdir() if p.name.startswith(".")]
    left += list((tmp_path / "checkpoint" / "sinks").rglob("*.transaction"))
    assert left == [], "transactions are left over"
