"""The programs of README and getting-started run and print what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_PROGRAM_AND_OUTPUT = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def programs() -> list[tuple[str, str, str]]:
    found = []
    for page in ("README.md", "docs/getting-started.md"):
        text = (ROOT / page).read_text()
        for number, (program, output) in enumerate(_PROGRAM_AND_OUTPUT.findall(text), 1):
            found.append((f"{page} {number}", program, output))
    return found


def run(program: Path, cwd: Path) -> str:
    result = subprocess.run(
        [sys.executable, "-m", "millstream", "run", "--master", "local[2]", str(program)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.spark
@pytest.mark.parametrize(
    ("program", "output"), [pytest.param(p, o, id=name) for name, p, o in programs()]
)
def test_program_prints_what_the_page_says(program: str, output: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)
    assert run(path, tmp_path) == output


@pytest.mark.spark
def test_dead_letters(tmp_path: Path) -> None:
    lines = run(ROOT / "examples" / "dead_letters.py", tmp_path).splitlines()
    assert lines == ["bad: b,not a number", "good: a 1.5", "good: c 3.0"]


@pytest.mark.parametrize(("name", "number"), [("words", 0), ("silence", 1), ("hourly", 2)])
def test_examples_are_those_of_the_page(name: str, number: int) -> None:
    page = (ROOT / "docs" / "getting-started.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert (ROOT / "examples" / f"{name}.py").read_text().endswith(blocks[number])
