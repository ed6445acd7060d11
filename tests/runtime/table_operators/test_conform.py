"""Columns in the types of a table, and the rows that its constraints refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.runtime.table_operators.model import I
from tests.runtime.table_operators.running import TableHarness, batch_of
from tests.support.query_running import environment, table_of

from millstream.errors import TypeMismatchError
from millstream.runtime.columnar.array_utils import limited
from millstream.runtime.operators.table.calc import ConformFactory
from millstream.types.logical_types import (
    ArrayType,
    BigIntType,
    BinaryType,
    CharType,
    IntType,
    RowType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    from pathlib import Path

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


def test_values_are_brought_to_the_length_of_their_column_as_by_flink() -> None:
    """What Flink 2.3 prints with TRIM_PAD; what is within arrays and rows stays."""
    kinds = [CharType(3), VarCharType(3), BinaryType(3), VarBinaryType(3), VarCharType()]
    row = RowType.of(**{f"f{n}": kind for n, kind in enumerate(kinds)}, g=ArrayType(CharType(3)))
    plan = ConformFactory(lengths=limited(row), table="t")
    long, short = "é€😀xy", "a"
    with TableHarness(plan, row, row.children) as harness:
        given = [(I, (t, t, t.encode(), t.encode(), t, [t])) for t in (long, short)]
        nothing = (I, (None,) * 6)
        assert harness.feed([*given, nothing]) == [
            (I, ("é€😀", "é€😀", b"\xc3\xa9\xe2", b"\xc3\xa9\xe2", long, [long])),
            (I, ("a  ", "a", b"a\0\0", b"a", "a", ["a"])),
            nothing,
        ]


def test_the_option_reaches_the_sink(tmp_path: Path) -> None:
    env = environment(1, **{"table.exec.sink.type-length-enforcer": "trim_pad"})
    table_of(env, "t", "a VARCHAR(3), b CHAR(3)", [("abcdef", "x")], tmp_path)
    path = tmp_path / "out"
    options = f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'csv'"
    env.execute_sql(f"CREATE TABLE o (a VARCHAR(3), b CHAR(3)) WITH ({options})")
    env.execute_sql("INSERT INTO o SELECT a, b FROM t").wait()
    (written,) = [each for each in path.rglob("*") if each.is_file() and each.name[0] not in "._"]
    assert written.read_text().splitlines()[-1].replace('"', "") == "abc,x  "
