"""The program of the page about state as data prints what the page shows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from millstream.cli.main import main

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "state-as-data.md"
BLOCK = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```)?", re.DOTALL)


def test_the_page_prints_what_it_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "docs_state_as_data"}
    page = PAGE.read_text()
    blocks = BLOCK.findall(page)
    for number, (program, expected) in enumerate(blocks):
        exec(compile(program, f"state-as-data.md block {number}", "exec"), names)
        printed = [line for line in capsys.readouterr().out.splitlines() if line]
        assert printed == expected.splitlines(), f"block {number}"
    assert len([expected for _, expected in blocks if expected]) == 5
    assert main(["state", names["savepoint"], "diff", names["corrected"]]) == 1
    shown = capsys.readouterr().out
    assert f"```text\n{shown}```" in page
