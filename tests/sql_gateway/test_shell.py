"""The SQL shell with a gateway prints what it prints without one, and its jobs outlive it."""

from __future__ import annotations

import io
import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.sql_gateway.conftest import Client, until

from millstream.cli.main import main
from millstream.cli.shell.gateway_executor import GatewayClient, GatewayExecutor, _error_of
from millstream.cli.shell.shell import Shell
from millstream.errors import JobError, SqlParserError, ValidationError
from millstream.sql_gateway.serialization import type_as_json, type_from_json
from millstream.types import logical_types as lt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.sql_gateway.gateway import SqlGateway

_ENDLESS = """
CREATE TABLE endless (a INT) WITH ('connector' = 'datagen', 'rows-per-second' = '10');
"""


@pytest.fixture
def executor(client: Client) -> Iterator[GatewayExecutor]:
    made = GatewayExecutor(GatewayClient(client.url), {"parallelism.default": "1"})
    yield made
    made.close(failed=False)


def _shown(
    script: str, options: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> tuple[int, str, str]:
    """Run a script; exit code, output and errors."""
    path = tmp_path / "script.sql"
    path.write_text(script)
    code = main(["sql", "-p", "1", *options, "-f", str(path)])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


_SCRIPTS = {
    "changes": """
        CREATE VIEW clicks AS
        SELECT * FROM
        (VALUES ('Mary', 1), ('größe', 2), ('Mary', CAST(NULL AS INT))) AS c (name, n);
        SELECT name, COUNT(n) AS clicks FROM clicks GROUP BY name;
        SET 'sql-client.execution.result-mode' = 'table';
        SELECT name, COUNT(n) AS clicks FROM clicks GROUP BY name;
        SET 'sql-client.execution.result-mode' = 'changelog';
        SELECT name, n FROM clicks;
        RESET 'sql-client.execution.result-mode';
        SELECT name FROM clicks WHERE name = 'nobody';
    """,
    "statements": """
        CREATE TABLE t (a INT, b TIMESTAMP(3), c ARRAY<STRING>) WITH ('connector' = 'datagen');
        SHOW TABLES; DESCRIBE t; SHOW CREATE TABLE t; EXPLAIN SELECT a FROM t; SHOW VIEWS;
        SET 'table.display.max-column-width' = '7'; SET;
        SELECT 'a long text', TRUE, 1.50, DATE '2024-02-29';
        RESET 'table.display.max-column-width';
        DROP TABLE t;
    """,
    "batch": """
        SET 'execution.runtime-mode' = 'batch';
        SELECT a, a * 2 AS twice, INTERVAL '1' DAY AS d, MAP['k', ROW(1, 'x')] AS m
        FROM (VALUES (2), (1)) AS t (a) ORDER BY a;
    """,
    "an error": "SELECT 1;\n\nSELECT * FROM missing;\nSELECT 2;",
    "a syntax error": "SELECT 1;\n\nSELECT a FRM t WHERE x GRUOP BY y;",
    "an unsupported statement": "CREATE MODEL m WITH ('a' = 'b');",
    "an unknown mode": "SET 'sql-client.execution.result-mode' = 'tabel';",
}


@pytest.mark.parametrize("name", _SCRIPTS)
def test_a_script_prints_the_same_with_and_without_a_gateway(
    client: Client, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = _SCRIPTS[name]
    code, out, err = _shown(script, ["--gateway", client.url], tmp_path, capsys)
    expected = _shown(script, [], tmp_path, capsys)
    if name == "statements":  # the gateway has options of its own
        out, expected = (
            _without_options(out),
            (
                expected[0],
                _without_options(expected[1]),
                expected[2],
            ),
        )
    assert (code, out, err) == expected


def _without_options(out: str) -> str:
    lines = [line for line in out.splitlines() if "sql-gateway." not in line]
    return "\n".join(
        " ".join(line.replace("-", " ").split()) for line in lines if "in set" not in line
    )


def test_a_job_of_insert_continues_without_the_shell(
    client: Client, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = f"{_ENDLESS} CREATE TABLE hole (a INT) WITH ('connector' = 'blackhole');"
    script += "INSERT INTO hole SELECT a FROM endless;"
    code, out, _ = _shown(script, ["--gateway", client.url], tmp_path, capsys)
    assert code == 0
    job_id = out.strip().rpartition(" ")[2]
    session = client.open()
    assert client.jobs(session)[job_id] == "RUNNING"
    client.rows(session, f"STOP JOB '{job_id}'")
    until(lambda: client.jobs(session)[job_id], lambda status: status != "RUNNING")


def test_an_insert_is_waited_for_at_the_gateway(
    executor: GatewayExecutor, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(file=io.StringIO())
    shell = Shell(executor, console, "tableau")
    shell.run(f"""
        CREATE TABLE s (a INT) WITH
          ('connector' = 'filesystem', 'format' = 'json', 'path' = '{tmp_path}/s');
        SET 'table.dml-sync' = 'true';
        BEGIN STATEMENT SET; INSERT INTO s VALUES (1); INSERT INTO s VALUES (2); END;
    """)
    shell.tell_of_ended_jobs()
    assert console.file.getvalue() == ""  # type: ignore[attr-defined]
    text = "".join(each.read_text() for each in (tmp_path / "s").iterdir())
    assert sorted(json.loads(line)["a"] for line in text.splitlines()) == [1, 2]
    assert "Job has been submitted with JobID" in capsys.readouterr().out


def test_the_end_of_a_job_is_reported_once(executor: GatewayExecutor) -> None:
    console = Console(file=io.StringIO())
    shell = Shell(executor, console, "tableau")
    shell.run("""
        CREATE TABLE hole (a INT) WITH ('connector' = 'blackhole');
        INSERT INTO hole VALUES (1);
    """)

    def reported() -> str:
        shell.tell_of_ended_jobs()
        return str(console.file.getvalue())  # type: ignore[attr-defined]

    assert until(reported, bool).endswith("has ended: FINISHED\n")
    assert reported().count("has ended") == 1
    assert shell.running_jobs() == []


@pytest.mark.parametrize("mode", ["table", "changelog", "tableau"])
def test_an_interrupt_cancels_the_query(
    client: Client,
    executor: GatewayExecutor,
    mode: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    console = Console(file=io.StringIO())
    shell = Shell(executor, console, mode)
    shell.run(_ENDLESS)
    asked = executor.page

    def interrupted(operation: str, token: int) -> Any:
        if token > 3:
            raise KeyboardInterrupt
        return asked(operation, token)

    monkeypatch.setattr(executor, "page", interrupted)
    with pytest.raises(KeyboardInterrupt):
        shell.run("SELECT a FROM endless;")
    monkeypatch.undo()
    session = client.open()
    until(lambda: client.jobs(session), lambda jobs: "RUNNING" not in jobs.values())
    if mode == "table":
        assert "so far" in console.file.getvalue()  # type: ignore[attr-defined]
    # The session serves on.
    shell.run("SHOW TABLES;")


def test_completion_is_that_of_the_session(executor: GatewayExecutor) -> None:
    executor.execute_sql("CREATE TABLE orders (a INT) WITH ('connector' = 'datagen')")
    assert list(executor.complete("SELECT * FROM ord", "")) == ["orders"]
    assert list(executor.complete("SELECT * FROM ", " WHERE a = 1"))[:1] == ["orders"]


def test_a_gateway_that_is_gone(
    start_gateway: Callable[..., SqlGateway], capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start_gateway()
    address = gateway.url
    executor = GatewayExecutor(GatewayClient(address), {})
    gateway.close()
    with pytest.raises(JobError, match=r"SQL gateway at .* does not answer"):
        executor.execute_sql("SHOW TABLES")
    assert list(executor.complete("SEL", "")) == []
    executor.close(failed=False)
    assert main(["sql", "--gateway", address, "-f", os.devnull]) == 1
    assert "`millstream sql-gateway` starts one" in capsys.readouterr().err


def test_a_session_stays_open_while_nothing_is_typed(
    start_gateway: Callable[..., SqlGateway],
) -> None:
    gateway = start_gateway(
        **{
            "sql-gateway__session__idle-timeout": "1 s",
            "sql-gateway__session__check-interval": "100 ms",
        }
    )
    executor = GatewayExecutor(GatewayClient(gateway.url), {}, heartbeat=0.1)
    executor.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'datagen')")
    other = Client(gateway.url)
    idle = other.open()
    # A session that nobody uses is closed; by then that of the shell would be, too.
    until(lambda: idle in gateway.sessions._sessions, lambda there: not there)
    rows: Any
    with executor.execute_sql("SHOW TABLES").collect_texts() as rows:
        assert [texts for _, texts in rows] == [("t",)]
    executor.close(failed=False)
    assert gateway.sessions._sessions == {}


def test_the_token_of_a_gateway(
    start_gateway: Callable[..., SqlGateway], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    token = tmp_path / "token"
    token.write_text("s3cret" * 6)
    token.chmod(0o600)
    gateway = start_gateway(**{"millstream__rest__token-file": str(token)})
    script = "SHOW CATALOGS;"
    code, _, err = _shown(script, ["--gateway", gateway.url], tmp_path, capsys)
    assert code == 1
    assert "--token-file FILE" in err
    options = ["--gateway", gateway.url, "--token-file", str(token)]
    code, out, _ = _shown(script, options, tmp_path, capsys)
    assert (code, "default_catalog" in out) == (0, True)


def test_errors_of_gateways_of_java() -> None:
    text = (
        "org.apache.flink.table.gateway.api.utils.SqlGatewayException: failed\n"
        "\tat org.apache.flink.A.b(A.java:1)\n"
        "Caused by: org.apache.flink.table.api.ValidationException: Object 'x' not found\n"
        "\tat org.apache.flink.C.d(C.java:2)\n\t... 3 more"
    )
    found = _error_of(text)
    assert isinstance(found, JobError)
    assert str(found) == "org.apache.flink.table.api.ValidationException: Object 'x' not found"
    assert isinstance(_error_of("millstream.errors.ValidationError: no: such"), ValidationError)
    parsed = _error_of("millstream.errors.SqlParserError: SQL, line 3, column 8: found FROM")
    assert isinstance(parsed, SqlParserError)
    assert (parsed.line, parsed.column) == (3, 8)
    # A name that is in the module and is no error of statements.
    assert isinstance(_error_of("millstream.errors.annotations: x"), JobError)


@pytest.mark.parametrize(
    "kind",
    [
        lt.NullType(),
        lt.DecimalType(10, 2, nullable=False),
        lt.CharType(3),
        lt.VarCharType(7),
        lt.VarBinaryType(),
        lt.TimeType(3),
        lt.TimestampType(9),
        lt.LocalZonedTimestampType(3, nullable=False),
        lt.MapType(lt.IntType(), lt.ArrayType(lt.DoubleType(nullable=False))),
        lt.MultisetType(lt.BooleanType()),
        lt.RowType([lt.RowField("a", lt.BigIntType(), "its comment")]),
    ],
)
def test_types_are_read_as_they_were_written(kind: lt.LogicalType) -> None:
    assert type_from_json(type_as_json(kind)) == kind


def test_types_that_are_unknown_are_texts() -> None:
    kind = type_from_json({"type": "INTERVAL_DAY_TIME", "nullable": False})
    assert kind == lt.VarCharType(nullable=False)
