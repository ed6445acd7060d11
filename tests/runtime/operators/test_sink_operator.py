"""The sink operator: one writer per epoch, pre-commit, abort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream import crash_points
from millstream.contracts.sink import Committable, Sink, SinkWriter, WriterContext
from millstream.errors import SinkError
from millstream.runtime.operators import SinkFactory
from millstream.runtime.operators.sink import SinkOperator
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch

CALLS: list[tuple[object, ...]] = []


class Writer(SinkWriter):
    """Notes what is called; fails where it is told to."""

    def __init__(self, context: WriterContext, fails: str) -> None:
        self.context = context
        self.fails = fails
        self.values: list[object] = []
        CALLS.append(("open", context.epoch, context.attempt))

    def write(self, batch: Batch) -> None:
        if self.fails == "write":
            raise OSError(28, self.fails)
        self.values.extend(batch.values)

    def write_watermark(self, watermark: int) -> None:
        CALLS.append(("watermark", watermark))

    def prepare_commit(self) -> Sequence[Committable]:
        if self.fails == "prepare":
            raise OSError(28, self.fails)
        return [(self.context.epoch, tuple(self.values))]

    def flush(self) -> None:
        CALLS.append(("flush", len(self.values)))
        if self.fails == "flush":
            raise OSError(28, self.fails)

    def abort(self) -> None:
        CALLS.append(("abort",))

    def close(self) -> None:
        CALLS.append(("close",))


class Noting(Sink):
    """Makes such writers."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails

    def create_writer(self, context: WriterContext) -> SinkWriter:
        return Writer(context, self.fails)

    def end_input(self) -> None:
        CALLS.append(("end",))
        if self.fails == "end":
            raise OSError(28, self.fails)


def test_one_writer_per_epoch_and_none_for_an_empty_one() -> None:
    CALLS.clear()
    harness = OperatorHarness(SinkFactory(Noting()))
    harness.process_all([1, 2])
    harness.watermark(5)
    harness.process(3)
    harness.end_epoch()
    harness.end_epoch()
    harness.process(4)
    harness.end_epoch(swap=False)
    harness.close()
    assert harness.committables == [(0, (1, 2, 3)), (2, (4,))]
    assert CALLS == [
        ("open", 0, "attempt-0"), ("watermark", 5), ("close",), ("open", 2, "attempt-2"),
        ("close",),
    ]  # fmt: skip
    assert harness.metrics["numRecordsIn"] == 4


def test_what_came_is_flushed_soon_but_not_all_the_time() -> None:
    CALLS.clear()
    times = iter([0.0, 1.0, 1.1, 9.9, 10.1, 10.2, 50.0, 90.0, 90.0])
    harness = OperatorHarness(SinkFactory(Noting()))
    operator = harness.operator
    assert isinstance(operator, SinkOperator)
    operator._seconds = lambda: next(times)
    operator.flush()  # 0.0: there is no writer
    harness.process(1)
    operator.flush()  # 1.0 to 1.1, so the next one is due at 2.0
    harness.process(2)
    operator._next_flush = 10.0
    operator.flush()  # 9.9: too early
    operator.flush()  # 10.1 to 10.2
    operator.flush()  # 50.0: nothing has come since
    harness.process(3)
    harness.end_epoch(swap=False)
    operator.flush()  # 90.0: the snapshot has taken all
    assert [call for call in CALLS if call[0] == "flush"] == [("flush", 1), ("flush", 2)]
    harness.close()


def test_the_pause_behind_a_flush_is_nine_times_as_long() -> None:
    harness = OperatorHarness(SinkFactory(Noting()))
    operator = harness.operator
    assert isinstance(operator, SinkOperator)
    now = 5.0

    def slow() -> None:
        nonlocal now
        now += 0.5

    operator._seconds = lambda: now
    harness.process(1)
    assert operator._writer is not None
    operator._writer.flush = slow  # type: ignore[method-assign]
    operator.flush()
    assert (now, operator._next_flush) == (5.5, 10.0)
    harness.close()


@pytest.mark.parametrize("fails", ["write", "prepare"])
def test_failure_aborts_and_names_the_sink(fails: str) -> None:
    CALLS.clear()
    harness = OperatorHarness(SinkFactory(Noting(fails)), name="out")

    def epoch() -> None:
        harness.process(1)
        harness.end_epoch()

    with pytest.raises(SinkError, match=r"'out'.*checkpoint 0.*28"):
        epoch()
    assert CALLS[1:] == [("abort",), ("close",)]


def test_what_fails_before_the_pre_commit_aborts_too() -> None:
    """The matrix shows by it that an abort has to keep off records that are on their way."""
    CALLS.clear()
    harness = OperatorHarness(SinkFactory(Noting()), name="out")
    harness.process(1)

    def fail(name: str) -> None:
        raise OSError(28, name)

    crash_points.arm("sink.prepare.before", fail)
    try:
        with pytest.raises(SinkError, match=r"'out'.*checkpoint 0.*28"):
            harness.end_epoch()
    finally:
        crash_points.arm("")
    assert CALLS[1:] == [("abort",), ("close",)]


def test_closing_in_mid_epoch_aborts() -> None:
    CALLS.clear()
    harness = OperatorHarness(SinkFactory(Noting()))
    harness.process(1)
    harness.close()
    assert CALLS[1:] == [("abort",), ("close",)]


def test_the_sink_hears_of_the_end_of_the_input_when_all_is_prepared() -> None:
    CALLS.clear()
    harness = OperatorHarness(SinkFactory(Noting()))
    harness.process(1)
    harness.end_epoch()
    harness.process(2)
    assert ("end",) not in CALLS
    harness.finish()
    assert CALLS[-2:] == [("close",), ("end",)]


def test_an_error_at_the_end_of_the_input_names_the_sink() -> None:
    harness = OperatorHarness(SinkFactory(Noting("end")))
    with pytest.raises(SinkError, match=r"failed while writing the last records.*28"):
        harness.finish()
