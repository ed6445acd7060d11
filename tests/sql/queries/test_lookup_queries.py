"""FOR SYSTEM_TIME AS OF processing time in SQL: tables outside that are asked for rows by keys."""

from __future__ import annotations

import contextlib
import json
import random
import sqlite3
import threading
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from tests.runtime.table_operators.model import UA, UB, I
from tests.runtime.table_operators.running import TableHarness
from tests.support.query_running import changelog, environment, materialised, table_of

from millstream.common import RowKind
from millstream.connectors.basic.collect import read_collected
from millstream.contracts.lookup import FoundRows, LookupCaching, LookupReader, LookupSource
from millstream.errors import MillstreamError, SourceError
from millstream.expressions.nodes import InputReference
from millstream.runtime.operators.table.lookup_join import LookupJoinFactory, LookupPolicy
from millstream.runtime.operators.table.specs import JoinKind
from millstream.testing import MiniCluster
from millstream.types.logical_types import BigIntType, RowType, VarCharType

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

PRODUCTS = [
    (1, "tea", "1.50", True, "2024-01-01 10:00:00"),
    (1, "green tea", "2.00", None, None),
    (2, "cup", "4.25", False, "2024-01-02 00:00:00"),
    (3, None, None, True, "2024-01-03 00:00:00.5"),
    (None, "nothing", "0.00", True, None),
    (7, "pot", "12.00", False, None),
]
COLUMNS = "id INT, name STRING, price DECIMAL(10, 2), hot BOOLEAN, since TIMESTAMP(3)"
JOIN = "o {} JOIN p FOR SYSTEM_TIME AS OF o.pt AS p ON"
#: The join and what is left of it for DuckDB.
QUERIES = [
    f"SELECT o.v, name, price, hot, since FROM {JOIN.format('')} o.k = p.id",
    f"SELECT o.k, o.v, p.id, name, price, hot FROM {JOIN.format('LEFT')} o.k = p.id",
    f"SELECT o.k, name FROM {JOIN.format('LEFT')} o.k = p.id AND p.name = 'tea' AND o.v > 3",
    f"SELECT o.v, p.id, price * o.v AS s FROM {JOIN.format('')} p.hot = TRUE WHERE o.v < p.id",
    f"SELECT o.v, p.name FROM {JOIN.format('LEFT')} o.k + 1 = p.id AND o.v > p.price",
    f"SELECT o.v, short, uno FROM {JOIN.format('LEFT').replace('p FOR', 'dear FOR')} p.id = o.k",
]


def _orders(seed: int) -> list[tuple[int | None, int]]:
    drawn = random.Random(seed)
    return [(drawn.choice([1, 2, 3, 4, 7, None]), drawn.randint(0, 9)) for _ in range(50)]


def _made(connector: str, path: Path, options: str = "") -> str:
    """The table of products, in a connector; returns its options."""
    file = path / f"products.{connector}"
    if connector == "filesystem":
        file.mkdir()
        names = ("id", "name", "price", "hot", "since")
        lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in PRODUCTS]
        (file / "0.json").write_text("".join(lines[:3]))
        (file / "1.json").write_text("".join(lines[3:]))
        return f"'connector' = 'filesystem', 'path' = '{file}', 'format' = 'json'{options}"
    connect: Any = sqlite3.connect if connector == "sqlite" else duckdb.connect
    connection = connect(str(file))
    connection.execute(
        "CREATE TABLE products (id INT, name TEXT, price DECIMAL(10, 2), hot BOOLEAN, "
        f"since {'TEXT' if connector == 'sqlite' else 'TIMESTAMP'})"
    )
    connection.executemany("INSERT INTO products VALUES (?, ?, ?, ?, ?)", PRODUCTS)
    connection.commit()
    connection.close()
    return f"'connector' = '{connector}', 'path' = '{file}', 'table-name' = 'products'{options}"


