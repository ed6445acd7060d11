"""Tables in Avro's container files: written, read back, and files that others have written."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import fastavro
import pytest
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.errors import SourceError, ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

MICROS = ", 'avro.timestamp_mapping.legacy' = 'false'"


def table(env: TableEnvironment, name: str, columns: str, path: Path, more: str = "") -> None:
    env.execute_sql(
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{path}', "
        f"'format' = 'avro'{more})"
    )


def written(path: Path, fields: list[Any], records: list[Any], codec: str = "null") -> None:
    """A file of another program's."""
    path.mkdir()
    schema: Any = {"type": "record", "name": "their.Record", "fields": fields}
    with (path / "theirs.avro").open("wb") as file:
        fastavro.writer(file, schema, records, codec, sync_interval=64)


COLUMNS = """
    a TINYINT, b SMALLINT, c INT NOT NULL, d BIGINT, e FLOAT, f DOUBLE, g BOOLEAN, h STRING,
    i BYTES, j DECIMAL(20, 4), k DATE, l TIME(3), m TIMESTAMP(6), n TIMESTAMP_LTZ(3),
    o ARRAY<TIMESTAMP(3)>, p MAP<STRING, DECIMAL(5, 2)>, q ROW<x INT, y ROW<z DATE>>"""
VALUES = """
    CAST(1 AS TINYINT), CAST(-2 AS SMALLINT), 3, 4, CAST(0.5 AS FLOAT), 2.5E0, TRUE, 'å', x'00ff',
    -123456.7891, DATE '1969-12-31', TIME '10:11:12', TIMESTAMP '1969-12-31 23:59:59.999999',
    TO_TIMESTAMP_LTZ(-1, 3), ARRAY[TIMESTAMP '2024-01-02 03:04:05.678', CAST(NULL AS TIMESTAMP(3))],
    MAP['k', 1.25, 'l', CAST(NULL AS DECIMAL(5, 2))], ROW(7, ROW(DATE '2024-01-02'))"""


@pytest.mark.both_engines
def test_values_go_in_and_come_back(tmp_path: Path) -> None:
    env = environment(1)
    table(env, "t", COLUMNS, tmp_path / "out", MICROS)
    rows = ", ".join(f"({VALUES})" for _ in range(40))
    insert(env, f"INSERT INTO t VALUES {rows}")
    insert(env, "INSERT INTO t (c) VALUES (9)")
    query = (
        "SELECT a, b, c, d, e, f, g, h, i, j, CAST(k AS STRING), CAST(l AS STRING), "
        "CAST(m AS STRING), CAST(n AS STRING), CAST(o AS STRING), CAST(p AS STRING), "
        "CAST(q AS STRING) FROM t"
    )
    wanted = (
        *(1, -2, 3, 4, 0.5, 2.5, True, "å", b"\x00\xff", Decimal("-123456.7891")),
        *("1969-12-31", "10:11:12.0", "1969-12-31 23:59:59.999999"),
        *("1969-12-31 23:59:59.999", "[2024-01-02 03:04:05.678, NULL]"),
        *("{k=1.25, l=NULL}", "(7, (2024-01-02))"),
    )
    found = materialised(changelog(env, query, tmp_path, limit=7))
    assert found == {wanted: 40, (None, None, 9, *[None] * 14): 1}
    # What others read: logical types are named, and a decimal is its digits.
    opened = (file.open("rb") for file in (tmp_path / "out").glob("*.avro"))
    files: list[Any] = [fastavro.reader(file) for file in opened]
    (first, *_) = [record for file in files for record in file if record["a"] == 1]
    assert first["j"] == Decimal("-123456.7891")
    assert first["k"] == dt.date(1969, 12, 31)
    assert first["m"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)  # noqa: DTZ001
    assert first["n"] == dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, dt.UTC)
    assert all(file.codec == "deflate" for file in files)


