"""VALUES as a source: rows of the statement, in one split.

What it is: rows as values of ``expressions/nodes.py``, made into columns when they are read.
What it is not: for large data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.sql.lowering.stream_types import stream_type
from millstream.types.values import column_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.contracts.source import KnownSplits
    from millstream.types.logical_types import RowType
    from millstream.types.types import TypeInformation

__all__ = ["ValuesSource"]


class ValuesSource(Source):
    """The rows of VALUES.

    Args:
        row: their type.
        rows: tuples of values.
    """

    def __init__(self, row: RowType, rows: Sequence[tuple[object, ...]]) -> None:
        self.row = row
        self.rows = list(rows)

    @property
    def boundedness(self) -> Boundedness:
        """They end."""
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return stream_type(self.row)

    def discover(self, known: KnownSplits) -> list[Split]:
        """One split."""
        return [] if "values" in known else [Split("values")]

    def end_offset(self, split: Split) -> int:
        """How many rows there are."""
        del split
        return len(self.rows)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        del split
        for at in range(start, min(stop, len(self.rows)), BATCH_SIZE):
            rows = self.rows[at : min(at + BATCH_SIZE, stop)]
            columns = [
                column_of([row[i] for row in rows], field.type)
                for i, field in enumerate(self.row.fields)
            ]
            schema = self.row.to_arrow_schema()
            yield SourceBatch(arrow=pa.RecordBatch.from_arrays(columns, schema=schema))
