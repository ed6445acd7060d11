"""OVER of batch mode: any frame and any order, beside DuckDB on random rows.

Replay one with its seed:
``pytest tests/runtime/table_operators/test_batch_over.py -k 'random and 3'``.
"""

from __future__ import annotations

import logging
import random
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import duckdb
import pyarrow as pa
import pytest
from tests.runtime.table_operators.model import UA, UB, D, I
from tests.runtime.table_operators.running import TableHarness
from tests.support.query_running import changelog, environment, table_of
from tests.support.tiers import sampled

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.errors import ValidationError
from millstream.runtime.operators.table.aggregate_calls import SortedRows
from millstream.runtime.operators.table.batch_over import BatchOverFactory, Frame, ordering_values
from millstream.runtime.operators.table.specs import AggregateCall, SortColumn
from millstream.table import EnvironmentSettings, Table, TableEnvironment
from millstream.table.expressions import UNBOUNDED_ROW, col, lead, lit, row_interval
from millstream.table.window import Over
from millstream.types.logical_types import BigIntType, DoubleType, IntType, RowType

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = "id INT, k INT, o INT, v INT, q DOUBLE, x DOUBLE, ts TIMESTAMP(3)"
VIEW = "CREATE TEMPORARY VIEW t AS SELECT *, CAST(q AS DECIMAL(6, 2)) AS d FROM rows_of_t"


def random_rows(seed: int, count: int = 120) -> list[tuple[Any, ...]]:
    drawn = random.Random(seed)

    def maybe(value: Any) -> Any:
        return value if drawn.random() < 0.85 else None

    return [
        (
            number,
            drawn.randint(1, 4),
            maybe(drawn.randint(-3, 5)),
            maybe(drawn.randint(-9, 9)),
            maybe(drawn.randint(-9, 9) / 4),
            maybe(drawn.randint(-9, 9) / 8),
            maybe(f"2024-01-0{drawn.randint(1, 3)} 00:{drawn.randint(0, 59):02}:00"),
        )
        for number in drawn.sample(range(count), count)
    ]


def ends(drawn: random.Random, unit: str, by: str) -> str:
    length = "{}"
    if unit == "RANGE":
        length = {"ts": "INTERVAL '{}' MINUTE", "d": "{}.5"}.get(by, "{}")
    bounds = ["UNBOUNDED PRECEDING"]
    bounds += [f"{length.format(drawn.randint(0, 4))} PRECEDING" for _ in range(2)]
    bounds += ["CURRENT ROW"]
    bounds += [f"{length.format(drawn.randint(0, 4))} FOLLOWING" for _ in range(2)]
    bounds += ["UNBOUNDED FOLLOWING"]
    start, end = sorted(drawn.sample(range(len(bounds)), 2))
    return f"{unit} BETWEEN {bounds[start]} AND {bounds[end]}"


def random_call(drawn: random.Random) -> str:
    """A function over a window in which what is asked for is the same in every order of ties."""
    partition = drawn.choice(["", "PARTITION BY k "])
    way = drawn.choice(["ASC NULLS FIRST", "ASC NULLS LAST", "DESC NULLS FIRST", "DESC NULLS LAST"])
    by = drawn.choice(["o", "d", "x", "ts"])
    total = f"{by} {way}, id"
    kind = drawn.randint(0, 5)
    if kind == 0:
        name = drawn.choice(["ROW_NUMBER()", "NTILE(3)", "NTILE(50)", "LEAD(v)", "LAG(v, 3)"])
        name = drawn.choice([name, "LEAD(v, 2, id)", "LAG(v, 1, -1)", "LEAD(v, -2)"])
        return f"{name} OVER ({partition}ORDER BY {total})"
    if kind == 1:
        name = drawn.choice(["RANK()", "DENSE_RANK()", "CUME_DIST()", "PERCENT_RANK()"])
        return f"{name} OVER ({partition}ORDER BY {by} {way})"
    if kind == 2:
        return f"SUM(v) OVER ({partition.strip()})"
    if kind == 3:
        name = drawn.choice(["FIRST_VALUE(v)", "LAST_VALUE(v)", "SUM(v)", "MIN(x)"])
        return f"{name} OVER ({partition}ORDER BY {total} {ends(drawn, 'ROWS', by)})"
    name = drawn.choice(["SUM(v)", "COUNT(v)", "COUNT(*)", "MIN(x)", "MAX(d)", "COUNT(DISTINCT v)"])
    return f"{name} OVER ({partition}ORDER BY {by} {way} {ends(drawn, 'RANGE', by)})"


