"""Compiled plans: COMPILE PLAN, EXECUTE PLAN, and changed queries that are refused by a diff.

What it is: plans of all kinds of queries are read back as the same operators, results are held
against plain Python, and state is found again by a plan though names in the release have changed.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment, insert, materialised

from millstream.connectors.basic.collect import CollectSink, read_collected
from millstream.errors import IncompatibleProgramError, UnsupportedSqlError, ValidationError
from millstream.sql.catalog.connectors import ALL_CHANGES, TableSink
from millstream.sql.statements import plans
from millstream.table import PlanReference, TableEnvironment
from millstream.table.udf import AggregateFunction, udaf, udf, udtf
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.sink import Sink
    from millstream.graph.model import JobGraph

_ROWS = [(1, 10), (2, 1), (1, 20), (2, 30), (1, 5), (3, 5), (2, 7), (1, 8)]


class _Collected(TableSink):
    """A table whose changes are kept, instead of the connector's sink."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        del given
        return ALL_CHANGES

    def create(self) -> Sink:
        return CollectSink(str(self._directory))


@pytest.fixture
def env(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableEnvironment:
    made = environment()
    _tables(made, tmp_path)

    def sink(identifier: Any, *_: Any) -> TableSink:
        return _Collected(tmp_path / f"out-{identifier.object_name}")

    monkeypatch.setattr("millstream.sql.catalog.connectors.table_sink", sink)
    return made


def _tables(env: TableEnvironment, path: Path) -> None:
    for name in ("t", "u"):
        directory = path / name
        if not directory.exists():
            directory.mkdir()
            lines = [
                json.dumps({"a": a, "v": v, "ts": f"2024-01-01 00:00:{v:02}"}) for a, v in _ROWS
            ]
            (directory / "rows.json").write_text("\n".join(lines) + "\n")
        env.execute_sql(
            f"CREATE TABLE {name} (a INT, v INT, s STRING, ts TIMESTAMP(3), p AS PROCTIME(), "
            f"WATERMARK FOR ts AS ts - INTERVAL '1' MINUTE) "
            f"WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json')"
        )
    for name in ("o1", "o2"):
        env.execute_sql(f"CREATE TABLE {name} (a INT, n BIGINT) WITH ('connector' = 'print')")


def _graph_of(env: TableEnvironment, plan: Any) -> JobGraph:
    session = env.session
    return session.program.graph_of(plans.ends_of(session, plan._plan), "test")


def _run(graph: JobGraph, state: Path | None = None, epochs: int = 100) -> None:
    MiniCluster(graph, state, limits=iter([60] * 100), seed=1).run(epochs)


def _again(env: TableEnvironment, text: str) -> Any:
    """A plan that is read back."""
    return env.load_plan(PlanReference.from_json_string(text))


_SUM = "INSERT INTO o1 SELECT a, SUM(v) FROM t GROUP BY a"
_QUERIES = {
    "filter": "SELECT a, CAST(v AS BIGINT) FROM t WHERE v > 5 AND s IS NULL OR a IN (1, 7)",
    "values": "VALUES (1, CAST(2 AS BIGINT)), (3, CAST(NULL AS BIGINT))",
    "aggregate": "SELECT a, COUNT(DISTINCT v) FILTER (WHERE v > 5) FROM t GROUP BY a",
    "twice": "SELECT CAST(n AS INT), COUNT(*) FROM (SELECT a, COUNT(*) n FROM t GROUP BY a) "
    "GROUP BY n",
    "join": "SELECT x.a, COUNT(*) FROM t x LEFT JOIN u y ON x.a = y.a AND x.v < y.v GROUP BY x.a",
    "semi": "SELECT a, CAST(v AS BIGINT) FROM t WHERE a IN (SELECT a FROM u WHERE v > 9)",
    "interval": "SELECT x.a, COUNT(*) FROM t x JOIN u y ON x.a = y.a AND x.ts BETWEEN y.ts - "
    "INTERVAL '10' SECOND AND y.ts GROUP BY x.a",
    "top": "SELECT a, n FROM (SELECT a, CAST(v AS BIGINT) n, ROW_NUMBER() OVER (PARTITION BY a "
    "ORDER BY v DESC) r FROM t) WHERE r <= 2",
    "window": "SELECT a, COUNT(*) FROM TABLE(HOP(TABLE t, DESCRIPTOR(ts), INTERVAL '5' SECOND, "
    "INTERVAL '10' SECOND)) GROUP BY a, window_start, window_end",
    "over": "SELECT a, SUM(v) OVER (PARTITION BY a ORDER BY ts ROWS BETWEEN 1 PRECEDING AND "
    "CURRENT ROW) + CAST(0 AS BIGINT) FROM t",
    "numbers": "SELECT a, RANK() OVER (PARTITION BY a ORDER BY ts) FROM t",
    "sorted": "SELECT a, CAST(v AS BIGINT) FROM t ORDER BY ts, a",
    "match": "SELECT a, n FROM t MATCH_RECOGNIZE (PARTITION BY a ORDER BY ts MEASURES "
    "COUNT(U.v) AS n PATTERN (U+ D) WITHIN INTERVAL '1' HOUR DEFINE U AS U.v < 10, D AS D.v >= 10)",
    "sets": "SELECT a, COUNT(*) FROM t GROUP BY GROUPING SETS ((a), ())",
    "union": "SELECT a, CAST(v AS BIGINT) FROM t UNION SELECT a, CAST(v AS BIGINT) FROM u",
    "limit": "SELECT a, CAST(v AS BIGINT) FROM t LIMIT 3",
    "unnest": "SELECT a, CAST(x AS BIGINT) FROM t CROSS JOIN UNNEST(ARRAY[v, 1]) AS q (x)",
    "lookup": "SELECT x.a, CAST(y.v AS BIGINT) FROM t x JOIN u FOR SYSTEM_TIME AS OF x.p AS y "
    "ON x.a = y.a",
}


def _shape(graph: JobGraph) -> list[tuple[Any, ...]]:
    """What is to be the same: operators, uids, what they do, what they keep, their wiring."""
    edges = [(each.source, each.target, each.partitioning) for each in graph.edges]
    first = min(graph.nodes)
    return [
        (number - first, node.name, node.uid, node.details, str(node.output_type), node.parallelism)
        for number, node in graph.nodes.items()
    ] + [(source - first, target - first, way) for source, target, way in edges]


@pytest.mark.parametrize("name", _QUERIES)
def test_a_plan_is_read_back_as_the_same_job(name: str, env: TableEnvironment) -> None:
    text = f"INSERT INTO o1 {_QUERIES[name]}"
    plan = env.compile_plan_sql(text)
    again = _again(env, plan.as_json_string())
    assert again.as_json_string() == plan.as_json_string()
    assert env.compile_plan_sql(text).as_json_string() == plan.as_json_string()
    assert again.explain("CHANGELOG_MODE") == plan.explain("CHANGELOG_MODE")
    assert "Sink(table=" in (costs := again.explain("ESTIMATED_COST"))
    assert ": rowcount = " in costs
    with pytest.raises(UnsupportedSqlError, match="PLAN_ADVICE of a compiled plan"):
        plan.explain("PLAN_ADVICE")
    session = env.session
    shown = plans.explained(session, again._plan).split("==\n", 1)[1]
    assert shown in env.explain_sql(text)
    given = session.program.graph_of(session.sinks([session.target(_parsed(text), text)]), "test")
    assert _shape(_graph_of(env, again)) == _shape(given)


def _parsed(text: str) -> Any:
    from millstream.sql.parser.parser import parse_statement

    return parse_statement(text)


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("name", ["twice", "join", "top", "union"])
def test_a_plan_gives_what_its_statement_gives(
    name: str, env: TableEnvironment, tmp_path: Path
) -> None:
    plan = env.compile_plan_sql(f"INSERT INTO o1 {_QUERIES[name]}")
    _run(_graph_of(env, _again(env, plan.as_json_string())))
    rows = Counter(_ROWS)
    by_key = defaultdict(list)
    for a, v in _ROWS:
        by_key[a].append(v)
    wanted: Counter[tuple[Any, ...]] = Counter()
    if name == "twice":
        wanted.update(
            Counter(
                (len(v), sum(len(w) == len(v) for w in by_key.values())) for v in by_key.values()
            ).keys()
        )
    elif name == "join":
        wanted.update(
            (a, sum(max(1, sum(y > v for y in by_key[a])) for v in by_key[a])) for a in by_key
        )
    elif name == "top":
        wanted.update((a, v) for a in by_key for v in sorted(by_key[a])[-2:])
    else:
        wanted.update(rows.keys())
    assert materialised(read_collected(tmp_path / "out-o1")) == wanted


def _renamed(text: str, release: str = "0.0.1") -> str:
    """A plan as another release would have written it: with other uids."""
    content = json.loads(text)
    content["millstreamVersion"] = release
    del content["checksum"]
    for node in content["nodes"]:
        node["uids"] = {name: f"old-{uid}" for name, uid in node.get("uids", {}).items()}
    return json.dumps(content)


@pytest.mark.both_engines
def test_a_plan_keeps_its_state_though_uids_are_made_otherwise_now(
    env: TableEnvironment, tmp_path: Path
) -> None:
    old = _renamed(env.compile_plan_sql(_SUM).as_json_string())
    graph = _graph_of(env, _again(env, old))
    assert any(node.uid.startswith("old-") for node in graph.nodes.values())
    _run(graph, tmp_path / "state", 1)
    with pytest.raises(IncompatibleProgramError, match="does not fit"):
        _run(_graph_of(env, env.compile_plan_sql(_SUM)), tmp_path / "state")
    _run(_graph_of(env, _again(env, old)), tmp_path / "state")
    wanted = Counter({(1, 43): 1, (2, 38): 1, (3, 5): 1})
    assert materialised(read_collected(tmp_path / "out-o1")) == wanted


@pytest.mark.both_engines
def test_a_changed_query_is_refused_by_what_differs(env: TableEnvironment, tmp_path: Path) -> None:
    _run(_graph_of(env, env.compile_plan_sql(_SUM)), tmp_path / "state", 1)
    changed = _SUM.replace("SUM(v)", "SUM(v + 1)")
    with pytest.raises(IncompatibleProgramError) as refused:
        _run(_graph_of(env, env.compile_plan_sql(changed)), tmp_path / "state")
    shown = str(refused.value)
    assert "operator 'GroupAggregate'" in shown
    assert (
        "        aggregates:\n          - SUM(v INT) INT\n          + SUM(+(v INT, 1 INT" in shown
    )
    assert "keys:" not in shown
    assert "COMPILE PLAN" in shown
    assert ".uid(" not in shown


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        (
            "SELECT a, COUNT(*) FROM t GROUP BY a",
            "SELECT v, COUNT(*) FROM t GROUP BY v",
            ["keys:", "- a INT", "+ v INT"],
        ),
        (
            "SELECT x.a, COUNT(*) FROM t x JOIN u y ON x.a = y.a GROUP BY x.a",
            "SELECT x.a, COUNT(*) FROM t x JOIN u y ON x.a = y.a AND x.v < y.v GROUP BY x.a",
            ["'Join'", "condition:", "+ <(0.v INT, 1.v INT"],
        ),
        (
            "SELECT a, CAST(v AS BIGINT) FROM t LIMIT 3",
            "SELECT a, CAST(v AS BIGINT) FROM t LIMIT 4",
            ["'Limit'", "keeps:", "- 3 rows behind 0", "+ 4 rows behind 0"],
        ),
        (
            _QUERIES["twice"],
            _QUERIES["twice"].replace("COUNT(*) n", "COUNT(v) n"),
            ["- COUNT() BIGINT", "+ COUNT(v INT) BIGINT"],
        ),
    ],
)
def test_what_differs_is_named(
    before: str, after: str, wanted: list[str], env: TableEnvironment, tmp_path: Path
) -> None:
    _run(_graph_of(env, env.compile_plan_sql(f"INSERT INTO o1 {before}")), tmp_path / "state", 1)
    with pytest.raises(IncompatibleProgramError) as refused:
        _run(_graph_of(env, env.compile_plan_sql(f"INSERT INTO o1 {after}")), tmp_path / "state")
    for each in wanted:
        assert each in str(refused.value)


