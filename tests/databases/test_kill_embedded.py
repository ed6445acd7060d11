"""kill -9 of a job that writes to SQLite and DuckDB, around the steps of the commit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.databases.kill_chain import KillChain
from tests.databases.targets import TARGETS

from millstream.crash_points import points_of

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_killed_around_the_commit(kind: str, tmp_path: Path) -> None:
    chain = KillChain(kind, TARGETS[kind](str(tmp_path / "results.db")), tmp_path)
    chain.kill_at(*points_of("commit table"))
    chain.finish()
