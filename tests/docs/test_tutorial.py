"""The tutorial's programs are those of its page, and print what the page says."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "tutorials" / "kafka-to-postgres.md").read_text()
PROGRAM = ROOT / "examples" / "tutorial.py"


def words(text: str) -> str:
    """Without the empty lines, of which a page has fewer between its pieces."""
    return "\n".join(line for line in text.splitlines() if line.strip())


def test_the_page_shows_the_job_and_then_what_drives_it() -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    programs = [PROGRAM.with_name("kafka_to_postgres.py"), PROGRAM]
    code = [program.read_text().partition('"""\n\n')[2] for program in programs]
    assert words("".join(blocks)) == words("".join(code))


@pytest.mark.timeout(600)
def test_the_program_prints_what_the_page_says(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It starts its own servers; the session is there already."""
    monkeypatch.syspath_prepend(str(PROGRAM.parent))
    assert main(["run", str(PROGRAM)]) == 0
    (output,) = re.findall(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert capsys.readouterr().out == output