@pytest.mark.both_engines
def test_what_still_fits_is_restored(env: TableEnvironment, tmp_path: Path) -> None:
    """Of two queries one has changed: it begins anew if that is wanted, the other goes on."""
    both = "STATEMENT SET BEGIN {}; INSERT INTO o2 SELECT a, {}(v) FROM t GROUP BY a; END"
    text = "EXECUTE " + both
    first = env.compile_plan_sql(text.format(_SUM, "COUNT"))
    _run(_graph_of(env, first), tmp_path / "state", 1)
    second = env.compile_plan_sql(text.format(_SUM.replace("FROM t", "FROM t WHERE v > 0"), "MAX"))
    with pytest.raises(IncompatibleProgramError, match=r"- COUNT\(v INT\) BIGINT") as refused:
        _run(_graph_of(env, second), tmp_path / "state")
    assert "SUM" not in str(refused.value)
    env.get_config().set("execution.state-recovery.ignore-unclaimed-state", "true")
    _run(_graph_of(env, second), tmp_path / "state")
    wanted = Counter({(1, 43): 1, (2, 38): 1, (3, 5): 1})
    assert materialised(read_collected(tmp_path / "out-o1")) == wanted


# -- statements ----------------------------------------------------------------------------------


def test_statements_write_and_run_plans(tmp_path: Path) -> None:
    env = environment(execution__target="local")
    _tables(env, tmp_path)
    env.execute_sql(
        f"CREATE TABLE files (a INT, v INT) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path / 'files'}', 'format' = 'json')"
    )
    plan, insert = tmp_path / "plans" / "p.json", "INSERT INTO files SELECT a, v FROM t WHERE v > 9"
    compile_it = f"COMPILE PLAN '{plan}' {{}} FOR {insert}"
    env.execute_sql(compile_it.format(""))
    made = plan.read_text()
    with pytest.raises(ValidationError, match=r"Cannot overwrite the plan file '.*force-recompile"):
        env.execute_sql(compile_it.format(""))
    other = f"COMPILE PLAN '{plan}' IF NOT EXISTS FOR INSERT INTO files SELECT v, a FROM t"
    env.execute_sql(other)
    assert plan.read_text() == made
    another = environment(execution__target="local")
    another.execute_sql(f"EXECUTE PLAN '{plan}'").wait()
    another.execute_sql(f"COMPILE AND EXECUTE PLAN '{plan}' FOR {insert}").wait()
    lines = [
        line for each in (tmp_path / "files").glob("*") for line in each.read_text().splitlines()
    ]
    assert sorted(lines) == sorted(['{"a":1,"v":10}', '{"a":1,"v":20}', '{"a":2,"v":30}'] * 2)
    env.execute_sql("SET 'table.plan.force-recompile' = 'true'")
    env.execute_sql(other.replace("IF NOT EXISTS", ""))
    assert plan.read_text() != made