def of_duckdb(call: str) -> str:
    """FIRST_VALUE and LAST_VALUE leave nulls out, as in Flink."""
    return call.replace("_VALUE(v)", "_VALUE(v IGNORE NULLS)")


@pytest.mark.both_engines(every=4)
@pytest.mark.parametrize("seed", sampled(range(5), 1))
def test_oracle_random_frames(seed: int, tmp_path: Path) -> None:
    drawn = random.Random(seed)
    rows = random_rows(seed)
    calls = [random_call(drawn) for _ in range(4)]
    env = environment((1, 3)[seed % 2], **{"execution.runtime-mode": "BATCH"})
    table_of(env, "rows_of_t", COLUMNS, rows, tmp_path)
    env.execute_sql(VIEW)
    named = [f"{call} AS c{at}" for at, call in enumerate(calls)]
    found = changelog(env, f"SELECT id, {', '.join(named)} FROM t", tmp_path, seed)
    assert {row.get_row_kind().value for row in found} == {0}
    oracle = duckdb.connect()
    typed = COLUMNS.replace("TIMESTAMP(3)", "TIMESTAMP")
    oracle.execute(f"CREATE TABLE rows_of_t ({typed})")
    oracle.executemany("INSERT INTO rows_of_t VALUES (?, ?, ?, ?, ?, ?, ?)", rows)
    oracle.execute(VIEW)
    asked = f"SELECT id, {', '.join(map(of_duckdb, calls))} FROM t"
    wanted = oracle.execute(asked).fetchall()
    assert sorted(tuple(row) for row in found) == sorted(wanted), calls


ROWS = RowType.of(k=IntType(), o=IntType(), v=IntType())
SUM = AggregateCall("SUM", (2,), IntType())


def test_rows_that_are_taken_back_are_in_no_frame_whatever_is_restored() -> None:
    factory = BatchOverFactory(
        input_type=ROWS,
        keys=(0,),
        order=(SortColumn(1),),
        calls=(SUM, AggregateCall("CUME_DIST", (), DoubleType(nullable=False))),
        frame=Frame(is_rows=True, preceding=1, following=1),
    )
    for seed in range(6):
        drawn = random.Random(seed)
        harness = TableHarness(factory, ROWS, [*ROWS.children, IntType(), DoubleType()])
        there: list[tuple[int, int, int]] = []
        for _ in range(drawn.randint(1, 5)):
            changes = []
            for _ in range(drawn.randint(1, 12)):
                if there and drawn.random() < 0.4:
                    changes.append((drawn.choice([UB, D]), there.pop(drawn.randrange(len(there)))))
                else:
                    there.append((drawn.randint(1, 2), drawn.randint(1, 9), drawn.randint(1, 9)))
                    changes.append((drawn.choice([I, UA]), there[-1]))
            assert harness.feed(changes) == []
            harness.end_epoch()
        harness.finish()
        assert harness.watermarks == [MAX_TIMESTAMP]
        found: list[Any] = [row for kind, row in harness.changes if kind == I]
        assert len(found) == len(harness.changes)
        assert sorted(row[:3] for row in found) == sorted(there), f"seed {seed}"
        for key in {row[0] for row in there}:
            mine = [row for row in found if row[0] == key]
            assert [row[1] for row in mine] == sorted(row[1] for row in mine), f"seed {seed}"
            for at, row in enumerate(mine):
                total = sum(each[2] for each in mine[max(at - 1, 0) : at + 2])
                share = sum(each[1] <= row[1] for each in mine) / len(mine)
                assert row[3:] == (total, share), f"seed {seed}"


