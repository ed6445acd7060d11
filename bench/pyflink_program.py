"""One DataStream program and one pandas UDF for PyFlink and Millstream: only the imports differ.

Run by ``bench/peer_pyflink.py``, once in each environment.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["PANDAS", "WORKLOADS", "run"]

PARALLELISM: Final = 2
#: As in ``bench/data.py``, which needs packages that Flink's environment may lack.
_OUT_OF_ORDERNESS_MS: Final = 500
_WINDOW_MS: Final = 10_000
PANDAS: Final = "pandas_udf"


class Library:
    """The modules of ``pyflink`` or ``millstream``.

    Args:
        name: one of both.
    """

    def __init__(self, name: str) -> None:
        self.is_flink = name == "pyflink"
        self.common: Any = importlib.import_module(f"{name}.common")
        self.watermarks: Any = importlib.import_module(f"{name}.common.watermark_strategy")
        self.datastream: Any = importlib.import_module(f"{name}.datastream")
        self.files: Any = importlib.import_module(f"{name}.datastream.connectors.file_system")
        self.state: Any = importlib.import_module(f"{name}.datastream.state")
        self.window: Any = importlib.import_module(f"{name}.datastream.window")
        self.time: Any = importlib.import_module(f"{name}.common.time")
        self.table: Any = importlib.import_module(f"{name}.table")
        self.udf: Any = importlib.import_module(f"{name}.table.udf").udf


def _parse(library: Library, first: str) -> Any:
    class Parse(library.datastream.MapFunction):  # type: ignore[name-defined, misc]
        """Lines to tuples; notes when the first record was read."""

        def open(self, runtime_context: Any) -> None:
            del runtime_context
            self._first: Path | None = Path(first) / uuid.uuid4().hex

        def map(self, value: str) -> tuple[int, int, int]:
            if self._first is not None:
                self._first.write_text(str(time.time()))
                self._first = None
            key, number, millis = value.split(",")
            return int(key), int(number), int(millis)

    return Parse()


def _map_filter(library: Library, events: Any) -> Any:
    longs = library.common.Types.TUPLE([library.common.Types.LONG()] * 3)
    tripled = events.map(lambda event: (event[0], event[1] * 3, event[2]), output_type=longs)
    return tripled.filter(lambda event: event[1] % 2 == 0)


def _count(library: Library, events: Any) -> Any:
    descriptor, types = library.state.ValueStateDescriptor, library.common.Types

    class Count(library.datastream.KeyedProcessFunction):  # type: ignore[name-defined, misc]
        """Numbers the records of each key."""

        def open(self, runtime_context: Any) -> None:
            self._count = runtime_context.get_state(descriptor("count", types.LONG()))

        def process_element(self, value: Any, ctx: Any) -> Iterator[tuple[int, int]]:
            del ctx
            count = (self._count.value() or 0) + 1
            self._count.update(count)
            yield value[0], count

    keyed = events.key_by(lambda event: event[0], key_type=types.LONG())
    return keyed.process(Count(), output_type=types.TUPLE([types.LONG(), types.LONG()]))


def _windows(library: Library, events: Any) -> Any:
    types = library.common.Types

    class Totals(library.datastream.AggregateFunction):  # type: ignore[name-defined, misc]
        """Count and sum."""

        def create_accumulator(self) -> tuple[int, int]:
            return 0, 0

        def add(self, value: Any, accumulator: tuple[int, int]) -> tuple[int, int]:
            return accumulator[0] + 1, accumulator[1] + value[1]

        def get_result(self, accumulator: tuple[int, int]) -> tuple[int, int]:
            return accumulator

        def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
            return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]

    class Named(library.datastream.ProcessWindowFunction):  # type: ignore[name-defined, misc]
        """Adds key and start."""

        def process(
            self, key: int, context: Any, elements: Iterable[tuple[int, int]]
        ) -> Iterator[tuple[int, int, int, int]]:
            for count, total in elements:
                yield key, context.window().start, count, total

    class Time(library.watermarks.TimestampAssigner):  # type: ignore[name-defined, misc]
        """The third field."""

        def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
            del record_timestamp
            return int(value[2])

    delay = library.common.Duration.of_millis(_OUT_OF_ORDERNESS_MS)
    strategy = library.watermarks.WatermarkStrategy.for_bounded_out_of_orderness(delay)
    size = library.time.Time.milliseconds(_WINDOW_MS)
    return (
        events.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(Time()))
        .key_by(lambda event: event[0], key_type=types.LONG())
        .window(library.window.TumblingEventTimeWindows.of(size))
        .aggregate(
            Totals(),
            window_function=Named(),
            # A type that PyFlink has given to Java can no longer be pickled: each is a new one.
            accumulator_type=types.TUPLE([types.LONG(), types.LONG()]),
            output_type=types.TUPLE([types.LONG() for _ in range(4)]),
        )
    )


#: Name -> from events to results.
WORKLOADS: Final[dict[str, Callable[[Library, Any], Any]]] = {
    "map_filter": _map_filter,
    "count": _count,
    "windows": _windows,
}


def _streams(library: Library, environment: Any, given: argparse.Namespace) -> None:
    types = library.common.Types
    strategy = library.watermarks.WatermarkStrategy.no_watermarks()
    source = library.files.FileSource.for_record_stream_format(
        library.files.StreamFormat.text_line_format(), given.files
    ).build()
    events = environment.from_source(source, strategy, "events").map(
        _parse(library, given.first), output_type=types.TUPLE([types.LONG()] * 3)
    )
    found = WORKLOADS[given.workload](library, events)
    lines = found.map(lambda row: ",".join(map(str, row)), output_type=types.STRING())
    encoder = importlib.import_module(f"{given.library}.common").Encoder.simple_string_encoder()
    sink = library.files.FileSink.for_row_format(given.output, encoder).build()
    lines.sink_to(sink)
    environment.execute(given.workload)


def _table(library: Library, environment: Any, given: argparse.Namespace) -> None:
    tables = library.table.StreamTableEnvironment.create(environment)
    first = Path(given.first)

    @library.udf(result_type="BIGINT", func_type="pandas")  # type: ignore[untyped-decorator]
    def triple(values: Any) -> Any:
        if not any(first.iterdir()):
            (first / "0").write_text(str(time.time()))
        return values * 3

    tables.create_temporary_function("triple", triple)
    columns = "`key` BIGINT, `value` BIGINT, ts BIGINT"
    for name, path in (("events", given.files), ("answer", given.output)):
        tables.execute_sql(
            f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', "
            f"'format' = 'csv', 'path' = '{path}')"
        )
    query = "SELECT `key`, triple(`value`), ts FROM events WHERE MOD(`value`, 2) = 0"
    tables.execute_sql(f"INSERT INTO answer {query}").wait()


def run(library: Library, environment: Any, given: argparse.Namespace) -> float:
    """Run a workload; returns the seconds from the first record to the end of the job.

    Args:
        library: whose program it is.
        environment: the StreamExecutionEnvironment.
        given: library, workload, files, output, and a directory ``first`` that is empty.
    """
    (_table if given.workload == PANDAS else _streams)(library, environment, given)
    ended = time.time()
    return ended - min(float(path.read_text()) for path in Path(given.first).iterdir())


def _main() -> None:
    """Run a workload on Flink's mini cluster, and write how many seconds it took."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--workload", choices=[*WORKLOADS, PANDAS], required=True)
    parser.add_argument("--mode", choices=["process", "thread"], required=True)
    for name in ("files", "output", "first", "checkpoints", "report"):
        parser.add_argument(f"--{name}", required=True)
    given = parser.parse_args()
    given.library = "pyflink"
    library = Library(given.library)
    configuration = library.common.Configuration()
    for key, value in {
        "python.execution-mode": given.mode,
        "python.executable": sys.executable,
        "python.client.executable": sys.executable,
        "taskmanager.numberOfTaskSlots": str(PARALLELISM),
        "taskmanager.memory.managed.size": "1g",
        "execution.checkpointing.interval": "1 s",
        "execution.checkpointing.dir": f"file://{given.checkpoints}",
        "state.backend.type": "rocksdb",
        "restart-strategy.type": "none",
    }.items():
        configuration.set_string(key, value)
    environment = library.datastream.StreamExecutionEnvironment.get_execution_environment(
        configuration
    )
    environment.set_parallelism(PARALLELISM)
    Path(given.report).write_text(str(run(library, environment, given)))


if __name__ == "__main__":
    _main()
