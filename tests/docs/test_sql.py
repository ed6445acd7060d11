"""The programs of the pages about SQL and about dynamic tables print what the pages say."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
_BLOCKS = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


@pytest.mark.parametrize(
    ("page", "count"), [("reference/sql.md", 17), ("concepts/dynamic-tables.md", 4)]
)
def test_the_blocks_of_the_page(
    page: str, count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    blocks = _BLOCKS.findall((DOCS / page).read_text())
    assert len(blocks) == count
    for program, expected in blocks:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(program, page, "exec"), scope)
        assert shown.getvalue() == expected
