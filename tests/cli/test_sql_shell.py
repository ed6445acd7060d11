"""The shell of SQL: scripts, its own commands, how results look, what is completed."""

from __future__ import annotations

import contextlib
import importlib.util
import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from millstream.cli.shell.display import Display, Rows, _fitted
from millstream.cli.shell.executor import EmbeddedExecutor
from millstream.cli.shell.shell import Shell, is_whole
from millstream.cli.shell.terminal import Terminal, history_file
from millstream.errors import ConfigurationError, JobError, SqlParserError, ValidationError
from millstream.execution.job_client import JobStatus
from millstream.sql.catalog.schema import PhysicalColumn, ResolvedSchema
from millstream.sql.parser.parser import parse_statement
from millstream.table.completion import candidates, word_before
from millstream.table.table_result import cell_texts
from millstream.types.logical_types import BigIntType, VarCharType
from millstream.types.row import Row, RowKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SCHEMA = ResolvedSchema(
    (PhysicalColumn("name", VarCharType()), PhysicalColumn("count", BigIntType()))
)


def change(kind: RowKind, *values: object) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


CHANGES = (
    change(RowKind.INSERT, "größe", 1),
    change(RowKind.INSERT, None, 1),
    change(RowKind.UPDATE_BEFORE, "größe", 1),
    change(RowKind.UPDATE_AFTER, "größe", 20),
    change(RowKind.INSERT, "x", 3),
    change(RowKind.DELETE, "x", 3),
    change(RowKind.INSERT, "[b]", 7),
    change(RowKind.INSERT, "[b]", 7),
)


@dataclass
class Result:
    """What a statement gives: rows, and maybe an exception behind them."""

    console: Console
    rows: tuple[Any, ...] = ()
    failure: BaseException | None = None
    job: object = None
    closed: bool = False
    waited: bool = False
    is_query: bool = False

    def get_resolved_schema(self) -> ResolvedSchema:
        return SCHEMA

    @contextlib.contextmanager
    def collect_texts(self) -> Iterator[Iterator[Any]]:
        try:
            yield self._changes()
        finally:
            self.closed = True

    def _changes(self) -> Iterator[Any]:
        texts = cell_texts(SCHEMA.types)
        yield from ((row.get_row_kind(), texts(row)) for row in self.rows)
        if self.failure is not None:
            raise self.failure

    def print(self) -> None:
        self.console.print("printed")

    def get_job_client(self) -> object:
        return self.job

    def wait(self) -> None:
        self.waited = True


@dataclass
class Client:
    """A job in the background."""

    status: JobStatus = JobStatus.RUNNING
    job_id: str = "j1"

    @property
    def job(self) -> Client:
        return self

    def get_job_id(self) -> str:
        return self.job_id

    def get_job_status(self) -> JobStatus:
        return self.status

    def get_job_execution_result(self) -> None:
        if self.status is JobStatus.FAILED:
            message = "division by zero"
            raise JobError(message)


@dataclass
class Environment:
    """Runs nothing, and remembers what it was given."""

    console: Console
    rows: tuple[Any, ...] = CHANGES
    failure: BaseException | None = None
    job: object = field(default_factory=Client)
    options: dict[str, str] = field(default_factory=dict)
    statements: list[str] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)

    def execute_sql(self, statement: str) -> Result:
        parse_statement(statement)
        self.statements.append(statement)
        if "missing" in statement:
            message = "missing: no such table"
            raise ValidationError(message)
        job = self.job if "INSERT" in statement else None
        result = Result(self.console, self.rows, self.failure, job)
        result.is_query = statement.strip().startswith(("SELECT", "EXECUTE"))
        self.results.append(result)
        return self.results[-1]

    def get_config(self) -> Environment:
        return self

    def get(self, key: str, default: str) -> str:
        return self.options.get(key, default)

    def list_catalogs(self) -> list[str]:
        return ["default_catalog", "files"]

    def list_databases(self) -> list[str]:
        return ["default_database"]

    def list_tables(self) -> list[str]:
        return ["orders", "rates"]

    def list_views(self) -> list[str]:
        return ["open_orders"]

    def list_user_defined_functions(self) -> list[str]:
        return ["my_function"]

    def from_path(self, path: str) -> Result:
        if path not in {"orders", "rates"}:
            message = f"no table {path}"
            raise ValidationError(message)
        return Result(self.console)


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), width=40, highlight=False, emoji=False)


