"""The workloads as Millstream programs, with the public API alone.

What it is: one job per workload, each in a process of its own.  Besides the four that peers run
as well there are ``idle`` (how long an epoch without data takes), ``state`` (large state),
``sessions``, and ``sliding_...`` (windows that overlap).
Rates come from the checkpoint directory: when each epoch's manifest was published and how many
records it had read.

Run by ``bench/run.py``.  Read next: ``bench/check.py``.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from bench.data import MAX_OUT_OF_ORDERNESS_MS, SESSION_GAP_MS, WINDOW_MS, Dataset
from bench.functions import is_even, triple, tripled_evens
from bench.measure import Batch, Outcome, add_measurement_arguments, steady_rate
from bench.spark_session import start_session, warm_up_dataset

from millstream.checkpoint.inspect import list_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.common import Configuration, Duration, Types, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.datastream.aggregates import Count, Sum
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import (
    ContinuousEventTimeTrigger,
    CountEvictor,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.datastream import DataStream

PARALLELISM = 2
#: As many events as a file holds, and as the peers get in a micro-batch.  Later epochs adapt.
FIRST_EPOCH = 250_000
_IDLE_EPOCHS = 12
_IDLE_TIMEOUT_SECONDS = 120.0
_LONG = Types.LONG()
#: Milliseconds between checkpoints.  The rate is taken from one to the next, so there must be some.
#: Epochs follow one another at once, as the micro-batches of Spark's rows: else a stream of some
#: seconds shows how fast their sizes grow to fill the interval.
INTERVALS = {"epochs": 1, "pipelined": 250}
#: Seconds of event time; 10,000 events each.
_EARLY_FIRING_SECONDS = 200
#: A window that begins with the first event and holds 6,000,000.
_BUFFERED_SECONDS = 600


class RunningCount(KeyedProcessFunction):
    """Numbers the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", _LONG))

    def process_element(
        self,
        value: Any,
        ctx: KeyedProcessFunction.Context,
    ) -> Iterator[tuple[int, int]]:
        """One output per record."""
        del ctx
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield value[0], count


class CountAndSum(AggregateFunction):
    """Count and sum of the values of a window."""

    def create_accumulator(self) -> tuple[int, int]:
        """Nothing counted yet."""
        return 0, 0

    def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
        """One more."""
        return accumulator[0] + 1, accumulator[1] + value[1]

    def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
        """Count and sum."""
        return accumulator

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        """Both in one."""
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class NameWindow(ProcessWindowFunction[Any, Any, int, Any]):
    """Adds key and start of the window."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[tuple[int, int, int, int]]:
        """One row per key and window."""
        for count, total in elements:
            yield key, context.window().start, count, total


def count(events: DataStream) -> DataStream:
    """Running count per key, one output per record."""
    output_type = Types.TUPLE([_LONG, _LONG])
    keyed = events.key_by(lambda event: event.key)
    return keyed.process(RunningCount(), output_type=output_type)


def windows(events: DataStream) -> DataStream:
    """10 s windows, count and sum by a user's AggregateFunction."""
    return (
        events.key_by(lambda event: event.key)
        .window(TumblingEventTimeWindows.of(Duration.of_millis(WINDOW_MS)))
        .aggregate(
            CountAndSum(),
            window_function=NameWindow(),
            output_type=Types.TUPLE([_LONG, _LONG, _LONG, _LONG]),
        )
    )


def windows_built_in(events: DataStream) -> DataStream:
    """10 s windows, count and sum built in."""
    return (
        events.key_by(lambda event: event.key)
        .window(TumblingEventTimeWindows.of(Duration.of_millis(WINDOW_MS)))
        .aggregate({"n": Count(), "total": Sum("value")})
    )


def sliding(events: DataStream, slide: int) -> DataStream:
    """10 s windows that begin every ``slide`` milliseconds, count and sum built in."""
    return (
        events.key_by(lambda event: event.key)
        .window(SlidingEventTimeWindows.of(WINDOW_MS, slide))
        .aggregate({"n": Count(), "total": Sum("value")})
    )