def _environment(parallelism: int, orders: list[Any], path: Path, options: str) -> TableEnvironment:
    env = environment(parallelism)
    table_of(env, "e", "k INT, v INT", orders, path)
    env.execute_sql("CREATE TEMPORARY VIEW o AS SELECT *, PROCTIME() AS pt FROM e")
    env.execute_sql(f"CREATE TABLE p ({COLUMNS}) WITH ({options})")
    env.execute_sql(
        "CREATE TEMPORARY VIEW dear AS SELECT id, SUBSTRING(name FROM 1 FOR 2) AS short, "
        "COALESCE(id, 1) - id + 1 AS uno FROM p WHERE price > 1.8"
    )
    return env


def _answer(orders: list[Any], query: str) -> Counter[Any]:
    connection = duckdb.connect()
    connection.execute("CREATE TABLE o (k INT, v INT)")
    connection.executemany("INSERT INTO o VALUES (?, ?)", orders)
    connection.execute(
        "CREATE TABLE p (id INT, name TEXT, price DECIMAL(10, 2), hot BOOLEAN, since TIMESTAMP)"
    )
    connection.executemany("INSERT INTO p VALUES (?, ?, ?, ?, ?)", PRODUCTS)
    connection.execute(
        "CREATE VIEW dear AS SELECT id, SUBSTRING(name, 1, 2) AS short, 1 AS uno FROM p "
        "WHERE price > 1.8"
    )
    return Counter(connection.execute(query.replace(" FOR SYSTEM_TIME AS OF o.pt", "")).fetchall())


CACHE = ", 'lookup.cache' = 'PARTIAL', 'lookup.partial-cache.max-rows' = '2'"


#: The rest is for soaks.
OFTEN = {("sqlite", 0), ("sqlite", 3), ("sqlite", 5), ("duckdb", 1), ("filesystem", 2)}
EVERY = [(each, n) for n in range(len(QUERIES)) for each in ("sqlite", "duckdb", "filesystem")]


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize(
    ("connector", "number"),
    [pytest.param(*each, marks=() if each in OFTEN else pytest.mark.soak) for each in EVERY],
)
def test_oracle_lookups(connector: str, number: int, tmp_path: Path) -> None:
    query, orders = QUERIES[number], _orders(number)
    print("seed", number)
    cache = CACHE if number % 2 and connector != "filesystem" else ""
    env = _environment((1, 3)[number % 2], orders, tmp_path, _made(connector, tmp_path, cache))
    rows = changelog(env, query, tmp_path, number)
    assert materialised(rows) == _answer(orders, query)
    assert {row.get_row_kind() for row in rows} <= {RowKind.INSERT}


def test_updates_go_through_a_lookup(tmp_path: Path) -> None:
    orders = _orders(9)
    env = _environment(1, orders, tmp_path, _made("sqlite", tmp_path))
    env.execute_sql(
        "CREATE TEMPORARY VIEW c AS SELECT k, n, PROCTIME() AS pt FROM "
        "(SELECT k, COUNT(*) AS n FROM e GROUP BY k)"
    )
    query = (
        "SELECT c.k, n, name FROM c JOIN p FOR SYSTEM_TIME AS OF c.pt AS p ON c.k = p.id AND n > 3"
    )
    rows = changelog(env, query, tmp_path, 9, limit=30)
    assert RowKind.UPDATE_AFTER in {row.get_row_kind() for row in rows}
    counts = Counter(key for key, _ in orders)
    assert materialised(rows) == {
        (key, counts[key], name): 1
        for key, name, *_ in PRODUCTS
        if key is not None and counts[key] > 3
    }


def test_plan_of_a_lookup(tmp_path: Path) -> None:
    env = _environment(1, [], tmp_path, _made("sqlite", tmp_path))
    query = (
        f"SELECT o.v, p.name FROM {JOIN.format('LEFT')} o.k = p.id AND p.name = 'tea' "
        "AND o.v > p.price"
    )
    assert (
        "LookupJoin(table=[default_catalog.default_database.p, project=[id, name, price]], "
        "joinType=[LeftOuterJoin], lookup=[id=k, name=_UTF-16LE'tea'], joinCondition=[>(CAST(v AS "
        "DECIMAL(10, 0)), price)], select=[k, v, $k0, name, price])"
    ) in env.explain_sql(query)