@pytest.fixture
def batch() -> TableEnvironment:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    env.execute_sql("SET 'parallelism.default' = '1'")
    env.execute_sql("CREATE TEMPORARY VIEW t (k, v) AS VALUES ('a', 3), ('a', 1), ('b', 2)")
    return env


def collected(table: Table) -> list[tuple[Any, ...]]:
    result: Any = table.execute()
    with result.collect() as found:
        return sorted(tuple(row) for row in found)


def rows_of(env: TableEnvironment, query: str) -> list[tuple[Any, ...]]:
    return collected(env.sql_query(query))


def test_over_rows_that_were_updated_and_filters_of_any_number(batch: TableEnvironment) -> None:
    batch.execute_sql("CREATE TEMPORARY VIEW g AS SELECT k, SUM(v) AS s FROM t GROUP BY k")
    shares = "SELECT k, PERCENT_RANK() OVER (ORDER BY s) AS p, SUM(s) OVER () AS total FROM g"
    assert rows_of(batch, shares) == [("a", 1.0, 6), ("b", 0.0, 6)]
    numbered = "SELECT k, v, RANK() OVER (PARTITION BY k ORDER BY v DESC) AS r FROM t"
    assert rows_of(batch, f"SELECT k, v FROM ({numbered}) WHERE r <= 1") == [("a", 3), ("b", 2)]
    assert rows_of(batch, f"SELECT k, v FROM ({numbered}) WHERE r > 1") == [("a", 1)]
    plan = batch.explain_sql("SELECT SUM(v) OVER (ORDER BY v ROWS 2 PRECEDING) FROM t")
    assert "window=[ROWS BETWEEN 2 PRECEDING AND CURRENT ROW]" in plan
    assert "FinalRows" not in plan


def test_without_order_rows_are_as_they_came(batch: TableEnvironment) -> None:
    query = "SELECT v, LEAD(v) OVER (PARTITION BY k), NTILE(2) OVER () FROM t"
    assert rows_of(batch, query) == [(1, None, 1), (2, None, 2), (3, 1, 1)]


