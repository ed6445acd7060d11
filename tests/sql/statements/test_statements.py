"""Statements that define and show, and plans as EXPLAIN shows them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.errors import CatalogError, UnsupportedSqlError, ValidationError
from millstream.table import DataTypes, Schema, TableDescriptor
from millstream.table.catalog import ObjectPath

if TYPE_CHECKING:
    from millstream.table import TableEnvironment

CLICKS = """CREATE TABLE clicks (
  name STRING NOT NULL,
  ts TIMESTAMP(3),
  cost DECIMAL(10, 2) COMMENT 'in euros',
  doubled AS cost * 2,
  WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
  PRIMARY KEY (name) NOT ENFORCED
) WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"""


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    made.execute_sql(CLICKS)
    made.execute_sql(
        "CREATE TABLE plain (name STRING) "
        "WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')"
    )
    return made


def rows(env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    found: list[Any] = list(env.execute_sql(statement).collect())
    return [tuple(row) for row in found]


def test_describe_shows_types_keys_and_watermarks(env: TableEnvironment) -> None:
    assert rows(env, "DESCRIBE clicks") == [
        ("name", "STRING", False, "PRI(name)", None, None),
        ("ts", "TIMESTAMP(3) *ROWTIME*", True, None, None, "ts - INTERVAL '5' SECOND"),
        ("cost", "DECIMAL(10, 2)", True, None, None, None),
        ("doubled", "DECIMAL(21, 2)", True, None, "AS cost * 2", None),
    ]


def test_show_create_table_can_be_run_again(env: TableEnvironment) -> None:
    ((text,),) = rows(env, "SHOW CREATE TABLE clicks")
    env.execute_sql("DROP TABLE clicks")
    env.execute_sql(text)
    assert rows(env, "SHOW CREATE TABLE clicks") == [(text,)]


def test_like_takes_what_it_is_told_to(env: TableEnvironment) -> None:
    env.execute_sql(
        "CREATE TABLE b (more INT) WITH ('format' = 'csv') "
        "LIKE clicks (EXCLUDING GENERATED EXCLUDING WATERMARKS)"
    )
    assert [row[0] for row in rows(env, "DESCRIBE b")] == ["name", "ts", "cost", "more"]
    ((text,),) = rows(env, "SHOW CREATE TABLE b")
    assert "'format' = 'csv'" in text
    assert "'path' = '/nowhere'" in text
    assert "WATERMARK" not in text


def test_alter_table_changes_columns_and_options(env: TableEnvironment) -> None:
    env.execute_sql("ALTER TABLE clicks ADD (n INT FIRST, m AS n + 1)")
    env.execute_sql("ALTER TABLE clicks MODIFY n BIGINT AFTER cost")
    env.execute_sql("ALTER TABLE clicks DROP doubled")
    env.execute_sql("ALTER TABLE clicks SET ('format' = 'csv')")
    assert [row[:2] for row in rows(env, "DESCRIBE clicks")] == [
        ("name", "STRING"),
        ("ts", "TIMESTAMP(3) *ROWTIME*"),
        ("cost", "DECIMAL(10, 2)"),
        ("n", "BIGINT"),
        ("m", "INT"),
    ]
    with pytest.raises(ValidationError, match="Column 'n' is used by the computed column 'm'"):
        env.execute_sql("ALTER TABLE clicks DROP n")
    env.execute_sql("ALTER TABLE clicks RENAME TO visits")
    assert rows(env, "SHOW TABLES") == [("plain",), ("visits",)]


def test_temporary_tables_hide_permanent_ones(env: TableEnvironment) -> None:
    env.execute_sql("CREATE TEMPORARY TABLE clicks (a INT) WITH ('connector' = 'print')")
    assert [row[0] for row in rows(env, "DESCRIBE clicks")] == ["a"]
    with pytest.raises(CatalogError, match="Drop it first before removing the permanent table"):
        env.execute_sql("DROP TABLE clicks")
    env.execute_sql("DROP TEMPORARY TABLE clicks")
    assert len(rows(env, "DESCRIBE clicks")) == 4


def test_catalogs_and_databases(env: TableEnvironment) -> None:
    env.execute_sql("CREATE CATALOG c WITH ('type' = 'generic_in_memory')")
    env.execute_sql("CREATE DATABASE c.d")
    env.execute_sql("CREATE TABLE c.d.t (a INT) WITH ('connector' = 'print')")
    env.execute_sql("USE c.d")
    assert rows(env, "SHOW TABLES LIKE 't%'") == [("t",)]
    assert rows(env, "SHOW CURRENT DATABASE") == [("d",)]
    assert rows(env, "SHOW DATABASES") == [("d",), ("default",)]
    with pytest.raises(CatalogError, match="Did you mean 'default_catalog'"):
        env.execute_sql("USE CATALOG default_catalogue")
    env.execute_sql("USE CATALOG default_catalog")
    with pytest.raises(CatalogError, match="is not empty"):
        env.execute_sql("DROP DATABASE c.d RESTRICT")
    env.execute_sql("DROP DATABASE c.d CASCADE")
    assert rows(env, "SHOW CATALOGS") == [("c",), ("default_catalog",)]


def test_views_are_queries_under_a_name(env: TableEnvironment) -> None:
    env.execute_sql("CREATE VIEW named (who, twice) AS SELECT name, doubled FROM clicks")
    assert [row[:2] for row in rows(env, "DESCRIBE named")] == [
        ("who", "STRING"),
        ("twice", "DECIMAL(21, 2)"),
    ]
    plan = env.sql_query("SELECT who FROM named WHERE twice > 3").explain()
    assert "where=[" in plan
    with pytest.raises(CatalogError, match="Table with identifier"):
        env.execute_sql("DROP TABLE named")
    env.execute_sql("DROP VIEW named")


def test_alter_function_puts_another_in_its_place(env: TableEnvironment) -> None:
    env.execute_sql("CREATE FUNCTION f AS 'os.path.split' LANGUAGE PYTHON")
    env.execute_sql("ALTER FUNCTION f AS 'os.path.join' LANGUAGE PYTHON")
    catalog = env.get_catalog(env.get_current_catalog())
    assert catalog is not None
    found = catalog.get_function(ObjectPath(env.get_current_database(), "f"))
    assert found.implementation == "os.path.join"
    env.execute_sql("ALTER FUNCTION IF EXISTS g AS 'os.path.join' LANGUAGE PYTHON")
    with pytest.raises(CatalogError, match="g does not exist"):
        env.execute_sql("ALTER FUNCTION g AS 'os.path.join' LANGUAGE PYTHON")
    with pytest.raises(UnsupportedSqlError, match=r"ALTER FUNCTION f AS 'module\.name' LANGUAGE"):
        env.execute_sql("ALTER FUNCTION f AS 'com.Other'")
    with pytest.raises(UnsupportedSqlError, match="Alter temporary system function is not supp"):
        env.execute_sql("ALTER TEMPORARY SYSTEM FUNCTION f AS 'x.y' LANGUAGE PYTHON")


def test_set_and_reset_change_the_options_of_the_session(env: TableEnvironment) -> None:
    env.execute_sql("SET 'table.exec.state.ttl' = '1 h'")
    assert env.get_config().get("table.exec.state.ttl", "") == "1 h"
    env.execute_sql("RESET 'table.exec.state.ttl'")
    assert env.get_config().get("table.exec.state.ttl", "none") == "none"


def test_what_is_not_there_is_refused_by_name(env: TableEnvironment) -> None:
    with pytest.raises(
        UnsupportedSqlError,
        match="SHOW PROCEDURES is not in this release",
    ):
        env.execute_sql("SHOW PROCEDURES")
    env.execute_sql("CREATE TABLE shown (name STRING) WITH ('connector' = 'print')")
    with pytest.raises(ValidationError, match="INSERT OVERWRITE requires"):
        env.execute_sql("INSERT OVERWRITE shown SELECT name FROM clicks")


def test_a_descriptor_makes_the_table_that_the_statement_makes(env: TableEnvironment) -> None:
    schema = (
        Schema.new_builder()
        .column("name", DataTypes.STRING(nullable=False))
        .column("ts", "TIMESTAMP(3)")
        .column("cost", DataTypes.DECIMAL(10, 2))
        .column_by_expression("doubled", "cost * 2")
        .watermark("ts", "ts - INTERVAL '5' SECOND")
        .primary_key("name")
        .build()
    )
    descriptor = (
        TableDescriptor.for_connector("filesystem")
        .schema(schema)
        .option("path", "/nowhere")
        .format("json")
        .build()
    )
    env.create_table("same", descriptor)
    assert rows(env, "DESCRIBE same") == rows(env, "DESCRIBE clicks")


SINK_PLAN = (
    "Sink(table=[default_catalog.default_database.counts], fields=[name, n], "
    "changelogMode=[NONE])\n"
    "+- Calc(select=[name, EXPR$0 AS n], changelogMode=[I,UA])\n"
    "   +- GroupAggregate(groupBy=[name], select=[name, COUNT(*) AS EXPR$0], "
    "changelogMode=[I,UA])\n"
    "      +- Exchange(distribution=[hash[name]], changelogMode=[I])\n"
    "         +- TableSourceScan(table=[[default_catalog, default_database, plain]], "
    "fields=[name], changelogMode=[I])"
)
TWICE_PLAN = (
    "Calc(select=[n, EXPR$0 AS m], changelogMode=[I,UB,UA,D])\n"
    "+- GroupAggregate(groupBy=[n], select=[n, COUNT_RETRACT(*) AS EXPR$0], "
    "changelogMode=[I,UB,UA,D])\n"
    "   +- Exchange(distribution=[hash[n]], changelogMode=[I,UB,UA])\n"
    "      +- Calc(select=[EXPR$0 AS n], changelogMode=[I,UB,UA])\n"
    "         +- GroupAggregate(groupBy=[name], select=[name, COUNT(*) AS EXPR$0], "
    "changelogMode=[I,UB,UA])\n"
    "            +- Exchange(distribution=[hash[name]], changelogMode=[I])\n"
    "               +- TableSourceScan(table=[[default_catalog, default_database, plain]], "
    "fields=[name], changelogMode=[I])"
)
COUNTS = "SELECT name, COUNT(*) AS n FROM plain GROUP BY name"


def _physical(plan: str) -> str:
    return plan.split("== Optimized Physical Plan ==\n")[1].split("\n\n", maxsplit=1)[0]


def test_a_sink_whose_key_is_the_query_s_needs_no_update_before(env: TableEnvironment) -> None:
    env.execute_sql(
        "CREATE TABLE counts (name STRING, n BIGINT, PRIMARY KEY (name) NOT ENFORCED) "
        "WITH ('connector' = 'blackhole')"
    )
    plan = env.explain_sql(f"INSERT INTO counts {COUNTS}", "CHANGELOG_MODE")
    assert _physical(plan) == SINK_PLAN


def test_who_reads_a_changelog_again_gets_update_before(env: TableEnvironment) -> None:
    query = f"SELECT n, COUNT(*) AS m FROM ({COUNTS}) GROUP BY n"
    plan = env.sql_query(query).explain("CHANGELOG_MODE")
    assert _physical(plan) == TWICE_PLAN


def test_joins_of_changelogs_and_their_kinds(env: TableEnvironment) -> None:
    text = env.sql_query(
        "SELECT a.n, b.name FROM (SELECT name, COUNT(*) AS n FROM clicks GROUP BY name) a "
        "JOIN clicks b ON a.name = b.name"
    ).explain()
    assert "leftInputSpec=[JoinKeyContainsUniqueKey]" in text
    assert "Join(joinType=[InnerJoin]" in text
