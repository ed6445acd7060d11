"""The examples of docs/how-to/custom-connectors.md keep the contracts that the page explains."""

from __future__ import annotations

import importlib
import re
import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Types
from millstream.contracts.batch import Batch
from millstream.testing.conformance import check_cursors, check_sink, check_source

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "custom-connectors.md"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The page's code as a module in a file: other processes import it, for sinks are pickled."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 2
    lines = [sum(bool(line.strip()) for line in block.splitlines()) for block in blocks]
    assert max(lines) <= 30, "an example has 30 lines"
    (tmp_path / "page").mkdir()
    (tmp_path / "page" / "docs_connectors.py").write_text("\n".join(blocks))
    monkeypatch.syspath_prepend(tmp_path / "page")
    yield importlib.import_module("docs_connectors")
    del sys.modules["docs_connectors"]


def test_source(page: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "readings.db")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE readings (sensor TEXT, value REAL)")
        rows = [(f"sensor {i % 7}", i / 2) for i in range(100)]
        connection.executemany("INSERT INTO readings VALUES (?, ?)", rows)
    source = page.SqliteSource(path, "readings")
    check_source(source)
    check_cursors(source)
    (split,) = source.discover(frozenset())
    (batch,) = source.read(split, 10, 12)
    assert batch.values == rows[10:12]


def test_sink(page: Any, tmp_path: Path) -> None:
    path = tmp_path / "results.db"

    def read() -> list[tuple[str]]:
        with sqlite3.connect(path) as connection:
            known = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'results'")
            if known.fetchone() is None:
                return []
            return connection.execute("SELECT row FROM results").fetchall()

    batches = [Batch(Types.LONG(), values=[1, 2, 3]), Batch(Types.LONG(), values=[4])]
    check_sink(lambda: page.SqliteSink(str(path)), batches, read)
