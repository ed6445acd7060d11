"""Calc: expressions over batches of changelogs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.runtime.table_operators.model import UA, UB, D, I
from tests.runtime.table_operators.running import TableHarness, type_info

from millstream.contracts.batch import Batch
from millstream.errors import ProgramError
from millstream.expressions.nodes import InputReference, Literal
from millstream.expressions.resolution import resolve_call, resolve_definition
from millstream.expressions.user_functions import FunctionContext, definition_of
from millstream.runtime.operators.table.calc import CalcFactory
from millstream.types.logical_types import BigIntType, RowType

ROWS = RowType.of(a=BigIntType(), b=BigIntType())
A, B = InputReference(0, "a", BigIntType()), InputReference(1, "b", BigIntType())
IS_LARGE = resolve_call(">", A, Literal(10, BigIntType()))


def test_kinds_stay_what_they_are() -> None:
    plan = CalcFactory(ROWS, (resolve_call("+", A, B), B), IS_LARGE)
    with TableHarness(plan, ROWS, [BigIntType(), BigIntType()]) as harness:
        found = harness.feed(
            [
                (I, (11, 1)),
                (UB, (11, 1)),  # goes on alone: what it becomes is too small
                (UA, (9, 1)),
                (UB, (9, 1)),
                (UA, (12, None)),  # comes alone
                (D, (12, None)),
                (I, (None, 5)),
            ]
        )
        assert found == [(I, (12, 1)), (UB, (12, 1)), (UA, (None, None)), (D, (None, None))]
        harness.end_epoch()
        assert harness.metrics == {"numRecordsIn": 7, "numRecordsOut": 4}


def test_nothing_is_emitted_of_nothing() -> None:
    plan = CalcFactory(ROWS, (A,), IS_LARGE)
    with TableHarness(plan, ROWS, [BigIntType()]) as harness:
        assert harness.feed([(I, (1, 1)), (I, (None, 1))]) == []
        assert harness.batches == []


def test_functions_of_users_are_not_asked_about_no_rows() -> None:
    asked: list[int] = []

    def count(values: Any) -> Any:
        asked.append(len(values))
        return values

    definition = definition_of("count", count, BigIntType(), kind="pandas")
    plan = CalcFactory(ROWS, (resolve_definition(definition, [A], user=True),), IS_LARGE)
    with TableHarness(plan, ROWS, [BigIntType()]) as harness:
        assert harness.feed([(I, (1, 1))]) == []
        assert harness.feed([(I, (1, 1)), (I, (11, 1))]) == [(I, (11,))]
    assert asked == [1]


def test_records_keep_their_timestamps() -> None:
    plan = CalcFactory(ROWS, (B,), IS_LARGE)
    info = type_info([pa.int64(), pa.int64()])
    arrow = pa.RecordBatch.from_arrays(
        [pa.array([1, 20, 30]), pa.array([1, 2, 3])], names=["f0", "f1"]
    )
    with TableHarness(plan, ROWS, [BigIntType()]) as harness:
        harness.process_batch(Batch(info, arrow=arrow, timestamps=np.array([7, 8, 9])))
        assert [batch.timestamp_list for batch in harness.batches] == [[8, 9]]
        assert harness.batches[0].row_kinds is None


class Counted:
    """A function with a counter, which says which subtask it is in."""

    def open(self, context: FunctionContext) -> None:
        self.calls = context.get_metric_group().counter("calls")
        self.subtask = context.get_index_of_this_subtask()

    def eval(self, value: int) -> int:
        self.calls.inc()
        return self.subtask


def test_functions_of_users_have_metrics_of_their_own() -> None:
    definition = definition_of("counted", Counted(), BigIntType())
    call = resolve_definition(definition, [A], user=True)
    with TableHarness(CalcFactory(ROWS, (call,)), ROWS, [BigIntType()]) as harness:
        assert harness.feed([(I, (1, 1)), (I, (2, 1))]) == [(I, (0,)), (I, (0,))]
        harness.end_epoch()
        metrics = dict(harness.metrics)
    assert metrics.pop("numRecordsIn") == 2
    assert [value for name, value in metrics.items() if "calls" in str(name)] == [2]


def test_an_expression_without_a_task_says_so() -> None:
    context = FunctionContext({"a": "b"})
    assert context.get_job_parameter("a", "") == "b"
    with pytest.raises(ProgramError, match="do not give functions their task"):
        context.get_metric_group()
