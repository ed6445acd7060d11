"""The script of docs/how-to/sql-shell.md prints the output and the error of the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.cli.main import main

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "sql-shell.md"
BLOCKS = re.findall(r"```(?:sql|text)\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_script_prints_what_the_page_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script, output = BLOCKS[:2]
    (tmp_path / "a.sql").write_text(script)
    assert main(["sql", "-p", "1", "-f", str(tmp_path / "a.sql")]) == 0
    assert capsys.readouterr().out == output


def test_the_error_is_the_one_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.sql").write_text(BLOCKS[2])
    assert main(["sql", "-f", str(tmp_path / "a.sql")]) == 1
    assert capsys.readouterr().err == BLOCKS[3]