def test_functions_of_users_are_found_by_name(env: TableEnvironment) -> None:
    class Total(AggregateFunction):
        def create_accumulator(self) -> list[int]:
            return [0]

        def accumulate(self, accumulator: list[int], value: int) -> None:
            accumulator[0] += value

        def get_value(self, accumulator: list[int]) -> int:
            return accumulator[0]

    twice = udf(lambda value: value * 2, result_type="INT")
    total = udaf(Total(), result_type="BIGINT", name="total")
    env.create_temporary_function("twice", twice)
    env.create_temporary_system_function("total", total)
    text = "INSERT INTO o1 SELECT a, total(twice(v)) FROM t GROUP BY a"
    plan = env.compile_plan_sql(text).as_json_string()
    assert _again(env, plan).as_json_string() == plan
    assert '"default_database",\n' in plan
    env.drop_temporary_function("twice")
    with pytest.raises(ValidationError, match=r"calls the function '.*twice', which is"):
        _again(env, plan)
    with pytest.raises(ValidationError, match="has no name in a catalog"):
        env.from_path("t").select(twice("a"), total("v")).insert_into("o1").compile_plan()


def test_plans_that_do_not_fit_are_refused(env: TableEnvironment, tmp_path: Path) -> None:
    plan = env.compile_plan_sql(_SUM).as_json_string()
    env.execute_sql("ALTER TABLE t ADD more INT")
    with pytest.raises(
        ValidationError, match=r"'default_catalog.default_database.t' from the persis"
    ):
        _again(env, plan)
    env.execute_sql("DROP TABLE t")
    _again(env, plan)
    with pytest.raises(ValidationError, match="plan of version 9"):
        _again(env, plan.replace('"formatVersion": 1', '"formatVersion": 9'))
    for text in ("{", "[]", '{"formatVersion": 1}', plan.replace('"Calc"', '"Os"'), "3"):
        with pytest.raises(ValidationError, match="is no compiled plan"):
            _again(env, text)
    unknown = plan.replace('"changes"', '"chances"')
    with pytest.raises(ValidationError, match="has 'chances'"):
        _again(env, unknown)
    with pytest.raises(ValidationError, match="Cannot read the plan file"):
        env.execute_sql(f"EXECUTE PLAN '{tmp_path / 'no.json'}'")
    env.execute_sql("SET 'table.plan.compile.catalog-objects' = 'IDENTIFIER'")
    with pytest.raises(UnsupportedSqlError, match="plans hold their tables as a whole"):
        env.compile_plan_sql("INSERT INTO o1 SELECT a, v FROM u")


