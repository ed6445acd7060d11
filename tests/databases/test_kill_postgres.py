"""kill -9 of a job that writes to PostgreSQL, around the steps of its sinks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.databases.kill_chain import KillChain
from tests.databases.targets import TARGETS

from millstream.crash_points import points_of

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {
    "postgres-two-phase": "PostgreSQL two-phase",
    "postgres-commit-table": "commit table",
    "postgres-upsert": "PostgreSQL upsert",
}


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", sorted(PARTS))
@pytest.mark.usefixtures("forks")
def test_killed_around_the_commit(kind: str, database: str, tmp_path: Path) -> None:
    chain = KillChain(kind, TARGETS[kind](database), tmp_path)
    chain.kill_at(*points_of(PARTS[kind]))
    chain.finish()
