"""The demo's functions on plain Python state, and the check's ability to find what is wrong."""

from __future__ import annotations

import heapq
import os
from collections import defaultdict
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from demo.check import check
from demo.job import (
    HOUR_MS,
    HOURLY_TYPE,
    MISSED_TYPE,
    OUT_OF_ORDERNESS_MS,
    DescribeHour,
    HourlyDelays,
    MissedFlights,
    OutputDirectories,
    committed_files,
)
from demo.picture import draw
from demo.prepare import prepare

from millstream.types.row import row_class

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from demo.check import Report
    from demo.prepare import InputFiles

NEVER = -(2**63)
END = 2**63 - 1


class FakeWindow:
    def __init__(self, start: int) -> None:
        self.start = start

    def window(self) -> FakeWindow:
        return self


class FakeKeyed:
    """Runtime context, context, timer service and both states of one KeyedProcessFunction."""

    def __init__(self) -> None:
        self.key = ""
        self.watermark = NEVER
        self.maps: dict[str, dict[object, object]] = defaultdict(dict)
        self.values: dict[str, object] = {}
        self.timers: list[tuple[int, str]] = []
        self.registered: set[tuple[int, str]] = set()

    def get_map_state(self, _: object) -> FakeMap:
        return FakeMap(self)

    def get_state(self, _: object) -> FakeValue:
        return FakeValue(self)

    def timer_service(self) -> FakeKeyed:
        return self

    def current_watermark(self) -> int:
        return self.watermark

    def get_current_key(self) -> str:
        return self.key

    def register_event_time_timer(self, timestamp: int) -> None:
        if (timestamp, self.key) not in self.registered:
            self.registered.add((timestamp, self.key))
            heapq.heappush(self.timers, (timestamp, self.key))


class FakeMap:
    def __init__(self, keyed: FakeKeyed) -> None:
        self._keyed = keyed

    def get(self, key: object) -> object:
        return self._keyed.maps[self._keyed.key].get(key)

    def put(self, key: object, value: object) -> None:
        self._keyed.maps[self._keyed.key][key] = value

    def remove(self, key: object) -> None:
        del self._keyed.maps[self._keyed.key][key]


class FakeValue:
    def __init__(self, keyed: FakeKeyed) -> None:
        self._keyed = keyed

    def value(self) -> object:
        return self._keyed.values.get(self._keyed.key)

    def update(self, value: object) -> None:
        self._keyed.values[self._keyed.key] = value


def simulate(inputs: InputFiles, outputs: OutputDirectories, every: int) -> None:
    """The whole job in plain Python, with a watermark after each ``every`` records."""
    table = pq.read_table(sorted(inputs.flights.iterdir()))
    flight_row = row_class(tuple(table.column_names))
    columns = [column.to_pylist() for column in table.columns]
    flights: list[Any] = [flight_row(values) for values in zip(*columns, strict=True)]
    hourly = HourlyDelays()
    describe = DescribeHour(inputs.weather)
    describe.open(object())
    missed = MissedFlights(inputs.planes)
    keyed = FakeKeyed()
    missed.open(keyed)
    windows: dict[tuple[str, int], list[Any]] = {}
    results: dict[str, list[Any]] = {"hourly": [], "late": [], "missed": [], "too-late": []}

    def fire(watermark: int) -> None:
        keyed.watermark = watermark
        for key in [key for key in windows if key[1] + HOUR_MS - 1 <= watermark]:
            figures = hourly.get_result(windows.pop(key))
            context = cast("Any", FakeWindow(key[1]))
            results["hourly"] += describe.process(key[0], context, [figures])
        while keyed.timers and keyed.timers[0][0] <= watermark:
            timestamp, keyed.key = heapq.heappop(keyed.timers)
            results["missed"] += missed.on_timer(timestamp, cast("Any", keyed))

    latest = NEVER
    for number, flight in enumerate(flights, 1):
        start = flight.scheduled // HOUR_MS * HOUR_MS
        if start + HOUR_MS - 1 <= keyed.watermark:
            results["late"].append(flight)
        else:
            key = (flight.origin, start)
            windows[key] = hourly.add(flight, windows.get(key) or hourly.create_accumulator())
        if flight.tailnum is not None:
            keyed.key = flight.tailnum
            for _, late in missed.process_element(flight, cast("Any", keyed)):
                results["too-late"].append(late)
        latest = max(latest, flight.scheduled)
        if number % every == 0:
            fire(latest - OUT_OF_ORDERNESS_MS - 1)
    fire(END)
    write(outputs.flights, table)
    write(outputs.hourly, as_table(results["hourly"], HOURLY_TYPE.arrow_schema))
    write(outputs.missed, as_table(results["missed"], MISSED_TYPE.arrow_schema))
    write(outputs.late, as_table(results["late"], table.schema))
    write(outputs.too_late, as_table(results["too-late"], table.schema))


