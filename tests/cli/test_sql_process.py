"""``millstream sql`` as a process: how soon a first row is there, Ctrl-C, jobs, exit codes."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import pytest
from tests.support.environments import wait_until

from millstream.cli.main import main
from millstream.testing.crash import group_lives

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Seconds; on a machine that does nothing else it takes about two.
FIRST_ROW: Final = 60.0
#: Seconds for the end of a process that was told to.
END: Final = 30.0
ENDLESS: Final = """
    CREATE TABLE clicks (n INT) WITH ('connector' = 'datagen', 'rows-per-second' = '20',
                                      'fields.n.min' = '0', 'fields.n.max' = '3');
    SET 'sql-client.execution.result-mode' = '{mode}';
    SELECT n, COUNT(*) AS c FROM clicks GROUP BY n;
    SELECT 'never reached';
"""


@contextmanager
def _shell(script: Path) -> Iterator[subprocess.Popen[str]]:
    """A shell at a script, in a group of its own that is killed at the end, or after FIRST_ROW."""
    process = subprocess.Popen(
        [sys.executable, "-m", "millstream", "sql", "-f", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    watch = threading.Timer(FIRST_ROW, lambda: os.killpg(process.pid, signal.SIGKILL))
    watch.start()
    try:
        yield process
    finally:
        watch.cancel()
        if group_lives(process.pid):
            os.killpg(process.pid, signal.SIGKILL)


def _first_row(shell: subprocess.Popen[str]) -> None:
    """Wait for the first row of a result."""
    assert shell.stdout is not None
    assert any("+I |" in line for line in shell.stdout), shell.communicate()[1]


@pytest.mark.parametrize("mode", ["tableau", pytest.param("changelog", marks=pytest.mark.soak)])
def test_the_first_row_of_an_endless_query_and_its_end(mode: str, tmp_path: Path) -> None:
    script = tmp_path / "endless.sql"
    script.write_text(ENDLESS.format(mode=mode))
    began = time.monotonic()
    with _shell(script) as process:
        _first_row(process)
        print(f"the first row came after {time.monotonic() - began:.2f} s")
        process.send_signal(signal.SIGINT)
        output, errors = process.communicate(timeout=END)
    assert process.returncode == 130
    assert errors == "millstream: interrupted\n"
    assert "never reached" not in output
    assert not group_lives(process.pid)


def _table(path: Path) -> str:
    return (
        f"CREATE TABLE target (a INT, b STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{path}', 'format' = 'json');"
    )


@pytest.mark.extended
def test_who_is_told_to_end_says_so_and_leaves_nobody(tmp_path: Path) -> None:
    script = tmp_path / "endless.sql"
    script.write_text(ENDLESS.format(mode="changelog"))
    with _shell(script) as process:
        _first_row(process)
        process.terminate()
        _, errors = process.communicate(timeout=END)
        assert process.returncode == -signal.SIGTERM
        assert "millstream: terminated" in errors
        wait_until(lambda: not group_lives(process.pid), "workers live on", seconds=END)


def test_a_script_waits_for_its_jobs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "a.sql"
    out = tmp_path / "out"
    script.write_text(
        f"{_table(out)}\nINSERT INTO target VALUES (1, 'x; y'), (2, 'z');\n"
        "EXECUTE STATEMENT SET BEGIN\n  INSERT INTO target VALUES (3, 'x');\nEND;\nSHOW TABLES"
    )
    assert main(["sql", "-f", str(script), "-p", "1"]) == 0
    lines = [line for each in out.glob("*.jsonl") for line in each.read_text().splitlines()]
    assert sorted(lines) == ['{"a":1,"b":"x; y"}', '{"a":2,"b":"z"}', '{"a":3,"b":"x"}']
    said = capfd.readouterr().out
    assert said.count("Job has been submitted with JobID ") == 2
    assert "| target |" in " ".join(said.split()).replace("|  ", "| ")


@pytest.mark.parametrize("synchronous", [False, True])
def test_a_job_that_fails_is_told_and_is_no_success(
    synchronous: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "a.sql"
    script.write_text(
        f"SET 'table.dml-sync' = '{str(synchronous).lower()}';\n{_table(tmp_path / 'out')}\n"
        "INSERT INTO target SELECT 7 / a, 'x' FROM (VALUES (1), (0)) AS t (a);\nSHOW CATALOGS;"
    )
    options = ["-D", "restart-strategy.type=none", "-p", "1"]
    assert main(["sql", "-f", str(script), *options]) == 1
    said = capfd.readouterr()
    assert ("default_catalog" in said.out) is not synchronous
    # The operator, the query, the expression and the value.
    job = "insert-into_default_catalog.default_database.target"
    assert said.err.endswith(
        f"millstream: ExpressionError: operator 'Calc' of job '{job}': "
        "/(7, EXPR$0) fails where EXPR$0 = 0: division by zero\n"
    )
    assert not list((tmp_path / "out").glob("*.jsonl"))


@pytest.mark.parametrize(
    ("mode", "wanted"),
    [
        ("changelog", "op | a\n+I | 1\n+I | 2\n"),
        ("tableau", "+----+-------------+\n| op |           a |\n+----+-------------+\n| +I |"),
        ("table", "+---+\n| a |\n+---+\n| 1 |\n| 2 |\n+---+\n2 rows in set\n"),
    ],
)
def test_the_modes_of_results(
    mode: str, wanted: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (
        f"SET 'sql-client.execution.result-mode' = '{mode}';\nSELECT a FROM (VALUES (1), (2)) t(a);"
    )
    monkeypatch.setattr(sys, "stdin", io.StringIO(text))
    assert main(["sql", "-p", "1"]) == 0
    assert capfd.readouterr().out.startswith(f"OK\n{wanted}")


#: What a statement over nothing needs none of; each takes time before the first row.
HEAVY: Final = frozenset(
    [
        "asyncio",
        "confluent_kafka",
        "duckdb",
        "email.message",
        "importlib.metadata",
        "kafka",
        "prompt_toolkit",
        "psycopg",
        "pyarrow.csv",
        "pyarrow.dataset",
        "pyarrow.parquet",
        "pyspark",
        "sqlite3",
    ]
)


@pytest.mark.extended
def test_a_statement_begins_without_what_it_does_not_need(tmp_path: Path) -> None:
    script = tmp_path / "one.sql"
    script.write_text("SELECT 1;")
    command = [sys.executable, "-X", "importtime", "-m", "millstream", "sql", "-f", str(script)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=FIRST_ROW, check=True)
    assert "+I |" in run.stdout
    lines = [line for line in run.stderr.splitlines() if line.startswith("import time:")]
    imported = {line.rpartition("|")[2].strip() for line in lines}
    assert "millstream.sql.parser.parser" in imported
    assert not imported & HEAVY