@pytest.mark.parametrize("connector", ["sqlite", "duckdb"])
def test_a_lookup_reads_what_is_read(connector: str, tmp_path: Path) -> None:
    """The rest need not even be there; a plan that was written asks for no more either."""
    env = _environment(1, [(1, 5), (2, 6), (9, 7)], tmp_path, _made(connector, tmp_path))
    file = tmp_path / f"products.{connector}"
    connect: Any = sqlite3.connect if connector == "sqlite" else duckdb.connect
    with contextlib.closing(connect(str(file))) as connection:
        connection.execute("ALTER TABLE products DROP COLUMN price")
        connection.commit()
    found = {
        "SELECT o.v, name FROM {} o.k = p.id": {(5, "tea"): 1, (5, "green tea"): 1, (6, "cup"): 1},
        "SELECT COUNT(*) FROM {} o.k = p.id": {(3,): 1},
        "SELECT o.v FROM {} o.k = p.id AND p.hot": {(5,): 1},
    }
    for query, wanted in found.items():
        made = changelog(env, query.format(JOIN.format("")), tmp_path)
        assert materialised(made) == wanted, query
    with pytest.raises(MillstreamError):
        changelog(env, f"SELECT o.v, price FROM {JOIN.format('')} o.k = p.id", tmp_path)
    query = f"SELECT o.v, p.name FROM {JOIN.format('')} o.k = p.id"
    env.execute_sql("CREATE TABLE kept (v INT, name STRING) WITH ('connector' = 'print')")
    written = env.compile_plan_sql(f"INSERT INTO kept {query}")
    assert "project=[id, name]" in written.explain()


REFUSED = {
    "o JOIN p FOR SYSTEM_TIME AS OF o.pt AS p ON o.k + 1 = p.id + 1": (
        "requires an equality condition on fields of table [default_catalog.default_database.p]"
    ),
    "o JOIN p FOR SYSTEM_TIME AS OF o.pt AS p ON o.k > p.id": "requires an equality condition",
    "o JOIN p FOR SYSTEM_TIME AS OF o.pt AS p ON o.k IS NOT DISTINCT FROM p.id": "an equality",
    "o RIGHT JOIN p FOR SYSTEM_TIME AS OF o.pt AS p ON o.k = p.id": "but was RIGHT JOIN",
    "o JOIN g FOR SYSTEM_TIME AS OF o.pt AS g ON o.k = g.id": "'datagen' cannot look rows up",
    "o JOIN grouped FOR SYSTEM_TIME AS OF o.pt AS p ON o.k = p.id": (
        "Processing-time temporal join is not supported yet"
    ),
    "o JOIN uncached FOR SYSTEM_TIME AS OF o.pt AS p ON o.k = p.id": "a partial cache needs",
    "o JOIN p FOR SYSTEM_TIME AS OF PROCTIME() AS p ON o.k = p.id": "takes a time attribute",
}


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_cannot_be_looked_up_is_refused(number: int, tmp_path: Path) -> None:
    query, part = list(REFUSED.items())[number]
    options = _made("sqlite", tmp_path)
    env = _environment(1, [], tmp_path, options)
    env.execute_sql("CREATE TABLE g (id INT) WITH ('connector' = 'datagen')")
    env.execute_sql("CREATE VIEW grouped AS SELECT id, COUNT(*) AS n FROM g GROUP BY id")
    env.execute_sql(f"CREATE TABLE uncached (id INT) WITH ({options}, 'lookup.cache' = 'PARTIAL')")
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(f"SELECT * FROM {query}")
    assert part in str(refused.value)


