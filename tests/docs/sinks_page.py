"""The programs of docs/how-to/custom-sinks.md as modules in files that processes import."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from deltalake import DeltaTable

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

__all__ = ["create_table", "rows_of", "write_modules"]

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "custom-sinks.md"


def write_modules(directory: Path) -> Path:
    """Write ``docs_sinks``, and ``docs_delta``, which needs more packages; returns where."""
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(blocks) == 5
    lines = [sum(bool(line.strip()) for line in block.splitlines()) for block in blocks]
    assert max(lines) <= 30, "an example has 30 lines"
    (delta,) = (block for block in blocks if "import CommitProperties" in block)
    blocks.remove(delta)
    modules = directory / "page"
    modules.mkdir()
    (modules / "docs_sinks.py").write_text("\n".join(blocks))
    (modules / "docs_delta.py").write_text(delta)
    return modules


def create_table(path: Path, schema: pa.Schema) -> Path:
    """Make an empty Delta table."""
    DeltaTable.create(str(path), schema)
    return path


def rows_of(path: Path, version: int | None = None) -> Sequence[dict[str, Any]]:
    """What a reader of a Delta table sees, or saw when that was its version."""
    table = DeltaTable(str(path), version=version).to_pyarrow_table()
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows
