"""Changes of databases as JSON, many messages at once.

What it is: what ``change_json.py`` reads one message at a time, by pyarrow over a block.  If one is
not of the plainest kind there is no answer, and all of the block are read one by one.
What it is not: another meaning of any message;
``tests/connectors/tables/test_narrowed_formats.py`` compares.

Read next: ``connectors/formats/tables/change_json.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.formats.json_columns import JsonColumns
from millstream.connectors.formats.schema import row_type_of
from millstream.connectors.formats.tables.codec import (
    DELETE,
    INSERT,
    UPDATE_AFTER,
    UPDATE_BEFORE,
    Changes,
    arrow_schema,
)
from millstream.connectors.formats.tables.json_rows import readable_fields, typed_arrays

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

    from millstream.types.logical_types import RowType

__all__ = ["CANAL", "DEBEZIUM", "MAXWELL", "ChangeBlocks", "Dialect"]


@dataclass(frozen=True)
class Dialect:
    """Where the parts of a message stand."""

    #: The fields with the kind, the row as it was, and the row as it is.
    kind: str
    before: str
    after: str
    kinds: Mapping[str, int]
    #: Whether rows stand in lists.
    listed: bool = False
    #: Whether the row as it was holds what has changed alone, and a deleted one stands where one
    #: that is there does.
    partial: bool = False
    #: Whether a null in it is a value that was null.
    null_is_a_value: bool = False


#: Fewer messages are read sooner one by one.
_FEW: Final = 100

DEBEZIUM: Final = Dialect(
    kind="op",
    before="before",
    after="after",
    kinds={"c": INSERT, "r": INSERT, "u": UPDATE_AFTER, "d": DELETE},
)
CANAL: Final = Dialect(
    kind="type",
    before="old",
    after="data",
    kinds={"INSERT": INSERT, "UPDATE": UPDATE_AFTER, "DELETE": DELETE},
    listed=True,
    partial=True,
)
MAXWELL: Final = Dialect(
    kind="type",
    before="old",
    after="data",
    kinds={"insert": INSERT, "update": UPDATE_AFTER, "delete": DELETE},
    partial=True,
    null_is_a_value=True,
)


class ChangeBlocks:
    """Reads blocks of messages.

    Args:
        row: the table.
        dialect: of the messages.
        iso: the standard of times that are texts.
    """

    def __init__(self, row: RowType, dialect: Dialect, *, iso: bool) -> None:
        self._row, self._dialect, self._iso = row, dialect, iso
        self._schema = arrow_schema(row)
        fields = readable_fields(row)
        self._columns: JsonColumns | None = None
        if fields is not None:
            part = pa.list_(pa.struct(fields)) if dialect.listed else pa.struct(fields)
            parts = [(dialect.kind, pa.string()), (dialect.before, part), (dialect.after, part)]
            self._columns = JsonColumns(row_type_of(pa.schema(parts)), texts=True)

    def read(self, messages: Sequence[bytes]) -> Changes | None:
        """The changes; None: the messages are to be read one by one."""
        block, dialect = b"\n".join(messages), self._dialect
        if (
            self._columns is None
            or len(messages) < _FEW
            or block.count(b"\n") != len(messages) - 1
            or not all(each[:1] == b"{" and each[-1:] == b"}" for each in messages)
            or (dialect.null_is_a_value and b"null" in block)
        ):
            return None
        try:
            table = self._columns.read(block)
            if table.num_rows != len(messages):
                return None
            return self._changes(table.combine_chunks())
        except (ValueError, pa.ArrowException):
            return None

    def _changes(self, table: pa.Table) -> Changes | None:
        dialect = self._dialect
        kinds = self._kinds(table.column(dialect.kind))
        if kinds is None:
            return None
        places: NDArray[np.int64] = np.arange(len(kinds), dtype=np.int64)
        before, after = (_chunk(table, name) for name in (dialect.before, dialect.after))
        if dialect.listed:
            lists = after, before
            updates = pa.array(kinds == UPDATE_AFTER)
            sizes = [pc.list_value_length(each) for each in lists]
            same = pc.fill_null(pc.equal(*sizes), False)  # noqa: FBT003
            if sizes[0].null_count or pc.any(pc.and_not(updates, same)).as_py():
                return None
            places = pc.list_parent_indices(after).to_numpy().astype(np.int64)
            kinds = kinds[places]
            before = self._aligned(before, kinds, places)
            after = after.flatten()
        new = self._cells(after)
        is_update = kinds == UPDATE_AFTER
        if dialect.partial:
            # A deletion has its row where an insert has it.
            missing = _is_missing(after)
            old = self._cells(before)
            old = [pc.if_else(pc.is_null(o), n, o) for o, n in zip(old, new, strict=True)]
            gone = new
            missing |= is_update & _is_missing(before)
        else:
            old = gone = self._cells(before)
            had = is_update | (kinds == DELETE)
            missing = had & _is_missing(before)
            missing |= (kinds != DELETE) & _is_missing(after)
        if missing.any():
            return None
        return self._ordered(kinds, places, (new, old, gone))

    def _aligned(
        self, before: pa.Array, kinds: NDArray[np.int8], places: NDArray[np.int64]
    ) -> pa.Array:
        """For each row that of the lists of what was; null where there is none."""
        is_update = kinds == UPDATE_AFTER
        parents = pc.list_parent_indices(before).to_numpy()
        kept = np.isin(parents, places[is_update])
        numbers = np.full(len(kinds), -1, dtype=np.int64)
        numbers[is_update] = np.flatnonzero(kept)
        return before.flatten().take(pa.array(numbers, mask=numbers < 0))

    def _kinds(self, column: pa.ChunkedArray) -> NDArray[np.int8] | None:
        known = self._dialect.kinds
        found = pc.index_in(column, pa.array(list(known))).combine_chunks()
        if found.null_count:
            return None
        kinds: NDArray[np.int8] = np.array(list(known.values()), np.int8)[found.to_numpy()]
        return kinds

    def _cells(self, rows: pa.StructArray) -> list[pa.Array]:
        return typed_arrays(rows.flatten(), self._row, iso=self._iso)

    def _ordered(
        self,
        kinds: NDArray[np.int8],
        places: NDArray[np.int64],
        cells: tuple[list[pa.Array], list[pa.Array], list[pa.Array]],
    ) -> Changes:
        """One row for each, two for each update, in order."""
        count = len(kinds)
        twice = np.repeat(np.arange(count), 1 + (kinds == UPDATE_AFTER))
        made = kinds[twice]
        made[:-1][twice[:-1] == twice[1:]] = UPDATE_BEFORE
        side = np.where(made == UPDATE_BEFORE, 1, np.where(made == DELETE, 2, 0))
        indices = pa.array(side * count + twice)
        arrays = [pa.concat_arrays(each).take(indices) for each in zip(*cells, strict=True)]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        return Changes(rows, made, places[twice])


def _chunk(table: pa.Table, name: str) -> pa.Array:
    (chunk,) = table.column(name).chunks
    return chunk


def _is_missing(rows: pa.Array) -> NDArray[np.bool_]:
    missing: NDArray[np.bool_] = pc.is_null(rows).to_numpy(zero_copy_only=False)
    return missing.copy()
