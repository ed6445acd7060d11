"""Partial aggregates by any columns, cut and merged at random, against DuckDB's GROUP BY."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millstream.configuration.configuration import Configuration
from millstream.contracts.batch import Batch
from millstream.contracts.operator import OperatorContext
from millstream.runtime.columnar.aggregates import (
    Avg,
    Collect,
    Count,
    CountDistinct,
    First,
    Last,
    Max,
    Min,
    Sum,
)
from millstream.runtime.columnar.partial_aggregates import PartialAggregates, concatenated
from millstream.types.types import Types, from_arrow_schema

CONTEXT = OperatorContext(
    uid="aggregates",
    name="aggregates",
    location="program.py:1",
    subtask=0,
    parallelism=1,
    max_parallelism=128,
    job_name="job",
    configuration=Configuration(),
    output_type=Types.PICKLED_BYTE_ARRAY(),
    side_types={},
    read_tags=frozenset(),
)
AGGREGATES = {
    "n": Count(),
    "values": Count("v"),
    "total": Sum("v"),
    "least": Min("v"),
    "most": Max("v"),
    "mean": Avg("v"),
    "large": Count(where=lambda records: [(v or 0) > 5 for v in records["v"].to_pylist()]),
    "kinds": CountDistinct("v"),
    "first": First("v"),
    "last": Last("v"),
}
ORACLE = """
    SELECT {by} count(*), count(v), sum(v)::BIGINT, min(v), max(v), avg(v),
           count(*) FILTER (v > 5), count(DISTINCT v), arg_min(v, t), arg_max(v, t)
    FROM records {group}
"""


def records(draw: random.Random, count: int) -> pa.Table:
    """Group columns a and b, either may be null; v is a number or null, t is unique."""
    return pa.table(
        {
            "a": pa.array(draw.choices(["x", "y", None], k=count), pa.string()),
            "b": pa.array(draw.choices([1, 2, 3, None], k=count), pa.int64()),
            "v": pa.array(draw.choices([*range(-3, 12), None], k=count), pa.int64()),
            "t": pa.array(draw.sample(range(10 * count + 1), count), pa.int64()),
        }
    )


def raw(partials: PartialAggregates, table: pa.Table, by: list[str]) -> pa.Table:
    arrow = table.select(["a", "b", "v"]).combine_chunks().to_batches()[0]
    times = table.column("t").to_numpy()
    batch = Batch(from_arrow_schema(arrow.schema), arrow=arrow, timestamps=times)
    columns = partials.inputs(batch, CONTEXT)
    return pa.table({**{name: arrow.column(name) for name in by}, **columns})


def pieces(draw: random.Random, table: pa.Table) -> list[pa.Table]:
    cuts = sorted({0, table.num_rows, *draw.choices(range(table.num_rows), k=5)})
    return [table.slice(a, b - a) for a, b in pairwise(cuts)]


def merged(
    draw: random.Random, partials: PartialAggregates, parts: list[pa.Table], by: list[str]
) -> pa.Table:
    """Neighbours are merged at random until one table is left: the order stays."""
    parts = [part.drop_columns(["__records"]) for part in parts]
    while len(parts) > 1:
        at = draw.randrange(len(parts) - 1)
        parts[at : at + 2] = [partials.merge(concatenated(parts[at : at + 2]), by)]
    return parts[0]


def as_set(rows: list[tuple[Any, ...]]) -> set[tuple[Any, ...]]:
    found = set(rows)
    assert len(found) == len(rows)
    return found


@pytest.mark.parametrize("by", [["a"], ["b", "a"], ["a", "b"]])
@pytest.mark.parametrize("seed", range(5))
def test_oracle_group_by_any_columns(seed: int, by: list[str]) -> None:
    draw = random.Random(seed)
    # First and Last make no difference between a null and none: those are compared without nulls.
    table = records(draw, 200)
    table = table.filter(pa.array([v is not None for v in table.column("v").to_pylist()]))
    compare(draw, table, by, AGGREGATES)


@pytest.mark.parametrize("seed", range(5, 10))
def test_oracle_nulls_are_left_out(seed: int) -> None:
    draw = random.Random(seed)
    sums = {name: each for name, each in AGGREGATES.items() if name not in ("first", "last")}
    compare(draw, records(draw, 200), ["a", "b"], sums)


def compare(
    draw: random.Random, table: pa.Table, by: list[str], aggregates: dict[str, Any]
) -> None:
    partials = PartialAggregates(aggregates)
    parts = [partials.make(raw(partials, piece, by), by) for piece in pieces(draw, table)]
    whole = merged(draw, partials, parts, by)
    results = partials.finish(whole)
    keys = [whole.column(name).to_pylist() for name in by]
    found = list(zip(*keys, *(column.to_pylist() for column in results.values()), strict=True))

    connection = duckdb.connect()
    connection.register("records", table)
    names = ", ".join(by)
    query = ORACLE.format(by=f"{names},", group=f"GROUP BY {names}")
    width = len(by) + len(aggregates)
    wanted = [row[:width] for row in connection.execute(query).fetchall()]
    assert as_set(found) == as_set(wanted)


def test_a_constant_column_groups_everything() -> None:
    draw = random.Random(11)
    table = records(draw, 100)
    partials = PartialAggregates({"n": Count(), "total": Sum("v"), "list": Collect("v")})
    parts = []
    for piece in pieces(draw, table):
        made = raw(partials, piece, [])
        parts.append(partials.make(made.append_column("all", pa.array([0] * len(made))), ["all"]))
    whole = merged(draw, partials, parts, ["all"])
    results = {name: column.to_pylist() for name, column in partials.finish(whole).items()}
    ordered = table.sort_by("t").column("v").to_pylist()
    values = [v for v in ordered if v is not None]
    assert results == {"n": [100], "total": [sum(values)], "list": [values]}


def test_merging_leaves_other_columns_and_the_order_of_parts_alone() -> None:
    partials = PartialAggregates({"first": First("v")})
    table = pa.table({"a": ["x", "x"], "b": [1, 2], "v": [7, 8], "t": [5, 5]})
    parts = [partials.make(raw(partials, table.slice(at, 1), ["a"]), ["a"]) for at in (0, 1)]
    merge = partials.merge(concatenated(parts), ["a"])
    assert merge.column_names == ["a", "p0", "p1"]
    assert partials.finish(merge)["first"].to_pylist() == [7]  # of equal times the earlier row
    merge = partials.merge(concatenated(parts[::-1]), ["a"])
    assert partials.finish(merge)["first"].to_pylist() == [8]


def test_partial_aggregates_know_no_windows() -> None:
    from tests.common.test_layers import imports

    below = {each.imported for each in imports() if each.importer.startswith("runtime.columnar")}
    assert "runtime.columnar.aggregates" in below
    assert not [name for name in below if name.startswith("runtime.operators.windows")]