def test_a_plan_that_was_changed_by_hand_is_refused(env: TableEnvironment) -> None:
    """A filter or an option that is gone would not be seen in what is left."""
    plan = env.compile_plan_sql("INSERT INTO o1 SELECT a, CAST(v AS BIGINT) FROM t WHERE v > 5")
    content = json.loads(plan.as_json_string())
    assert _again(env, json.dumps(content, sort_keys=True)).explain() == plan.explain()
    (calc,) = [each for each in content["nodes"] if "condition" in each]
    del calc["condition"]
    with pytest.raises(ValidationError, match=r"not as it was compiled.* 'checksum' away"):
        _again(env, json.dumps(content))
    del content["checksum"]
    assert "where" not in _again(env, json.dumps(content)).explain()
    with pytest.raises(ValidationError, match="has 'hints', which plans of this release"):
        _again(env, json.dumps({**content, "hints": []}))


class _Sum(AggregateFunction):
    def create_accumulator(self) -> list[int]:
        return [0]

    def accumulate(self, accumulator: list[int], value: int) -> None:
        accumulator[0] += value

    def get_value(self, accumulator: list[int]) -> int:
        return accumulator[0]


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        (udf(len, result_type="INT"), udf(len, result_type="BIGINT"), "gave INT .* gives BIGINT"),
        (udf(len, result_type="INT"), udf(ascii, result_type="STRING"), "gave INT .* gives STRING"),
        (
            udf(len, result_type="INT", input_types=["INT"]),
            udf(len, result_type="INT", input_types=["STRING"]),
            "takes other arguments",
        ),
        (udf(len, result_type="INT"), udtf(len, result_types=["INT"]), "gives ARRAY<ROW"),
        (udf(len, result_type="INT"), udaf(_Sum(), result_type="INT"), "and is aggregate now"),
        (udaf(_Sum(), result_type="INT"), udf(len, result_type="INT"), "and is scalar now"),
        (udaf(_Sum(), result_type="INT"), udaf(_Sum(), result_type="BIGINT"), "gives BIGINT"),
        (udf(len, result_type="INT"), udf(abs, result_type="INT"), None),
        (udaf(_Sum(), result_type="INT"), udaf(_Sum(), result_type="INT"), None),
    ],
)
def test_a_function_that_is_another_one_now(
    before: Any, after: Any, message: str | None, env: TableEnvironment
) -> None:
    env.create_temporary_function("f", before)
    plan = env.compile_plan_sql("INSERT INTO o1 SELECT f(v), CAST(1 AS BIGINT) FROM t")
    env.drop_temporary_function("f")
    env.create_temporary_function("f", after)
    if message is None:
        assert _again(env, plan.as_json_string()).explain() != ""
        return
    with pytest.raises(ValidationError, match=message):
        _again(env, plan.as_json_string())


