"""Results are printed as Flink prints them: nanoseconds, the session's time zone, intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console

from millstream.cli.shell.display import Display
from millstream.table import EnvironmentSettings, TableEnvironment

if TYPE_CHECKING:
    from millstream.table import TableResult

#: Expressions, and what Flink 2.3 prints for them in the time zone Asia/Kolkata.
PRINTED = [
    ("CAST('2024-01-02 03:04:05.123456789' AS TIMESTAMP(9))", "2024-01-02 03:04:05.123456789"),
    ("CAST('2024-01-02 03:04:05.1234567' AS TIMESTAMP(7))", "2024-01-02 03:04:05.1234567"),
    ("TO_TIMESTAMP_LTZ(1, 3)", "1970-01-01 05:30:00.001"),
    ("TO_TIMESTAMP_LTZ(1234567891, 9)", "1970-01-01 05:30:01.234567891"),
    ("ARRAY[TO_TIMESTAMP_LTZ(1, 3), NULL]", "[1970-01-01 05:30:00.001, NULL]"),
    ("MAP['a', TO_TIMESTAMP_LTZ(1, 3)]", "{a=1970-01-01 05:30:00.001}"),
    ("ROW(TO_TIMESTAMP_LTZ(1, 3), x'0aff')", "(1970-01-01 05:30:00.001, x'0aff')"),
    ("INTERVAL '1-2' YEAR TO MONTH", "+1-02"),
    ("INTERVAL -'1 02:03:04.5' DAY TO SECOND", "-1 02:03:04.500"),
    ("ARRAY[INTERVAL '5' DAY]", "[+5 00:00:00.000]"),
    ("x'0aff'", "x'0aff'"),
    ("ARRAY[x'0a']", "[x'0a']"),
    ("CAST(NULL AS STRING)", "<NULL>"),
    ("ARRAY[TRUE, NULL]", "[TRUE, NULL]"),
    ("MAP['a', CAST(NULL AS STRING)]", "{a=NULL}"),
    ("TIME '10:11:12.300'", "10:11:12.3"),
    ("CAST('10:11:12' AS TIME(3))", "10:11:12.0"),
    ("CAST(1.5 AS FLOAT)", "1.5"),
    ("1E10", "1.0E10"),
    ("CAST(1.50 AS DECIMAL(10, 3))", "1.500"),
    ("PARSE_JSON('{\"a\":1}')", '{"a":1}'),
    ("CAST('0001-01-01 00:00:00' AS TIMESTAMP(3))", "0001-01-01 00:00:00.000"),
]


def _environment() -> TableEnvironment:
    settings = EnvironmentSettings.new_instance().in_batch_mode().build()
    made = TableEnvironment.create(settings)
    made.get_config().set("table.local-time-zone", "Asia/Kolkata")
    made.get_config().set("table.display.max-column-width", "40")
    return made


def _result() -> TableResult:
    columns = ", ".join(f"{text} AS c{i}" for i, (text, _) in enumerate(PRINTED))
    return _environment().execute_sql(f"SELECT {columns}")


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|\n").split(" | ")]


def test_print_writes_values_as_flink(capsys: pytest.CaptureFixture[str]) -> None:
    _result().print()
    lines = capsys.readouterr().out.splitlines()
    assert _cells(lines[3]) == [text for _, text in PRINTED]


@pytest.mark.parametrize("mode", ["table", "changelog", "tableau"])
def test_the_shell_writes_values_as_print(mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    Display(Console(width=2000), mode).show(_result())
    written = capsys.readouterr().out
    for _, text in PRINTED:
        assert text in written, text


def test_rows_keep_python_values() -> None:
    result = _environment().execute_sql("SELECT INTERVAL '5' DAY, TO_TIMESTAMP_LTZ(1, 3)")
    rows: Any
    with result.collect() as rows:
        [[days, instant]] = rows
    assert days.days == 5
    assert instant.microsecond == 1000


def test_columns_of_a_stream_are_as_wide_as_their_types(
    capsys: pytest.CaptureFixture[str],
) -> None:
    settings = EnvironmentSettings.new_instance().in_streaming_mode().build()
    environment = TableEnvironment.create(settings)
    types = ["BOOLEAN", "TINYINT", "DATE", "TIME(3)", "TIMESTAMP(9)"]
    columns = ", ".join(f"CAST(NULL AS {each}) AS c" for each in types)
    environment.execute_sql(f"SELECT {columns}").print()
    line = capsys.readouterr().out.splitlines()[0]
    # "op", then the types; NULL has six characters.
    assert [len(each) - 2 for each in line.strip("+").split("+")] == [2, 6, 6, 10, 12, 29]
