"""The SQL connectors ``delta`` and ``iceberg``: values of all types, partitions, refusals."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import deltalake
import pytest
from pyiceberg.catalog import load_catalog
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = (
    "k STRING, n BIGINT, b BOOLEAN, x DOUBLE, y BYTES, ts TIMESTAMP(6), l TIMESTAMP_LTZ(3), d DATE,"
    " p DECIMAL(10, 2), a ARRAY<INT>, m MAP<STRING, INT>, r ROW<x INT, y STRING>"
)
NAMES = ["k", "n", "b", "x", "y", "ts", "l", "d", "p", "a", "m", "r"]
VALUES = (
    "1, TRUE, 1.5E0, x'00ff', TIMESTAMP '2024-01-02 03:04:05.123456', TO_TIMESTAMP_LTZ(250, 3),"
    " DATE '2024-01-02', 2.25, ARRAY[1, 2], MAP['q', 7], ROW(1, 'z')"
)
LTZ = dt.datetime(1970, 1, 1, 0, 0, 0, 250_000, tzinfo=dt.UTC)


def options(kind: str, directory: Path) -> str:
    if kind == "delta":
        return f"'connector' = 'delta', 'table-path' = '{directory}/t'"
    return (
        "'connector' = 'iceberg', 'catalog-name' = 'lake', 'catalog-type' = 'sql', 'uri' ="
        f" 'sqlite:///{directory}/c.db', 'warehouse' = 'file://{directory}/w',"
        " 'catalog-database' = 'shop', 'catalog-table' = 'facts'"
    )


def iceberg_table(directory: Path) -> Any:
    catalog = load_catalog(
        "lake", type="sql", uri=f"sqlite:///{directory}/c.db", warehouse=f"file://{directory}/w"
    )
    return catalog.load_table("shop.facts")


def rows(kind: str, directory: Path) -> list[dict[str, Any]]:
    if kind == "delta":
        found = deltalake.DeltaTable(f"{directory}/t").to_pyarrow_table()
    else:
        found = iceberg_table(directory).scan().to_arrow()
    made: list[dict[str, Any]] = found.to_pylist()
    return sorted(made, key=lambda row: str(row["k"]))


@pytest.mark.both_engines
@pytest.mark.parametrize("by", ["", "PARTITIONED BY (k, d)"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_values_of_all_types(kind: str, by: str, tmp_path: Path) -> None:
    env = environment(2)
    env.execute_sql(f"CREATE TABLE facts ({COLUMNS}) {by} WITH ({options(kind, tmp_path)})")
    null = "CAST(NULL AS STRING)"
    insert(
        env,
        f"INSERT INTO facts VALUES ('a', {VALUES}), ('b', {VALUES}), ({null}, {VALUES})",
        validated=True,
    )
    found = rows(kind, tmp_path)
    assert [row["k"] for row in found] == [None, "a", "b"]
    first = found[1]
    assert first.pop("l").astimezone(dt.UTC) == LTZ
    assert dict(first.pop("m")) == {"q": 7}
    assert first == {
        "k": "a",
        "n": 1,
        "b": True,
        "x": 1.5,
        "y": b"\x00\xff",
        "ts": dt.datetime(2024, 1, 2, 3, 4, 5, 123456),  # noqa: DTZ001 - TIMESTAMP has no zone
        "d": dt.date(2024, 1, 2),
        "p": Decimal("2.25"),
        "a": [1, 2],
        "r": {"x": 1, "y": "z"},
    }


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_refusals(kind: str, tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql(f"CREATE TABLE t (a BIGINT, b BIGINT) WITH ({options(kind, tmp_path)})")
    with pytest.raises(ValidationError, match="please aggregate in windows"):
        env.explain_sql("INSERT INTO t SELECT x, COUNT(*) FROM (VALUES (1)) AS v(x) GROUP BY x")


@pytest.mark.both_engines
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_rows_come_back(kind: str, tmp_path: Path) -> None:
    env = environment(2)
    by = "PARTITIONED BY (k, d)"
    env.execute_sql(f"CREATE TABLE facts ({COLUMNS}) {by} WITH ({options(kind, tmp_path)})")
    values = ", ".join(f"({key}, {VALUES})" for key in ("'a'", "'b'", "CAST(NULL AS STRING)"))
    insert(env, f"INSERT INTO facts VALUES {values}", validated=True)
    query = "SELECT * FROM facts WHERE k = 'a'"
    ((found,),) = [changelog(env, query, tmp_path)]
    literal = f"SELECT * FROM (VALUES ('a', {VALUES})) AS v({', '.join(NAMES)})"
    (wanted,) = changelog(env, literal, tmp_path / "wanted")
    named = repr(tuple(wanted)).replace("EXPR$0", "x").replace("EXPR$1", "y")
    assert repr(tuple(found)) == named
    counted = "SELECT COUNT(*), COUNT(k) FROM facts"
    assert materialised(changelog(env, counted, tmp_path / "n")) == {(3, 2): 1}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_versions(kind: str, tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql(f"CREATE TABLE t (k STRING, n BIGINT) WITH ({options(kind, tmp_path)})")
    insert(env, "INSERT INTO t VALUES ('a', 1)", validated=True)
    if kind == "delta":
        at, first, version = "versionAsOf", "startingVersion", 1
    else:
        at, first = "snapshot-id", "start-snapshot-id"
        version = iceberg_table(tmp_path).current_snapshot().snapshot_id
    insert(env, "INSERT INTO t VALUES ('b', 2)", validated=True)
    hint = f"/*+ OPTIONS('{at}' = '{version}') */"
    assert materialised(changelog(env, f"SELECT * FROM t {hint}", tmp_path)) == {("a", 1): 1}
    with pytest.raises(ValidationError, match=f"'{first}' is for reading on and on"):
        env.explain_sql(f"SELECT * FROM t /*+ OPTIONS('{first}' = '{version}') */")
    streaming = "'mode' = 'streaming'" if kind == "delta" else "'streaming' = 'true'"
    with pytest.raises(ValidationError, match=f"'{at}' is for reading one version"):
        env.explain_sql(f"SELECT * FROM t /*+ OPTIONS({streaming}, '{at}' = '{version}') */")


def test_catalogs_that_need_java(tmp_path: Path) -> None:
    env = environment(1)
    with_hadoop = options("iceberg", tmp_path).replace("'sql'", "'hadoop'")
    env.execute_sql(f"CREATE TABLE t (a BIGINT) WITH ({with_hadoop})")
    with pytest.raises(ValidationError, match="catalogs of type 'hadoop' need Java"):
        insert(env, "INSERT INTO t VALUES (1)")
