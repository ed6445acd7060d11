"""The program of the page about upgrades prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "upgrades.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def test_the_page_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names = {"__name__": "docs_upgrades"}
    blocks = BLOCK.findall(PAGE.read_text())
    for number, (program, expected) in enumerate(blocks):
        exec(compile(program, f"upgrades.md block {number}", "exec"), names)
        printed = [line for line in capsys.readouterr().out.splitlines() if line]
        assert printed == expected.splitlines(), f"block {number}"
    assert len([expected for _, expected in blocks if expected]) == 7
