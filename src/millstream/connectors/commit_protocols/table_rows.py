"""Records as rows of a database table: which columns they go to, and which one was refused.

What it is: what the sinks of all databases share before any of them is spoken to.

What it is not: a mapping of types; each database has its own.

Read next: ``connectors/embedded/sink.py``, ``connectors/postgres/table.py``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from millstream.connectors.files.file_writers import table_of_values
from millstream.errors import PermanentSinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.contracts.batch import Batch

__all__ = [
    "REFUSED",
    "columns_of_batch",
    "dot_advice",
    "first_refused",
    "identifier",
    "match_columns",
    "quoted",
    "quoted_parts",
    "record_text",
    "refuse_changes",
    "table_parts",
]

_PART: Final = re.compile(r'"(?:[^"]|"")+"|[^".][^.]*')
_NAME: Final = re.compile(rf"(?:{_PART.pattern})(?:\.(?:{_PART.pattern}))*")
#: What to do about a record that a table refuses.
REFUSED: Final = "Correct the record, filter it out before the sink, or change the table"


def table_parts(name: str) -> list[str]:
    """The parts of ``schema.table``, as users write it.

    A part in double quotes is one whatever it holds, as in SQL: '"a.b"' is a table, with ``""`` for
    a quote in it.
    """
    if _NAME.fullmatch(name) is None:
        return [name]
    found = [match[0] for match in _PART.finditer(name)]
    return [part[1:-1].replace('""', '"') if part.startswith('"') else part for part in found]


def quoted(name: str) -> str:
    """The name of a table as SQL takes it; see ``table_parts``."""
    return quoted_parts(table_parts(name))


def quoted_parts(parts: Sequence[str]) -> str:
    """The parts of a name as SQL takes them."""
    return ".".join(map(identifier, parts))


def dot_advice(name: str) -> str:
    """What to say if there is no table of a name: that a dot in it has a meaning."""
    if "." not in name or '"' in name:
        return ""
    return f" (a dot separates schema and table; write '\"{name}\"' if it is part of the name)"


def identifier(name: str) -> str:
    """The name of a column as SQL takes it, dots and all."""
    return '"' + name.replace('"', '""') + '"'


def columns_of_batch(batch: Batch) -> pa.Table:
    """The records as columns; those of an untyped stream by their own names.

    Raises:
        SinkError: the values of a column have no common type, or a row is a deletion or update.
    """
    refuse_changes(batch)
    if batch.type_info.arrow_schema is None:
        return table_of_values(batch.values)
    return pa.Table.from_batches([batch.arrow])


def refuse_changes(batch: Batch) -> None:
    """Raise SinkError if a row is a deletion or update."""
    if batch.row_kinds is not None:
        message = (
            "a row is a deletion or update (its RowKind is not INSERT), which tables do not take;"
            " filter these rows or set their kind"
        )
        raise PermanentSinkError(message)


def match_columns(
    given: Sequence[str], table: Sequence[str], chosen: Sequence[str] | None, target: str
) -> list[str]:
    """The columns of the table that the given columns go to.

    Args:
        given: names in the records.
        table: names in the table.
        chosen: the user's choice of columns, in the order of the records' fields; None: by name.
        target: for messages.

    Raises:
        SinkError: a column is missing, or the numbers of columns differ.
    """
    names = list(given if chosen is None else chosen)
    if len(names) != len(given):
        message = (
            f"{target}: columns={names} are {len(names)}, but the records have {len(given)}"
            f" fields: {list(given)}"
        )
        raise PermanentSinkError(message)
    missing = [name for name in names if name not in table]
    if missing:
        message = (
            f"{target} has no column {', '.join(map(repr, missing))}; it has {list(table)}, the"
            f" records have {list(given)}. Rename the fields, or give columns=[...], the table's"
            " columns in the order of the fields"
        )
        raise PermanentSinkError(message)
    return names


def first_refused(count: int, fits: Callable[[int], bool]) -> int:
    """The position of the first record that a table refuses, by trying ever finer prefixes.

    Args:
        count: of records; all of them together are refused.
        fits: whether the first n records are accepted, tried and undone.
    """
    accepted, refused = 0, count
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        if fits(middle):
            accepted = middle
        else:
            refused = middle
    return refused - 1


def record_text(rows: pa.Table, index: int) -> str:
    """A record for a message, cut short if it is long."""
    return f"{rows.slice(index, 1).to_pylist()[0]!r:.500}"
