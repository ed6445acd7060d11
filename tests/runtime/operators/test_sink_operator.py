"""The sink operator: one writer per epoch, pre-commit, abort."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.contracts.sink import Committable, Sink, SinkWriter, WriterContext
from millstream.errors import SinkError
from millstream.runtime.operators import SinkFactory
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


@pytest.mark.parametrize("fails", ["write", "prepare"])
def test_failure_aborts_and_names_the_sink(fails: str) -> None:
    CALLS.clear()
    harness = OperatorHarness(SinkFactory(Noting(fails)), name="out")

    def epoch() -> None:
        harness.process(1)
        harness.end_epoch()

    with pytest.raises(SinkError, match=r"'out'.*epoch 0.*28"):
        epoch()
    assert CALLS[1:] == [("abort",), ("close",)]


def test_closing_in_mid_epoch_aborts() -> None:
    CALLS.clear()
    harness = OperatorHarness(SinkFactory(Noting()))
    harness.process(1)
    harness.close()
    assert CALLS[1:] == [("abort",), ("close",)]