def test_the_table_api_says_the_same(batch: TableEnvironment) -> None:
    by = Over.partition_by(col("k")).order_by(col("v"))
    window = by.preceding(UNBOUNDED_ROW).following(row_interval(1)).alias("w")
    table = batch.from_path("t").over_window(window)
    found = table.select(col("k"), col("v").sum.over(col("w")).alias("s"))
    assert collected(found) == [("a", 4), ("a", 4), ("b", 2)]
    table = batch.from_path("t").over_window(by.alias("w"))
    found = table.select(col("v"), lead(col("v"), lit(1)).over(col("w")).alias("n"))
    assert collected(found) == [(1, 3), (2, None), (3, None)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("NTILE(0) OVER (ORDER BY v)", "'NTILE' must be a positive integer literal"),
        ("NTILE(v) OVER (ORDER BY v)", "'NTILE' must be a positive integer literal"),
        ("CUME_DIST(v) OVER (ORDER BY v)", "CUME_DIST takes no arguments"),
        ("CUME_DIST() OVER ()", "require ORDER BY clause in window specification"),
        ("LEAD(v) OVER (ORDER BY v ROWS 1 PRECEDING)", "LEAD takes no frame of its window"),
        ("LEAD(v, v) OVER (ORDER BY v)", "offset of LEAD must be a constant whole number"),
        ("LEAD(v, 1, ARRAY[k]) OVER (ORDER BY v)", "The default of LEAD is"),
        ("FIRST_VALUE(v) IGNORE NULLS OVER ()", "RESPECT NULLS following 'FIRST_VALUE'"),
        ("SUM(v) OVER (ORDER BY k RANGE 1 PRECEDING)", "it needs numbers or times"),
        ("SUM(v) OVER (ORDER BY v RANGE 1.5 PRECEDING)", "must be a whole number"),
        ("SUM(v) OVER (ORDER BY v, k RANGE 1 PRECEDING)", "needs one column in ORDER BY"),
        ("SUM(v) OVER (ORDER BY v ROWS v PRECEDING)", "must be a constant"),
        ("SUM(v) OVER (ORDER BY ROW(v))", "column 30: ORDER BY does not go by ROW<"),
        ("RANK() OVER (ORDER BY BITMAP_BUILD(ARRAY[v]))", "does not go by BITMAP NOT NULL"),
        (
            "SUM(v) OVER (ORDER BY v ROWS BETWEEN UNBOUNDED FOLLOWING AND CURRENT ROW)",
            "UNBOUNDED FOLLOWING cannot be specified for the lower frame boundary",
        ),
        (
            "SUM(v) OVER (ORDER BY v ROWS BETWEEN v PRECEDING AND UNBOUNDED PRECEDING)",
            "column 61: UNBOUNDED PRECEDING cannot be specified for the upper frame boundary",
        ),
        (
            "SUM(v) OVER (ORDER BY v ROWS BETWEEN 1 FOLLOWING AND 1 PRECEDING)",
            "column 61: Upper frame boundary cannot be PRECEDING when lower boundary is FOLLOWING",
        ),
        (
            "SUM(v) OVER (ORDER BY v RANGE BETWEEN CURRENT ROW AND 0 PRECEDING)",
            "cannot be PRECEDING when lower boundary is CURRENT ROW",
        ),
        (
            "SUM(v) OVER (ORDER BY v ROWS BETWEEN 0 FOLLOWING AND CURRENT ROW)",
            "cannot be CURRENT ROW when lower boundary is FOLLOWING",
        ),
        ("LAG(v > 1, 1, 1) OVER (ORDER BY v)", "Cast it explicitly: CAST.... AS BOOLEAN.."),
        ("LAG(v, 1, 'u') OVER (ORDER BY v)", "The default of LAG, u, does not fit in"),
        (
            "LAG(CAST(v AS DECIMAL(2, 1)), 1, CAST(1000 AS DECIMAL(5, 0))) OVER (ORDER BY v)",
            "The default of LAG, 1000, does not fit in DECIMAL.2, 1.",
        ),
    ],
)
def test_what_is_refused(call: str, message: str, batch: TableEnvironment) -> None:
    with pytest.raises(ValidationError, match=message):
        batch.sql_query(f"SELECT {call} FROM t")


def test_what_flink_gives_of_frames_of_one_end_and_of_defaults(batch: TableEnvironment) -> None:
    """As Flink 2.3 answers in batch mode."""
    batch.execute_sql("CREATE TEMPORARY VIEW f (a, b) AS VALUES (1, 10), (2, 20), (3, 30)")
    over = "OVER (ORDER BY a)"
    query = (
        "SELECT SUM(b) OVER (ORDER BY a ROWS 1 FOLLOWING), "
        "SUM(b) OVER (ORDER BY a ROWS BETWEEN 2 FOLLOWING AND 1 FOLLOWING), "
        f"LAG(CAST(a AS TINYINT), 1, 1000) {over}, LAG(b, 1, '7') {over}, LAG(b, 1, 1.5) {over}, "
        f"LAG(CAST(a AS STRING), 1, TRUE) {over}, LAG(a > 1, 1, 'true') {over} FROM f"
    )
    assert sorted(rows_of(batch, query)) == [
        (30, None, -24, 7, 1, "TRUE", True),
        (30, None, 2, 20, 20, "2", True),
        (50, None, 1, 10, 10, "1", False),
    ]


@pytest.mark.parametrize("call", ["LEAD(v)", "CUME_DIST()", "PERCENT_RANK()", "NTILE(2)"])
def test_streams_have_no_such_functions(call: str) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.execute_sql("CREATE TEMPORARY VIEW t (v) AS VALUES (1), (2)")
    name = call.partition("(")[0]
    with pytest.raises(ValidationError, match=f"{name} Function is not supported in stream mode"):
        env.sql_query(f"SELECT {call} OVER (ORDER BY v) FROM t")


