"""The program of docs/sql.md prints what the page says."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import pytest  # noqa: TC002 - pytest looks for it

PAGE = Path(__file__).parents[2] / "docs" / "sql.md"
_BLOCKS = re.compile(r"```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)


def test_the_blocks_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    blocks = _BLOCKS.findall(PAGE.read_text())
    assert len(blocks) == 11
    for program, expected in blocks:
        shown = io.StringIO()
        with contextlib.redirect_stdout(shown):
            exec(compile(program, str(PAGE), "exec"), scope)
        assert shown.getvalue() == expected