def sessions(events: DataStream) -> DataStream:
    """Sessions with a gap of 5 s, count and sum built in."""
    return (
        events.key_by(lambda event: event.key)
        .window(EventTimeSessionWindows.with_gap(SESSION_GAP_MS))
        .aggregate({"n": Count(), "total": Sum("value")})
    )


class Totals(ProcessWindowFunction[Any, Any, int, Any]):
    """Count and sum over all elements of a window, each time it fires."""

    def process(
        self, key: int, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[tuple[int, int, int]]:
        """One row per key and firing."""
        del context
        count = total = 0
        for element in elements:
            count += 1
            total += element.value
        yield key, count, total


def buffered(events: DataStream) -> DataStream:
    """Every element is kept: one window over all, fired early, with an evictor and a full function.

    The evictor keeps so many per window that none is lost; it is there for its cost.
    """
    return (
        events.key_by(lambda event: event.key)
        .window(TumblingEventTimeWindows.of(Duration.of_seconds(_BUFFERED_SECONDS)))
        .trigger(ContinuousEventTimeTrigger.of(Duration.of_seconds(_EARLY_FIRING_SECONDS)))
        .evictor(CountEvictor.of(1_000_000))
        .process(Totals(), output_type=Types.TUPLE([_LONG, _LONG, _LONG]))
    )


def map_filter(events: DataStream) -> DataStream:
    """``map`` and ``filter`` by lambdas."""
    return events.map(triple, output_type=Types.TUPLE([_LONG, _LONG, _LONG])).filter(is_even)


def map_columns(events: DataStream) -> DataStream:
    """``map_filter`` on columns."""
    return events.map_batches(tripled_evens)


_WORKLOADS: dict[str, Callable[[DataStream], DataStream]] = {
    "buffered": buffered,
    "count": count,
    "idle": count,
    "map_columns": map_columns,
    "map_filter": map_filter,
    "sessions": sessions,
    **{f"sliding_{slide}": partial(sliding, slide=slide) for slide in (10_000, 1_000, 100)},
    "state": count,
    "windows": windows,
    "windows_built_in": windows_built_in,
}


#: As in a session that Millstream starts itself.
OPTIONS = {"spark.python.daemon.module": "millstream.engines.spark.worker_daemon"}


def new_environment(
    scratch: Path, execution: str = "epochs", settings: Configuration | None = None
) -> StreamExecutionEnvironment:
    """Make an environment whose checkpoints and state are in ``scratch``."""
    configuration = settings or Configuration()
    if execution != "epochs":  # older releases do not know the option
        configuration.set_string("millstream.execution", execution)
    configuration.set_string("execution.checkpointing.dir", str(scratch / "checkpoint"))
    # Every manifest is kept: the rates are computed from them.
    configuration.set_integer("execution.checkpointing.num-retained", 10_000)
    configuration.set_string("millstream.local-directory", str(scratch / "state"))
    configuration.set_string("millstream.progress", "off")
    # A failure shall be seen, not hidden in a lower rate.
    configuration.set_string("restart-strategy.type", "none")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(PARALLELISM)
    environment.enable_checkpointing(INTERVALS[execution])
    return environment


def _records(manifest: Manifest) -> int:
    """Records read since the start of the job."""
    return int(manifest.totals.get("events.numRecordsIn", 0))


def manifests_of(scratch: Path) -> list[Manifest]:
    """All manifests of a job whose checkpoints are in ``scratch``, in order."""
    log = ManifestLog(LocalStorage(str(scratch / "checkpoint")))
    found = [entry.manifest for entry in log.entries() if entry.manifest is not None]
    return sorted(found, key=lambda manifest: manifest.epoch)


def batches_of(manifests: list[Manifest]) -> list[Batch]:
    """The epochs that read something."""
    batches: list[Batch] = []
    before = 0
    for manifest in manifests:
        records = _records(manifest)
        if records > before:
            batches.append(Batch(records - before, manifest.published / 1_000))
        before = records
    return batches


def _empty_epochs(manifests: list[Manifest]) -> list[float]:
    """Seconds from the start of each epoch without data until it was published."""
    pairs = itertools.pairwise(manifests)
    return [
        (after.published - after.started) / 1_000
        for before, after in pairs
        if _records(after) == _records(before)
    ]


def checkpoint_figures(manifests: list[Manifest], scratch: Path) -> dict[str, float]:
    """How long checkpoints take from their trigger until they are published, and their new state.

    Those of the beginning and the end are left out.
    """
    middle = manifests[1:-1]
    if not middle:
        return {}
    seconds = sorted((each.published - each.started) / 1_000 for each in middle)
    listed = list_checkpoints(LocalStorage(str(scratch / "checkpoint"))).checkpoints
    sizes = [each.new_state_size for each in listed[1:-1]]
    return {
        "checkpoint_p50_seconds": statistics.median(seconds),
        "checkpoint_longest_seconds": seconds[-1],
        "checkpoint_bytes": statistics.median(sizes),
    }


def _run_until_idle(environment: StreamExecutionEnvironment, scratch: Path) -> None:
    """Let the job read what there is, and then run on until it had some epochs without data."""
    client = environment.execute_async("idle")
    deadline = time.monotonic() + _IDLE_TIMEOUT_SECONDS
    while time.monotonic() < deadline and len(_empty_epochs(manifests_of(scratch))) < _IDLE_EPOCHS:
        time.sleep(1)
    client.cancel().result()


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(_WORKLOADS), required=True)
    add_measurement_arguments(parser)
    parser.add_argument("--execution", choices=sorted(INTERVALS), default="epochs")
    return parser.parse_args()


