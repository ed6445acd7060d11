"""Tables in files: metadata of files, formats whose lines are messages, options of formats."""

from __future__ import annotations

import json
import os
from decimal import Decimal
from typing import TYPE_CHECKING

import pytest
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.errors import MalformedRecordError, SourceError, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment


def table(
    env: TableEnvironment, name: str, columns: str, path: Path, kind: str, more: str = ""
) -> None:
    env.execute_sql(
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
        f"'format' = '{kind}'{more})"
    )


@pytest.mark.both_engines
def test_what_a_file_says_of_its_rows(tmp_path: Path) -> None:
    env = environment(2)
    data = tmp_path / "data" / "below"
    data.mkdir(parents=True)
    for number in range(2):
        file = data / f"{number}.json"
        file.write_text("".join(f'{{"a": "{number}{i}"}}\n' for i in range(3)))
        os.utime(file, (5 + number, 5 + number))
    columns = """
        a STRING,
        `file.path` STRING NOT NULL METADATA,
        name STRING METADATA FROM 'file.name' VIRTUAL,
        size INT METADATA FROM 'file.size',
        changed TIMESTAMP_LTZ(3) METADATA FROM 'file.modification-time'"""
    table(env, "t", columns, tmp_path / "data", "json")
    query = (
        "SELECT name, `file.path`, size, CAST(changed AS STRING), COUNT(*) FROM t "
        "GROUP BY name, `file.path`, size, changed"
    )
    assert materialised(changelog(env, query, tmp_path)) == {
        (f"{n}.json", str(data / f"{n}.json"), size, f"1970-01-01 00:00:0{5 + n}.000", 3): 1
        for n, size in ((0, 36), (1, 36))
    }
    table(env, "s", "a INT, b STRING METADATA FROM 'file.nam'", tmp_path / "data", "json")
    with pytest.raises(ValidationError, match=r"has no metadata 'file\.nam' for column 'b'"):
        env.sql_query("SELECT * FROM s")


