"""The second job of the kill tests: sessions that fire early, a user's trigger, sorted by timers.

Run as ``python session_job.py INPUT OUTPUT CHECKPOINTS BYTES_PER_EPOCH mini``.  As in
``recovery_job.py`` every key lives in one input file, and nothing is late.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from millstream.common import Configuration, Duration, Row, Types, WatermarkStrategy
from millstream.datastream import (
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.datastream.state import (
    ListStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    EventTimeSessionWindows,
    TimeWindow,
    Trigger,
    TriggerResult,
)
from millstream.testing.mini_cluster import MiniCluster

# A program finds what lies next to it; this one is also a module of the tests.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.recovery.recovery_job import (
    EVENT,
    OUT_OF_ORDERNESS,
    CountAndSum,
    SlowFileSource,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from millstream.datastream.state import ReducingState

RESULT = Types.ROW_NAMED(
    ["kind", "key", "number", "start", "end", "n", "total"],
    [Types.STRING(), Types.STRING(), *[Types.LONG()] * 5],
)
GAP = 150
INTERVAL = 100
EARLY_COUNT = 3
KEPT = 5


class Numbered(ProcessWindowFunction[tuple[int, int], Row, str, TimeWindow]):
    """The aggregate, with the number of results of the key so far."""

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[tuple[int, int]],
    ) -> Iterator[Row]:
        state = context.global_state().get_state(ValueStateDescriptor("number", Types.LONG()))
        number = (state.value() or 0) + 1
        state.update(number)
        window = context.window()
        for count, total in elements:
            yield Row(
                kind="continuous", key=key, number=number,
                start=window.start, end=window.end, n=count, total=total,
            )  # fmt: skip


def _add(one: int, other: int) -> int:
    return one + other


class EarlyAndAtTheEnd(Trigger[Row, TimeWindow]):
    """With every third record and at the end of the session."""

    def __init__(self) -> None:
        self.seen = ReducingStateDescriptor("seen", _add, Types.LONG())

    def on_element(
        self, element: Row, timestamp: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        ctx.register_event_time_timer(window.max_timestamp())
        seen = cast("ReducingState[int]", ctx.get_partitioned_state(self.seen))
        seen.add(1)
        if (seen.get() or 0) < EARLY_COUNT:
            return TriggerResult.CONTINUE
        seen.clear()
        return TriggerResult.FIRE

    def on_event_time(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE if time == window.max_timestamp() else TriggerResult.CONTINUE

    def on_processing_time(
        self, time: int, window: TimeWindow, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.CONTINUE

    def can_merge(self) -> bool:
        return True

    def on_merge(self, window: TimeWindow, ctx: Trigger.OnMergeContext) -> None:
        ctx.merge_partitioned_state(self.seen)
        ctx.register_event_time_timer(window.max_timestamp())

    def clear(self, window: TimeWindow, ctx: Trigger.TriggerContext) -> None:
        ctx.get_partitioned_state(self.seen).clear()
        ctx.delete_event_time_timer(window.max_timestamp())


class LastOnes(ProcessWindowFunction[Row, Row, str, TimeWindow]):
    """What the evictor left; numbered with the id of the last record."""

    def process(
        self,
        key: str,
        context: ProcessWindowFunction.Context[TimeWindow],
        elements: Iterable[Row],
    ) -> Iterator[Row]:
        rows, window = list(elements), context.window()
        yield Row(
            kind="counted", key=key, number=rows[-1].id, start=window.start, end=window.end,
            n=len(rows), total=sum(row.value for row in rows),
        )  # fmt: skip


class InOrderOfTime(KeyedProcessFunction):
    """Puts the records of a key in order with one timer each; the alarm never rings."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.waiting = runtime_context.get_list_state(
            ListStateDescriptor("waiting", Types.PICKLED_BYTE_ARRAY())
        )
        self.passed = runtime_context.get_state(ValueStateDescriptor("passed", Types.LONG()))

    def process_element(self, value: Row, ctx: KeyedProcessFunction.Context) -> None:
        self.waiting.add((value.ts, value.id, value.value))
        ctx.timer_service().register_event_time_timer(value.ts)
        ctx.timer_service().register_event_time_timer(value.ts * 10 + 3)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Row]:
        waiting: list[Any] = list(self.waiting.get())
        due = [each for each in waiting if each[0] == timestamp]
        if not due:
            yield Row(
                kind="alarm", key=ctx.get_current_key(), number=timestamp,
                start=0, end=0, n=0, total=0,
            )  # fmt: skip
        self.waiting.update([each for each in waiting if each[0] != timestamp])
        ctx.timer_service().delete_event_time_timer(timestamp * 10 + 3)
        for stamp, identity, amount in due:
            passed = (self.passed.value() or 0) + 1
            self.passed.update(passed)
            yield Row(
                kind="sorted", key=ctx.get_current_key(), number=identity,
                start=stamp, end=0, n=passed, total=amount,
            )  # fmt: skip


def main(arguments: list[str]) -> None:
    source_path, output, checkpoints, bytes_per_epoch = arguments[:4]
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", checkpoints)
    configuration.set_string("parallelism.default", "2")
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    source = FileSource.json_lines(source_path, schema=EVENT)
    source.__class__ = SlowFileSource
    setattr(source, "bytes_per_epoch", int(bytes_per_epoch))  # noqa: B010 - of the subclass
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(OUT_OF_ORDERNESS)
    ).with_timestamp_assigner(lambda row, _: row.ts)
    events = env.from_source(source, strategy, "events").uid("events")
    keyed = events.key_by(lambda row: row.key)
    sessions = EventTimeSessionWindows.with_gap(Duration.of_millis(GAP))
    continuous = (
        keyed.window(sessions)
        .trigger(ContinuousEventTimeTrigger.of(Duration.of_millis(INTERVAL)))
        .aggregate(CountAndSum(), Numbered(), output_type=RESULT)
        .uid("continuous")
    )
    counted = (
        keyed.window(sessions)
        .trigger(EarlyAndAtTheEnd())
        .evictor(CountEvictor.of(KEPT))
        .process(LastOnes(), RESULT)
        .uid("counted")
    )
    in_order = keyed.process(InOrderOfTime(), RESULT).uid("sorted")
    continuous.union(counted, in_order).sink_to(
        FileSink.json_lines(str(Path(output) / "sessions"))
    ).uid("sink")
    graph = env.get_job_graph("sessions")
    MiniCluster(graph, Path(checkpoints), state_backend="rocksdb").run()


if __name__ == "__main__":
    main(sys.argv[1:])
