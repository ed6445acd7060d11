"""A changed query goes on from the state of the old one only where that is its own state.

What it is: pairs of queries; the second is started on the checkpoint of the first.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment, materialised

from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import IncompatibleProgramError, MillstreamError, UnsupportedSqlError
from millstream.table import StreamTableEnvironment
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.graph.model import JobGraph
    from millstream.table import TableEnvironment

pytestmark = pytest.mark.both_engines

_ROWS = [(1, 10), (2, 1), (1, 20), (2, 30), (1, 5), (3, 5), (2, 7), (1, 8)]
_STATELESS = ("Source", "Sink", "Calc", "Watermark")


def _environment(path: Path) -> TableEnvironment:
    env = environment()
    _tables(env, path)
    return env


def _tables(env: TableEnvironment, path: Path) -> None:
    for name in ("t", "u"):
        directory = path / name
        if not directory.exists():
            directory.mkdir()
            lines = (json.dumps(dict(zip("av", row, strict=True))) for row in _ROWS)
            (directory / "rows.json").write_text("\n".join(lines) + "\n")
        env.execute_sql(
            f"CREATE TABLE {name} (a INT, v INT, s STRING, p AS PROCTIME()) "
            f"WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json')"
        )


def _graph(path: Path, query: str, out: str = "out") -> JobGraph:
    env = _environment(path)
    end = env.session.collected(env.sql_query(query).plan, str(path / out))
    return env.session.program.graph_of([end], "test")


def _uids(graph: JobGraph) -> set[str]:
    """Of the operators with state."""
    nodes = graph.nodes.values()
    return {str(each.uid) for each in nodes if not each.name.startswith(_STATELESS)}


_JOIN = "SELECT x.a, y.v FROM t x {} JOIN u y ON x.a = y.a {}"
_TOP = "SELECT a, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY {} ORDER BY {}) n FROM t) "
_FIRST = "SELECT a, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY p {}) n FROM t) "
_SUM = "SELECT a, SUM({}) {} FROM t GROUP BY a"
_CHANGES = {
    "kind of join": (_JOIN.format("", ""), _JOIN.format("LEFT", "")),
    "full join": (_JOIN.format("LEFT", ""), _JOIN.format("FULL", "")),
    "semi join": (
        "SELECT a FROM t WHERE a IN (SELECT a FROM u)",
        "SELECT a FROM t WHERE NOT EXISTS (SELECT 1 FROM u WHERE u.a = t.a)",
    ),
    "condition of join": (_JOIN.format("LEFT", ""), _JOIN.format("LEFT", "AND x.v < y.v")),
    "column of join": (
        "SELECT x.w, y.v FROM (SELECT a, v + 1 AS w FROM t) x JOIN u y ON x.a = y.a",
        "SELECT x.w, y.v FROM (SELECT a, v * 2 AS w FROM t) x JOIN u y ON x.a = y.a",
    ),
    "argument": (_SUM.format("v + 1", ""), _SUM.format("v * 100", "")),
    "filter": (
        _SUM.format("v", "FILTER (WHERE v > 5)"),
        _SUM.format("v", "FILTER (WHERE v > 9)"),
    ),
    "distinct": (_SUM.format("v", ""), _SUM.format("DISTINCT v", "")),
    "key": (
        "SELECT a + 1, COUNT(*) FROM t GROUP BY a + 1",
        "SELECT v + 1, COUNT(*) FROM t GROUP BY v + 1",
    ),
    "alias": (
        "SELECT x, COUNT(*) FROM (SELECT a AS x FROM t) GROUP BY x",
        "SELECT x, COUNT(*) FROM (SELECT v AS x FROM t) GROUP BY x",
    ),
    "type of key": (
        "SELECT UPPER(s), COUNT(*) FROM t GROUP BY UPPER(s)",
        "SELECT v + 1, COUNT(*) FROM t GROUP BY v + 1",
    ),
    "ranks": (_TOP.format("a", "v") + "WHERE n <= 1", _TOP.format("a", "v") + "WHERE n <= 3"),
    "partition": (_TOP.format("a", "v") + "WHERE n <= 2", _TOP.format("s", "v") + "WHERE n <= 2"),
    "order": (
        _TOP.format("a", "v + 0") + "WHERE n <= 2",
        _TOP.format("a", "v * -1") + "WHERE n <= 2",
    ),
    "first or last": (_FIRST.format("") + "WHERE n = 1", _FIRST.format("DESC") + "WHERE n = 1"),
    "limit": ("SELECT a FROM t LIMIT 1", "SELECT a FROM t LIMIT 2"),
}


@pytest.mark.parametrize("change", _CHANGES)
def test_another_expression_is_another_operator(change: str, tmp_path: Path) -> None:
    before, after = (_uids(_graph(tmp_path, query)) for query in _CHANGES[change])
    assert before
    assert not before & after


def test_random_changes_keep_state_only_of_equal_expressions(tmp_path: Path) -> None:
    drawn = random.Random(7)
    expressions = ["a", "v", "a + 1", "v + 1", "v * 2"]
    found: dict[tuple[str, ...], set[str]] = {}
    for number in range(25):
        key, argument = drawn.choices(expressions, k=2)
        function = drawn.choice(["SUM", "MIN"])
        only = drawn.choice(["", "FILTER (WHERE v > 5)", "FILTER (WHERE v > 9)"])
        where = drawn.choice(["", "WHERE v > 2", "WHERE a < 3 AND v > 4"])
        query = (
            f"SELECT k{number}, {function}(x) {only} + {number} FROM "
            f"(SELECT {key} AS k{number}, {argument} AS x, v FROM t {where}) GROUP BY k{number}"
        )
        found.setdefault((key, argument, function, only), set()).update(
            _uids(_graph(tmp_path, query))
        )
    assert all(len(uids) == 1 for uids in found.values())
    assert len(set.union(*found.values())) == len(found)


@pytest.mark.parametrize("change", ["argument", "kind of join"])
def test_a_changed_expression_is_refused_by_name(change: str, tmp_path: Path) -> None:
    before, after = _CHANGES[change]
    state = tmp_path / "state"
    MiniCluster(_graph(tmp_path, before), state, limits=iter([60] * 100), seed=1).run(1)
    with pytest.raises(IncompatibleProgramError, match=r"operator '(GroupAggregate|Join)' .*gone"):
        MiniCluster(_graph(tmp_path, after), state, limits=iter([60] * 100), seed=1).run()
    MiniCluster(_graph(tmp_path, before), state, limits=iter([60] * 100), seed=1).run()
    wanted: Counter[Any] = Counter()
    if change == "argument":
        wanted.update({(1, 47): 1, (2, 41): 1, (3, 6): 1})
    else:
        wanted.update((x[0], y[1]) for x in _ROWS for y in _ROWS if x[0] == y[0])
    assert materialised(read_collected(tmp_path / "out")) == wanted


def _uids_of_set(path: Path, statements: list[tuple[str, str]]) -> dict[str, str]:
    """The uid of the aggregate in front of each sink, and that of its source."""
    env = _environment(path)
    made = env.create_statement_set()
    for name, where in statements:
        env.execute_sql(f"CREATE TABLE {name} (a INT, n BIGINT) WITH ('connector' = 'blackhole')")
        made.add_insert_sql(f"INSERT INTO {name} SELECT a, COUNT(*) FROM t {where} GROUP BY a")
    found: dict[str, str] = {}
    for target, end in zip(statements, env.session.sinks(made._targets), strict=True):
        node: Any = end
        while hasattr(node, "input"):
            node = node.input
            if getattr(node, "name", "") in {"GroupAggregate", "Source: t"}:
                found[f"{target[0]} {node.name}"] = str(node.uid)
    return found


def test_like_aggregates_of_one_job_keep_their_state_in_any_order(tmp_path: Path) -> None:
    statements = [("t1", "WHERE v > 5"), ("t2", "WHERE v > 9")]
    before = _uids_of_set(tmp_path, statements)
    assert len(set(before.values())) == 3  # the source is one
    assert _uids_of_set(tmp_path, statements[::-1]) == before
    assert _uids_of_set(tmp_path, [("t2", "WHERE v > 3"), ("t1", "")]) == before


def _uids_of_streams(path: Path, queries: dict[str, str]) -> dict[str, dict[str, str]]:
    """For the stream of each query the uids of what is before it, by name."""
    stream_env = StreamExecutionEnvironment.get_execution_environment()
    env = StreamTableEnvironment.create(stream_env)
    _tables(env, path)
    for name, query in queries.items():
        stream = env.to_changelog_stream(env.sql_query(query))
        stream.sink_to(CollectSink(str(path / name))).uid(name)
    nodes = stream_env.get_job_graph("test").nodes
    inputs: dict[int, list[int]] = {number: [] for number in nodes}
    for edge in stream_env.get_job_graph("test").edges:
        inputs[edge.target].append(edge.source)
    found = {}
    for name in queries:
        below = [number for number, node in nodes.items() if node.uid == name]
        for number in below:
            below += inputs[number]
        kept = ("Source: ", "GroupAggregate")
        named = {nodes[number].name: str(nodes[number].uid) for number in below}
        found[name] = {key: uid for key, uid in named.items() if key.startswith(kept)}
    return found


def test_queries_planned_one_by_one_are_told_apart(tmp_path: Path) -> None:
    """By what reads what they have in common; then by their filters, in any order."""
    counts = "SELECT a, COUNT(*) AS n FROM t {} GROUP BY a"
    sums = "SELECT a, SUM(v) AS n FROM t GROUP BY a"
    before = _uids_of_streams(tmp_path, {"counts": counts.format(""), "sums": sums})
    assert len({uid for uids in before.values() for uid in uids.values()}) == 4
    after = _uids_of_streams(tmp_path, {"sums": sums, "counts": counts.format("WHERE v > 5")})
    assert after == before
    alike = {"x": counts.format("WHERE v > 5"), "y": counts.format("WHERE v > 9")}
    before = _uids_of_streams(tmp_path, alike)
    assert len({uid for uids in before.values() for uid in uids.values()}) == 4
    assert _uids_of_streams(tmp_path, dict(reversed(alike.items()))) == before


def test_sides_that_are_alike_are_told_apart_by_their_filters(tmp_path: Path) -> None:
    parts = [f"SELECT a, COUNT(*) AS n FROM t WHERE v > {n} GROUP BY a" for n in (5, 9)]
    join = "SELECT x.a, x.n, y.n FROM ({}) x JOIN ({}) y ON x.a = y.a"

    def by_name(*sides: str) -> dict[str, list[str]]:
        nodes = _graph(tmp_path, join.format(*sides)).nodes.values()
        names = ("GroupAggregate", "Join")
        return {name: [str(each.uid) for each in nodes if each.name == name] for name in names}

    before, after = by_name(*parts), by_name(*parts[::-1])
    assert len(set(before["GroupAggregate"])) == 2
    assert before["GroupAggregate"] == after["GroupAggregate"][::-1]
    assert before["Join"] != after["Join"]
    assert by_name(*parts) == before


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT /*+ OPTIONS('x' = 'y') */ a FROM t", "must follow the table name, not SELECT"),
        ("SELECT a FROM t /*+ WHATEVER('x' = 'y') */", "no hint WHATEVER"),
        ("SELECT a FROM w /*+ OPTIONS('path' = 'y') */", "view 'w' has no options"),
        ("WITH c AS (SELECT a FROM t) SELECT a FROM c /*+ OPTIONS('x' = 'y') */", "no options"),
    ],
)
def test_hints_that_would_be_waved_away_are_refused(
    query: str, message: str, tmp_path: Path
) -> None:
    env = _environment(tmp_path)
    env.execute_sql("CREATE TEMPORARY VIEW w AS SELECT a FROM t")
    with pytest.raises(MillstreamError, match=message):
        env.sql_query(query)
    env.sql_query("SELECT /*+ BROADCAST(t), NONSENSE(a) */ a FROM t")


def test_options_that_would_change_results_are_refused(tmp_path: Path) -> None:
    env = _environment(tmp_path)
    for key, value in [
        ("table.exec.legacy-cast-behaviour", "enabled"),
        ("table.exec.emit.early-fire.enabled", "true"),
        ("table.sql-dialect", "hive"),
    ]:
        env.execute_sql(f"SET '{key}' = '{value}'")
        with pytest.raises(UnsupportedSqlError, match=f"'{key}' = '{value}' is not in this"):
            env.session.collected(env.sql_query("SELECT a FROM t").plan, str(tmp_path))
        env.execute_sql("RESET")


_COUNT = "SELECT a, SUM(v) AS total FROM t GROUP BY a"
_PAIR = "SELECT x.a, COUNT(*) AS n FROM t x JOIN u y ON x.a = y.a GROUP BY x.a"
_BEST = "SELECT a, MAX(v) AS best FROM ({}) GROUP BY a"
_TWO = (
    "SELECT a, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY a ORDER BY v DESC) n FROM t)"
    " WHERE n <= 2"
)
#: What still fits: its state is found again, and the last row of each key is that of all rows.
_FITS = {
    "alias": (_COUNT, "SELECT k, SUM(w) AS s FROM (SELECT a AS k, v AS w FROM t) z GROUP BY k"),
    "column behind": (_COUNT, "SELECT a, SUM(v), SUM(v) * 2 AS twice FROM t GROUP BY a"),
    "having": (_COUNT, _COUNT + " HAVING SUM(v) > 0"),
    "filter ahead": (_COUNT, "SELECT a, SUM(v) FROM t WHERE a < 100 GROUP BY a"),
    "filter behind": (_COUNT, f"SELECT * FROM ({_COUNT}) WHERE total > 0"),
    "alias of join": (
        _PAIR,
        _PAIR.replace("x", "left_one").replace(" y", " right_one").replace("= y", "= right_one"),
    ),
    "view": (_COUNT, f"WITH w AS ({_COUNT}) SELECT a AS b, total AS c FROM w"),
    "top-n below": (_BEST.format(_TWO), _BEST.format(_TWO.replace("n ", "place "))),
}


@pytest.mark.parametrize("change", _FITS)
def test_what_still_fits_goes_on_from_its_state(change: str, tmp_path: Path) -> None:
    before, after = _FITS[change]
    state = tmp_path / "state"
    limits = [60] * 100
    MiniCluster(_graph(tmp_path, before), state, limits=iter(limits), seed=1).run(1)
    MiniCluster(_graph(tmp_path, after), state, limits=iter(limits), seed=1).run()
    last: dict[int, Any] = {}
    for row in read_collected(tmp_path / "out"):
        values: Any = row
        last[values[0]] = values[1]
    counts = Counter(a for a, _ in _ROWS)
    totals: dict[int, int] = {}
    for a, v in _ROWS:
        best = max(totals.get(a, 0), v)
        totals[a] = best if "MAX" in before else totals.get(a, 0) + v
    assert last == ({a: n * n for a, n in counts.items()} if "JOIN" in before else totals)


_REORDERED = (
    "SELECT x.a, y.v, z.v AS w FROM t x JOIN u y ON x.a = y.a LEFT JOIN t z ON x.v = z.v",
    "SELECT x.a, y.v, z.v AS w FROM t x LEFT JOIN t z ON x.v = z.v JOIN u y ON x.a = y.a",
)
#: What does not fit: never empty state in silence, but the names of what is gone.
_REFUSED = {
    "aggregate added": (_COUNT, "SELECT a, SUM(v), COUNT(*) FROM t GROUP BY a"),
    "argument": (_COUNT, "SELECT a, SUM(v + 1) FROM t GROUP BY a"),
    "joins reordered": _REORDERED,
    "column kept by a join": (
        "SELECT x.a FROM t x JOIN u y ON x.a = y.a",
        "SELECT x.a, y.v FROM t x JOIN u y ON x.a = y.a",
    ),
    "join added": (_COUNT, "SELECT t.a, SUM(t.v) FROM t JOIN u ON t.a = u.a GROUP BY t.a"),
    "grouped further": (_COUNT, "SELECT a, s, SUM(v) FROM t GROUP BY a, s"),
    "query replaced": (_COUNT, "SELECT a, v FROM t"),
}


@pytest.mark.parametrize("change", _REFUSED)
def test_what_does_not_fit_is_refused(change: str, tmp_path: Path) -> None:
    before, after = _REFUSED[change]
    state = tmp_path / "state"
    limits = [60] * 100
    MiniCluster(_graph(tmp_path, before), state, limits=iter(limits), seed=1).run(1)
    with pytest.raises(IncompatibleProgramError, match=r"'(GroupAggregate|Join)' .*is gone"):
        MiniCluster(_graph(tmp_path, after), state, limits=iter(limits), seed=1).run()


@pytest.mark.parametrize("where", ["WHERE v > 9", "", "WHERE v > 5"])
def test_an_insert_that_is_added_takes_nobodys_state(where: str, tmp_path: Path) -> None:
    before = _uids_of_set(tmp_path, [("t1", "WHERE v > 5")])
    aggregate = "GroupAggregate"
    for added in ([("t1", "WHERE v > 5"), ("t2", where)], [("t2", where), ("t1", "WHERE v > 5")]):
        after = _uids_of_set(tmp_path, added)
        shared = where == "WHERE v > 5"  # the same part runs once
        assert (after[f"t2 {aggregate}"] == before[f"t1 {aggregate}"]) == shared
