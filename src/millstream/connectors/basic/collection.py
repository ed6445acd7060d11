"""Source that reads a collection in memory; an offset is an index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.connectors.formats.file_format import BATCH_SIZE
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from millstream.contracts.source import KnownSplits
    from millstream.types.types import TypeInformation


class CollectionSource(Source):
    """The values of a collection, in order, in one split.

    Args:
        values: the records.
        type_info: their type; None leaves the stream untyped.
    """

    offsets_are_records = True

    def __init__(self, values: Iterable[object], type_info: TypeInformation | None = None) -> None:
        self.values = list(values)
        self._type = type_info or Types.PICKLED_BYTE_ARRAY()
        self._arrow: pa.RecordBatch | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_arrow": None}

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._type

    def validate(self) -> None:
        """Check that every value is of the type; raises TypeMismatchError."""
        if self._type.arrow_schema is not None:
            self._columns()

    def discover(self, known: KnownSplits) -> list[Split]:
        return [] if "collection" in known else [Split("collection")]

    def end_offset(self, split: Split) -> int:
        del split
        return len(self.values)

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        del split
        stop = min(stop, len(self.values))
        for at in range(start, stop, BATCH_SIZE):
            end = min(at + BATCH_SIZE, stop)
            if self._type.arrow_schema is None:
                yield SourceBatch(values=self.values[at:end])
            else:
                yield SourceBatch(arrow=self._columns().slice(at, end - at))

    def _columns(self) -> pa.RecordBatch:
        if self._arrow is None:
            self._arrow = self._type.to_arrow(self.values)
        return self._arrow
