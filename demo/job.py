"""The demo's job: hourly statistics per airport, and aircraft that miss their next flight.

What it is: an ordinary Millstream program; nothing here that a user could not write.  It can be
run by itself::

    millstream run --checkpoint-dir DIR demo/job.py INPUT OUTPUT

Two questions are asked of the stream of flights:

1. How late did flights leave, per airport and hour of the schedule?  Windows of one hour; the
   watermark waits two hours, and a flight that leaves later than that goes to a side output.
2. Which aircraft missed their next flight?  An aircraft that leaves New York has to fly out, turn
   round and fly back before it can leave again.  If the earliest time it can be back lies behind
   the scheduled departure of its next flight, it misses that one (which then leaves late, or with
   another aircraft, or not at all).
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow.parquet as pq

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import (
    AggregateFunction,
    KeyedProcessFunction,
    OutputTag,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.datastream.formats.parquet import ParquetColumnarRowInputFormat
from millstream.datastream.state import MapStateDescriptor, ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

__all__ = [
    "HOURLY_TYPE",
    "HOUR_MS",
    "MINUTE_MS",
    "MISSED_TYPE",
    "OUT_OF_ORDERNESS_MS",
    "PATIENCE_MS",
    "TURNAROUND_MS",
    "DescribeHour",
    "HourlyDelays",
    "MissedFlights",
    "OutputDirectories",
    "build",
    "committed_files",
]

MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS
#: How far the watermark stays behind the latest scheduled departure seen.
OUT_OF_ORDERNESS_MS: Final = 2 * HOUR_MS
#: After so long every flight has left or was cancelled: the year's longest delay is 21 h 41 min.
PATIENCE_MS: Final = 24 * HOUR_MS
#: From arrival at the gate to leaving it again.
TURNAROUND_MS: Final = 30 * MINUTE_MS
#: Flights between two watermarks: about three hours' worth.
_BATCH: Final = 128
FLIGHT_TYPE: Final = Types.ROW_NAMED(
    [
        "id",
        "carrier",
        "flight",
        "tailnum",
        "origin",
        "dest",
        "scheduled",
        "departed",
        "arrived",
        "delay",
    ],
    [
        Types.LONG(),
        Types.STRING(),
        Types.LONG(),
        Types.STRING(),
        Types.STRING(),
        Types.STRING(),
        Types.LONG(),
        Types.LONG(),
        Types.LONG(),
        Types.LONG(),
    ],
)
HOURLY_TYPE: Final = Types.ROW_NAMED(
    [
        "origin",
        "hour_start",
        "flights",
        "cancelled",
        "mean_delay",
        "max_delay",
        "sum_of_ids",
        "wind_speed",
        "visibility",
    ],
    [
        Types.STRING(),
        Types.LONG(),
        Types.LONG(),
        Types.LONG(),
        Types.DOUBLE(),
        Types.LONG(),
        Types.LONG(),
        Types.DOUBLE(),
        Types.DOUBLE(),
    ],
)
MISSED_TYPE: Final = Types.ROW_NAMED(
    [
        "tailnum",
        "model",
        "flown_id",
        "flown_to",
        "back_by",
        "missed_id",
        "missed_scheduled",
        "short_by_minutes",
        "missed_cancelled",
        "missed_delay",
    ],
    [
        Types.STRING(),
        Types.STRING(),
        Types.LONG(),
        Types.STRING(),
        Types.LONG(),
        Types.LONG(),
        Types.LONG(),
        Types.LONG(),
        Types.BOOLEAN(),
        Types.LONG(),
    ],
)
LATE_FOR_WINDOW: Final = OutputTag("late-for-window", FLIGHT_TYPE)
LATE_FOR_AIRCRAFT: Final = OutputTag("late-for-aircraft", FLIGHT_TYPE)


class OutputDirectories:
    """Where the job writes, below one directory.  All are sinks of the exactly-once kind."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: Every flight as it was read: the job's own account of its input.
        self.flights = directory / "flights"
        self.hourly = directory / "hourly"
        #: Flights that came too late for their window.
        self.late = directory / "late"
        self.missed = directory / "missed"
        #: Flights that came too late for ``MissedFlights``; there should be none.
        self.too_late = directory / "too-late"


def committed_files(directory: Path) -> list[Path]:
    """The files of a sink that a reader should look at: not hidden, not pending."""
    found = []
    # Not looked into is what is pending: it may be gone while it is listed.
    for place, directories, names in os.walk(directory):
        directories[:] = [each for each in directories if not each.startswith((".", "_"))]
        shown = (each for each in names if not each.startswith((".", "_")))
        found += [Path(place, each) for each in shown if each.endswith(".parquet")]
    return sorted(found)


