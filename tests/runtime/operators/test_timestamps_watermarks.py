"""Timestamps and watermarks in mid-stream."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.errors import UserFunctionError
from millstream.functions.watermark_strategy import WatermarkGenerator, WatermarkStrategy
from millstream.runtime.operators import TimestampsWatermarksFactory
from millstream.testing.harness import OperatorHarness
from millstream.types.types import Types

RECORD = Types.TUPLE([Types.STRING(), Types.LONG()])
STRATEGY = WatermarkStrategy.for_bounded_out_of_orderness(10).with_timestamp_assigner(
    lambda record, _: record[1]
)


@pytest.mark.parametrize("columnar", [False, True])
def test_bounded_out_of_orderness(columnar: bool) -> None:
    harness = OperatorHarness(TimestampsWatermarksFactory(STRATEGY), input_type=RECORD)
    harness.process_all([("a", 100), ("b", 50)], columnar=columnar)
    harness.end_epoch()
    harness.process_all([("c", 80)], columnar=columnar)
    harness.process_all([("d", 200)], columnar=columnar)
    assert [(tuple(v), t) for v, t in harness.records] == [  # type: ignore[arg-type]
        (("a", 100), 100), (("b", 50), 50), (("c", 80), 80), (("d", 200), 200)
    ]  # fmt: skip
    assert harness.watermarks == [89, 189]


class Punctuated(WatermarkGenerator):
    """A watermark behind every record that says so; remembers how many."""

    def __init__(self) -> None:
        self.count = 0

    def on_event(self, event: Any, event_timestamp: int, output: Any) -> None:
        if event[0] == "mark":
            self.count += 1
            output.emit_watermark(event_timestamp * 10 + self.count)

    def on_periodic_emit(self, output: Any) -> None:
        pass


def test_punctuated_generator_cuts_the_batch_and_keeps_its_state() -> None:
    strategy = WatermarkStrategy.for_generator(Punctuated).with_timestamp_assigner(
        lambda record, _: record[1]
    )
    harness = OperatorHarness(TimestampsWatermarksFactory(strategy))
    harness.process_all([("a", 1), ("mark", 2), ("b", 3)])
    harness.end_epoch()
    harness.process_all([("mark", 1), ("mark", 3)])
    assert harness.events == [
        ("record", ("a", 1), 1), ("record", ("mark", 2), 2), ("watermark", 21),
        ("record", ("b", 3), 3), ("record", ("mark", 1), 1), ("record", ("mark", 3), 3),
        ("watermark", 33),
    ]  # fmt: skip


def test_upstream_watermarks_end_here_except_the_last() -> None:
    harness = OperatorHarness(TimestampsWatermarksFactory(STRATEGY))
    harness.watermark(5)
    harness.finish()
    assert harness.watermarks == [MAX_TIMESTAMP]


def test_idleness() -> None:
    harness = OperatorHarness(TimestampsWatermarksFactory(STRATEGY.with_idleness(1000)))
    harness.process(("a", 1))
    harness.processing_time(999)
    harness.processing_time(1000)
    harness.processing_time(3000)
    harness.process(("a", 2))
    idle = [event for event in harness.events if event[0] == "idle"]
    assert idle == [("idle", True), ("idle", False)]


def test_error_names_the_record() -> None:
    harness = OperatorHarness(TimestampsWatermarksFactory(STRATEGY))
    with pytest.raises(UserFunctionError, match=r"timestamp of record \('b',\)"):
        harness.process_all([("a", 1), ("b",)])
