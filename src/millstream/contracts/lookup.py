"""The contract of lookups: rows of an external table by batches of keys, for lookup joins."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.object_stores import OpensStores

if TYPE_CHECKING:
    from collections.abc import Collection

    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray


@dataclass(frozen=True)
class FoundRows:
    """Rows that were found, in any order."""

    #: For each row the position of the key that it was found by.
    keys: NDArray[np.int64]
    #: The columns that the source was made with, by name; of types that can be cast to theirs.
    rows: pa.Table


class LookupReader(ABC):
    """An open connection, of one task."""

    @abstractmethod
    def lookup(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        """All rows with these keys.

        Args:
            keys: the key columns, by name; different from each other, and none is NULL.
            now: milliseconds since 1970.

        Raises:
            SourceError: there is no answer; it may be asked again.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the connection; it may be called twice."""


class LookupSource(OpensStores, ABC):
    """A table that can be asked for rows by keys.

    Contract:
      1. Instances are picklable and never changed.  (nobody)
      2. ``lookup`` gives every row whose columns are equal to a key, once per key; the answer is
         that of some moment during the call, or as old as the source says.  (nobody)
      3. A failure is a SourceError; the reader is closed, and another one is opened.  (operator)
    """

    @abstractmethod
    def open(self) -> LookupReader:
        """A reader, in a task.

        Raises:
            SourceError: there is no connection; it may be tried again.
        """

    def with_columns(self, names: Collection[str]) -> LookupSource:
        """The source that need not give more than some columns, its keys among them."""
        del names
        return self


@dataclass(frozen=True)
class LookupCaching:
    """How long answers are kept; times in milliseconds, None: no limit."""

    #: How many keys.
    max_rows: int | None = None
    expire_after_access: int | None = None
    expire_after_write: int | None = None
    #: Whether it is kept that there is no row for a key.
    missing_keys: bool = True


def some_fields(schema: pa.Schema, names: Collection[str]) -> pa.Schema:
    """The fields with these names, in their order."""
    return schema.empty_table().select([name for name in schema.names if name in names]).schema
