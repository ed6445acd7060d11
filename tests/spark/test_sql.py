"""SQL on Spark's engine, in epochs and in slots: programs, the shell, a worker that is killed."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from millstream.cli.main import main
from millstream.common import Configuration
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.udf import udf

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("spark")]

NUMBERS = 240
KILLED_AT = 133


def _files(path: Path) -> str:
    return f"WITH ('connector' = 'filesystem', 'path' = '{path}', 'format' = 'json')"


def _write(path: Path) -> None:
    path.mkdir()
    for part in range(3):
        rows = [
            {"id": n, "k": f"k{n % 5}", "ts": f"2024-01-01 00:{n // 60:02}:{n % 60:02}"}
            for n in range(part, NUMBERS, 3)
        ]
        (path / f"{part}.json").write_text("".join(json.dumps(row) + "\n" for row in rows))


def _read(path: Path) -> list[tuple[Any, ...]]:
    files = [each for each in path.iterdir() if each.name[0] not in "._"]
    return [tuple(json.loads(line).values()) for each in files for line in each.open()]


def _killing(flag: Path) -> Callable[[int], bool]:
    """True of any number; at one of them it kills the worker that it runs in, once."""

    def survives(number: int) -> bool:
        if number == KILLED_AT and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return True

    return survives


@pytest.mark.parametrize("execution", [pytest.param("epochs", marks=pytest.mark.soak), "pipelined"])
def test_statements_are_written_once_though_a_worker_is_killed(
    execution: str, tmp_path: Path
) -> None:
    configuration = Configuration()
    for key, value in {
        "execution.target": "spark",
        "millstream.execution": execution,
        "parallelism.default": "2",
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.interval": "200 ms",
        "millstream.local-directory": str(tmp_path / "local"),
        "millstream.progress": "off",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.attempts": "2",
        "restart-strategy.fixed-delay.delay": "10 ms",
    }.items():
        configuration.set_string(key, value)
    env = TableEnvironment.create(
        EnvironmentSettings.new_instance().with_configuration(configuration).build()
    )
    _write(tmp_path / "numbers")
    env.execute_sql(
        "CREATE TABLE numbers (id INT, k STRING, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - "
        f"INTERVAL '1' MINUTE) {_files(tmp_path / 'numbers')}"
    )
    env.execute_sql(
        "CREATE TEMPORARY VIEW names AS SELECT * FROM (VALUES ('k0', 'ann'), ('k3', 'bob'), "
        "('k3', 'cid')) AS t (k, name)"
    )
    env.execute_sql(f"CREATE TABLE pairs (id INT, name STRING) {_files(tmp_path / 'pairs')}")
    env.execute_sql(f"CREATE TABLE sums (k STRING, n BIGINT, s INT) {_files(tmp_path / 'sums')}")
    env.create_temporary_function(
        "survives", udf(_killing(tmp_path / "flag"), result_type="BOOLEAN")
    )
    statements = env.create_statement_set()
    statements.add_insert_sql(
        "INSERT INTO pairs SELECT a.id, b.name FROM numbers a JOIN names b ON a.k = b.k "
        "WHERE survives(a.id)"
    )
    statements.add_insert_sql(
        "INSERT INTO sums SELECT k, COUNT(*), SUM(id) FROM "
        "TUMBLE(TABLE numbers, DESCRIPTOR(ts), INTERVAL '2' MINUTE) "
        "GROUP BY window_start, window_end, k"
    )
    statements.execute().wait()
    assert (tmp_path / "flag").exists()
    names = {0: ["ann"], 3: ["bob", "cid"]}
    pairs = Counter((n, name) for n in range(NUMBERS) for name in names.get(n % 5, []))
    assert Counter(_read(tmp_path / "pairs")) == pairs
    sums: dict[tuple[int, str], list[int]] = {}
    for n in range(NUMBERS):
        sums.setdefault((n // 120, f"k{n % 5}"), []).append(n)
    wanted = Counter((k, len(found), sum(found)) for (_, k), found in sums.items())
    assert Counter(_read(tmp_path / "sums")) == wanted


def test_the_shell_runs_a_query_on_spark(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script = tmp_path / "a.sql"
    script.write_text(
        "SET 'execution.target' = 'spark';\nSET 'sql-client.execution.result-mode' = 'table';\n"
        "SELECT name, COUNT(*) AS n FROM (VALUES ('a'), ('b'), ('a')) AS x (name) GROUP BY name;\n"
    )
    assert main(["sql", "-f", str(script), "-p", "1"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[:5] == ["OK", "OK", "+------+---+", "| name | n |", "+------+---+"]
    assert sorted(lines[5:7]) == ["|    a | 2 |", "|    b | 1 |"]


def test_dataframes_come_in_and_go_out(spark: Any) -> None:
    rows = [("a", 1, 1.5, [1, 2]), ("b", 2, None, None), ("a", 3, 0.5, [])]
    frame = spark.createDataFrame(rows, "k string, n long, x double, xs array<int>")
    frame = frame.selectExpr("*", "timestamp'2024-01-01 10:00:00' AS at", "date'2024-01-02' AS d")
    configuration = Configuration()
    configuration.set_string("millstream.progress", "off")
    env = TableEnvironment.create(configuration)
    table = env.from_spark(frame)
    assert table.to_spark(spark).collect() == frame.collect()
    env.create_temporary_view("t", table)
    counts = env.sql_query("SELECT k, SUM(n) AS n FROM t GROUP BY k").to_spark(spark)
    counts.createOrReplaceTempView("counts_of_tables")
    found = spark.sql("SELECT k, n FROM counts_of_tables ORDER BY k").collect()
    assert [tuple(row) for row in found] == [("a", 4), ("b", 2)]