def test_partitions_are_chosen_in_the_time_zone_of_the_plan(tmp_path: Path) -> None:
    """Or rows that its filter lets through would lie in partitions that are not read."""
    tokyo, utc = environment(), environment()
    tokyo.execute_sql("SET 'table.local-time-zone' = 'Asia/Tokyo'")
    for each in (tokyo, utc):
        each.execute_sql(
            "CREATE TABLE t (a INT, d DATE) PARTITIONED BY (d) WITH ('connector' = 'filesystem', "
            f"'path' = '{tmp_path / 't'}', 'format' = 'json')"
        )
        each.execute_sql("CREATE TABLE o (a INT) WITH ('connector' = 'print')")
    where = "CAST(d AS TIMESTAMP_LTZ(3)) < TO_TIMESTAMP_LTZ(1704067200000, 3)"
    insert(tokyo, "INSERT INTO t VALUES (1, DATE '2024-01-01')")
    plan = tokyo.compile_plan_sql(f"INSERT INTO o SELECT a FROM t WHERE {where}")
    assert "partitions=[" in plan.explain()
    for each in (tokyo, utc):
        again = _again(each, plan.as_json_string())
        (source,) = [n.source for n in _graph_of(each, again).nodes.values() if n.source]
        assert len(source.discover({})) == 1


