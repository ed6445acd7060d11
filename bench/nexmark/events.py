"""Events of Nexmark in CSV files, which every system can read.

What it is: a directory per table, in which file ``j`` of ``n`` has every ``n``-th row from ``j``
on, so that files which are read side by side have the same times.
What it is not: the generator (``millstream/sql/catalog/factories/nexmark.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as pc

from millstream.sql.catalog.factories.nexmark import NEXMARK_COLUMNS, NexmarkEvents, events_of

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_events"]

_AT_A_TIME: Final = 100_000
_RATE: Final = 100_000
_BASE: Final = 1_577_836_800_000


def write_events(directory: Path, events: int, files: int) -> None:
    """Write the first events; what is there already is left as it is.

    Args:
        directory: gets a directory per table.
        events: how many, of all tables.
        files: per table.
    """
    if (directory / "complete").exists():
        return
    for table, columns in NEXMARK_COLUMNS.items():
        made = NexmarkEvents(table, list(columns), 0, _RATE, _BASE)
        (directory / table).mkdir(parents=True, exist_ok=True)
        schema = pa.schema(list(columns.items()))
        options = pc.WriteOptions(include_header=False, quoting_style="none")
        for file in range(files):
            with pc.CSVWriter(
                directory / table / f"{file}.csv", schema, write_options=options
            ) as to:
                numbers = np.arange(file, events_of(table, events), files)
                for start in range(0, len(numbers), _AT_A_TIME):
                    to.write_batch(made.map_batch(numbers[start : start + _AT_A_TIME]))
    (directory / "complete").touch()
