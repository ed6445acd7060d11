"""The demo's input: every flight once, in the order of departure, with times that make sense."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pyarrow.parquet as pq
import pytest
from demo.prepare import FLIGHT_FIELDS, InputFiles, order_flights, prepare

if TYPE_CHECKING:
    from pathlib import Path

MINUTE = 60_000


def row(**changes: object) -> dict[str, object]:
    flight: dict[str, object] = {
        "time_hour": "2013-01-01T10:00:00Z",
        "minute": 15,
        "dep_delay": 2.0,
        "sched_arr_time": 819,
        "arr_delay": 11.0,
        "carrier": "UA",
        "flight": 1545,
        "tailnum": "N14228",
        "origin": "EWR",
        "dest": "IAH",
    }
    return flight | changes


AIRPORTS = pd.DataFrame({"faa": ["IAH", "ROC"], "tzone": ["America/Chicago", "America/New_York"]})


def order(*rows: dict[str, object]) -> list[dict[str, object]]:
    ordered: list[dict[str, object]] = order_flights(pd.DataFrame(rows), AIRPORTS).to_dict(
        "records"
    )
    return ordered


def utc(text: str) -> int:
    return int(pd.Timestamp(text, tz="UTC").timestamp() * 1000)


def test_times_are_in_utc() -> None:
    (flight,) = order(row())
    assert flight["scheduled"] == utc("2013-01-01 10:15")
    assert flight["departed"] == utc("2013-01-01 10:17")
    assert flight["arrived"] == utc("2013-01-01 14:19") + 11 * MINUTE


def test_order_is_that_of_departure_and_cancelled_flights_take_their_schedule() -> None:
    late = row(minute=0, dep_delay=120.0, flight=1)
    cancelled = row(minute=30, dep_delay=None, arr_delay=None, flight=2)
    on_time = row(minute=20, dep_delay=-1.0, flight=3)
    flights = order(late, cancelled, on_time)
    assert [flight["flight"] for flight in flights] == [3, 2, 1]
    assert [flight["id"] for flight in flights] == [1, 2, 3]
    assert pd.isna(flights[1]["departed"])


def test_arrival_after_midnight_on_the_day_of_25_hours() -> None:
    (flight,) = order(
        row(time_hour="2013-11-04T03:00:00Z", minute=45, dest="ROC", sched_arr_time=3)
    )
    assert flight["arrived"] == utc("2013-11-04 05:03") + 11 * MINUTE


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> InputFiles:
    return prepare(tmp_path_factory.mktemp("demo") / "input", files=4)


@pytest.mark.extended
def test_all_flights_are_written_in_order(inputs: InputFiles) -> None:
    files = sorted(inputs.flights.iterdir())
    assert [file.name for file in files] == [f"flights-{n:02d}.parquet" for n in range(1, 5)]
    table = pq.read_table(files)
    assert table.column_names == list(FLIGHT_FIELDS)
    assert table["id"].to_pylist() == list(range(1, 336_777))


def test_prepared_input_is_used_again(inputs: InputFiles) -> None:
    before = (inputs.flights / "flights-01.parquet").stat().st_mtime_ns
    prepare(inputs.directory, files=4)
    assert (inputs.flights / "flights-01.parquet").stat().st_mtime_ns == before


@pytest.mark.extended
def test_interrupted_preparation_starts_over(tmp_path: Path) -> None:
    leftover = tmp_path / "input" / "flights" / "flights-99.parquet"
    leftover.parent.mkdir(parents=True)
    leftover.touch()
    inputs = prepare(tmp_path / "input", files=2)
    assert not leftover.exists()
    assert inputs.complete
