"""An operator that this test adds: planned, explained, pruned, compiled and executed."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from tests.support.query_running import changelog, environment, materialised

from millstream.errors import ValidationError
from millstream.runtime.operators.table.deduplicate import DeduplicateFactory
from millstream.sql.planner import conversion
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import exchange
from millstream.sql.planner.formatting import columns_text
from millstream.sql.planner.physical import PhysicalNode

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.graph.transformation import Transformation
    from millstream.table import TableEnvironment


class OncePerKey(PhysicalNode):
    """The first row of each key."""

    keys: pp.Columns
    rowtime: pp.Column | None = None
    keep_last: bool = False

    takes_inserts = True
    passes_keys = True
    is_pruned = True
    place = "{keep_last} [{keys}] [{inputs}]"
    state: ClassVar[pp.Parts] = {"keys": "*keys", "keeps": "last: {keep_last}"}

    def details(self) -> str:
        return f"key=[{columns_text(self.row, self.keys)}]"

    def operator(self, lowering: pp.Lowers) -> Transformation:
        factory = lowering.factory(DeduplicateFactory, self)
        return lowering.stateful(self, factory, single=not self.keys)


def once_per_key(converter: Any, node: lp.DistinctNode) -> PhysicalNode:
    """Keep the first row of each value of the first column."""
    below = exchange(converter.convert(node.input), (0,))
    return OncePerKey(row=node.row, inputs=(below,), keys=(0,))


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    monkeypatch.setitem(conversion._RULES, lp.DistinctNode, once_per_key)
    made = environment()
    rows = [json.dumps({"a": v % 3, "b": v, "c": "x"}) for v in range(30)]
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "rows.json").write_text("\n".join(rows) + "\n")
    made.execute_sql(
        "CREATE TABLE t (a INT, b INT, c STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path / 't'}', 'format' = 'json')"
    )
    made.execute_sql("CREATE TABLE o (a INT, b INT) WITH ('connector' = 'print')")
    return made


def test_it_runs(env: TableEnvironment, tmp_path: Path) -> None:
    found = changelog(env, "SELECT DISTINCT a, b, c FROM t", tmp_path, limit=7)
    assert materialised(found) == Counter({(0, 0, "x"): 1, (1, 1, "x"): 1, (2, 2, "x"): 1})


def test_it_is_explained_without_columns_that_nobody_reads(env: TableEnvironment) -> None:
    shown = env.explain_sql("SELECT a, b FROM (SELECT DISTINCT a, b, c FROM t)", "CHANGELOG_MODE")
    plan = shown.partition("== Optimized Physical Plan ==\n")[2]
    assert "OncePerKey(key=[a], changelogMode=[I])" in plan
    assert "fields=[a, b], changelogMode" in plan


def test_it_refuses_updates(env: TableEnvironment) -> None:
    updates = "SELECT DISTINCT n, a FROM (SELECT a, COUNT(*) AS n FROM t GROUP BY a)"
    with pytest.raises(ValidationError, match="OncePerKey doesn't support consuming update"):
        env.explain_sql(updates)


def test_it_is_compiled_with_its_uid(env: TableEnvironment) -> None:
    statement = "INSERT INTO o SELECT DISTINCT a, b FROM t"
    text = env.compile_plan_sql(statement).as_json_string()
    (node,) = [each for each in json.loads(text)["nodes"] if each["type"] == "OncePerKey"]
    assert node["keys"] == [0]
    assert node["description"] == "OncePerKey(key=[a])"
    assert "OncePerKey(key=[a])" in env.load_plan(_reference(text)).explain()
    again = env.compile_plan_sql(statement.replace("a, b FROM", "a, b AS z FROM"))
    (same,) = [
        each for each in json.loads(again.as_json_string())["nodes"] if each["type"] == "OncePerKey"
    ]
    assert same["uids"] == node["uids"]


def _reference(text: str) -> Any:
    from millstream.table import PlanReference

    return PlanReference.from_json_string(text)
