"""project(): some fields of tuples and rows; and the order of windows."""

from __future__ import annotations

import pytest

from millstream.configuration.configuration import Configuration
from millstream.datastream import CountWindow, GlobalWindow, StreamExecutionEnvironment, TimeWindow
from millstream.datastream.data_stream import AllWindowedStream
from millstream.errors import ProgramError
from millstream.testing.local_run import run_and_collect
from millstream.types.row import Row, RowKind
from millstream.types.types import Types


def environment() -> StreamExecutionEnvironment:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    return env.set_parallelism(1)


def test_projected_tuples_are_tuples_in_the_order_given() -> None:
    kind = Types.TUPLE([Types.LONG(), Types.STRING(), Types.BOOLEAN()])
    stream = environment().from_collection([(1, "a", True), (2, "b", False)], kind)
    two = stream.project(2, 0)
    assert two.get_type() == Types.TUPLE([Types.BOOLEAN(), Types.LONG()])
    one = stream.key_by(lambda record: record[0]).project(1)
    assert run_and_collect(two, one) == [[(True, 1), (False, 2)], [("a",), ("b",)]]


def test_projected_rows_keep_names_and_kinds() -> None:
    kind = Types.ROW_NAMED(["id", "name", "old"], [Types.LONG(), Types.STRING(), Types.BOOLEAN()])
    deleted = Row(2, "b", False)
    deleted.set_row_kind(RowKind.DELETE)
    stream = environment().from_collection([Row(1, "a", True), deleted], kind).project(1, 0)
    assert stream.get_type() == Types.ROW_NAMED(["name", "id"], [Types.STRING(), Types.LONG()])
    kinds = stream.map(lambda row: (row.name, row.id, row.get_row_kind().name))
    assert run_and_collect(kinds) == [[("a", 1, "INSERT"), ("b", 2, "DELETE")]]


def test_fields_that_are_not_there() -> None:
    env = environment()
    with pytest.raises(ProgramError, match="takes fields of tuples and rows"):
        env.from_collection([1], Types.LONG()).project(0)
    stream = env.from_collection([(1, 2)], Types.TUPLE([Types.LONG(), Types.LONG()]))
    with pytest.raises(ProgramError, match="there is no field 2"):
        stream.project(0, 2)
    with pytest.raises(ProgramError, match="needs the numbers of one or more fields"):
        stream.project()


def test_windows_compare() -> None:
    early, long, late = TimeWindow(0, 5), TimeWindow(0, 9), TimeWindow(1, 2)
    assert sorted([late, long, early]) == [early, long, late]
    assert early <= TimeWindow(0, 5) < long < late
    assert late > long >= TimeWindow(0, 9)
    assert len({TimeWindow(0, 5), early}) == 1
    assert CountWindow(1) <= CountWindow(1) < CountWindow(2)
    assert CountWindow(1) != TimeWindow(0, 1)
    assert GlobalWindow.get() == GlobalWindow()
    with pytest.raises(TypeError):
        sorted([early, CountWindow(0)])  # type: ignore[type-var]


def test_windowed_streams_know_their_environment() -> None:
    env = environment()
    stream = env.from_collection([1], Types.LONG())
    together = stream.count_window_all(2)
    assert isinstance(together, AllWindowedStream)
    assert together.get_execution_environment() is env
    keyed = stream.key_by(lambda number: number)
    assert keyed.count_window(2).get_execution_environment() is env