class HourlyDelays(AggregateFunction):
    """Counts flights and adds up their delays."""

    def create_accumulator(self) -> list[Any]:
        """Flights, cancelled, flown, sum of delays, largest delay, sum of ids."""
        return [0, 0, 0, 0, None, 0]

    def add(self, value: Any, accumulator: list[Any]) -> list[Any]:
        """Add a flight; the accumulator is changed in place."""
        accumulator[0] += 1
        accumulator[5] += value.id
        delay = value.delay
        if delay is None:
            accumulator[1] += 1
            return accumulator
        accumulator[2] += 1
        accumulator[3] += delay
        if accumulator[4] is None or delay > accumulator[4]:
            accumulator[4] = delay
        return accumulator

    def get_result(self, accumulator: list[Any]) -> list[Any]:
        """The fields ``flights`` to ``sum_of_ids`` of ``HOURLY_TYPE``."""
        flights, cancelled, flown, total, largest, ids = accumulator
        return [flights, cancelled, total / flown if flown else None, largest, ids]

    def merge(self, acc_a: list[Any], acc_b: list[Any]) -> list[Any]:
        """Both in one."""
        largest = [delay for delay in (acc_a[4], acc_b[4]) if delay is not None]
        merged = [a + b for a, b in zip(acc_a[:4], acc_b[:4], strict=True)]
        return [*merged, max(largest, default=None), acc_a[5] + acc_b[5]]


class DescribeHour(ProcessWindowFunction[Any, Any, str, Any]):
    """Names airport and hour, and adds the weather from the table of weather."""

    def __init__(self, weather: Path) -> None:
        self._path = weather
        self._weather: dict[tuple[str, int], tuple[float | None, float | None]] = {}

    def open(self, runtime_context: object) -> None:
        """Read the table of weather, once per worker."""
        del runtime_context
        columns = pq.read_table(self._path).to_pydict()
        keys = zip(columns["origin"], columns["hour_start"], strict=True)
        values = zip(columns["wind_speed"], columns["visib"], strict=True)
        self._weather = dict(zip(keys, values, strict=True))

    def process(
        self, key: str, context: ProcessWindowFunction.Context[Any], elements: Iterable[Any]
    ) -> Iterator[Any]:
        """One row per airport and hour."""
        (figures,) = elements
        hour_start = context.window().start
        wind_speed, visibility = self._weather.get((key, hour_start), (None, None))
        yield Row(key, hour_start, *figures, wind_speed, visibility)


class MissedFlights(KeyedProcessFunction):
    """Finds the flights that an aircraft misses because it is still out on its previous one.

    Flights of an aircraft do not come in the order of the schedule.  So each is kept, with a
    timer ``PATIENCE_MS`` behind its scheduled departure.  Timers fire in order of time, and by
    then all flights scheduled before it have come: whatever order the records came in, the
    flights of an aircraft are looked at in the order of the schedule.
    """

    def __init__(self, planes: Path) -> None:
        self._path = planes
        self._models: dict[str, str] = {}

    def open(self, runtime_context: Any) -> None:
        """Get the state, and read the table of aircraft, once per worker."""
        # Scheduled departure -> flights, of which there are two at one time now and then.
        self._waiting = runtime_context.get_map_state(
            MapStateDescriptor("waiting", Types.LONG(), Types.PICKLED_BYTE_ARRAY())
        )
        # The flight that the aircraft is out on: (id, destination, back by or None if unknown).
        self._out_on = runtime_context.get_state(
            ValueStateDescriptor("out-on", Types.PICKLED_BYTE_ARRAY())
        )
        planes = pq.read_table(self._path, columns=["tailnum", "manufacturer", "model"])
        self._models = {
            plane["tailnum"]: f"{plane['manufacturer']} {plane['model']}"
            for plane in planes.to_pylist()
        }

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        """Keep the flight until its time has come."""
        due = value.scheduled + PATIENCE_MS
        if due <= ctx.timer_service().current_watermark():
            yield LATE_FOR_AIRCRAFT, value
            return
        flights = self._waiting.get(value.scheduled) or []
        # Copied: a value that is in state is not changed in place.
        self._waiting.put(value.scheduled, [*flights, value])
        ctx.timer_service().register_event_time_timer(due)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        """Look at the flights that were to leave ``PATIENCE_MS`` ago."""
        scheduled = timestamp - PATIENCE_MS
        flights = sorted(self._waiting.get(scheduled), key=lambda flight: int(flight.id))
        self._waiting.remove(scheduled)
        out_on = self._out_on.value()
        for flight in flights:
            if out_on is not None and out_on[2] is not None and out_on[2] > flight.scheduled:
                yield self._missed(ctx.get_current_key(), out_on, flight)
            if flight.departed is not None:
                out_on = (flight.id, flight.dest, _back_by(flight))
                self._out_on.update(out_on)

    def _missed(self, tailnum: str, out_on: tuple[int, str, int], flight: Any) -> Row:
        flown_id, flown_to, back_by = out_on
        return Row(
            tailnum,
            self._models.get(tailnum),
            flown_id,
            flown_to,
            back_by,
            flight.id,
            flight.scheduled,
            (back_by - flight.scheduled) // MINUTE_MS,
            flight.departed is None,
            flight.delay,
        )


