"""How long state is kept: by the hint STATE_TTL, and by table.exec.state.ttl."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.runtime.table_operators.running import TableHarness
from tests.support.query_running import environment

from millstream.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.runtime.table_operators.model import Change

    from millstream.table import TableEnvironment

_JOIN = "SELECT {} a.k, a.v, b.v AS w FROM t AS a JOIN u AS b ON a.k = b.k"
_HOUR = 3_600_000
_OVER_GROUPS = (
    "SELECT /*+ STATE_TTL('x' = '1 h', 'u' = '2 h') */ x.n FROM (SELECT k, COUNT(*) AS n FROM t "
    "GROUP BY k) x LEFT JOIN u ON x.k = u.k WHERE x.n > 1"
)


@pytest.fixture
def env() -> TableEnvironment:
    made = environment()
    for name in "tu":
        made.execute_sql(
            f"CREATE TABLE {name} (k INT, v INT, p AS PROCTIME()) WITH ('connector' = 'datagen')"
        )
    return made


def factories(env: TableEnvironment, query: str, directory: Path) -> dict[str, Any]:
    """The operators of a query by name."""
    end = env.session.collected(env.sql_query(query).plan, str(directory))
    graph = env.session.program.graph_of([end], "test")
    return {node.name: node.factory for node in graph.nodes.values()}


def test_each_side_of_a_join_expires_by_its_own_hint(env: TableEnvironment, tmp_path: Path) -> None:
    query = _JOIN.format("/*+ STATE_TTL('a' = '1 h', 'b' = '1d') */")
    plan = factories(env, query, tmp_path)["Join"]
    assert (plan.left_ttl, plan.right_ttl) == (_HOUR, 24 * _HOUR)
    output = [field.type for field in (*plan.left_type, *plan.right_type)]
    with TableHarness(plan, plan.left_type, output) as harness:
        harness.row_types.append(plan.right_type)

        def row(value: int, side: int) -> Change:
            width = len(harness.row_types[side])
            return 0, (1, value, *[None] * (width - 2))

        harness.feed([row(10, 0)], 0)
        harness.feed([row(20, 1)], 1)
        harness.processing_time(_HOUR)
        assert harness.feed([row(21, 1)], 1) == []
        assert len(harness.feed([row(11, 0)], 0)) == 2
        harness.processing_time(25 * _HOUR)
        assert harness.feed([row(12, 0)], 0) == []


def test_groups_expire_by_the_hint(env: TableEnvironment, tmp_path: Path) -> None:
    query = "SELECT /*+ STATE_TTL('t' = '2 h') */ k, COUNT(*) AS n FROM t GROUP BY k"
    plan = factories(env, query, tmp_path)["GroupAggregate"]
    output = [plan.input_type.children[0], plan.aggregates[0].type]
    with TableHarness(plan, plan.input_type, output) as harness:
        one: Change = (0, (1, *[None] * (len(plan.input_type) - 1)))
        harness.feed([one, one])
        harness.processing_time(2 * _HOUR - 1)
        assert harness.feed([one])[-1] == (2, (1, 3))
        harness.processing_time(5 * _HOUR)
        assert harness.feed([one]) == [(0, (1, 1))]


@pytest.mark.parametrize(
    ("query", "left", "right"),
    [
        (_JOIN.format("/*+ STATE_TTL('b' = '1 h') */"), 7000, _HOUR),
        (_JOIN.format("/*+ STATE_TTL('a' = '0 s') */"), 0, 7000),
        (
            _OVER_GROUPS,
            _HOUR,
            2 * _HOUR,
        ),
    ],
)
def test_what_a_hint_leaves_out_goes_by_the_option(
    env: TableEnvironment, query: str, left: int, right: int, tmp_path: Path
) -> None:
    env.execute_sql("SET 'table.exec.state.ttl' = '7 s'")
    found = factories(env, query, tmp_path)
    assert (found["Join"].left_ttl, found["Join"].right_ttl) == (left, right)
    if "GroupAggregate" in found:
        assert found["GroupAggregate"].state_ttl == 7000


def test_joins_of_joins_take_the_hints_of_their_tables(
    env: TableEnvironment, tmp_path: Path
) -> None:
    query = (
        "SELECT /*+ STATE_TTL('a' = '1 h', 'b' = '2 h', 'c' = '3 h') */ a.v FROM t a "
        "JOIN u b ON a.k = b.k JOIN u c ON b.v = c.v"
    )
    end = env.session.collected(env.sql_query(query).plan, str(tmp_path))
    graph = env.session.program.graph_of([end], "test")
    plans: list[Any] = [each.factory for each in graph.nodes.values() if each.name == "Join"]
    assert {(each.left_ttl, each.right_ttl) for each in plans} == {
        (_HOUR, 2 * _HOUR),
        (0, 3 * _HOUR),
    }


def test_explain_shows_hints(env: TableEnvironment) -> None:
    assert "stateTtlHints=[LEFT=1 h, RIGHT=1 d]" in env.explain_sql(
        _JOIN.format("/*+ STATE_TTL('a' = '1 h', 'b' = '1d') */")
    )
    query = "SELECT /*+ STATE_TTL('t' = '2 h') */ DISTINCT k FROM t"
    assert "stateTtlHints=[2 h]" in env.explain_sql(query)


_TOP = (
    "SELECT k FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY {}) r FROM t) WHERE r {}"
)


@pytest.mark.parametrize(
    ("query", "name"),
    [
        ("SELECT DISTINCT k FROM t", "GroupAggregate"),
        (_TOP.format("v", "<= 3"), "Rank"),
        (_TOP.format("p DESC", "= 1"), "Deduplicate"),
        ("SELECT k FROM t LIMIT 3", "Limit"),
        ("SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY p) FROM t", "OverAggregate"),
    ],
)
def test_the_option_is_for_all_operators(
    env: TableEnvironment, query: str, name: str, tmp_path: Path
) -> None:
    env.execute_sql("SET 'table.exec.state.ttl' = '7 s'")
    assert factories(env, query, tmp_path)[name].state_ttl == 7000


@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("STATE_TTL('t' = '1 h')", "names 't', which no table of FROM is called"),
        ("STATE_TTL('a' = 'soon')", "has 'soon' for 'a'; it must be a length of time"),
        ("STATE_TTL('a')", "pairs of the form 'table' = 'length of time'"),
        ("STATE_TTL('a' = '1 h', 'a' = '2 h')", "has 'a' twice"),
    ],
)
def test_hints_that_are_wrong_are_refused(env: TableEnvironment, hint: str, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        env.sql_query(_JOIN.format(f"/*+ {hint} */"))
