"""The blocks of docs/how-to/sqlite-duckdb.md run, and the rows arrive."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.testing.mini_cluster import MiniCluster

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sqlite-duckdb.md"


def test_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), scope)
    MiniCluster(scope["env"].get_job_graph("embedded"), tmp_path / "checkpoints").run()
    with sqlite3.connect("results.db") as connection:
        rows = connection.execute("SELECT * FROM counts").fetchall()
    assert sorted(rows) == [("be", 2), ("or", 1), ("to", 2)]