def as_table(rows: list[Any], schema: pa.Schema) -> pa.Table:
    columns: list[Any] = list(zip(*rows, strict=True)) or [[] for _ in schema]
    return pa.Table.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
        schema=schema,
    )


def write(directory: Path, table: pa.Table, name: str = "part-0.parquet") -> None:
    directory.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, directory / name)


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> InputFiles:
    """The flights of January, to keep the tests short."""
    inputs = prepare(tmp_path_factory.mktemp("demo") / "input", files=12)
    for file in inputs.flights.iterdir():
        if file.name != "flights-01.parquet":
            file.unlink()
    return inputs


@pytest.fixture(scope="module")
def outputs(inputs: InputFiles, tmp_path_factory: pytest.TempPathFactory) -> OutputDirectories:
    outputs = OutputDirectories(tmp_path_factory.mktemp("results"))
    simulate(inputs, outputs, every=1)
    return outputs


@pytest.fixture
def copied(outputs: OutputDirectories, tmp_path: Path) -> OutputDirectories:
    """The results with files that a test may replace."""
    copy = OutputDirectories(tmp_path)
    for directory in ("flights", "hourly", "late", "missed", "too-late"):
        table = pq.read_table(outputs.directory / directory / "part-0.parquet")
        write(tmp_path / directory, table)
    return copy


@pytest.mark.extended
def test_oracle_plain_python_agrees_with_duckdb(
    inputs: InputFiles, outputs: OutputDirectories
) -> None:
    report = check(inputs, outputs)
    assert [comparison for comparison in report.comparisons if not comparison.equal] == []
    assert report.correct
    assert report.summary() == "28,065 flights in, 0 lost, 0 duplicated"
    assert report.late > 100
    assert report.missed > 100


@pytest.mark.extended
def test_oracle_rare_watermarks_make_fewer_flights_late(
    inputs: InputFiles, outputs: OutputDirectories, tmp_path: Path
) -> None:
    rare = OutputDirectories(tmp_path)
    simulate(inputs, rare, every=1000)
    report = check(inputs, rare)
    assert report.correct
    assert report.late < check(inputs, outputs).late


def drop_last(table: pa.Table) -> pa.Table:
    return table.slice(0, len(table) - 1)


def repeat_first(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table, table.slice(0, 1)])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("directory", ["flights", "hourly", "late", "missed"])
@pytest.mark.parametrize("change", [drop_last, repeat_first])
def test_check_finds_a_row_too_few_or_too_many(
    inputs: InputFiles,
    copied: OutputDirectories,
    directory: str,
    change: Callable[[pa.Table], pa.Table],
) -> None:
    path = copied.directory / directory / "part-0.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    report: Report = check(inputs, copied)
    assert not report.correct
    if directory != "missed":
        assert report.lost if change is drop_last else report.duplicated


def test_check_finds_a_flight_called_late_that_was_not(
    inputs: InputFiles, copied: OutputDirectories
) -> None:
    path = copied.late / "part-0.parquet"
    flights = pq.read_table(copied.flights / "part-0.parquet")
    pq.write_table(pa.concat_tables([pq.read_table(path), flights.slice(0, 1)]), path)
    report = check(inputs, copied)
    different = {comparison.name for comparison in report.comparisons if not comparison.equal}
    assert different == {"hourly statistics", "late flights were late"}


def test_pending_files_are_not_results(inputs: InputFiles, copied: OutputDirectories) -> None:
    table = pq.read_table(copied.hourly / "part-0.parquet")
    write(copied.hourly, table, ".part-1.parquet.pending")
    write(copied.hourly / "_pending", table, "part-2.parquet")
    assert check(inputs, copied).correct


@pytest.mark.extended
def test_picture_is_drawn(outputs: OutputDirectories, tmp_path: Path) -> None:
    picture = tmp_path / "results.png"
    draw(outputs, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_pending_files_are_not_looked_at_and_may_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("b.parquet", "hour=1/a.parquet", ".pending-1/c.parquet", "_d.parquet", "e.csv"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
    scandir = os.scandir

    def looked_at(path: Any = ".") -> Any:
        if ".pending" in str(path):
            raise FileNotFoundError(path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", looked_at)
    found = [str(path.relative_to(tmp_path)) for path in committed_files(tmp_path)]
    assert found == ["b.parquet", "hour=1/a.parquet"]
    assert committed_files(tmp_path / "nowhere") == []
