"""Each program of the gallery is short, listed once, and prints what its index shows."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from millstream.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
INDEX: Final = (EXAMPLES / "README.md").read_text()
#: Name of the program, what it shows.
LISTED: Final = re.findall(r"^- \[(.+?)\]\(\1\): (.+)$", INDEX, re.MULTILINE)
#: Name of the program -> its output.
SHOWN: Final = dict(
    re.findall(r"^### (\S+)\n\n```text\n(.*?)```$", INDEX, re.MULTILINE | re.DOTALL)
)
#: The tutorial's, which has a page and a test.
TUTORIAL: Final = {"tutorial.py", "tutorial_servers.py"}
#: These need Spark, pytest, or print what they measured.
SPECIAL: Final = {"spark_dataframes.py", "testing_a_function.py", "low_latency.py"}
MOST_LINES: Final = 60


def run(name: str, *options: str) -> None:
    assert main(["run", *options, str(EXAMPLES / name)]) == 0


def test_index_lists_each_program_once_with_its_docstring() -> None:
    programs = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    docstrings = {name: ast.get_docstring(ast.parse(text)) for name, text in programs.items()}
    first_lines = {name: (text or "").partition("\n")[0] for name, text in docstrings.items()}
    assert len(LISTED) == len(dict(LISTED))
    assert dict(LISTED) == {n: line for n, line in first_lines.items() if n not in TUTORIAL}
    assert SHOWN.keys() == dict(LISTED).keys()


@pytest.mark.parametrize("name", [name for name, _ in LISTED])
def test_programs_are_short(name: str) -> None:
    assert len((EXAMPLES / name).read_text().splitlines()) <= MOST_LINES


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
@pytest.mark.parametrize("name", [name for name, _ in LISTED if name not in SPECIAL])
def test_program_prints_what_the_index_shows(
    name: str, execution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run(name, "--target", "local", "-D", f"millstream.execution={execution}")
    assert capsys.readouterr().out == SHOWN[name]


def test_low_latency(capsys: pytest.CaptureFixture[str]) -> None:
    run("low_latency.py", "--target", "local")
    number = r"\d+\.\d(?= ms$)"
    printed, shown = capsys.readouterr().out, SHOWN["low_latency.py"]
    (measured,) = re.findall(number, printed, re.MULTILINE)
    assert re.sub(number, "", printed, flags=re.MULTILINE) == re.sub(
        number, "", shown, flags=re.MULTILINE
    )
    # On a busy machine; micro-batches take longer on an idle one.
    assert 0 < float(measured) < 500


def test_spark_dataframes(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    run("spark_dataframes.py")
    assert capsys.readouterr().out.strip() == SHOWN["spark_dataframes.py"].strip()


def test_testing_a_function() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "testing_a_function.py"],
        cwd=EXAMPLES,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout
    assert (
        SHOWN["testing_a_function.py"] == result.stdout.splitlines()[-1].partition(" in ")[0] + "\n"
    )
