"""Lookup in a bounded source that each task keeps in memory, Flink's full cache.

The source is read again once its records reach their maximum age.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.contracts.lookup import FoundRows, LookupReader, LookupSource, some_fields
from millstream.errors import MalformedRecordError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from millstream.contracts.source import Source
    from millstream.object_stores import StoreAccess


@dataclass(frozen=True)
class WholeSourceLookup(LookupSource):
    """The records of a source.

    Args:
        source: bounded; gives Arrow columns.
        schema: its columns.
        keys: names of those that rows are found by.
        reload_after: milliseconds after which it is read again; None: never.
    """

    source: Source
    schema: pa.Schema
    keys: tuple[str, ...]
    reload_after: int | None = None

    def open(self) -> LookupReader:
        return _WholeReader(self)

    def opened_with(self, stores: StoreAccess) -> WholeSourceLookup:
        return replace(self, source=self.source.opened_with(stores))

    def with_columns(self, names: Collection[str]) -> LookupSource:
        return replace(self, schema=some_fields(self.schema, names))


class _WholeReader(LookupReader):
    def __init__(self, source: WholeSourceLookup) -> None:
        self._source = source
        self._loaded: int | None = None
        self._rows = source.schema.empty_table()
        self._places: dict[tuple[Any, ...], list[int]] = {}

    def lookup(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        after = self._source.reload_after
        if self._loaded is None or (after is not None and now - self._loaded >= after):
            self._load()
            self._loaded = now
        numbers: list[int] = []
        places: list[int] = []
        for number, key in enumerate(_values(keys, self._source.keys)):
            found = self._places.get(key, ())
            numbers += [number] * len(found)
            places += found
        rows = self._rows.take(pa.array(places, pa.int64()))
        return FoundRows(np.array(numbers, dtype=np.int64), rows)

    def _load(self) -> None:
        source = self._source.source
        batches = [
            pa.RecordBatch.from_arrays(
                [each.column(field.name).cast(field.type) for field in self._source.schema],
                schema=self._source.schema,
            )
            for split in source.discover(frozenset())
            for each in self._records(split)
        ]
        self._rows = pa.Table.from_batches(batches, schema=self._source.schema)
        places: defaultdict[tuple[Any, ...], list[int]] = defaultdict(list)
        for place, key in enumerate(_values(self._rows, self._source.keys)):
            places[key].append(place)
        self._places = dict(places)

    def _records(self, split: Any) -> Iterator[pa.RecordBatch]:
        source = self._source.source
        for batch in source.read(split, 0, source.end_offset(split)):
            if batch.dead_letters and batch.arrow is None:
                continue
            if batch.arrow is None:
                message = f"split {split.id}: its records are no columns"
                raise MalformedRecordError(message)
            yield batch.arrow

    def close(self) -> None:
        """Nothing is open; what was read is kept for as long as the reader."""


def _values(rows: pa.RecordBatch | pa.Table, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    return zip(*(rows.column(name).to_pylist() for name in names), strict=True)