@pytest.fixture
def environment(console: Console) -> Environment:
    return Environment(console)


@pytest.fixture
def shell(environment: Environment, console: Console) -> Shell:
    return Shell(EmbeddedExecutor(environment), console, "tableau")  # type: ignore[arg-type]


def shown(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_statements_run_one_after_the_other(shell: Shell, environment: Environment) -> None:
    assert shell.run("SELECT 1; -- ;\n  SHOW TABLES;;\nINSERT INTO t SELECT ';'")
    assert [each.strip() for each in environment.statements] == [
        "SELECT 1",
        "SHOW TABLES",
        "INSERT INTO t SELECT ';'",
    ]
    assert shown(environment.console) == "printed\nprinted\nprinted\n"


def test_a_script_ends_at_the_first_error(shell: Shell, environment: Environment) -> None:
    with pytest.raises(ValidationError):
        shell.run("SELECT 1; SELECT * FROM missing; SELECT 2")
    with pytest.raises(SqlParserError, match="line 3, column 8: found FROM"):
        shell.run("SELECT 3;\n\nSELECT FROM t; SELECT 4;")
    assert [each.strip() for each in environment.statements] == [
        "SELECT 1",
        "SELECT * FROM missing",
        "SELECT 3",
    ]


def test_commands_of_the_shell(shell: Shell, environment: Environment) -> None:
    assert shell.run("help")
    assert "Ctrl-C stops the query" in shown(environment.console)
    assert shell.run("CLEAR;")
    assert not shell.run(" quit ")
    assert not shell.run("SELECT 1; EXIT; SELECT 2")
    assert [each.strip() for each in environment.statements] == ["SELECT 1"]


def test_the_mode_of_results_is_an_option_of_the_shell(
    shell: Shell, environment: Environment
) -> None:
    shell.run("SET 'sql-client.execution.result-mode' = 'CHANGELOG'; SELECT 1")
    assert shown(environment.console).startswith("OK\nop | name | count\n+I | größe | 1\n")
    shell.run("RESET 'sql-client.execution.result-mode'; SELECT 1")
    assert shown(environment.console).endswith("OK\nprinted\n")
    shell.run("SET 'sql-client.execution.result-mode' = 'table'; RESET; EXECUTE SELECT 1")
    assert shown(environment.console).endswith("printed\nprinted\n")
    with pytest.raises(ConfigurationError, match=r"not 'tabel'\. Did you mean 'table'\?"):
        shell.run("SET 'sql-client.execution.result-mode' = 'tabel'")
    with pytest.raises(ConfigurationError, match="Did you mean"):
        shell.run("SET 'sql-client.execution.result-mod' = 'table'")
    shell.run("SET 'other' = 'value'; SET")
    assert [each.strip() for each in environment.statements[-2:]] == [
        "SET 'other' = 'value'",
        "SET",
    ]


def test_an_insert_is_waited_for_if_that_is_wanted(shell: Shell, environment: Environment) -> None:
    shell.run("INSERT INTO t SELECT 1; SHOW TABLES")
    environment.options["table.dml-sync"] = "true"
    shell.run("INSERT INTO t SELECT 2; SHOW TABLES")
    assert [each.waited for each in environment.results] == [False, False, True, False]


def test_the_end_of_a_job_in_the_background_is_told_once(
    shell: Shell, environment: Environment
) -> None:
    failing, finishing = Client(), Client(job_id="j2")
    synchronous = Client(JobStatus.FINISHED, "j3")
    for client in (failing, finishing):
        environment.job = client
        shell.run("INSERT INTO t SELECT 1")
    environment.options["table.dml-sync"] = "true"
    environment.job = synchronous
    shell.run("INSERT INTO t SELECT 2")
    shell.tell_of_ended_jobs()
    assert "Job" not in shown(environment.console)
    failing.status = JobStatus.FAILED
    shell.tell_of_ended_jobs()
    expected = "Job j1 has ended: FAILED\nJobError: division by zero\n"
    assert shown(environment.console).endswith(f"printed\n{expected}")
    finishing.status = JobStatus.FINISHED
    shell.tell_of_ended_jobs()
    shell.tell_of_ended_jobs()
    assert shown(environment.console).endswith(f"{expected}Job j2 has ended: FINISHED\n")


def test_a_table_has_the_rows_that_are_left(console: Console) -> None:
    result = Result(console, CHANGES)
    Display(console, "table").show(result)  # type: ignore[arg-type]
    assert shown(console) == (
        "+--------+-------+\n"
        "|   name | count |\n"
        "+--------+-------+\n"
        "|  größe |    20 |\n"
        "| <NULL> |     1 |\n"
        "|    [b] |     7 |\n"
        "|    [b] |     7 |\n"
        "+--------+-------+\n"
        "4 rows in set\n"
    )
    assert result.closed


def test_an_empty_table_and_wide_cells(console: Console) -> None:
    Display(console, "table").show(Result(console))  # type: ignore[arg-type]
    assert shown(console) == "Empty set\n"
    wide = "x" * 100
    Display(console, "table").show(Result(console, (change(RowKind.INSERT, wide, 1),)))  # type: ignore[arg-type]
    assert f"| {wide} |     1 |\n" in shown(console)
    Display(console, "changelog").show(Result(console, (change(RowKind.INSERT, wide, 1),)))  # type: ignore[arg-type]
    assert f"+I | {wide} | 1\n" in shown(console)


def test_changes_as_they_come(console: Console) -> None:
    Display(console, "changelog").show(Result(console, CHANGES[1:4]))  # type: ignore[arg-type]
    assert shown(console) == (
        "op | name | count\n+I | <NULL> | 1\n-U | größe | 1\n+U | größe | 20\n"
    )


@pytest.mark.parametrize("mode", ["table", "changelog"])
@pytest.mark.parametrize("failure", [KeyboardInterrupt(), JobError("no")])
def test_a_query_that_is_stopped_or_fails(
    console: Console, mode: str, failure: BaseException
) -> None:
    result = Result(console, CHANGES[:1], failure)
    with pytest.raises(type(failure)):
        Display(console, mode).show(result)  # type: ignore[arg-type]
    assert result.closed
    assert "größe" in shown(console)
    assert "in set" not in shown(console)
    assert ("1 row so far" in shown(console)) is (mode == "table")


def test_a_table_of_a_query_that_fails_at_once_is_no_empty_set(console: Console) -> None:
    with pytest.raises(JobError):
        Display(console, "table").show(Result(console, [], JobError("failed")))  # type: ignore[arg-type]
    assert shown(console) == "No rows so far\n"


def test_a_table_on_a_terminal_is_drawn_while_the_query_runs() -> None:
    console = Console(
        file=io.StringIO(), width=60, height=10, force_terminal=True, color_system=None
    )
    rows = tuple(change(RowKind.INSERT, f"row {i}", i) for i in range(50))
    Display(console, "table").show(Result(console, rows))  # type: ignore[arg-type]
    text = shown(console)
    assert "50 rows after 50 changes; Ctrl-C stops the query" in text
    assert text.endswith("50 rows in set\n")
    # The whole table is written once, at the end; before, only what fits.
    assert text.count("row 3 ") == 1


def test_rows_count_and_forget() -> None:
    rows = Rows()
    rows.apply(RowKind.DELETE, ("a",))  # an update whose first half comes late
    assert list(rows) == []
    rows.apply(RowKind.INSERT, ("a",))
    rows.apply(RowKind.INSERT, ("b",))
    assert list(rows) == [("b",)]
    assert rows.changes == 3


def test_an_update_takes_the_place_of_its_row() -> None:
    rows = Rows()
    for name in "abc":
        rows.apply(RowKind.INSERT, (name, "1"))
    rows.apply(RowKind.UPDATE_BEFORE, ("a", "1"))
    rows.apply(RowKind.UPDATE_BEFORE, ("b", "1"))
    rows.apply(RowKind.UPDATE_AFTER, ("a", "2"))
    rows.apply(RowKind.UPDATE_AFTER, ("b", "2"))
    rows.apply(RowKind.DELETE, ("c", "1"))
    rows.apply(RowKind.INSERT, ("d", "1"))
    assert list(rows) == [("a", "2"), ("b", "2"), ("d", "1")]
    assert rows.last(2) == [("b", "2"), ("d", "1")]


@pytest.mark.parametrize("width", range(20, 130, 7))
def test_a_live_table_fits_the_terminal(width: int) -> None:
    console = Console(file=io.StringIO(), width=width, force_terminal=True, color_system=None)
    table, hidden = _fitted(["k", "text", "count", "n"], [("1001", "x" * 90, "12345", "7")], width)
    console.print(table)
    (length,) = {len(line) for line in shown(console).splitlines()}
    frame, narrow = 13, len("1001") + len("12345") + len("7")
    assert length == min(width, narrow + 90 + frame) or hidden
    assert length <= width
    assert "1001" in shown(console)
    assert (hidden == 0) is (width >= narrow + 6 + frame)


def test_a_statement_whose_rows_are_too_wide_is_shown_row_by_row() -> None:
    console = Console(file=io.StringIO(), width=40, force_terminal=True, color_system=None)
    result = Result(console, (change(RowKind.INSERT, "x" * 40, 1),))
    Display(console, "table").show_statement(result)  # type: ignore[arg-type]
    expected = f"-- row 1 --\nname  | {'x' * 40}\ncount | 1\n1 row in set\n"
    assert shown(console) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ["ALTER", "ANALYZE", "BEGIN"]),
        ("sel", ["select"]),
        ("SELECT 1; SEL", ["SELECT"]),
        ("SELECT * FROM o", ["orders", "open_orders"]),
        ("select * from ", ["orders", "rates", "open_orders"]),
        ("SELECT nam FROM orders", []),
        ("SELECT * FROM orders WHERE n", ["name"]),
        ("SELECT * FROM missing WHERE my", ["my_function"]),
        ("SELECT * FROM orders WHER", ["WHERE"]),
        ("USE CATALOG f", ["files"]),
        ("USE d", ["default_database"]),
        ("SELECT * FROM TABLE(tum", ["tumble"]),
        ("SELECT nam", ["name"]),
        ("SELECT 1 FROM missing; SELECT nam", ["name"]),
        ("CREATE TABLE t (a INT) WITH (", ["'connector' = "]),
        ("CREATE TABLE t (a INT) WITH ('conn", ["'connector' = "]),
        ("CREATE TABLE t (a INT) WITH ('connector' = ", ["'blackhole'", "'datagen'"]),
        ("CREATE TABLE t (a INT) WITH ('connector'='up", ["'upsert-kafka'"]),
        ("... WITH ('connector' = 'kafka', 'form", ["'format' = "]),
        ("... WITH ('connector' = 'kafka', 'format' = 'js", ["'json'"]),
        (
            "... WITH ('connector' = 'kafka', 'format' = 'json', 'json.ig",
            ["'json.ignore-parse-errors' = "],
        ),
        ("... WITH ('connector' = 'kafka', 'sink.delivery-guarantee' = 'ex", ["'exactly-once'"]),
        ("... WITH ('connector' = 'kafka', 'topic' = 'to", []),
        ("... WITH ('connector' = 'blackhole'); SEL", ["SELECT"]),
        ("WITH (", ["'connector' = "]),
        ("WITH a AS (SELECT nam", ["name"]),
    ],
)
def test_completion(environment: Environment, text: str, expected: list[str]) -> None:
    found = candidates(environment, text)  # type: ignore[arg-type]
    assert found[: len(expected)] == expected


