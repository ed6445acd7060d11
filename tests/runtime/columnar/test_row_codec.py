"""Rows as bytes, and keys of rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.columnar.arrow_columns import KINDS, tables
from tests.support.examples import examples

from millstream.contracts.batch import Batch
from millstream.errors import ProgramError
from millstream.graph.model import Partitioning, StreamEdge
from millstream.runtime.columnar.row_codec import RowCodec
from millstream.runtime.columnar.row_groups import group_rows, key_groups_of_rows
from millstream.runtime.exchange import create_partitioner
from millstream.runtime.operators.stateless import MapFactory
from millstream.state.key_codec import cache_key, key_group, subtask_of
from millstream.testing import OperatorHarness
from millstream.types.field_access import KeyColumns
from millstream.types.types import from_arrow_schema

TEMPORAL = [
    (pa.date32(), np.int32),
    (pa.time32("ms"), np.int32),
    (pa.timestamp("ns", "UTC"), np.int64),
    (pa.duration("ms"), np.int64),
]


@examples(60)
@given(columns=tables(list(KINDS)), start=st.integers(0, 3))
def test_rows_come_back(columns: list[pa.Array], start: int) -> None:
    schema = pa.schema([(str(n), column.type) for n, column in enumerate(columns)])
    codec = RowCodec(schema)
    packed = codec.pack(columns)
    assert [c.to_pylist() for c in codec.unpack(packed)] == [c.to_pylist() for c in columns]
    assert codec.pack([column.slice(start) for column in columns]) == packed[start:]
    values = list(zip(*(column.to_pylist() for column in columns), strict=True))
    for one, row in zip(packed, values, strict=True):
        assert [each == one for each in packed] == [repr(each) == repr(row) for each in values]


@pytest.mark.parametrize(("kind", "width"), TEMPORAL)
def test_times_come_back(kind: pa.DataType, width: Any) -> None:
    column = pa.array(np.array([1, 0, 86_399], width)).view(kind)
    column = pa.concat_arrays([column, pa.array([None], kind)])
    codec = RowCodec(pa.schema([("t", kind), ("s", pa.string())]))
    names = pa.array(["a", None, "", "b"])
    found = codec.unpack(codec.pack([column, names]))
    assert found[0].equals(column)
    assert found[1].equals(names)


@examples(60)
@given(columns=tables(list(KINDS)))
def test_groups_have_the_rows_of_one_key(columns: list[pa.Array]) -> None:
    count = len(columns[0])
    if not count:
        return
    groups = group_rows(columns, count)
    values = list(zip(*(column.to_pylist() for column in columns), strict=True))
    wanted = [cache_key(row[0] if len(row) == 1 else row) for row in values]
    assert [groups.keys[g] for g in groups.group_of_row.tolist()] == wanted
    assert len(set(groups.keys)) == len(groups)
    assert groups.first_rows.tolist() == sorted(groups.first_rows.tolist())
    for start, length in zip(groups.starts.tolist(), groups.counts.tolist(), strict=True):
        rows = groups.order[start : start + length].tolist()
        assert rows == sorted(rows)
    found = key_groups_of_rows(columns, count, 128)
    assert found.tolist() == [key_group(row[0] if len(row) == 1 else row, 128) for row in values]


def test_many_keys_are_sorted_in_two_steps() -> None:
    numbers = np.random.default_rng(1).integers(0, 10**6, 200_000)
    groups = group_rows([pa.array(numbers)], len(numbers))
    assert len(groups) == len(np.unique(numbers))
    for number in (0, len(groups) // 2, len(groups) - 1):
        start, length = groups.starts[number], groups.counts[number]
        rows = groups.order[start : start + length]
        assert rows.tolist() == np.flatnonzero(numbers == groups.keys[number]).tolist()


@pytest.mark.parametrize("indexes", [(), (0,), (1,), (1, 0)])
def test_rows_go_to_the_subtask_that_keeps_their_key(indexes: tuple[int, ...]) -> None:
    schema = pa.schema([("n", pa.int64()), ("s", pa.string())])
    rows = [(n % 7 if n % 5 else None, f"s{n % 3}") for n in range(40)]
    columns = [
        pa.array(column, field.type)
        for column, field in zip(zip(*rows, strict=True), schema, strict=True)
    ]
    arrow = pa.RecordBatch.from_arrays(columns, schema=schema)
    info = from_arrow_schema(schema)
    edge = StreamEdge(0, 0, 1, 0, Partitioning.HASH, None, info, KeyColumns(indexes))
    with OperatorHarness(MapFactory(str), parallelism=3) as harness:
        found = create_partitioner(edge, 0, 1, harness.context).targets(Batch(info, arrow=arrow))
    assert not isinstance(found, int)
    assert found is not None
    keys = [tuple(row[index] for index in indexes) for row in rows]
    plain = [key[0] if len(indexes) == 1 else key for key in keys]
    assert found.tolist() == [subtask_of(key_group(key, 128), 128, 3) for key in plain]


def test_keys_of_tables_are_not_read_from_records() -> None:
    with pytest.raises(ProgramError, match="the key of a table is columns"):
        KeyColumns((0,))((1, 2))