def _run(
    workload: str, dataset: Dataset, scratch: Path, arguments: argparse.Namespace, limit: int
) -> None:
    """Run a workload to its end; ``limit`` is how many rows the first epoch reads."""
    sink = arguments.sink
    schema = Types.ROW_NAMED(["key", "value", "ts"], [_LONG, _LONG, _LONG])
    idle = workload == "idle"
    interval = Duration.of_millis(100) if idle else None
    source = FileSource.parquet(str(dataset.ensure()), schema=schema, discovery_interval=interval)
    source.initial_limit = limit
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(MAX_OUT_OF_ORDERNESS_MS)
    ).with_timestamp_assigner(lambda event, _: event.ts)
    if idle:
        # Idleness needs the clock, so epochs go on without data.
        strategy = strategy.with_idleness(Duration.of_millis(500))
    environment = new_environment(scratch, arguments.execution)
    events = environment.from_source(source, strategy, "events").uid("events")
    output = FileSink.parquet(str(scratch / "output")) if sink == "parquet" else DiscardingSink()
    _WORKLOADS[workload](events).sink_to(output).uid("output")
    if idle:
        _run_until_idle(environment, scratch)
    else:
        environment.execute(workload)


def main() -> None:
    """Run one workload and save its outcome."""
    arguments = _arguments()
    scratch: Path = arguments.scratch
    workload: str = arguments.workload
    idle = workload == "idle"
    distinct = workload == "state"
    dataset = Dataset(arguments.events, arguments.keys, arguments.files, distinct=distinct)
    start_session("millstream", scratch, OPTIONS)
    if not idle and not distinct:
        warm_up = warm_up_dataset(dataset)
        limit = warm_up.events // warm_up.files
        _run(workload, warm_up, scratch / "warm-up", arguments, limit)
    # Enough epochs for a steady state; without data to follow, all in one.
    limit = arguments.events if idle else min(FIRST_EPOCH, arguments.events // 8)
    _run(workload, dataset, scratch, arguments, limit)
    output = "" if idle or arguments.sink != "parquet" else str(scratch / "output")
    manifests = manifests_of(scratch)
    batches = batches_of(manifests)
    outcome = Outcome(rows=sum(batch.rows for batch in batches), batches=batches)
    outcome.output = output
    if len(batches) > 1:
        outcome.rows_per_second = steady_rate(batches)
    empty = sorted(_empty_epochs(manifests))
    if empty:
        outcome.figures["seconds_per_empty_epoch"] = empty[len(empty) // 2]
    outcome.figures["empty_epochs"] = len(empty)
    outcome.figures |= checkpoint_figures(manifests, scratch)
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
