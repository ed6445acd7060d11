"""TO_CHANGELOG and FROM_CHANGELOG; results and refusals are those of Flink 2.3."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.expressions import descriptor, map_

if TYPE_CHECKING:
    from pathlib import Path

VIEWS = (
    "CREATE TEMPORARY VIEW v (k, v) AS VALUES ('a', 1), ('a', 2), ('b', 3)",
    "CREATE TEMPORARY VIEW c AS SELECT k, SUM(v) AS s FROM v GROUP BY k",
    """CREATE TEMPORARY VIEW d (id, op, w) AS VALUES (1, 'INSERT', 'x'), (1, 'UPDATE_BEFORE', 'x'),
    (1, 'UPDATE_AFTER', 'y'), (2, 'INSERT', 'z'), (2, 'DELETE', 'z')""",
)
CHANGES = [
    ("INSERT", "a", 1),
    ("UPDATE_BEFORE", "a", 1),
    ("UPDATE_AFTER", "a", 3),
    ("INSERT", "b", 3),
]


@pytest.fixture
def env() -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    made.execute_sql("SET 'parallelism.default' = '1'")
    for view in VIEWS:
        made.execute_sql(view)
    return made


def rows_of(table: Any) -> list[tuple[Any, ...]]:
    with table.execute().collect() as rows:
        return [(row.get_row_kind().name, *row) for row in rows]


def inserts(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return [("INSERT", *row) for row in rows]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("input => TABLE c", CHANGES),
        ("TABLE c, DESCRIPTOR(kind)", CHANGES),
        ("input => (SELECT k, s FROM c)", CHANGES),
        (
            "input => TABLE c, op_mapping => MAP['INSERT, UPDATE_AFTER', 'U']",
            [("U", "a", 1), ("U", "a", 3), ("U", "b", 3)],
        ),
        (
            "TABLE c, op_mapping => MAP['INSERT', 'A', 'INSERT', 'B']",
            [("B", "a", 1), ("B", "b", 3)],
        ),
    ],
)
def test_changes_become_rows(
    arguments: str, wanted: list[tuple[Any, ...]], env: TableEnvironment
) -> None:
    assert rows_of(env.sql_query(f"SELECT * FROM TO_CHANGELOG({arguments})")) == inserts(wanted)


def test_rows_become_changes(env: TableEnvironment) -> None:
    found = rows_of(env.sql_query("SELECT * FROM FROM_CHANGELOG(input => TABLE d)"))
    assert found == [
        ("INSERT", 1, "x"),
        ("UPDATE_BEFORE", 1, "x"),
        ("UPDATE_AFTER", 1, "y"),
        ("INSERT", 2, "z"),
        ("DELETE", 2, "z"),
    ]
    mapped = "TABLE d, op_mapping => MAP['INSERT, UPDATE_AFTER', 'INSERT', 'DELETE', 'DELETE']"
    with pytest.raises(MillstreamError, match="Received invalid op code 'UPDATE_BEFORE'"):
        rows_of(env.sql_query(f"SELECT * FROM FROM_CHANGELOG({mapped})"))
    nulls = "(SELECT id, CAST(NULL AS STRING) AS op FROM d)"
    with pytest.raises(MillstreamError, match="Received NULL op code"):
        rows_of(env.sql_query(f"SELECT * FROM FROM_CHANGELOG(input => {nulls})"))


def test_the_table_api_says_the_same(env: TableEnvironment) -> None:
    table = env.from_path("c").to_changelog(
        descriptor("kind").as_argument("op"),
        map_("INSERT", "I", "UPDATE_AFTER, DELETE", "X").as_argument("op_mapping"),
    )
    assert table.plan.row.names == ["kind", "k", "s"]
    assert rows_of(table) == inserts([("I", "a", 1), ("X", "a", 3), ("I", "b", 3)])
    assert rows_of(env.from_path("c").to_changelog().from_changelog()) == CHANGES


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("TO_CHANGELOG(TABLE c PARTITION BY k)", "Only tables with set semantics may be part"),
        ("TO_CHANGELOG(TABLE c, op_mapping => MAP['NOPE', 'U'])", "change operation: 'NOPE'"),
        ("TO_CHANGELOG(TABLE c, op => DESCRIPTOR(k))", "Found duplicates: [k]"),
        ("TO_CHANGELOG(TABLE c, op => DESCRIPTOR(a, b))", "must contain exactly one column name"),
        ("TO_CHANGELOG(TABLE c, nope => 1)", "has no parameter NOPE"),
        ("TO_CHANGELOG(TABLE c, op_mapping => 'x')", "must be a MAP of constant texts"),
        ("FROM_CHANGELOG(TABLE v)", "The op column 'op' does not exist in the input schema"),
        ("FROM_CHANGELOG(TABLE d, op => DESCRIPTOR(id))", "must be of STRING type"),
        ("FROM_CHANGELOG(TABLE d, op_mapping => MAP['u', 'UPDATE_AFTER'])", "UPDATE_BEFORE for"),
        ("FROM_CHANGELOG(TABLE c, op => DESCRIPTOR(k))", "produced by node GroupAggregate"),
    ],
)
def test_refused(call: str, message: str, env: TableEnvironment) -> None:
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(f"SELECT * FROM {call}")
    assert message in str(refused.value)


def test_plans_say_which_changes_there_are(env: TableEnvironment) -> None:
    plan = env.explain_sql("SELECT * FROM TO_CHANGELOG(TABLE c)", "CHANGELOG_MODE")
    assert "select=[op, k, s], changelogMode=[I])" in plan
    plan = env.explain_sql("SELECT * FROM FROM_CHANGELOG(TABLE d)", "CHANGELOG_MODE")
    assert "ProcessTableFunction(invocation=[FROM_CHANGELOG(" in plan
    assert "changelogMode=[I,UB,UA,D]" in plan


@pytest.mark.both_engines
def test_oracle_changes_that_went_through_rows(tmp_path: Path) -> None:
    """What is counted of changes that were rows is what Python counts of the rows."""
    drawn = random.Random(7)
    rows = [(drawn.choice("abc"), drawn.randint(0, 4)) for _ in range(60)]
    env = environment(3)
    table_of(env, "t", "k STRING, v INT", rows, tmp_path)
    counts = "SELECT k, COUNT(*) AS n FROM t GROUP BY k"
    there = f"FROM_CHANGELOG(input => (SELECT * FROM TO_CHANGELOG(input => ({counts}))))"
    found = changelog(env, f"SELECT n, COUNT(*) AS ks FROM {there} GROUP BY n", tmp_path, 7, 9)
    wanted = Counter(Counter(k for k, _ in rows).values())
    assert sorted(materialised(found).elements()) == sorted(wanted.items())


def test_batch_mode_has_the_rows_at_the_end() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    for view in VIEWS:
        env.execute_sql(view)
    found = rows_of(env.sql_query("SELECT * FROM TO_CHANGELOG(TABLE c)"))
    assert sorted(found) == inserts([("INSERT", "a", 3), ("INSERT", "b", 3)])
    found = rows_of(env.sql_query("SELECT * FROM FROM_CHANGELOG(TABLE d)"))
    assert found == [("INSERT", 1, "y")]