def test_changes_in_files_and_back(tmp_path: Path) -> None:
    env = environment(1)
    table(
        env,
        "t",
        "k STRING, n BIGINT, name STRING METADATA FROM 'file.name' VIRTUAL",
        tmp_path / "out",
        "debezium-json",
    )
    env.execute_sql("CREATE TEMPORARY VIEW v (k, a) AS VALUES ('x', 1), ('y', 2), ('x', 3)")
    insert(env, "INSERT INTO t SELECT k, COUNT(*) FROM v GROUP BY k")
    lines = [
        json.loads(line)
        for file in (tmp_path / "out").glob("*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [line["op"] for line in lines].count("d") == 1
    found = materialised(changelog(env, "SELECT k, n FROM t", tmp_path))
    assert found == {("x", 2): 1, ("y", 1): 1}
    query = "SELECT SUM(n) AS n, COUNT(DISTINCT name) AS files FROM t"
    assert materialised(changelog(env, query, tmp_path, limit=40)) == {(3, 1): 1}


@pytest.mark.parametrize(
    ("standard", "text"),
    [("SQL", "2024-01-01 00:00:00.25"), ("ISO-8601", "2024-01-01T00:00:00.25")],
)
def test_timestamps_of_a_standard(tmp_path: Path, standard: str, text: str) -> None:
    env = environment(1)
    option = f", 'json.timestamp-format.standard' = '{standard}'"
    table(env, "t", "a TIMESTAMP(3)", tmp_path / "out", "json", option)
    insert(env, "INSERT INTO t VALUES (TIMESTAMP '2024-01-01 00:00:00.25')")
    (file,) = (tmp_path / "out").glob("*.jsonl")
    assert json.loads(file.read_text()) == {"a": text}
    query = "SELECT CAST(a AS STRING) AS a FROM t"
    assert materialised(changelog(env, query, tmp_path)) == {("2024-01-01 00:00:00.250",): 1}


def test_lines_that_do_not_parse(tmp_path: Path) -> None:
    env = environment(1)
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.json").write_text('{"a": 1}\n{"a": "x", "b": 2}\nnothing\n\n{"b": 3}\n')
    table(env, "lenient", "a INT, b INT", data, "json", ", 'json.ignore-parse-errors' = 'true'")
    found = materialised(changelog(env, "SELECT * FROM lenient", tmp_path, limit=5))
    assert found == {(1, None): 1, (None, 2): 1, (None, 3): 1}
    table(env, "strict", "a INT, b INT", data, "json", ", 'json.fail-on-missing-field' = 'true'")
    with pytest.raises(MalformedRecordError, match="Could not find field with name 'b'"):
        changelog(env, "SELECT * FROM strict", tmp_path)
    table(env, "plain", "line STRING", data, "raw")
    found = materialised(changelog(env, "SELECT * FROM plain", tmp_path))
    assert sum(found.values()) == 4


_EVERY = """id INT, b BYTES, bs ARRAY<BYTES>, d DOUBLE, f FLOAT, t TIMESTAMP(9), z TIMESTAMP_LTZ(3),
    u TIME, v DATE, w DECIMAL(38, 20), s STRING"""
_VALUES = """(1, X'6869', ARRAY[X'00', X'FF'], CAST('NaN' AS DOUBLE), CAST('-Infinity' AS FLOAT),
    TIMESTAMP '2024-01-01 00:00:00.123456789', TO_TIMESTAMP_LTZ(5, 3), TIME '10:11:12',
    DATE '2024-02-29', 123456789012345678.12345678901234567891, 'a,"b'),
    (2, X'22', ARRAY[X'22'], -0.5, 1.1, TIMESTAMP '1969-12-31 23:59:59', TO_TIMESTAMP_LTZ(-1, 3),
    TIME '00:00:00', DATE '0001-01-01', -0.5, '')"""
_SHOWN = """SELECT id, b, bs, CAST(d AS STRING), f, CAST(t AS STRING), CAST(z AS STRING),
    CAST(u AS STRING), CAST(v AS STRING), CAST(w AS STRING), s FROM"""


@pytest.mark.parametrize("kind", ["csv", "json", "parquet"])
def test_values_of_every_type_come_back_as_they_were(tmp_path: Path, kind: str) -> None:
    env = environment(1)
    env.execute_sql(f"CREATE TEMPORARY VIEW v ({_names(_EVERY)}) AS VALUES {_VALUES}")
    types = [each.split()[1:] for each in _EVERY.replace("38, 20", "38;20").split(",")]
    casts = ", ".join(
        f"CAST({name} AS {' '.join(kind).replace(';', ',')})"
        for name, kind in zip(_names(_EVERY).split(", "), types, strict=True)
    )
    table(env, "t", _EVERY, tmp_path / "out", kind)
    insert(env, f"INSERT INTO t SELECT {casts} FROM v")
    shown = _SHOWN.replace("\n", " ")
    env.execute_sql(f"CREATE TEMPORARY VIEW w ({_names(_EVERY)}) AS SELECT {casts} FROM v")
    there = [str(tuple(each)) for each in changelog(env, f"{shown} w", tmp_path)]
    assert [str(tuple(each)) for each in changelog(env, f"{shown} t", tmp_path)] == there
    assert len(there) == 2


def _names(columns: str) -> str:
    return ", ".join(each.split()[0] for each in columns.replace("38, 20", "").split(","))


def test_values_of_csv_are_java_s(tmp_path: Path) -> None:
    env = environment(1)
    data = tmp_path / "data"
    data.mkdir()
    text = "true,7,NaN,1.005,n/a\n1,8,1.5,12345.6,x\nno,,,,\n"
    (data / "a").write_text(text)
    columns = "a BOOLEAN, b INT, c DOUBLE, d DECIMAL(5, 2), e STRING"
    table(env, "t", columns, data, "csv")
    found = materialised(changelog(env, "SELECT a, b, CAST(c AS STRING), d, e FROM t", tmp_path))
    assert found == {
        (True, 7, "NaN", Decimal("1.01"), "n/a"): 1,
        (False, 8, "1.5", None, "x"): 1,
        (False, None, None, None, ""): 1,
    }
    for kind, cell in (("INT", "0x10"), ("INT", "NA"), ("DOUBLE", "null"), ("DATE", "2024-1-1")):
        (data / "a").write_text(f"{cell},x\n")
        name = f"s_{kind}_{cell[:2]}"
        table(env, name, f"a {kind}, b STRING", data, "csv")
        with pytest.raises(MalformedRecordError, match=rf":1: malformed record: .*{cell}"):
            changelog(env, f"SELECT * FROM {name}", tmp_path)


def test_files_of_csv_are_flink_s(tmp_path: Path) -> None:
    """Compare with the lines that Flink 2.3 writes for the same statement."""
    env = environment(1)
    columns = """a INT, b STRING, c STRING, d DOUBLE, e DECIMAL(10, 2), f TIMESTAMP(3), g BYTES,
        h TIMESTAMP_LTZ(3), i TIME, j ARRAY<STRING>"""
    table(env, "t", columns, tmp_path / "out", "csv")
    insert(
        env,
        """INSERT INTO t VALUES
        (1, 'hi', 'hello world', 1.5, 1.05, TIMESTAMP '2024-01-01 01:02:03', X'4142',
            TO_TIMESTAMP_LTZ(0, 3), TIME '01:02:03', ARRAY['a', 'b']),
        (2, '', CAST(NULL AS STRING), 1e20, 300, TIMESTAMP '2024-01-01 01:02:03.5',
            CAST(NULL AS BYTES), CAST(NULL AS TIMESTAMP_LTZ(3)), TIME '01:02:00', ARRAY['a b']),
        (3, '+a', 'q"q', 1.0E-5, 3, CAST(NULL AS TIMESTAMP(3)), X'',
            CAST(NULL AS TIMESTAMP_LTZ(3)), CAST(NULL AS TIME), CAST(NULL AS ARRAY<STRING>))""",
    )
    zoned = '"1970-01-01 00:00:00Z"'
    assert _written(tmp_path / "out")["."] == [
        f'1,hi,"hello world",1.5,1.05,"2024-01-01 01:02:03",QUI=,{zoned},01:02:03,a;b',
        '2,,,1.0E20,3E+2,"2024-01-01 01:02:03.5",,,01:02:00,"a b"',
        '3,"+a","q""q",1.0E-5,3,,,,,',
    ]


def test_values_of_csv_that_do_not_fit_are_null_if_errors_are_ignored(tmp_path: Path) -> None:
    env = environment(1)
    data = tmp_path / "data"
    data.mkdir()
    (data / "a").write_text('x\ty\t2024-01-01\n1\n2\t"z\n\t"\t2024-01-02\n3\ta\tb\tc\n4\tw\n')
    options = ", 'csv.ignore-parse-errors' = 'true', 'csv.field-delimiter' = '\\t'"
    table(env, "t", "a INT, b STRING, c DATE", data, "csv", options)
    query = "SELECT a, b, CAST(c AS STRING) FROM t"
    assert materialised(changelog(env, query, tmp_path, limit=1000)) == {
        (None, "y", "2024-01-01"): 1,
        (1, None, None): 1,
        (2, "z\n\t", "2024-01-02"): 1,
        (4, "w", None): 1,
    }


def test_formats_and_options_that_there_are_not(tmp_path: Path) -> None:
    env = environment(1)
    table(env, "t", "a INT", tmp_path, "debezium_json")
    with pytest.raises(ValidationError, match="Did you mean 'debezium-json'"):
        env.sql_query("SELECT * FROM t")
    table(env, "m", "a MAP<STRING, INT>", tmp_path, "csv")
    for statement in ("SELECT * FROM m", "INSERT INTO m VALUES (MAP['a', 1])"):
        with pytest.raises(ValidationError, match=r"'csv' has no MAP<STRING, INT>.* column 'a'"):
            env.explain_sql(statement)
    table(env, "s", "a INT", tmp_path, "canal-json", ", 'canal-json.table.includes' = 'x'")
    with pytest.raises(ValidationError, match=r"Did you mean 'canal-json\.table\.include'"):
        env.sql_query("SELECT * FROM s")


def _written(path: Path) -> dict[str, list[str]]:
    """Directory -> lines."""
    found: dict[str, list[str]] = {}
    for file in sorted(path.rglob("*")):
        if file.is_file() and not file.name.startswith("."):
            place = str(file.parent.relative_to(path))
            found.setdefault(place, []).extend(file.read_text().splitlines())
    return found


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["csv", "json"])
def test_partitions_are_directories(tmp_path: Path, kind: str) -> None:
    env = environment(2)
    out = tmp_path / "k=9" / "out"  # what is above the table is no partition of it
    out.parent.mkdir()
    env.execute_sql(
        f"""CREATE TABLE t (dt DATE, n INT, k STRING, v STRING) PARTITIONED BY (k, dt)
        WITH ('connector' = 'filesystem', 'path' = '{out}', 'format' = '{kind}')"""
    )
    rows = [
        ("DATE '2024-01-02'", "1", "'a/b=c'", "'x'"),
        ("DATE '2024-01-02'", "2", "'a/b=c'", "'y'"),
        ("CAST(NULL AS DATE)", "3", "''", "'z'"),
        ("DATE '2024-01-03'", "4", "'ü%'", "'w'"),
    ]
    values = ", ".join(f"({', '.join(row)})" for row in rows)
    insert(env, f"INSERT INTO t VALUES {values}")
    written = _written(out)
    assert set(written) == {
        "k=a%2Fb%3Dc/dt=2024-01-02",
        "k=__DEFAULT_PARTITION__/dt=__DEFAULT_PARTITION__",
        "k=ü%25/dt=2024-01-03",
    }
    line = {"csv": "1,x", "json": '{"n":1,"v":"x"}'}[kind]
    assert line in written["k=a%2Fb%3Dc/dt=2024-01-02"]
    query = "SELECT CAST(dt AS STRING), n, k, v FROM t"
    # As in Flink, the empty text is NULL when it comes back.
    assert materialised(changelog(env, query, tmp_path)) == {
        ("2024-01-02", 1, "a/b=c", "x"): 1,
        ("2024-01-02", 2, "a/b=c", "y"): 1,
        (None, 3, None, "z"): 1,
        ("2024-01-03", 4, "ü%", "w"): 1,
    }
    assert materialised(changelog(env, f"{query} WHERE k = 'ü%'", tmp_path)) == {
        ("2024-01-03", 4, "ü%", "w"): 1
    }


def test_partitions_that_are_refused(tmp_path: Path) -> None:
    env = environment(1)
    for columns, keys, message in (
        ("a INT, b DOUBLE", "b", "PARTITIONED BY 'b' of type DOUBLE is not in this release"),
        ("a INT", "a", "needs a column that is not among those of PARTITIONED BY"),
        ("a INT, _b INT", "_b", "directories of '_b' would be hidden"),
        ("a INT, b AS a + 1", "b", "is no physical column"),
    ):
        env.execute_sql(
            f"CREATE TEMPORARY TABLE t ({columns}) PARTITIONED BY ({keys}) WITH "
            f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json')"
        )
        with pytest.raises(ValidationError) as raised:
            env.sql_query("SELECT * FROM t")
        assert message in str(raised.value)
        env.execute_sql("DROP TEMPORARY TABLE t")
    (tmp_path / "b=x").mkdir()
    (tmp_path / "b=x" / "0.json").write_text('{"a": 1}\n')
    table(env, "s", "a INT", tmp_path, "json")
    env.execute_sql(
        "CREATE TABLE u (a INT, b INT) PARTITIONED BY (b) WITH "
        f"('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'json')"
    )
    with pytest.raises(SourceError, match="the partition's 'b' cannot be read"):
        changelog(env, "SELECT * FROM u", tmp_path)


def test_values_after_those_of_the_columns(tmp_path: Path) -> None:
    """As in Flink 2.3.0, where the last delimiter of a line may have no value after it."""
    env = environment(1)
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text('1,x\n2,y,\n3,"a,b",c,d\r\n4,"q""r,",z\n\n5,w\n')
    table(env, "strict", "a INT, b STRING", data, "csv")
    with pytest.raises(MalformedRecordError, match="Expected 2 columns, got 4"):
        changelog(env, "SELECT * FROM strict", tmp_path / "strict")
    option = ", 'csv.ignore-trailing-unmappable' = 'true'"
    table(env, "t", "a INT, b STRING", data, "csv", option)
    rows = {(1, "x"), (2, "y"), (3, "a,b"), (4, 'q"r,'), (5, "w")}
    assert materialised(changelog(env, "SELECT * FROM t", tmp_path / "t")) == dict.fromkeys(rows, 1)
    (data / "a.csv").write_text("1,x\n2,y,\n")
    assert materialised(changelog(env, "SELECT * FROM strict", tmp_path / "last")) == {
        (1, "x"): 1,
        (2, "y"): 1,
    }


def test_values_after_those_of_the_columns_with_other_characters(tmp_path: Path) -> None:
    env = environment(1)
    data = tmp_path / "data"
    data.mkdir()
    (data / "a.csv").write_text("1;'a;b\\';c';more\n2;x;'y\n z'\n")
    options = (
        ", 'csv.ignore-trailing-unmappable' = 'true', 'csv.field-delimiter' = ';',"
        " 'csv.quote-character' = '''', 'csv.escape-character' = '\\'"
    )
    table(env, "t", "a INT, b STRING", data, "csv", options)
    found = materialised(changelog(env, "SELECT * FROM t", tmp_path / "t"))
    assert found == {(1, "a;b';c"): 1, (2, "x"): 1}
