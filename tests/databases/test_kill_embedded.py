"""kill -9 of a job that writes to files: SQLite, DuckDB, Delta Lake and Iceberg.

It is killed around the steps of the commit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.databases.kill_chain import KillChain
from tests.databases.targets import TARGETS

if TYPE_CHECKING:
    from pathlib import Path

#: The commit is the same for both; its first point is reached by ``test_kill_postgres.py``.
POINTS = {
    "sqlite": ["table.commit.before", "table.commit.after"],
    "duckdb": ["table.commit.before"],
    "delta": [
        "sink.prepare.after",
        "manifest.publish.after",
        "lakehouse.commit.before",
        "lakehouse.commit.after",
    ],
    "iceberg": [
        "lakehouse.commit.after",
        "lakehouse.commit.before",
        "manifest.publish.after",
        "sink.prepare.after",
    ],
}
#: They start more often than there are seconds in a quick test.
LONG = POINTS.keys() - {"duckdb"}


@pytest.mark.parametrize(
    "kind", ["duckdb", *(pytest.param(each, marks=pytest.mark.slow) for each in sorted(LONG))]
)
@pytest.mark.usefixtures("forks")
def test_killed_around_the_commit(kind: str, tmp_path: Path) -> None:
    chain = KillChain(kind, TARGETS[kind](str(tmp_path / "results.db")), tmp_path)
    chain.kill_at(*POINTS[kind])
    chain.finish()
