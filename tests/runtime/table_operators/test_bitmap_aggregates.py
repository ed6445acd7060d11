"""The aggregates of bitmaps over changelogs, beside sets of Python."""

from __future__ import annotations

import random
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap
from tests.runtime.table_operators.model import Aggregate, Change, GroupAggregate, materialised
from tests.runtime.table_operators.running import TableHarness
from tests.runtime.table_operators.strategies import appends, batches, changelogs, cuts
from tests.support.examples import examples
from tests.support.query_running import changelog, environment, table_of
from tests.support.query_running import materialised as rows_there

from millstream.errors import MillstreamError
from millstream.runtime.columnar.aggregate_kernels import BitmapCounts
from millstream.runtime.operators.table.group_aggregate import GroupAggregateFactory
from millstream.runtime.operators.table.specs import AggregateCall
from millstream.table import DataTypes
from millstream.table.expressions import col
from millstream.types.bitmaps import BitmapType, bitmap_bytes, bitmap_of_bytes, bitmap_of_values
from millstream.types.logical_types import BigIntType, BooleanType, IntType, RowType, VarCharType

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.table import TableEnvironment

ROWS = RowType.of(k=VarCharType(10), n=IntType(), b=BitmapType(), f=BooleanType())
K, N, B, F = range(4)
NUMBERS = st.sampled_from([0, 1, 2, 3, 70_000, -1, -(2**31)])
rows = st.tuples(
    st.sampled_from(["a", "b"]),
    st.one_of(st.none(), NUMBERS),
    st.one_of(st.none(), st.sets(NUMBERS).map(lambda each: bitmap_bytes(bitmap_of_values(each)))),
    st.sampled_from([True, False]),
)
COMBINED: dict[str, Callable[[set[int], set[int]], set[int]]] = {
    "AND": set.intersection,
    "OR": set.union,
    "XOR": set.symmetric_difference,
}


class Sets(Aggregate):
    """An aggregate of bitmaps as sets of Python."""

    def __init__(self, function: str, **options: Any) -> None:
        super().__init__(function, N if "BUILD" in function else B, **options)

    def result(self, values: list[Any]) -> Any:
        values = [value for value in values if value is not None]
        if self.distinct:
            values = list(dict.fromkeys(values))
        if not values:
            return None
        operation = self.function.split("_")[1]
        if operation == "BUILD":
            found = {value & 0xFFFFFFFF for value in values}
        else:
            found = reduce(COMBINED[operation], (set(bitmap_of_bytes(each)) for each in values))
        if "CARDINALITY" in self.function:
            return len(found)
        return bitmap_bytes(BitMap(found))


NAMES = [
    f"BITMAP_{operation}_{what}AGG"
    for operation in ("BUILD", "AND", "OR", "XOR")
    for what in ("", "CARDINALITY_")
]
FORMS: list[dict[str, Any]] = [{}, {"distinct": True}, {"filter": F}]


def call_of(name: str, options: dict[str, Any]) -> AggregateCall:
    kind = BigIntType() if "CARDINALITY" in name else BitmapType()
    return AggregateCall(name, (N if "BUILD" in name else B,), kind, **options)


def model_of(name: str, options: dict[str, Any]) -> Sets:
    return Sets(name, condition=options.get("filter"), distinct=options.get("distinct", False))


def agree(
    changes: list[Change],
    plan: list[tuple[int, bool]],
    asked: list[tuple[str, dict[str, Any]]],
    **options: Any,
) -> None:
    calls = tuple(call_of(*each) for each in asked)
    model = GroupAggregate(keys=(K,), aggregates=[model_of(*each) for each in asked])
    expected = [out for change in changes for out in model.process(*change)]
    factory = GroupAggregateFactory(ROWS, (K,), calls, update_before=True, **options)
    output = [ROWS.children[K], *(call.type for call in calls)]
    with TableHarness(factory, ROWS, output, long_lived=False) as harness:
        for part, snapshot in batches(changes, plan):
            harness.feed(part)
            if snapshot:
                harness.end_epoch()
        if "mini_batch" in options:
            assert materialised(harness.changes) == materialised(expected)
        else:
            assert harness.changes == expected