def _back_by(flight: Any) -> int | None:
    """The earliest time at which the aircraft can be back; the way back takes as long as out."""
    if flight.arrived is None:
        return None
    out: int = flight.arrived - flight.departed
    return int(flight.arrived) + TURNAROUND_MS + out


class Pace:
    """Lets records through at a given rate, so that there is time to watch (and to kill)."""

    def __init__(self, records_per_second: float) -> None:
        self._records_per_second = records_per_second

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Wait as long as the records may take."""
        time.sleep(batch.num_rows / self._records_per_second)
        return batch


def build(
    env: StreamExecutionEnvironment,
    inputs: Path,
    outputs: OutputDirectories,
    records_per_second: float = 0,
) -> None:
    """Add the job to ``env``.

    Args:
        env: the environment.
        inputs: the directory that ``demo/prepare.py`` wrote.
        outputs: where the results go.
        records_per_second: how fast each reader of the source may go; 0: as fast as it can.
    """

    def sink(directory: Path) -> FileSink:
        return FileSink.parquet(str(directory))

    # The watermark moves after every batch: small ones, or two hours of patience mean nothing.
    columns = ParquetColumnarRowInputFormat(FLIGHT_TYPE, batch_size=_BATCH)
    source = FileSource.for_bulk_file_format(columns, str(inputs / "flights")).build()
    # A first epoch of this many flights; the next ones adapt to the target duration.
    source.initial_limit = 8192
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(
        Duration.of_millis(OUT_OF_ORDERNESS_MS)
    ).with_timestamp_assigner(lambda flight, _: flight.scheduled)
    flights = env.from_source(source, strategy, "flights").uid("flights")
    if records_per_second:
        flights = flights.map_batches(Pace(records_per_second), FLIGHT_TYPE).uid("pace")
    flights.sink_to(sink(outputs.flights)).name("flights").uid("flights-sink")

    hourly = (
        flights.key_by(lambda flight: flight.origin)
        .window(TumblingEventTimeWindows.of(Duration.of_hours(1)))
        .side_output_late_data(LATE_FOR_WINDOW)
        .aggregate(
            HourlyDelays(), DescribeHour(inputs / "weather.parquet"), output_type=HOURLY_TYPE
        )
        .name("hourly delays")
        .uid("hourly")
    )
    hourly.sink_to(sink(outputs.hourly)).name("hourly").uid("hourly-sink")
    hourly.get_side_output(LATE_FOR_WINDOW).sink_to(sink(outputs.late)).name("late").uid(
        "late-sink"
    )

    missed = (
        flights.filter(lambda flight: flight.tailnum is not None)
        .name("aircraft known")
        .uid("aircraft-known")
        .key_by(lambda flight: flight.tailnum)
        .process(MissedFlights(inputs / "planes.parquet"), output_type=MISSED_TYPE)
        .name("missed flights")
        .uid("missed")
    )
    missed.sink_to(sink(outputs.missed)).name("missed").uid("missed-sink")
    missed.get_side_output(LATE_FOR_AIRCRAFT).sink_to(sink(outputs.too_late)).name("too-late").uid(
        "too-late-sink"
    )


def main(arguments: list[str]) -> None:
    """Run the job: ``job.py INPUT OUTPUT [RECORDS_PER_SECOND]``."""
    if len(arguments) not in (2, 3):
        sys.exit("usage: job.py INPUT OUTPUT [RECORDS_PER_SECOND]")
    inputs, outputs, *pace = arguments
    env = StreamExecutionEnvironment.get_execution_environment()
    env.enable_checkpointing(200)
    build(env, Path(inputs), OutputDirectories(Path(outputs)), float(pace[0]) if pace else 0)
    env.execute("flights")


if __name__ == "__main__":
    main(sys.argv[1:])