def test_ignore_nulls_of_lag_has_no_effect_and_says_so(
    batch: TableEnvironment, caplog: pytest.LogCaptureFixture
) -> None:
    batch.execute_sql(
        "CREATE TEMPORARY VIEW n (o, v) AS VALUES (1, 7), (2, CAST(NULL AS INT)), (3, 9)"
    )
    with caplog.at_level(logging.WARNING):
        query = "SELECT o, LAG(v) IGNORE NULLS OVER (ORDER BY o) FROM n"
        assert rows_of(batch, query) == [(1, None), (2, 7), (3, None)]
    assert "LAG ... IGNORE NULLS has no effect, as in Flink" in caplog.text
    query = "SELECT o, LAG(v) RESPECT NULLS OVER (ORDER BY o) FROM n"
    assert rows_of(batch, query) == [(1, None), (2, 7), (3, None)]


def test_distances_of_huge_numbers_do_not_wrap_around() -> None:
    frame = Frame(is_rows=False, preceding=2**62, following=0)
    kinds = (pa.int64(), pa.int8(), pa.time64("us"), pa.date32())
    for kind in kinds:
        values, nulls = ordering_values(pa.array([1, None], kind), frame, descending=True)
        assert (values - frame.preceding).max() < 0
        assert nulls.tolist() == [False, True]
    values, _ = ordering_values(pa.array([Decimal("1.5")]), frame, descending=False)
    assert values.tolist() == [Decimal("1.5")]


def test_frames_to_the_end_read_each_row_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """All calls at once, those that go by the order of their rows too; the others are one run."""
    read: list[int] = []

    def counted(columns: Any, order: Any, weights: Any) -> SortedRows:
        read.append(len(order))
        return SortedRows(columns, order, weights)

    monkeypatch.setattr("millstream.runtime.operators.table.batch_over.SortedRows", counted)
    drawn = random.Random(3)
    rows = [(drawn.randint(1, 2), at, drawn.choice([None, *range(9)])) for at in range(400)]
    names = ("SUM", "FIRST_VALUE", "LAST_VALUE", "MAX")
    calls = [AggregateCall(name, (2,), IntType()) for name in names]
    distinct = AggregateCall("COUNT", (2,), BigIntType(nullable=False), distinct=True)
    harness = TableHarness(
        BatchOverFactory(
            input_type=ROWS,
            keys=(0,),
            order=(SortColumn(1),),
            calls=(*calls, distinct),
            frame=Frame(is_rows=True, preceding=-1, following=None),
        ),
        ROWS,
        [*ROWS.children, *(each.type for each in (*calls, distinct))],
    )
    harness.feed([(I, row) for row in rows])
    harness.finish()
    assert sum(read) <= 2 * len(rows)
    for _, row in harness.changes:
        behind = [each[2] for each in rows if each[0] == row[0] and each[1] > row[1]]
        known = [each for each in behind if each is not None]
        ends = (sum(known), known[0], known[-1], max(known)) if known else (None,) * 4
        assert row[3:] == (*ends, len(set(known)))


@pytest.mark.parametrize("way", ["ASC", "DESC"])
def test_what_is_no_number_is_at_a_distance_of_none(way: str, batch: TableEnvironment) -> None:
    batch.execute_sql(
        "CREATE TEMPORARY VIEW n AS SELECT CAST(x AS DOUBLE) AS x, v FROM (VALUES ('NaN', 1), "
        "('NaN', 2), ('1', 4), ('2', 8), ('3', 16), ('9', 32), (CAST(NULL AS STRING), 64)) "
        "AS n (x, v)"
    )
    frame = f"ORDER BY x {way} RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING"
    found = rows_of(batch, f"SELECT v, SUM(v) OVER ({frame}) AS s FROM n")
    assert found == [(1, 3), (2, 3), (4, 12), (8, 28), (16, 24), (32, 32), (64, 64)]


def test_types_of_results(batch: TableEnvironment) -> None:
    query = "SELECT NTILE(2) OVER (ORDER BY v), CUME_DIST() OVER (ORDER BY v) FROM t"
    row = batch.sql_query(query).plan.row
    assert row.children == (BigIntType(nullable=False), DoubleType(nullable=False))
