"""The blocks of docs/how-to/postgres.md run, and the rows arrive."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tests.databases.server import execute

from millstream.testing.mini_cluster import MiniCluster

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "postgres.md"


def test_blocks(database: str, tmp_path: Path) -> None:
    execute(database, "CREATE TABLE counts (word TEXT PRIMARY KEY, n BIGINT NOT NULL)")
    scope: dict[str, Any] = {"CONNECTION": database}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), scope)
    MiniCluster(scope["env"].get_job_graph("page"), tmp_path).run()
    scope["source"].validate()
    assert sorted(execute(database, "SELECT * FROM counts")) == [("be", 2), ("or", 1), ("to", 2)]
