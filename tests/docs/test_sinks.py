"""The sinks of docs/sinks.md keep the contract, and are exactly-once in a job that is killed."""

from __future__ import annotations

import re
import sqlite3
import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Types
from millstream.runtime.batch import Batch
from millstream.testing.conformance import check_sink

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "sinks.md"


@pytest.fixture
def page() -> Iterator[Any]:
    """The page's code as a module (it must be importable, for instances are pickled)."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 4
    module = types.ModuleType("docs_sinks")
    sys.modules[module.__name__] = module
    for block in blocks:
        assert block.count("\n") < 40, "the examples shall stay short"
        exec(compile(block, str(PAGE), "exec"), module.__dict__)
    yield module
    del sys.modules[module.__name__]


def query(path: Path, statement: str) -> list[Any]:
    with sqlite3.connect(path) as database:
        return database.execute(statement).fetchall()


def test_two_phase(page: Any, tmp_path: Path) -> None:
    page.check(tmp_path)


def test_write_ahead(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.db"
    query(path, "CREATE TABLE results (row TEXT)")
    query(path, "CREATE TABLE notes (job TEXT, sink TEXT, epoch INT, PRIMARY KEY (job, sink))")
    batches = [Batch(Types.LONG(), values=[1, 2, 3]), Batch(Types.LONG(), values=[4])]
    check_sink(lambda: page.SqliteRows(path), batches, lambda: query(path, "SELECT * FROM results"))


def test_upsert_fenced(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "totals.db"
    query(path, "CREATE TABLE totals (name TEXT PRIMARY KEY, total INT, epoch INT)")
    batches = [Batch(Types.PICKLED_BYTE_ARRAY(), values=[("a", 1), ("b", 2), ("a", 3)])]
    read = "SELECT name, total FROM totals"
    check_sink(lambda: page.SqliteTotals(path, fenced=True), batches, lambda: query(path, read))
    assert sorted(query(path, read)) == [("a", 3), ("b", 2)]