asked = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(FORMS)), min_size=1, max_size=4)


@examples(40)
@given(changes=changelogs(rows), plan=cuts(), asked=asked)
def test_agree_with_sets_where_rows_are_taken_back(
    changes: list[Change], plan: list[tuple[int, bool]], asked: list[tuple[str, dict[str, Any]]]
) -> None:
    agree(changes, plan, asked, retracts=True)


@examples(15)
@given(changes=appends(rows), plan=cuts(), asked=asked)
def test_agree_with_sets_where_rows_only_come(
    changes: list[Change], plan: list[tuple[int, bool]], asked: list[tuple[str, dict[str, Any]]]
) -> None:
    agree(changes, plan, asked, retracts=False)


@examples(10)
@given(changes=changelogs(rows), plan=cuts(), asked=asked)
def test_agree_with_sets_in_mini_batches(
    changes: list[Change], plan: list[tuple[int, bool]], asked: list[tuple[str, dict[str, Any]]]
) -> None:
    agree(changes, plan, asked, retracts=True, mini_batch=True)


def test_counts_of_bitmaps_are_those_of_a_dictionary() -> None:
    """Also where an integer is taken back more often than it came, as after its state expired."""
    draw = random.Random(3)
    counts = BitmapCounts([])
    wanted = dict.fromkeys(range(12), 0)
    for _ in range(400):
        chosen = draw.sample(range(12), draw.randint(0, 12))
        added = draw.random() < 0.5
        (counts.add if added else counts.retract)(BitMap(chosen))
        for each in chosen:
            wanted[each] += 1 if added else -1
        assert set(counts.positive()) == {each for each, count in wanted.items() if count > 0}
        for count in range(1, 30):
            equal = {each for each, there in wanted.items() if there == count}
            assert set(counts.equal_to(count)) == equal


# -- in queries -------------------------------------------------------------------------------

DRAWN = random.Random(5)
PEOPLE = [None, -1, *range(20)]
VISITS: list[tuple[Any, ...]] = [
    (DRAWN.choice("abc"), DRAWN.choice("xy"), DRAWN.choice(PEOPLE), f"2024-01-01 00:{n:02}:00")
    for n in range(60)
]


def visits(parallelism: int, path: Path) -> TableEnvironment:
    env = environment(parallelism)
    columns = (
        "k STRING, p STRING, v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts - INTERVAL '2' HOUR"
    )
    table_of(env, "visits", columns, VISITS, path)
    return env


def visitors(page: str, key: str) -> set[int]:
    return {v & 0xFFFFFFFF for k, p, v, _ in VISITS if (p, k) == (page, key) and v is not None}


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_bitmaps_of_bitmaps(parallelism: int, tmp_path: Path) -> None:
    """The outer aggregates see bitmaps that grow: each is taken back and comes anew."""
    query = (
        "SELECT k, BITMAP_AND_AGG(b) AS a, BITMAP_OR_AGG(b) AS o, BITMAP_XOR_AGG(b) AS x, "
        "BITMAP_OR_CARDINALITY_AGG(b) AS n, BITMAP_TO_STRING(BITMAP_OR_AGG(b)) AS s "
        "FROM (SELECT k, p, BITMAP_BUILD_AGG(v) AS b FROM visits GROUP BY k, p) GROUP BY k"
    )
    env = visits(parallelism, tmp_path)
    found = {row[0]: row[1:] for row in rows_there(changelog(env, query, tmp_path, limit=900))}
    for key in "abc":
        one, other = visitors("x", key), visitors("y", key)
        text = "{" + ",".join(map(str, sorted(one | other))) + "}"
        sets = tuple(map(BitMap, (one & other, one | other, one ^ other)))
        assert found[key] == (*sets, len(one | other), text)