HINTS = {
    "'tabel'='p'": "it is missing. Did you mean 'table'?",
    "'table'='p', 'shuffle'='perhaps'": "'shuffle' is 'perhaps'; it can be true, false",
    "'async'='true'": "'table' says which table of FROM is meant; it is missing",
    "'table'='q'": "'q' is no table of FROM whose rows are looked up.",
    "'table'='p', 'async'='perhaps'": "'async' is 'perhaps'; it can be true, false",
    "'table'='p', 'capacity'='5'": "'capacity' needs 'async' = 'true'",
    "'table'='p', 'async'='true', 'capacity'='0'": "'capacity' is '0'; it must be a whole number",
    "'table'='p', 'async'='true', 'timeout'='soon'": "'timeout' is 'soon'",
    "'table'='p', 'async'='true', 'output-mode'='any'": "'output-mode' is 'any'; it can be",
    "'table'='p', 'retry-predicate'='lookup_miss'": "fixed-delay, max-attempts go together",
    "'table'='p', 'retry-predicate'='x', 'retry-strategy'='fixed_delay', 'fixed-delay'='1s', "
    "'max-attempts'='1'": "'retry-predicate' is 'x'; it can be",
    "'table'='p'), LOOKUP('table'='p'": "there are two for 'p'",
}


@pytest.mark.parametrize("number", range(len(HINTS)))
def test_hints_that_make_no_sense(number: int, tmp_path: Path) -> None:
    hint, message = list(HINTS.items())[number]
    env = _environment(1, [], tmp_path, _made("sqlite", tmp_path))
    query = f"SELECT /*+ LOOKUP({hint}) */ o.v FROM {JOIN.format('')} o.k = p.id"
    with pytest.raises(MillstreamError) as refused:
        env.explain_sql(query)
    assert message in str(refused.value)


def test_null_safe_equality_is_a_key_where_no_null_can_meet_null(tmp_path: Path) -> None:
    env = _environment(1, [(1, 5), (None, 6)], tmp_path, _made("sqlite", tmp_path))
    query = f"SELECT o.v, name FROM {JOIN.format('LEFT')}"
    with pytest.raises(MillstreamError, match="requires an equality condition"):
        env.explain_sql(f"{query} o.k IS NOT DISTINCT FROM p.id")
    both = f"{query} p.id = 3 AND o.k IS NOT DISTINCT FROM p.id"
    assert "joinCondition=[" in env.explain_sql(both)
    query = f"{query} COALESCE(o.k, 3) IS NOT DISTINCT FROM p.id"
    rows = materialised(changelog(env, query, tmp_path))
    assert rows == Counter([(5, "tea"), (5, "green tea"), (6, None)])


def test_shuffled_lookups_partition_by_their_keys(tmp_path: Path) -> None:
    env = _environment(2, _orders(6), tmp_path, _made("sqlite", tmp_path))
    hint = "/*+ LOOKUP('table'='p', 'shuffle'='true', 'colour'='red') */"
    query = f"o.k, o.v, name FROM {JOIN.format('LEFT')} o.k = p.id"
    assert "hash[k]" in env.explain_sql(f"SELECT {hint} {query}")
    shuffled = materialised(changelog(env, f"SELECT {hint} {query}", tmp_path))
    assert shuffled == _answer(_orders(6), f"SELECT {query}")


ASYNC = "'async'='true', 'capacity'='3', 'timeout'='50 s'"
RETRY = (
    "'retry-predicate'='lookup_miss', 'retry-strategy'='fixed_delay', 'fixed-delay'='1 ms', "
    "'max-attempts'='2'"
)


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("mode", ["ordered", "allow_unordered"])
@pytest.mark.parametrize("connector", ["sqlite", "filesystem"])
def test_hints_change_no_rows(connector: str, mode: str, tmp_path: Path) -> None:
    orders = _orders(5)
    env = _environment(2, orders, tmp_path, _made(connector, tmp_path))
    hint = f"LOOKUP('table'='p', {ASYNC}, 'output-mode'='{mode}', {RETRY})"
    plain = f"SELECT o.k, o.v, p.name FROM {JOIN.format('LEFT')} o.k = p.id AND o.v > 2"
    query = plain.replace("SELECT", f"SELECT /*+ {hint} */")
    wanted = materialised(changelog(env, plain, tmp_path, limit=300))
    assert sum(wanted.values()) >= len(orders)
    assert materialised(changelog(env, query, tmp_path, limit=300)) == wanted
    shown = "UNORDERED" if mode == "allow_unordered" else "ORDERED"
    plan = env.explain_sql(query)
    assert (f", async=[{shown}, 50000ms, 3], retry=" in plan) is (connector == "sqlite")
    assert ", retry=[lookup_miss, FIXED_DELAY, 1ms, 2]" in plan


