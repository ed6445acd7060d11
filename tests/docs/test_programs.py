"""The programs of README and getting-started run and print what the pages say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.cli.main import main

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
PAGE_PROGRAMS: Final = re.findall(
    r"```python\n(.*?)```",
    (ROOT / "docs" / "tutorials" / "getting-started.md").read_text(),
    re.DOTALL,
)
_PROGRAM_AND_OUTPUT = re.compile(r"```python\n(.*?)```\n\n```text\n(.*?)```", re.DOTALL)


def programs() -> list[tuple[str, str, str]]:
    found = []
    for page in ("README.md", "docs/tutorials/getting-started.md"):
        text = (ROOT / page).read_text()
        for number, (program, output) in enumerate(_PROGRAM_AND_OUTPUT.findall(text), 1):
            found.append((f"{page} {number}", program, output))
    return found


@pytest.fixture
def run(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """``millstream run`` in this process: its session is there already."""
    monkeypatch.chdir(tmp_path)

    def program(path: Path) -> None:
        assert main(["run", str(path)]) == 0

    return program


@pytest.mark.parametrize(
    ("program", "output"), [pytest.param(p, o, id=name) for name, p, o in programs()[1:]]
)
def test_program_prints_what_the_page_says(
    program: str,
    output: str,
    run: Callable[[Path], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "program.py"
    path.write_text(program)
    run(path)
    assert capsys.readouterr().out == output


@pytest.mark.spark
def test_first_program_in_a_process_of_its_own(tmp_path: Path) -> None:
    _, program, output = programs()[0]
    path = tmp_path / "program.py"
    path.write_text(program)
    result = subprocess.run(
        [sys.executable, "-m", "millstream", "run", "--master", "local[2]", str(path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout == output


@pytest.mark.parametrize(("name", "number"), [("word_count", 0), ("timers", 1)])
def test_examples_are_those_of_the_page(name: str, number: int) -> None:
    assert (ROOT / "examples" / f"{name}.py").read_text().endswith(PAGE_PROGRAMS[number])


def test_hourly_means_of_files(tmp_path: Path) -> None:
    events, means = tmp_path / "events", tmp_path / "means"
    events.mkdir()
    minutes = [0, 20, 70, 30, 200]
    table = pa.table(
        {
            "sensor": ["a"] * len(minutes),
            "time": [minute * 60_000 for minute in minutes],
            "value": [1.0, 3.0, 5.0, 8.0, 9.0],
        }
    )
    pq.write_table(table, events / "events.parquet")
    program = tmp_path / "hourly.py"
    program.write_text(PAGE_PROGRAMS[2])
    options = ["--target", "local", "--checkpoint-dir", str(tmp_path / "checkpoints")]
    assert main(["run", *options, str(program), str(events), str(means)]) == 0
    files = [path for path in means.rglob("*.parquet") if not path.name.startswith(".")]
    rows = [row for path in files for row in pq.read_table(path).to_pylist()]
    assert sorted((row["window_start"], row["count"], row["avg_value"]) for row in rows) == [
        (0, 3, 4.0),
        (3_600_000, 1, 5.0),
        (10_800_000, 1, 9.0),
    ]
