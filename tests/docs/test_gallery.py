"""Each program of the gallery is short, listed once, and prints what its index shows."""

from __future__ import annotations

import ast
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from kafka.admin import NewTopic
from tests.databases.server import execute
from tests.support.environments import wait_until

from millstream.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from tests.kafka.broker import Broker

ROOT: Final = Path(__file__).parents[2]
EXAMPLES: Final = ROOT / "examples"
INDEX: Final = (EXAMPLES / "README.md").read_text()
#: Name of the program, what it shows.
LISTED: Final = re.findall(r"^- \[(.+?)\]\(\1\): (.+)$", INDEX, re.MULTILINE)
#: Name of the program -> its output.
SHOWN: Final = dict(
    re.findall(
        r"^### (\S+)\n\n(?:[^`#\n]+\n\n)?```text\n(.*?)```$", INDEX, re.MULTILINE | re.DOTALL
    )
)
#: The tutorial's, which has a page and a test.
TUTORIAL: Final = {"tutorial.py", "tutorial_servers.py"}
#: These need servers, Spark or pytest, or print what they measured.
SPECIAL: Final = {
    "kafka_to_postgres.py",
    "low_latency.py",
    "spark_dataframes.py",
    "testing_a_function.py",
}
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
    # The source takes a second for the last 200: they did not wait for each other.
    assert 0 < float(measured) < 1000


def test_kafka_to_postgres(broker: Broker, database: str, tmp_path: Path) -> None:
    table = "CREATE TABLE sessions (who text, began timestamp, ended timestamp, clicks bigint)"
    execute(database, table)
    broker.admin.create_topics([NewTopic("clicks", 1, 1)])
    clicks = ["ann 09:00", "bob 09:05", "ann 09:10", "ann 09:25", "cid 10:20"]
    messages = [
        json.dumps({"who": who, "page": "/", "at": f"2026-03-02T{clock}:00+00:00"}).encode()
        for who, clock in map(str.split, clicks)
    ]
    broker.send("clicks", messages)
    options = ["--target", "local", "--checkpoint-dir", str(tmp_path / "checkpoints")]
    program = [str(EXAMPLES / "kafka_to_postgres.py"), broker.servers, database]
    with (tmp_path / "log").open("w+") as log:
        job = subprocess.Popen(
            [sys.executable, "-m", "millstream", "run", *options, *program],
            env=os.environ | {"PYTHONPATH": str(ROOT / "src")},
            stderr=log,
        )
        try:
            wait_until(lambda: job.poll() is not None or len(rows(database)) > 1, "rows", 180)
            job.send_signal(signal.SIGINT)
            assert job.wait(180) == 130, log.seek(0) or log.read()
        finally:
            job.kill()
            broker.delete("clicks")
    assert "".join("  ".join(row) + "\n" for row in rows(database)) == SHOWN["kafka_to_postgres.py"]


def rows(database: str) -> list[tuple[str, ...]]:
    columns = "who, began::text, ended::text, clicks::text"
    return execute(database, f"SELECT {columns} FROM sessions ORDER BY began")


def test_spark_dataframes(spark: SparkSession, capsys: pytest.CaptureFixture[str]) -> None:
    run("spark_dataframes.py")
    assert capsys.readouterr().out.strip() == SHOWN["spark_dataframes.py"].strip()


def test_testing_a_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.delitem(sys.modules, "timers", raising=False)
    names = runpy.run_path(str(EXAMPLES / "testing_a_function.py"))
    tests = [test for name, test in names.items() if name.startswith("test_")]
    for test in tests:
        test()
    assert f"{len(tests)} passed\n" == SHOWN["testing_a_function.py"]
