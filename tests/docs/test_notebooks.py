"""The cells of the page on notebooks, run in order, print what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest
    from pyspark.sql import SparkSession

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "notebooks.md"
CELL = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def test_cells_print_what_the_page_says(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    names: dict[str, Any] = {"__name__": "notebook"}
    cells = CELL.findall(PAGE.read_text())
    assert len(cells) == 4
    for number, (program, expected) in enumerate(cells, 1):
        exec(compile(program, f"cell {number}", "exec"), names)
        assert capsys.readouterr().out == expected
