"""The job of the tests of DataFrameSink: numbers, counted per key, into a Delta table.

It is imported by tests, and run as ``python delta_job.py DIRECTORY``: the table is DIRECTORY/table.
The writer is that of ``docs/how-to/custom-sinks.md``, in a module ``docs_delta``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.docs.sinks_page import create_table, rows_of
from tests.spark.counting_job import COUNTED, KEYS, NUMBERS, Counting, SlowNumbers, environment

from millstream.common import WatermarkStrategy

if TYPE_CHECKING:
    from millstream.contracts.sink import Sink
    from millstream.datastream import StreamExecutionEnvironment

__all__ = ["EPOCHS", "add_job", "check", "new_table"]

#: Each reads twenty of the sixty numbers.
EPOCHS = 3


def new_table(directory: Path) -> Path:
    """The table that the job writes."""
    return create_table(directory / "table", COUNTED.arrow_schema)


def add_job(env: StreamExecutionEnvironment, sink: Sink) -> None:
    """Add the job."""
    numbers = env.from_source(SlowNumbers(), WatermarkStrategy.no_watermarks(), "numbers")
    counted = numbers.key_by(lambda number: number % KEYS).process(Counting(), COUNTED)
    counted.sink_to(sink).uid("table")


def check(table: Path, *, epochs: int) -> None:
    """Check what readers saw at any time, for Delta keeps each version: one per epoch so far."""
    before: set[tuple[int, int, int]] = set()
    for version in range(epochs + 1):
        rows = [(row["key"], row["id"], row["n"]) for row in rows_of(table, version)]
        seen = set(rows)
        assert len(rows) == len(seen), f"version {version}: a row is there twice"
        assert before <= seen, f"version {version}: a row went away"
        ids = sorted(number for _, number, _ in rows)
        half = 10 * version  # of each of the two splits
        expected = [*range(half), *range(NUMBERS // 2, NUMBERS // 2 + half)]
        assert ids == expected, f"version {version}: not each number once"
        for key in range(KEYS):
            counts = sorted(n for k, number, n in rows if k == key == number % KEYS)
            assert counts == [*range(1, len([n for n in ids if n % KEYS == key]) + 1)]
        before = seen
    assert len(rows_of(table)) == len(before), "the last version is that of the last epoch"


def main(directory: Path) -> None:
    """Run the job."""
    env = environment(directory, {})
    add_job(env, importlib.import_module("docs_delta").delta_sink(directory / "table"))
    env.execute("to a Delta table")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
