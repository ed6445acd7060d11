"""The events that every measurement reads, and where they are kept.

What it is: seeded synthetic events (``key`` int64, ``value`` int64, ``ts`` int64 milliseconds) in
Parquet files that are consecutive in time.  10,000 events of event time per second, so a 10 s
window holds 100,000 events, and 2,000,000 events are 200 s or 20 windows.  An event is up to
500 ms out of order.  Files are made once and kept in a cache directory
(``MILLSTREAM_BENCH_DATA``, by default below the directory for temporary files).
"""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

__all__ = [
    "EVENTS_PER_SECOND",
    "MAX_OUT_OF_ORDERNESS_MS",
    "SESSION_GAP_MS",
    "WINDOW_MS",
    "Dataset",
    "cache_directory",
]

#: Change it when the layout of the files changes, so that cached ones are not taken for new ones.
_LAYOUT = 2
_SEED = 20_260_101
#: Event time of the first event: 2026-01-01T00:00:00Z, a multiple of the window size.
_START_MS = 1_767_225_600_000

EVENTS_PER_SECOND = 10_000
MAX_OUT_OF_ORDERNESS_MS = 500
WINDOW_MS = 10_000
#: A key among 50,000 has an event every 5 s on average, so about a third of them ends a session.
SESSION_GAP_MS = 5_000
#: Rows per Parquet row group: small enough that a file can be read by two tasks.
_ROW_GROUP = 65_536


def cache_directory() -> Path:
    """Where data files are kept between runs."""
    configured = os.environ.get("MILLSTREAM_BENCH_DATA")
    return Path(configured or Path(tempfile.gettempdir()) / "millstream-bench-data")


@dataclass(frozen=True)
class Dataset:
    """One set of files.

    ``distinct`` data sets hold every key at least once before any key comes twice; they are for
    measuring large state.
    """

    events: int
    keys: int
    files: int = 8
    distinct: bool = False

    @property
    def directory(self) -> Path:
        """Where its files are."""
        kind = "distinct" if self.distinct else "uniform"
        name = f"v{_LAYOUT}-{kind}-{self.events}-{self.keys}-{self.files}"
        return cache_directory() / name

    @property
    def paths(self) -> list[Path]:
        """Its files in order of time.  ``ensure`` must have been called."""
        return sorted(self.directory.glob("*.parquet"))

    def ensure(self) -> Path:
        """Write the files unless they are there; returns their directory."""
        directory = self.directory
        if directory.exists():
            return directory
        directory.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=directory.name, dir=directory.parent))
        try:
            self._write(scratch)
            scratch.rename(directory)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        return directory

    def ensure_csv(self, files: int = 2) -> Path:
        """Write the events as CSV unless that is there; returns the directory.

        Each file has every so manieth event, so that files which are read side by side have the
        same times.
        """
        directory = self.directory.with_name(f"{self.directory.name}-csv-{files}")
        if directory.exists():
            return directory
        events = pq.read_table(sorted(self.ensure().glob("*.parquet")))
        scratch = Path(tempfile.mkdtemp(prefix=directory.name, dir=directory.parent))
        options = csv.WriteOptions(include_header=False)
        for number in range(files):
            rows = events.take(pa.array(np.arange(number, len(events), files)))
            csv.write_csv(rows, scratch / f"{number}.csv", options)
        scratch.rename(directory)
        return directory

    def _write(self, directory: Path) -> None:
        generator = np.random.default_rng([_SEED, self.events, self.keys])
        keys = self._keys(generator)
        values = generator.integers(0, 1_000, self.events)
        delays = generator.integers(0, MAX_OUT_OF_ORDERNESS_MS, self.events)
        # The first second has no delay to hide behind: no event is before _START_MS.
        arrival = np.arange(self.events, dtype=np.int64) * 1_000 // EVENTS_PER_SECOND
        timestamps = _START_MS + np.maximum(arrival - delays, 0)
        table = pa.table({"key": keys, "value": values, "ts": timestamps})
        bounds = np.linspace(0, self.events, self.files + 1).astype(int)
        for number, (first, stop) in enumerate(itertools.pairwise(bounds)):
            path = directory / f"events-{number:02d}.parquet"
            pq.write_table(table.slice(first, stop - first), path, row_group_size=_ROW_GROUP)
            # Spark's file source reads in order of modification time.
            os.utime(path, (_START_MS / 1_000 + number, _START_MS / 1_000 + number))

    def _keys(self, generator: np.random.Generator) -> np.ndarray:
        if not self.distinct:
            return generator.integers(0, self.keys, self.events)
        rounds = -(-self.events // self.keys)
        shuffled = [generator.permutation(self.keys) for _ in range(rounds)]
        return np.concatenate(shuffled)[: self.events]
