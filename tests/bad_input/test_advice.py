"""Errors give advice that the one who reads them can follow: a table's options, a Python call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.cli.main import main
from millstream.datastream import StreamExecutionEnvironment
from millstream.directories import CHECKPOINTS, probe
from millstream.errors import DirectoryError, MalformedRecordError, ProgramError, ValidationError
from millstream.table import EnvironmentSettings, TableEnvironment

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def tables() -> TableEnvironment:
    tables = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for key, value in {
        "execution.target": "local",
        "restart-strategy.type": "none",
        "parallelism.default": "1",
    }.items():
        tables.get_config().set(key, value)
    return tables


@pytest.mark.parametrize(
    ("kind", "content", "said"),
    [
        ("json", '{"a":1,"t":"2020-01-01T00:00:00Z"}\n', "'json.timestamp-format.standard' = 'ISO"),
        ("json", "{nothing\n", "set 'json.ignore-parse-errors' = 'true' in the WITH options"),
        ("csv", "x,2020-01-01 00:00:00\n", "set 'csv.ignore-parse-errors' = 'true' in the WITH"),
    ],
)
def test_malformed_records_of_tables_name_options_of_the_table(
    tables: TableEnvironment, tmp_path: Path, kind: str, content: str, said: str
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "some").write_text(content)
    tables.execute_sql(
        "CREATE TABLE readings (a INT, t TIMESTAMP(3)) WITH ('connector' = 'filesystem',"
        f" 'path' = '{tmp_path / 'in'}', 'format' = '{kind}')"
    )
    with (
        pytest.raises(MalformedRecordError) as caught,
        tables.execute_sql("SELECT * FROM readings").collect() as rows,
    ):
        list(rows)
    assert "readings" in str(caught.value)
    assert said in str(caught.value)
    assert "dead-letter" not in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("1 = TRUE", "= does not take INT and BOOLEAN together: they have no type in common."),
        ("DATE '2020-01-01' <> 1", "Convert one of them, as in CAST(... AS DATE)"),
        ("1 IN (TRUE)", "IN does not take INT and BOOLEAN together"),
        ("1 BETWEEN TRUE AND FALSE", ">= does not take INT and BOOLEAN together"),
        ("CASE 1 WHEN TRUE THEN 2 END", "= does not take INT and BOOLEAN together"),
        ("NULLIF(1, TRUE)", "NULLIF does not take INT and BOOLEAN together"),
        ("COALESCE(1, ARRAY[1])", "COALESCE does not take INT and ARRAY<INT NOT NULL> together"),
        ("1 IS DISTINCT FROM TRUE", "IS DISTINCT FROM does not take INT and BOOLEAN together"),
    ],
)
def test_values_without_a_common_type_are_named(
    tables: TableEnvironment, expression: str, said: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        tables.execute_sql(f"SELECT {expression}")
    assert said in str(caught.value)
    assert "<ANY>" not in str(caught.value)


def test_a_directory_that_was_never_there_has_not_disappeared(tmp_path: Path) -> None:
    missing = FileNotFoundError
    with pytest.raises(DirectoryError) as caught:
        probe(CHECKPOINTS, tmp_path / ("/proc/1/nothing/checkpoints"))
    assert "is not there and cannot be made: nothing can be made in /proc" in str(caught.value)
    assert "disappeared" not in str(caught.value)
    assert isinstance(caught.value.__cause__, missing)


def test_a_frame_with_its_rows_is_sent_to_the_environment_of_tables() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(ProgramError, match=r"TableEnvironment.from_spark\(\) reads one whose rows"):
        env.from_spark("no DataFrame")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["rnu", "job.py"], "Did you mean 'run'?\nTry 'millstream --help'."),
        (["run"], "millstream run: error: the following arguments are required: PROGRAM\n"),
        (
            ["run", "--paralelism", "2", "job.py"],
            "arguments: --paralelism. Did you mean '--parallelism'?\nTry 'millstream run",
        ),
        (["run", "--parallelism", "two", "job.py"], "'two' is not a whole number"),
        (["run", "--parallelism", "0", "job.py"], "0 is not positive"),
        (["run", "--target", "sparc", "job.py"], "Did you mean 'spark'?"),
        (["run", "-D", "key", "job.py"], "'key' is not of the form key=value"),
        (["checkpoints", "dir", "inspct"], "Did you mean 'inspect'?"),
        (["checkpoints", "dir", "confirm", "x"], "'x' is not a whole number"),
        (["sql", "script.sql"], "to run a script: millstream sql -f script.sql"),
    ],
)
def test_wrong_arguments_are_a_line_with_what_to_write(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert said in error
    assert "usage:" not in error
    assert error.count("\n") == 2


def test_a_directory_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", str(tmp_path)]) == 1
    assert "is a directory, not a program" in capsys.readouterr().err
