"""The programs of docs/how-to/porting.md run with their imports replaced, and print its output."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import pytest

from millstream.configuration.configuration import CONFIGURATION_VARIABLE

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "porting.md"
BLOCKS = re.findall(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE.read_text(), re.DOTALL)


@pytest.mark.parametrize(("program", "expected"), BLOCKS, ids=["tables", "streams"])
def test_a_program_of_pyflink(program: str, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "millstream" not in program
    # Streams would run on Spark.
    monkeypatch.setenv(CONFIGURATION_VARIABLE, json.dumps({"execution.target": "local"}))
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(program.replace("pyflink", "millstream"), PAGE.name, "exec"), {})
    assert shown.getvalue() == expected
