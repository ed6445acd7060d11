"""A job whose consumer is slow says so: the producer is backpressured, the consumer busy."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.support.in_pieces import InPieces

from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors import DiscardingSink
from millstream.runtime.pipelined import main_loop

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

NAMES = ("busyTimeMsPerSecond", "idleTimeMsPerSecond", "backPressuredTimeMsPerSecond")


#: So that a task is busy or waits for a while, and not for long.
CONSTANTS = {"_TIMES": 0.3, "_CREDIT": 200_000, "_FIRST_CREDIT": 200_000}


def test_a_slow_consumer_is_busy_and_its_producer_waits(
    make: Make, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of slots that are forked from this process, too.
    for name, value in CONSTANTS.items():
        monkeypatch.setattr(main_loop, name, value)

    def blown_up(n: int) -> str:
        time.sleep(0.0002)  # some dozens at a time are sent
        return f"{n}:{'x' * 5000}"

    def slowly(row: str) -> int:
        time.sleep(0.001)
        return len(row)

    env = make(2, {"execution.checkpointing.interval": "100"})
    source = InPieces(0, 10**9, splits=2, constants=CONSTANTS)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    rows = numbers.map(blown_up, Types.STRING()).uid("rows")
    slow = rows.rebalance().map(slowly, Types.LONG()).uid("slow")
    slow.sink_to(DiscardingSink()).uid("nowhere")
    client = env.execute_async("slow")

    def times(operator: str) -> list[list[float]]:
        """Of each subtask: busy, idle, backpressured."""
        found: dict[str, Any] = client.get_accumulators().result()
        gauges = [found.get(f"{operator}.{name}", {}) for name in NAMES]
        return [[gauge[subtask] for gauge in gauges] for subtask in gauges[0]]

    def is_seen() -> bool:
        producers, consumers = times("numbers"), times("slow")
        return (
            len(producers) == len(consumers) == 2
            and all(stuck > 500 for _, _, stuck in producers)
            and all(busy > 500 and stuck == 0 for busy, _, stuck in consumers)
        )

    eventually(is_seen, "the consumer to be busy, and its producer to wait for it")
    for each in times("numbers") + times("slow"):
        assert abs(sum(each) - 1000) < 0.5
    assert times("nowhere") == times("slow"), "they are one task"
    client.cancel().result()
    assert times("slow") == []