def test_columns_of_tables_behind_the_cursor(environment: Environment) -> None:
    found = candidates(environment, "SELECT nam", " FROM orders; SELECT")  # type: ignore[arg-type]
    assert found == ["name"]


def test_the_word_that_is_completed() -> None:
    assert word_before("WITH ('a' = 'b', 'connec") == "'connec"
    assert word_before("WITH ('a' = 'b') SEL") == "SEL"
    assert word_before("SELECT a.b") == "a.b"
    assert word_before("SELECT ") == ""
    assert word_before("SELECT f(`größe") == "`größe"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("", True),
        ("quit", True),
        ("Help ", True),
        ("SELECT 1", False),
        ("SELECT 1;", True),
        ("SELECT ';", False),
        ("helper", False),
    ],
)
def test_what_enter_runs(text: str, whole: bool) -> None:
    assert is_whole(text) is whole


def test_the_history_is_the_users_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert history_file() == tmp_path / "millstream" / "sql_history"
    monkeypatch.delenv("XDG_STATE_HOME")
    assert history_file().name == "sql_history"


def test_the_prompt(shell: Shell, environment: Environment, tmp_path: Path) -> None:
    """Typed: half a statement, its end, an error, a command; without the extra, what to install."""
    history = tmp_path / "state" / "history"
    if importlib.util.find_spec("prompt_toolkit") is None:
        with pytest.raises(ConfigurationError, match=r"pip install 'millstream\[sql\]'"):
            Terminal(shell, history)
        return
    from prompt_toolkit.completion import CompleteEvent
    from prompt_toolkit.document import Document
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    with create_pipe_input() as typed:
        typed.send_text("SELECT 1\r + 1;\rSELECT * FROM missing;\rSELECT * FROM x;\r\rquit\rSET;\r")
        Terminal(shell, history, input=typed, output=DummyOutput()).run()
    assert environment.statements == [
        "SELECT 1\n + 1",
        "SELECT * FROM missing",
        "SELECT * FROM x",
    ]
    assert "ValidationError: missing: no such table" in shown(environment.console)
    assert history.stat().st_mode & 0o077 == 0
    completer = Terminal(shell)._session.completer
    completions = completer.get_completions(Document("SELECT * FROM ra"), CompleteEvent())
    assert [(each.text, each.start_position) for each in completions] == [("rates", -2)]
    assert "SELECT 1" in history.read_text()


def test_an_interrupt_at_the_prompt_stops_the_query(shell: Shell, environment: Environment) -> None:
    if importlib.util.find_spec("prompt_toolkit") is None:
        with pytest.raises(ConfigurationError):
            Terminal(shell)
        return
    from prompt_toolkit.input import create_pipe_input
    from prompt_toolkit.output import DummyOutput

    environment.failure = KeyboardInterrupt()
    with create_pipe_input() as typed:
        typed.send_text("SET 'sql-client.execution.result-mode' = 'table';\rSELECT 1; SELECT 2;\r")
        typed.send_text("SELECT \x03SHOW TABLES;\r\x04")
        Terminal(shell, input=typed, output=DummyOutput()).run()
    assert [each.strip() for each in environment.statements] == ["SELECT 1", "SHOW TABLES"]
    assert "Stopped." in shown(environment.console)
