"""The program on the page about engines prints what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

PAGE = Path(__file__).parents[2] / "docs" / "concepts" / "engines.md"


def test_the_program_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (found,) = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)
    program, expected = found
    exec(compile(program, str(PAGE), "exec"), {"__name__": "engines"})
    assert capsys.readouterr().out == expected