def test_options_say_what_hints_leave_open(tmp_path: Path) -> None:
    env = _environment(1, [], tmp_path, _made("sqlite", tmp_path))
    hint = "/*+ LOOKUP('table'='p', 'async'='true'{}) */"
    query = f"SELECT {hint} o.v FROM {JOIN.format('').replace('{', '{{')} o.k = p.id"
    assert "async=[ORDERED, 180000ms, 100]" in env.explain_sql(query.format(""))
    for key, value in (("output-mode", "allow_unordered"), ("buffer-capacity", "7")):
        env.execute_sql(f"SET 'table.exec.async-lookup.{key}' = '{value}'")
    env.execute_sql("SET 'table.exec.async-lookup.timeout' = '5 s'")
    assert "async=[UNORDERED, 5000ms, 7]" in env.explain_sql(query.format(""))
    given = query.format(", 'output-mode'='ordered', 'capacity'='2'")
    assert "async=[ORDERED, 5000ms, 2]" in env.explain_sql(given)


@pytest.mark.parametrize(("pipelined", "mode"), [(False, "ordered"), (True, "allow_unordered")])
def test_what_was_under_way_is_asked_again(pipelined: bool, mode: str, tmp_path: Path) -> None:
    """The table goes away in the middle, and the job with it; a restore misses no row."""
    orders = _orders(7)
    env = _environment(
        2, orders, tmp_path, _made("sqlite", tmp_path, ", 'lookup.max-retries' = '0'")
    )
    query = (
        f"SELECT /*+ LOOKUP('table'='p', {ASYNC}, 'output-mode'='{mode}', {RETRY}) */ o.k, o.v, "
        f"p.name FROM {JOIN.format('LEFT')} o.k = p.id"
    )
    wanted = materialised(changelog(env, query, tmp_path, limit=300))
    out, state, database = tmp_path / "out", tmp_path / "state", tmp_path / "products.sqlite"
    end = env.session.collected(env.sql_query(query).plan, str(out))
    graph = env.session.program.graph_of([end], "restored")
    MiniCluster(graph, state, limits=[60] * 1000, pipelined=pipelined).run(2)
    before = sum(1 for _ in read_collected(str(out)))
    database.rename(tmp_path / "away")
    with pytest.raises(MillstreamError, match="looking up default_catalog"):
        MiniCluster(graph, state, limits=[60] * 1000, pipelined=pipelined).run()
    (tmp_path / "away").rename(database)
    MiniCluster(graph, state, limits=[60] * 1000, pipelined=pipelined).run()
    assert 0 < before < sum(wanted.values())
    assert materialised(read_collected(str(out))) == wanted


# -- the operator ----------------------------------------------------------------------------------

LEFT = RowType.of(k=BigIntType(), v=VarCharType(5))
TABLE = RowType.of(id=BigIntType(), name=VarCharType(5))