def test_partitions_and_old_timestamps(tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql(
        "CREATE TABLE t (a TIMESTAMP(3), p INT) PARTITIONED BY (p) WITH ('connector' = "
        f"'filesystem', 'path' = '{tmp_path}/out', 'format' = 'avro', 'avro.codec' = 'bzip2')"
    )
    insert(env, "INSERT INTO t VALUES (TIMESTAMP '2024-01-01 00:00:00.25', 1), (NULL, 2)")
    (file,) = (tmp_path / "out").glob("p=1/*.avro")
    (record,) = fastavro.reader(file.open("rb"))
    assert record == {"a": dt.datetime(2024, 1, 1, 0, 0, 0, 250_000, dt.UTC)}
    found = materialised(changelog(env, "SELECT CAST(a AS STRING), p FROM t", tmp_path))
    assert found == {("2024-01-01 00:00:00.250", 1): 1, (None, 2): 1}


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_files_of_others_by_the_names_of_fields(codec: str, tmp_path: Path) -> None:
    decimal = {"logicalType": "decimal", "precision": 6, "scale": 1}
    fields = [
        {"name": "z", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "plain", "type": "long"},
        {"name": "n", "type": ["int", "null"]},
        {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}},
        {"name": "again", "type": "Kind"},
        {"name": "price", "type": {"type": "fixed", "name": "F", "size": 4, **decimal}},
        {"name": "day", "type": "int"},
    ]
    at = dt.datetime(1969, 12, 31, 23, 59, 59, 123_456, dt.UTC)
    records = [
        {"z": "q", "at": at, "plain": 1500, "n": None if n % 2 else n, "kind": "A", "again": "B",
         "price": Decimal("12.5"), "day": 3} for n in range(50)
    ]  # fmt: skip
    written(tmp_path / "in", fields, records, codec)
    env = environment(2)
    columns = (
        "n DOUBLE, missing STRING, kind STRING, again STRING, `at` TIMESTAMP(3), "
        "plain TIMESTAMP(3), price DECIMAL(8, 2), `day` DATE"
    )
    table(env, "t", columns, tmp_path / "in")
    query = (
        "SELECT COUNT(n) AS c, SUM(n) AS s, missing, kind, again, CAST(`at` AS STRING), "
        "CAST(plain AS STRING), price, CAST(`day` AS STRING) FROM t GROUP BY missing, kind, again, "
        "`at`, plain, price, `day`"
    )
    shown = ("1969-12-31 23:59:59.123", "1970-01-01 00:00:01.500", Decimal("12.50"), "1970-01-04")
    wanted = {(25, 600.0, None, "A", "B", *shown): 1}
    assert materialised(changelog(env, query, tmp_path, limit=9)) == wanted


@pytest.mark.parametrize(
    ("column", "avro", "value", "message"),
    [
        ("a INT", "long", 1, "column 'a' INT is long in Avro"),
        ("a BIGINT", {"type": "long", "logicalType": "timestamp-millis"}, 1, "timestamp-millis"),
        ("a TIMESTAMP(3)", {"type": "long", "logicalType": "timestamp-nanos"}, 1, "is timestamp-n"),
        ("a STRING", ["int", "string"], "x", "a union of several types"),
        ("a INT NOT NULL", ["null", "int"], None, "NULL in column 'a', which is NOT NULL"),
        ("b INT NOT NULL", "int", 1, "lacks column 'b', which is NOT NULL"),
        ("a TINYINT", "int", 300, "do not fit"),
        ("a ARRAY<INT>", {"type": "array", "items": "string"}, ["x"], r"'a\[\]' INT is string"),
        ("a ROW<b INT>", {"type": "map", "values": "int"}, {"b": 1}, "is map in Avro"),
        ("a MAP<STRING, INT>", {"type": "array", "items": "int"}, [1], "is array in Avro"),
    ],
)
def test_files_that_do_not_fit(
    column: str, avro: Any, value: object, message: str, tmp_path: Path
) -> None:
    written(tmp_path / "in", [{"name": "a", "type": avro}], [{"a": value}])
    env = environment(1)
    table(env, "t", column, tmp_path / "in")
    with pytest.raises(SourceError, match=message):
        changelog(env, "SELECT * FROM t", tmp_path)


@pytest.mark.parametrize(
    ("column", "more", "message"),
    [
        ("a TIMESTAMP(6)", "", r"does not support TIMESTAMP\(6\) .*legacy"),
        ("a MAP<INT, INT>", "", "non-string as key type of map"),
        ("a INT", ", 'avro.codec' = 'zip'", "'avro.codec' = 'zip'"),
        ("a INT", ", 'avro.code' = 'null'", r"Did you mean 'avro\.codec'"),
    ],
)
def test_what_avro_does_not_hold(column: str, more: str, message: str, tmp_path: Path) -> None:
    env = environment(1)
    table(env, "t", column, tmp_path / "out", more)
    with pytest.raises(ValidationError, match=message):
        insert(env, f"INSERT INTO t VALUES (CAST(NULL AS {column.removeprefix('a ')}))")