def test_secrets_of_hints_are_not_in_plans(tmp_path: Path) -> None:
    env = environment()
    env.execute_sql("CREATE TABLE o (a INT) WITH ('connector' = 'print')")
    env.execute_sql(
        "CREATE TABLE k (a INT) WITH ('connector' = 'kafka', 'topic' = 't', 'format' = 'json', "
        "'properties.bootstrap.servers' = 'h:1', 'scan.startup.mode' = 'earliest-offset')"
    )
    for key in ("properties.sasl.password", "properties.ssl.key.pem"):
        hint = f"/*+ OPTIONS('{key}' = 'hunter2') */"
        plan = env.compile_plan_sql(f"INSERT INTO o SELECT a FROM k {hint}").as_json_string()
        assert "hunter2" not in plan
        with pytest.raises(ValidationError, match=rf"'{key}' of table '.*k' is a secret and not"):
            _again(env, plan)
        env.execute_sql(f"ALTER TABLE k SET ('{key}' = 'hunter2')")
        _again(env, plan)


def test_secrets_are_not_in_plans(tmp_path: Path) -> None:
    env = environment()
    columns = "CREATE TABLE {} (a INT, PRIMARY KEY (a) NOT ENFORCED) WITH ({})"
    options = (
        "'connector' = 'jdbc', 'url' = 'jdbc:postgresql://h:1/d', 'table-name' = 'x', "
        "'username' = 'me', 'password' = 'hunter2'"
    )
    env.execute_sql(columns.format("db", options))
    env.execute_sql("CREATE TABLE o (a INT) WITH ('connector' = 'print')")
    plan = env.compile_plan_sql("INSERT INTO o SELECT a FROM db").as_json_string()
    assert "hunter2" not in plan
    assert "jdbc:postgresql" in plan
    again = _again(env, plan)
    (scan,) = [each for each in _below(again._plan.sinks[0]) if not each.inputs]
    assert scan.table.options["password"] == "hunter2"
    with pytest.raises(ValidationError, match=r"'password' of table '.*db' is a secret"):
        _again(environment(), plan)


def _below(node: Any) -> list[Any]:
    return [node, *(one for each in node.inputs for one in _below(each))]
