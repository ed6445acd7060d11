"""Time to live by event time, in process functions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Types
from millstream.common.time import Time
from millstream.datastream import KeyedProcessFunction
from millstream.datastream.state import StateTtlConfig, ValueStateDescriptor
from millstream.testing import StreamHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.datastream import DataStream, RuntimeContext


class Count(KeyedProcessFunction):
    """Counts the records of a key; a timer reports the count 50 ms after each."""

    def open(self, runtime_context: RuntimeContext) -> None:
        config = StateTtlConfig.new_builder(Time.milliseconds(100)).use_event_time().build()
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.enable_time_to_live(config)
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Iterator[Any]:
        self.count.update((self.count.value() or 0) + 1)
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + 50)
        yield value, self.count.value()

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Any]:
        yield "timer", timestamp, self.count.value()


def counted(values: DataStream) -> DataStream:
    return values.key_by(lambda value: value).process(Count())


@pytest.mark.parametrize("crashes", [False, True])
def test_state_expires_when_the_watermark_has_passed_it(crashes: bool) -> None:
    with StreamHarness(counted) as harness:
        for timestamp in (1_000, 1_010):
            harness.process("a", timestamp)
        harness.end_epoch()
        harness.watermark(1_049)
        if crashes:
            harness.end_epoch()
            harness.crash()
        harness.process("a", 1_020)
        # The watermark jumps: each timer sees the state as of its time.
        harness.watermark(5_000)
        harness.process("a", 4_990)  # late: it lives as long as what is written at the watermark
        harness.watermark(5_030)
        harness.process("a", 5_040)
        harness.watermark(5_140)
        harness.process("a", 5_141)
        assert harness.outputs == [
            ("a", 1),
            ("a", 2),
            ("a", 3),
            ("timer", 1_050, 3),
            ("timer", 1_060, 3),
            ("timer", 1_070, 3),
            ("a", 1),
            ("a", 2),
            ("timer", 5_040, 2),
            ("timer", 5_090, 2),
            ("a", 1),
        ]
