"""What the sink has stored in an SQLite database, read again.

What it is: names, connections and values that the scan of a table and the look-up of rows share.

What it is not: a source.

Read next: ``connectors/embedded/source.py``, ``connectors/lookups/sqlite_rows.py``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.commit_protocols.table_rows import quoted_parts, table_parts

__all__ = ["column_of", "quoted_table", "read_only"]

#: By the unit of a column: digits of a second, and what is behind them.
_DIGITS: Final = {
    "s": r"()\.\d+",
    "ms": r"(\.\d{3})\d+",
    "us": r"(\.\d{6})\d+",
    "ns": r"(\.\d{9})\d+",
}


def quoted_table(table: str) -> str:
    """The name of a table, quoted; a file has one schema: other dots are part of the name."""
    parts = table_parts(table)
    is_plain = parts[0] != "main" and not table.startswith('"')
    return quoted_parts([table] if is_plain else parts)


def read_only(path: str) -> str:
    """The address of a database file that is not made where it is missing."""
    return f"{Path(path).absolute().as_uri()}?mode=ro"


def column_of(values: list[Any], field: pa.Field) -> pa.Array:
    """Values of SQLite, which has no booleans, decimals and times, as the sink writes them.

    Raises:
        ValueError: one of them does not fit the type; it names the column.
    """
    kind = field.type
    try:
        if pa.types.is_boolean(kind):
            return pa.array(values, pa.int64()).cast(kind)
        if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            texts = pa.array([None if each is None else str(each) for each in values], pa.string())
            if pa.types.is_timestamp(kind):
                # Digits that the column does not have are cut, as everywhere.
                texts = pc.replace_substring_regex(texts, _DIGITS[kind.unit], r"\1")
            return texts.cast(kind)
        return pa.array(values, kind)
    except (pa.ArrowException, OverflowError) as error:
        message = f"column {field.name!r} does not fit {kind}: {error}"
        raise ValueError(message) from error
