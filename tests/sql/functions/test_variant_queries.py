"""Variants in queries: keys, parts, results of programs, functions of users."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.errors import MillstreamError
from millstream.table.udf import udf
from millstream.types.variants import Variant

if TYPE_CHECKING:
    from pathlib import Path

#: Events whose contents differ in form.
EVENTS: list[dict[str, Any]] = [
    {"kind": kind, "who": {"name": f"n{n % 4}"}, "tags": list(range(n % 3)), "at": n}
    if n % 2
    else {"tags": [str(n)], "kind": kind}
    for n, kind in enumerate(["click", "view", "buy", "view", "view"] * 8)
]


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_oracle_parts_as_keys(parallelism: int, tmp_path: Path) -> None:
    env = environment(parallelism)
    table_of(env, "events", "text STRING", [(json.dumps(each),) for each in EVENTS], tmp_path)
    query = (
        "SELECT v['kind'] AS k, COUNT(v['who']['name']) AS n, COUNT(DISTINCT v['tags'][1]) AS t "
        "FROM (SELECT PARSE_JSON(text) AS v FROM events) GROUP BY v['kind']"
    )
    found = materialised(changelog(env, query, tmp_path, limit=900))
    wanted = Counter(
        (
            Variant.of(kind),
            sum("who" in each for each in EVENTS if each["kind"] == kind),
            len({str(each["tags"][:1]) for each in EVENTS if each["kind"] == kind} - {"[]"}),
        )
        for kind in ("click", "view", "buy")
    )
    assert found == wanted


def test_results_and_functions_of_programs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = environment()
    env.create_temporary_function("grown", udf(_grown, result_type="VARIANT"))
    table = env.sql_query("""SELECT grown(PARSE_JSON('{"b": 1.50, "a": [null]}')) AS v""")
    (row,) = changelog(env, f"SELECT * FROM {table}", tmp_path)
    assert row[0].to_json() == '{"a":[null],"b":1.5,"c":{"old":2}}'
    assert table.to_pandas()["v"].tolist() == [row[0]]
    assert table.to_arrow().column("v").to_pylist() == [row[0].data]
    capsys.readouterr()
    table.execute().print()
    assert '{"a":[null],"b":1.5,"c":{"o... |' in capsys.readouterr().out
    env.execute_sql("CREATE TABLE shown (v VARIANT) WITH ('connector' = 'print')")
    table.execute_insert("shown").wait()
    assert '+I[{"a":[null],"b":1.5,"c":{"old":2}}]' in capsys.readouterr().out
    env.execute_sql("CREATE TABLE files (v VARIANT) WITH ('connector' = 'duckdb')")
    with pytest.raises(MillstreamError, match=r"'v' is VARIANT.* use JSON_STRING and PARSE_JSON"):
        env.execute_sql("SELECT * FROM files")


def _grown(given: Variant) -> Variant:
    value = given.to_python()
    return Variant.of({**value, "c": {"old": len(value)}})


def test_a_branch_that_is_not_taken_does_not_fail(tmp_path: Path) -> None:
    env = environment()
    table_of(env, "t", "text STRING", [('{"a": 1}',), ("[7]",), ("{",)], tmp_path)
    query = (
        "SELECT JSON_STRING(CASE WHEN text LIKE '[%' THEN v[1] ELSE v['a'] END) "
        "FROM (SELECT text, TRY_PARSE_JSON(text) AS v FROM t)"
    )
    assert set(changelog_values(env, query, tmp_path)) == {"1", "7", None}
    with pytest.raises(MillstreamError, match=r"\['a'\] is for objects, and the variant is \[7\]"):
        changelog(
            env,
            query.replace("CASE WHEN text LIKE '[%' THEN v[1] ELSE v['a'] END", "v['a']"),
            tmp_path,
        )


def changelog_values(env: Any, query: str, directory: Path) -> list[Any]:
    return [row[0] for row in changelog(env, query, directory)]