class Answers(LookupSource, LookupReader):
    """Answers from a dictionary, and keeps what it was asked."""

    def __init__(self, failures: int = 0) -> None:
        self.rows: dict[int, list[str]] = {1: ["a", "b"], 2: ["c"]}
        self.asked: list[list[int]] = []
        self.failures = failures
        self.opened = self.closed = 0
        #: Keys that are there when they are asked for so many times more.
        self.appears: dict[int, int] = {}
        #: The first key waits until the second is asked for.
        self.wait_for: tuple[int, int] | None = None
        self.seen: defaultdict[int, threading.Event] = defaultdict(threading.Event)

    def open(self) -> LookupReader:
        self.opened += 1
        return self

    def lookup(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        import numpy as np

        del now
        if self.failures:
            self.failures -= 1
            message = "not now"
            raise SourceError(message)
        asked = keys.column("id").to_pylist()
        self.asked.append(asked)
        for key in asked:
            self.seen[key].set()
            if self.wait_for and key == self.wait_for[0]:
                assert self.seen[self.wait_for[1]].wait(60)
            if self.appears.get(key) == 0:
                self.rows[key] = ["late"]
            self.appears[key] = self.appears.get(key, -1) - 1
        found = [
            (number, key, name)
            for number, key in reversed(list(enumerate(asked)))
            for name in self.rows.get(key, ())
        ]
        numbers = np.array([number for number, _, _ in found], dtype=np.int64)
        columns = [[row[1] for row in found], [row[2] for row in found]]
        return FoundRows(numbers, pa.table(columns, schema=TABLE.to_arrow_schema()))

    def close(self) -> None:
        self.closed += 1


def _harness(source: Answers, **options: Any) -> TableHarness:
    projections = tuple(InputReference(i, each.name, each.type) for i, each in enumerate(TABLE))
    factory = LookupJoinFactory(
        LEFT, TABLE, TABLE, JoinKind.LEFT, source, "t", ("id",), (0,), projections, **options
    )
    return TableHarness(factory, LEFT, [*LEFT.children, *TABLE.children], long_lived=True)


def test_rows_keep_their_order_and_kinds() -> None:
    source = Answers()
    with _harness(source) as harness:
        changes = [(I, (2, "x")), (UB, (9, "y")), (UA, (1, "y")), (I, (None, "z")), (I, (2, "w"))]
        assert harness.feed(changes) == [
            (I, (2, "x", 2, "c")),
            (UB, (9, "y", None, None)),
            (UA, (1, "y", 1, "a")),
            (UA, (1, "y", 1, "b")),
            (I, (None, "z", None, None)),
            (I, (2, "w", 2, "c")),
        ]
    assert source.asked == [[2, 9, 1]]
    assert source.closed == 1


def test_answers_are_kept_for_a_while() -> None:
    source = Answers()
    caching = LookupCaching(max_rows=2, expire_after_write=100, expire_after_access=60)
    with _harness(source, caching=caching) as harness:
        harness.processing_time(1000)
        harness.feed([(I, (1, "x")), (I, (8, "x"))])
        harness.processing_time(1050)
        source.rows[1] = ["new"]
        assert harness.feed([(I, (1, "x"))]) == [(I, (1, "x", 1, "a")), (I, (1, "x", 1, "b"))]
        harness.feed([(I, (2, "x"))])  # 8, used longest ago, goes
        assert source.asked == [[1, 8], [2]]
        harness.processing_time(1100)
        assert harness.feed([(I, (1, "x"))]) == [(I, (1, "x", 1, "new"))]
        harness.processing_time(1110)
        harness.feed([(I, (2, "x"))])  # not used for 60 ms
        assert source.asked == [[1, 8], [2], [1], [2]]


@pytest.mark.parametrize("kept", [True, False])
def test_no_answer_is_one_too(kept: bool) -> None:
    source = Answers()
    caching = LookupCaching(max_rows=10, missing_keys=kept)
    with _harness(source, caching=caching) as harness:
        for _ in range(2):
            assert harness.feed([(I, (5, "x"))]) == [(I, (5, "x", None, None))]
    assert source.asked == [[5]] * (1 if kept else 2)


def test_a_question_that_fails_is_asked_again() -> None:
    source = Answers(failures=2)
    with _harness(source, asking=LookupPolicy(max_retries=2, retry_delay=0)) as harness:
        assert harness.feed([(I, (2, "x"))]) == [(I, (2, "x", 2, "c"))]
        assert (source.opened, source.closed) == (3, 2)
        source.failures = 3
        with pytest.raises(SourceError, match="looking up t: not now"):
            harness.feed([(I, (2, "x"))])


def test_what_is_not_found_is_asked_for_again() -> None:
    source = Answers()
    asking = LookupPolicy(miss_attempts=2, miss_delay=1)
    with _harness(source, asking=asking) as harness:
        assert harness.feed([(I, (5, "x")), (I, (2, "y"))]) == [
            (I, (5, "x", None, None)),
            (I, (2, "y", 2, "c")),
        ]
        assert source.asked == [[5, 2], [5], [5]]
        source.asked.clear()
        source.appears = {7: 1, 8: 2, 9: 3}
        found = harness.feed([(I, (key, "x")) for key in (7, 8, 9)])
    assert [row[1][3] for row in found] == ["late", "late", None]
    assert source.asked == [[7, 8, 9], [7, 8, 9], [8, 9]]


@pytest.mark.parametrize("unordered", [False, True])
def test_questions_side_by_side(unordered: bool) -> None:
    """One of them waits for another, which comes behind it."""
    source = Answers()
    source.wait_for = (1, 2)
    source.rows |= {key: [str(key)] for key in range(10, 20)}
    asking = LookupPolicy(capacity=2, unordered=unordered)
    keys = [1, None, 2, *range(10, 20), 1]
    with _harness(source, asking=asking) as harness:
        found = harness.feed([(I, (key, "x")) for key in keys])
        # Changes keep their order in any case.
        assert [row[1][0] for row in harness.feed([(UB, (2, "x")), (UA, (1, "x"))])] == [2, 1, 1]
    wanted = [key for key in keys for _ in range(2 if key == 1 else 1)]
    given = [row[1][0] for row in found]
    assert Counter(given) == Counter(wanted)
    assert (given == wanted) is not unordered
    assert {row[1][0]: row[1][3] for row in found if row[1][0] == 12} == {12: "12"}
    assert source.opened == source.closed == 2
    assert all(len(each) == 1 for each in source.asked)


def test_an_answer_that_takes_too_long() -> None:
    source = Answers()
    source.wait_for = (1, 99)
    with _harness(source, asking=LookupPolicy(capacity=4, timeout=20)) as harness:
        with pytest.raises(SourceError, match="looking up t: no answer within 20 ms"):
            harness.feed([(I, (1, "x")), (I, (2, "x"))])
        source.seen[99].set()


def test_a_failure_beside_other_questions() -> None:
    source = Answers(failures=9)
    asking = LookupPolicy(capacity=4, max_retries=1, retry_delay=1)
    with (
        _harness(source, asking=asking) as harness,
        pytest.raises(SourceError, match="looking up t: not now"),
    ):
        harness.feed([(I, (key, "x")) for key in range(20)])


def test_files_are_read_again_when_they_are_old(tmp_path: Path) -> None:
    from millstream.connectors.basic.whole_source import WholeSourceLookup
    from millstream.connectors.files.source import FileSource
    from millstream.connectors.formats.json_format import JsonLinesFormat

    schema = TABLE.to_arrow_schema()
    file = tmp_path / "0.json"
    file.write_text('{"id": 1, "name": "a"}\n')
    source = FileSource(JsonLinesFormat(schema, "fail"), (str(tmp_path),), None)
    reader = WholeSourceLookup(source, schema, ("id",), 100).open()
    keys = pa.record_batch([pa.array([1], pa.int64())], ["id"])
    assert reader.lookup(keys, 1000).rows.column("name").to_pylist() == ["a"]
    file.write_text('{"id": 1, "name": "b"}\n')
    assert reader.lookup(keys, 1099).rows.column("name").to_pylist() == ["a"]
    assert reader.lookup(keys, 1100).rows.column("name").to_pylist() == ["b"]


def test_what_is_random_over_a_table_is_not_computed_for_each_reader(tmp_path: Path) -> None:
    made = _made("sqlite", tmp_path)
    env = _environment(1, [], tmp_path, made)
    env.execute_sql("CREATE TEMPORARY VIEW drawn AS SELECT id, RAND_INTEGER(9) AS r FROM p")
    env.execute_sql("CREATE TEMPORARY VIEW high AS SELECT id, r FROM drawn WHERE r > 4")
    query = f"SELECT r FROM {JOIN.format('').replace('p FOR', '{} FOR')} p.id = o.k"
    env.explain_sql(query.format("drawn"))
    with pytest.raises(MillstreamError, match="looked up which is not deterministic and read in"):
        env.explain_sql(query.format("high"))