def test_in_windows_over_and_as_keys(tmp_path: Path) -> None:
    env = visits(2, tmp_path)
    window = "TABLE(HOP(TABLE visits, DESCRIPTOR(ts), INTERVAL '30' MINUTE, INTERVAL '60' MINUTE))"
    columns = "window_start, BITMAP_BUILD_CARDINALITY_AGG(v)"
    query = f"SELECT {columns} FROM {window} GROUP BY window_start, window_end"
    found = {row[0].hour * 60 + row[0].minute: row[1] for row in changelog(env, query, tmp_path)}
    half = {v for *_, v, _ in VISITS[:30]}
    assert found[0] == len({v for *_, v, _ in VISITS} - {None})
    assert found[23 * 60 + 30] == len(half - {None})
    query = (
        "SELECT v, BITMAP_TO_ARRAY(BITMAP_BUILD_AGG(v) OVER (PARTITION BY k ORDER BY ts "
        "ROWS BETWEEN 1 PRECEDING AND CURRENT ROW)) FROM visits WHERE v IS NOT NULL"
    )
    for value, array in changelog(env, query, tmp_path):
        assert value in array
        assert len(array) <= 2
    query = (
        "SELECT b, COUNT(*) FROM (SELECT k, BITMAP_BUILD(ARRAY[v]) AS b FROM visits) "
        "WHERE b <> BITMAP_BUILD(ARRAY[3]) GROUP BY b"
    )
    found = dict(rows_there(changelog(env, query, tmp_path)).keys())
    for value in {v for *_, v, _ in VISITS} - {3}:
        own = bitmap_of_values([] if value is None else [value])
        assert found[next(each for each in found if each == own)] == sum(
            v == value for *_, v, _ in VISITS
        )


def test_names_of_the_table_api(tmp_path: Path) -> None:
    env = visits(1, tmp_path)
    groups = env.from_path("visits").group_by(col("k"), col("p"))
    built = groups.select(
        col("k"),
        col("v").bitmap_build_agg().alias("b"),
        col("v").bitmap_build_cardinality_agg().alias("n"),
    )
    table = built.group_by(col("k")).select(
        col("k"),
        col("b").bitmap_and_agg().alias("a"),
        col("b").bitmap_or_agg().alias("o"),
        col("b").bitmap_xor_agg().alias("x"),
        col("b").bitmap_and_cardinality_agg().alias("an"),
        col("b").bitmap_or_cardinality_agg().alias("on"),
        col("b").bitmap_xor_cardinality_agg().alias("xn"),
    )
    made = table.select(
        col("k"),
        col("a").bitmap_or(col("x")) == col("o"),
        col("o").bitmap_andnot(col("a")) == col("x"),
        col("o").bitmap_xor(col("x")) == col("a"),
        col("a").bitmap_and(col("x")).bitmap_cardinality(),
        col("o").bitmap_to_bytes().bitmap_from_bytes() == col("o"),
        col("o").bitmap_to_array().bitmap_build().bitmap_to_string()
        == col("o").cast(DataTypes.STRING()),
        col("an") + col("xn") == col("on"),
    )
    env.create_temporary_view("made", made)
    found = rows_there(changelog(env, "SELECT * FROM made", tmp_path, limit=900))
    assert {row[0] for row in found} == set("abc")
    assert {row[1:] for row in found} == {(True, True, True, 0, True, True, True)}


def test_results_of_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    env = environment()
    table = env.sql_query(
        "SELECT BITMAP_BUILD(ARRAY[1, -1]) AS b, ARRAY[BITMAP_BUILD(ARRAY[2])] AS a"
    )
    data = bitmap_bytes(bitmap_of_values([1, -1]))
    assert table.to_arrow().column("b").to_pylist() == [data]
    assert table.to_pandas()["b"].tolist() == [BitMap([1, 2**32 - 1])]
    table.execute().print()
    assert "{1,4294967295} |" in capsys.readouterr().out
    env.execute_sql("CREATE TABLE shown (b BITMAP, a ARRAY<BITMAP>) WITH ('connector' = 'print')")
    table.execute_insert("shown").wait()
    assert "+I[{1,4294967295}, [{2}]]" in capsys.readouterr().out
    for connector in ("'filesystem', 'path' = '/x', 'format' = 'parquet'", "'duckdb'"):
        env.execute_sql(
            f"CREATE TABLE {connector[1:4]} (b BITMAP) WITH ('connector' = {connector})"
        )
        with pytest.raises(MillstreamError, match="column 'b' is BITMAP, which it neither reads"):
            env.execute_sql(f"SELECT * FROM {connector[1:4]}")
