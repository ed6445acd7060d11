"""Joins of texts that are larger than a batch may be: what they give is cut by bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pytest
from tests.runtime.table_operators.model import Change, I
from tests.runtime.table_operators.running import TableHarness
from tests.support.query_running import changelog, environment

from millstream.expressions.nodes import Call, InputReference, Literal
from millstream.runtime.columnar import array_utils
from millstream.runtime.operators.table.join import JoinFactory
from millstream.runtime.operators.table.specs import JoinKind, JoinSide, RankStrategy, SortColumn
from millstream.runtime.operators.table.top_n import TopNFactory
from millstream.types.logical_types import (
    ArrayType,
    BooleanType,
    IntType,
    MapType,
    RowType,
    VarCharType,
)

if TYPE_CHECKING:
    from pathlib import Path

TEXT = VarCharType(2**31 - 1)
ROWS = RowType.of(k=IntType(), s=TEXT)
MOST = 1000


@pytest.fixture(autouse=True)
def _low_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(array_utils, "MOST_BYTES", MOST)


def text(number: int) -> str:
    return f"{number}".rjust(90, "-")


@pytest.mark.parametrize("kind", list(JoinKind))
@pytest.mark.parametrize("side", [0, 1])
@pytest.mark.parametrize("has_condition", [False, True])
def test_one_row_meets_many(kind: JoinKind, side: int, has_condition: bool) -> None:
    condition = Call(
        "<>",
        (InputReference(3, "s", TEXT), Literal(text(3), TEXT)),
        BooleanType(),
    )
    keys = JoinSide((0,))
    plan = JoinFactory(
        ROWS, ROWS, kind, keys, keys, (True,), condition=condition if has_condition else None
    )
    half = kind in (JoinKind.SEMI, JoinKind.ANTI)
    types = [IntType(), TEXT] * (1 if half else 2)
    with TableHarness(plan, ROWS, types) as harness:
        harness.row_types.append(ROWS)
        many: list[Change] = [(I, (1, text(n))) for n in range(40)]
        one: list[Change] = [(I, (1, text(1000)))]
        steps = [(many, 1), (one, 0)] if side == 0 else [(one, 0), (many, 1)]
        net: dict[Any, int] = {}
        for part, index in steps:
            for changed, row in harness.feed(part, index):
                net[row] = net.get(row, 0) + (-1 if changed & 1 else 1)
        rights = [text(n) for n in range(40) if not (has_condition and n == 3)]
        expected: dict[Any, int] = {(1, text(1000), 1, right): 1 for right in rights}
        if half:
            expected = {(1, text(1000)): 1} if kind is JoinKind.SEMI else {}
        elif has_condition and kind in (JoinKind.RIGHT, JoinKind.FULL):
            expected[None, None, 1, text(3)] = 1
        assert {row: weight for row, weight in net.items() if weight} == expected
        for batch in harness.batches:
            assert batch.arrow.nbytes < 2 * MOST
        if not half:
            assert len(harness.batches) >= 40 * 180 // MOST


def test_rows_of_a_top_n_are_cut() -> None:
    plan = TopNFactory(
        ROWS, (), (SortColumn(0),), 1, 50,
        output_rank=True, strategy=RankStrategy.RETRACT, update_before=True,
    )  # fmt: skip
    with TableHarness(plan, ROWS, [IntType(), TEXT, pa.int64()]) as harness:
        found = harness.feed([(I, (n, text(n))) for n in range(40)])
        assert found == [(I, (n, text(n), n + 1)) for n in range(40)]
        assert len(harness.batches) >= 4


def test_joins_by_time_are_cut(tmp_path: Path) -> None:
    join = "a JOIN b ON a.k = b.k AND a.t BETWEEN b.t - INTERVAL '1' HOUR AND b.t"
    env = environment()
    for name in "ab":
        env.execute_sql(
            f"CREATE TABLE {name} (id INT, k AS 1, s AS REPEAT('{name}', 300) ||"
            " CAST(id AS STRING), t AS TIMESTAMP '2024-01-01 00:00:00',"
            " WATERMARK FOR t AS t - INTERVAL '1' DAY)"
            " WITH ('connector' = 'datagen', 'number-of-rows' = '20',"
            " 'fields.id.kind' = 'sequence', 'fields.id.start' = '1', 'fields.id.end' = '20')"
        )
    found = changelog(env, f"SELECT a.id, a.s, b.s AS z FROM {join}", tmp_path, limit=1000)
    assert len(found) == 400
    assert all(row[1] == "a" * 300 + str(row[0]) for row in found)
    assert all(row[2].startswith("b" * 300) for row in found)


def test_sizes_of_nested_values() -> None:
    strings = pa.array(["", "abc", None, "de"]).slice(1)
    lists = pa.array([["a", "bc"], [], None, ["def"]], pa.list_(pa.string())).slice(1)
    maps = pa.array([[("a", "b")], [("cd", "ef")]], MapType(TEXT, TEXT).to_arrow())
    rows = pa.array([{"a": "xyz", "b": 1}, {"a": None, "b": 2}])
    assert array_utils._sizes(strings).tolist() == [3, 0, 2]  # type: ignore[union-attr]
    assert array_utils._sizes(lists).tolist() == [0, 0, 4 + 3]  # type: ignore[union-attr]
    assert array_utils._sizes(maps).tolist() == [8 + 2, 8 + 4]  # type: ignore[union-attr]
    assert array_utils._sizes(rows).tolist() == [3, 0]  # type: ignore[union-attr]
    assert array_utils._sizes(pa.array([1, 2])) is None
    numbers = pa.array([list(range(100)), [1]], ArrayType(IntType()).to_arrow())
    assert array_utils._sizes(numbers).tolist() == [500, 5]  # type: ignore[union-attr]


def test_runs_hold_at_least_one_row() -> None:
    column = pa.array(["x" * 2000, "y", "z" * 999, ""])
    runs = array_utils.byte_runs(([column], np.array([0, 0, 1, 1, 2, -1, 3])))
    assert list(runs) == [slice(0, 1), slice(1, 2), slice(2, 4), slice(4, 7)]
    assert list(array_utils.byte_runs(([column], np.array([], np.int64)))) == []
