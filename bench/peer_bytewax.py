"""Peer: Bytewax 0.21.1 with as many worker processes as were fastest for each workload.

On two cores that is one for the stateful workloads: what goes from process to process is pickled
item by item, and that costs more than the second core brings.  ``map_filter`` has no exchange and
takes two.

What it is: one dataflow per workload.  The stateful ones have a recovery store and take a
snapshot every 10 s, which is Bytewax's default and much less often than Millstream takes a
checkpoint: with one each second the count over 50,000 keys was a third slower.  Bytewax wants
keys as strings and times as aware datetimes, which the source makes in bulk, outside the
functions.

The event clock is frozen: by default its watermark moves with wall time, and a machine under
load then drops windows as late.

Run by ``bench/run.py``; starts itself once per worker process.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import bytewax.operators as op
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from bench.data import MAX_OUT_OF_ORDERNESS_MS, WINDOW_MS, Dataset
from bench.functions import is_even, triple
from bench.measure import Batch, Outcome, add_measurement_arguments
from bytewax.dataflow import Dataflow
from bytewax.inputs import FixedPartitionedSource, StatefulSourcePartition
from bytewax.operators import windowing
from bytewax.outputs import DynamicSink, StatelessSinkPartition
from bytewax.recovery import RecoveryConfig, init_db_dir
from bytewax.testing import cluster_main

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

_BATCH = 16_384
_FROZEN = datetime(2026, 1, 1, tzinfo=UTC)


def _integers(column: pa.Array) -> list[int]:
    return column.to_numpy().tolist()  # type: ignore[no-any-return]


def _plain(batch: pa.RecordBatch) -> list[Any]:
    return list(zip(*(_integers(column) for column in batch.columns), strict=True))


def _keyed_values(batch: pa.RecordBatch) -> list[Any]:
    keys = pc.cast(batch["key"], pa.string()).to_pylist()
    return list(zip(keys, _integers(batch["value"]), strict=True))


def _keyed_times(batch: pa.RecordBatch) -> list[Any]:
    keys = pc.cast(batch["key"], pa.string()).to_pylist()
    seconds = (batch["ts"].to_numpy() / 1_000).tolist()
    times = [datetime.fromtimestamp(second, UTC) for second in seconds]
    values = zip(_integers(batch["value"]), times, strict=True)
    return list(zip(keys, values, strict=True))


class _FilesPartition(StatefulSourcePartition[Any, int]):
    def __init__(self, paths: list[Path], convert: Callable[[Any], Any], state: int | None) -> None:
        self._position = state or 0
        self._convert = convert
        self._batches = self._read(paths, self._position)

    @staticmethod
    def _read(paths: list[Path], skip: int) -> Iterator[pa.RecordBatch]:
        number = 0
        for path in paths:
            for batch in pq.ParquetFile(path).iter_batches(_BATCH):
                if number >= skip:
                    yield batch
                number += 1

    def next_batch(self) -> list[Any]:
        if not _Clock.started:
            _Clock.started = time.time()
        self._position += 1
        # StopIteration is how Bytewax wants to hear of the end, too.
        return self._convert(next(self._batches))  # type: ignore[no-any-return]

    def snapshot(self) -> int:
        return self._position


class _Clock:
    """When this process read its first record; starting processes is left out of the figures."""

    started = 0.0


class _FilesSource(FixedPartitionedSource[Any, int]):
    def __init__(self, partitions: dict[str, list[Path]], convert: Callable[[Any], Any]) -> None:
        self._partitions = partitions
        self._convert = convert

    def list_parts(self) -> list[str]:
        return sorted(self._partitions)

    def build_part(self, step_id: str, for_part: str, resume_state: int | None) -> _FilesPartition:
        del step_id
        return _FilesPartition(self._partitions[for_part], self._convert, resume_state)


class _ParquetPartition(StatelessSinkPartition[Any]):
    """Buffers items and writes them as row groups."""

    _ROW_GROUP = 50_000

    def __init__(self, path: Path, names: list[str], convert: Callable[[Any], Any]) -> None:
        schema = pa.schema([(name, pa.int64()) for name in names])
        self._schema = schema
        self._writer = pq.ParquetWriter(path, schema)
        self._convert = convert
        self._items: list[Any] = []

    def write_batch(self, items: list[Any]) -> None:
        self._items.extend(items)
        if len(self._items) >= self._ROW_GROUP:
            self._flush()

    def _flush(self) -> None:
        if self._items:
            columns = self._convert(self._items)
            arrays = [pa.array(column).cast(pa.int64()) for column in columns]
            self._writer.write_batch(pa.record_batch(arrays, schema=self._schema))
            self._items = []

    def close(self) -> None:
        self._flush()
        self._writer.close()


class _DiscardPartition(StatelessSinkPartition[Any]):
    def write_batch(self, items: list[Any]) -> None:
        """Drop them."""


class _ParquetSink(DynamicSink[Any]):
    def __init__(
        self, directory: Path | None, names: list[str], convert: Callable[[Any], Any]
    ) -> None:
        self._directory = directory
        self._names = names
        self._convert = convert

    def build(
        self, step_id: str, worker_index: int, worker_count: int
    ) -> StatelessSinkPartition[Any]:
        del step_id, worker_count
        if self._directory is None:
            return _DiscardPartition()
        path = self._directory / f"part-{worker_index}.parquet"
        return _ParquetPartition(path, self._names, self._convert)


def _columns(items: list[Any]) -> Iterator[tuple[Any, ...]]:
    return zip(*items, strict=True)


def _window_columns(items: list[Any]) -> list[list[Any]]:
    """From (key, (window id, (n, total))) to columns; windows are counted from 1970."""
    return [
        [item[0] for item in items],
        [item[1][0] * WINDOW_MS for item in items],
        [item[1][1][0] for item in items],
        [item[1][1][1] for item in items],
    ]


def _count_record(state: int | None, _value: int) -> tuple[int, int]:
    count = (state or 0) + 1
    return count, count


def _per_file(dataset: Dataset) -> dict[str, list[Path]]:
    return {path.stem: [path] for path in dataset.paths}


def count_flow(dataset: Dataset, output: Path | None) -> Dataflow:
    """Running count per key, one output per record."""
    flow = Dataflow("count")
    events = op.input("events", flow, _FilesSource(_per_file(dataset), _keyed_values))
    counts = op.stateful_map("count", events, _count_record)
    op.output("output", counts, _ParquetSink(output, ["key", "count"], _columns))
    return flow


def windows_flow(dataset: Dataset, output: Path | None) -> Dataflow:
    """10 s tumbling windows with count and sum."""
    flow = Dataflow("windows")
    # One partition: two would drift apart in event time, and records be dropped as late.
    source = _FilesSource({"all": dataset.paths}, _keyed_times)
    events = op.input("events", flow, source)
    clock = windowing.EventClock[Any](
        ts_getter=lambda value: value[1],
        wait_for_system_duration=timedelta(milliseconds=MAX_OUT_OF_ORDERNESS_MS),
        now_getter=lambda: _FROZEN,
        to_system_utc=lambda _: None,
    )
    windower = windowing.TumblingWindower(
        length=timedelta(milliseconds=WINDOW_MS), align_to=datetime(1970, 1, 1, tzinfo=UTC)
    )
    windows = windowing.fold_window(
        "windows",
        events,
        clock,
        windower,
        builder=lambda: (0, 0),
        folder=lambda folded, value: (folded[0] + 1, folded[1] + value[0]),
        merger=lambda one, other: (one[0] + other[0], one[1] + other[1]),
        ordered=False,
    )
    names = ["key", "start", "n", "total"]
    op.output("output", windows.down, _ParquetSink(output, names, _window_columns))
    return flow


def map_filter_flow(dataset: Dataset, output: Path | None) -> Dataflow:
    """``map`` and ``filter`` by the lambdas of the workload."""
    flow = Dataflow("map_filter")
    events = op.input("events", flow, _FilesSource(_per_file(dataset), _plain))
    mapped = op.map("map", events, triple)
    kept = op.filter("filter", mapped, is_even)
    op.output("output", kept, _ParquetSink(output, ["key", "value", "ts"], _columns))
    return flow


_FLOWS = {"count": count_flow, "windows": windows_flow, "map_filter": map_filter_flow}


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=sorted(_FLOWS), required=True)
    add_measurement_arguments(parser)
    parser.add_argument("--snapshot-interval", type=float, default=10.0, help="seconds")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--process", type=int, default=-1, help="set for worker processes only")
    parser.add_argument("--addresses", default="")
    return parser.parse_args()


def _run_worker(arguments: argparse.Namespace) -> None:
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    output = arguments.scratch / "output" if arguments.sink == "parquet" else None
    flow = _FLOWS[arguments.workload](dataset, output)
    stateful = arguments.workload != "map_filter"
    recovery = None
    if stateful:
        directory = str(arguments.scratch / "recovery")
        recovery = RecoveryConfig(directory)  # type: ignore[no-untyped-call]
    cluster_main(  # type: ignore[no-untyped-call]
        flow,
        [address for address in arguments.addresses.split(";") if address],
        arguments.process,
        epoch_interval=timedelta(seconds=arguments.snapshot_interval),
        recovery_config=recovery,
        worker_count_per_proc=arguments.threads,
    )
    clock = {"started": _Clock.started or time.time(), "finished": time.time()}
    path: Path = arguments.scratch / f"clock-{arguments.process}.json"
    path.write_text(json.dumps(clock))


def _free_address() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def _run_cluster(arguments: argparse.Namespace) -> None:
    scratch: Path = arguments.scratch
    dataset = Dataset(arguments.events, arguments.keys, arguments.files)
    dataset.ensure()
    (scratch / "output").mkdir(parents=True)
    (scratch / "recovery").mkdir()
    partitions = arguments.processes * arguments.threads
    init_db_dir(str(scratch / "recovery"), partitions)  # type: ignore[no-untyped-call]
    addresses: list[str] = []
    if arguments.processes > 1:
        addresses = [_free_address() for _ in range(arguments.processes)]
    command = [sys.executable, "-m", "bench.peer_bytewax", *sys.argv[1:]]
    workers = [
        subprocess.Popen(
            [*command, "--process", str(number), "--addresses", ";".join(addresses)],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        for number in range(arguments.processes)
    ]
    codes = [worker.wait() for worker in workers]
    if any(codes):
        message = f"worker processes ended with {codes}"
        raise RuntimeError(message)
    clocks = [json.loads(path.read_text()) for path in scratch.glob("clock-*.json")]
    started = min(clock["started"] for clock in clocks)
    finished = max(clock["finished"] for clock in clocks)
    batches = [Batch(dataset.events, finished)]
    rate = dataset.events / (finished - started)
    output = str(scratch / "output") if arguments.sink == "parquet" else ""
    Outcome(rate, dataset.events, batches, output).save(arguments.report)


if __name__ == "__main__":
    parsed = _arguments()
    if parsed.process >= 0:
        _run_worker(parsed)
    else:
        _run_cluster(parsed)
