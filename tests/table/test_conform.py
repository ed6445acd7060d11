"""Columns in the types of a table, and the rows that its constraints refuse."""

from __future__ import annotations

import pytest
from tests.table.model import I
from tests.table.running import TableHarness, batch_of

from millstream.errors import TypeMismatchError
from millstream.runtime.operators.table.conform import ConformFactory
from millstream.types.logical_types import BigIntType, IntType, RowType

ROWS = RowType.of(f0=IntType(), f1=IntType())
OUTPUT = [BigIntType(), BigIntType()]


def test_rows_are_counted_where_they_come_and_where_they_go_on() -> None:
    plan = ConformFactory(not_null=(1,), drop=True, table="t")
    with TableHarness(plan, ROWS, OUTPUT) as harness:
        assert harness.feed([(I, (1, None)), (I, (2, 3))]) == [(I, (2, 3))]
        assert harness.feed([(I, (4, None))]) == []
        harness.process_batch(batch_of([], ROWS))
        harness.end_epoch()
        assert harness.metrics == {"numRecordsIn": 3, "numRecordsOut": 1}


def test_a_null_is_refused_by_the_name_of_its_column() -> None:
    with (
        TableHarness(ConformFactory(not_null=(0,), table="t"), ROWS, OUTPUT) as harness,
        pytest.raises(TypeMismatchError, match="Column 'f0' of t is NOT NULL"),
    ):
        harness.feed([(I, (None, 1))])
