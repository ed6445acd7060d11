"""Flink's tableau: results of statements as text, in a frame of characters."""

from __future__ import annotations

import math
import sys
import unicodedata
from typing import TYPE_CHECKING, Final

from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from millstream.sql.catalog.schema import ResolvedSchema
    from millstream.types.logical_types import LogicalType
    from millstream.types.row import RowKind

#: The text of a value that is missing.
NULL: Final = "<NULL>"
#: Characters of columns whose values may be of any length.
DEFAULT_WIDTH: Final = 30
_WIDTHS: Final = {
    TypeRoot.BOOLEAN: 5,
    TypeRoot.TINYINT: 4,
    TypeRoot.SMALLINT: 6,
    TypeRoot.INTEGER: 11,
    TypeRoot.BIGINT: 20,
    TypeRoot.DATE: 10,
}
_TIMESTAMPS: Final = {TypeRoot.TIMESTAMP_WITHOUT_TIME_ZONE, TypeRoot.TIMESTAMP_WITH_LOCAL_TIME_ZONE}


def column_width(name: str, kind: LogicalType, widest: int = DEFAULT_WIDTH) -> int:
    """Return how many characters a column of a type has; as many as its name at least.

    Args:
        name: of the column.
        kind: of its values.
        widest: that of types whose values may be of any length, ``CHAR(3)`` among them.
    """
    root = kind.root
    if root in _WIDTHS:
        width = _WIDTHS[root]
    elif root is TypeRoot.DECIMAL:
        width = kind.precision + 2  # type: ignore[attr-defined]
    elif root in _TIMESTAMPS:
        digits: int = kind.precision  # type: ignore[attr-defined]
        width = 19 if digits == 0 else 20 + math.ceil(digits / 3) * 3
    elif root is TypeRoot.TIME_WITHOUT_TIME_ZONE:
        digits = kind.precision  # type: ignore[attr-defined]
        width = 8 if digits == 0 else 9 + digits
    else:
        width = widest
    return max(width, len(name), len(NULL))


def print_ok() -> None:
    """Print the result of a statement that has no rows."""
    sys.stdout.write("OK\n")


def print_submitted(job_id: str) -> None:
    """Print the result of a statement that has submitted a job."""
    sys.stdout.write(f"Job has been submitted with JobID {job_id}\n")


def print_rows(
    schema: ResolvedSchema, cells: Sequence[Sequence[str]], widest: int | None = None
) -> None:
    """Print rows that are known to be all.

    Args:
        schema: their columns.
        cells: the texts of their values.
        widest: characters of a column whose values may be of any length; None: columns are as wide
            as their widest cell.
    """
    widths = None
    if widest is not None:
        widths = [column_width(c.name, c.type, widest) for c in schema.columns]
    _print_table(schema.names, cells, widths)


def print_changes(
    schema: ResolvedSchema, changes: Iterable[tuple[RowKind, Sequence[str]]], widest: int
) -> None:
    """Print changes as they come: widths are by type, since later rows are not known.

    Args:
        schema: their columns.
        changes: their kinds and the texts of their values.
        widest: characters of a column whose values may be of any length.
    """
    widths = [2, *(column_width(c.name, c.type, widest) for c in schema.columns)]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    header = _line(["op", *schema.names], widths)
    write = sys.stdout.write
    write(f"{line}\n{header}\n{line}\n")
    count = 0
    for kind, texts in changes:
        write(_line([str(kind), *texts], widths) + "\n")
        count += 1
    if count:
        write(f"{line}\n")
        write(f"{count} row{'' if count == 1 else 's'} in set\n")
    else:
        write("Empty set\n")
    sys.stdout.flush()


_ELLIPSIS: Final = "..."


def display_width(text: str) -> int:
    """How many columns of a terminal a text takes."""
    return sum(2 if unicodedata.east_asian_width(each) in "WF" else 1 for each in text)


def _line(cells: Sequence[str], widths: list[int]) -> str:
    shown = []
    for cell, width in zip(cells, widths, strict=True):
        text = cell
        if display_width(text) > width:
            while display_width(text) > width - len(_ELLIPSIS):
                text = text[:-1]
            text += _ELLIPSIS
        shown.append(" " * (width - display_width(text)) + text)
    return "| " + " | ".join(shown) + " |"


def _print_table(
    names: Sequence[str], cells: Sequence[Sequence[str]], widths: list[int] | None = None
) -> None:
    """Print a table; its columns are as wide as the widest cell unless their widths are given."""
    if widths is None and len(names) == 1 and any("\n" in row[0] for row in cells):
        for row in cells:
            sys.stdout.write(row[0] + "\n")
        return
    if not cells:
        sys.stdout.write("Empty set\n")
        return
    widths = widths or [
        max(map(display_width, column)) for column in zip(names, *cells, strict=True)
    ]
    line = "+" + "+".join("-" * (width + 2) for width in widths) + "+"
    sys.stdout.write(f"{line}\n{_line(names, widths)}\n{line}\n")
    for row in cells:
        sys.stdout.write(_line(row, widths) + "\n")
    count = len(cells)
    sys.stdout.write(f"{line}\n{count} row{'' if count == 1 else 's'} in set\n")
