"""Keys of PostgreSQL's rows as integers: what the ranges of ``PostgresSource`` are made of.

What it is: for each type of keys, SQL for the integer of a key, and for the keys whose integers lie
in a range.  Integers, dates, timestamps and UUIDs keep their order, so that a range of integers is
a range of an index.  Texts have no distance between them: theirs is a hash, for which an index has
to be made.

What it is not: the reading (``connectors/postgres/source.py``).

Read next: ``connectors/postgres/source.py``.
"""

from __future__ import annotations

from typing import Final

from millstream.connectors.commit_protocols.table_rows import identifier

__all__ = ["KEY_TYPES", "NO_KEY", "key_number", "key_order", "key_range"]

#: A type of keys -> the integer of a key, and the key of an integer, in SQL.
_ORDERED: Final = {
    "int2": ("{0}::bigint", "{0}"),
    "int4": ("{0}::bigint", "{0}"),
    "int8": ("{0}", "{0}"),
    "date": ("({0} - date '1970-01-01')::bigint", "date '1970-01-01' + {0}"),
    "timestamp": (
        "(extract(epoch from {0}) * 1000000)::bigint",
        "timestamp '1970-01-01' + {0} * interval '1 microsecond'",
    ),
    "timestamptz": (
        "(extract(epoch from {0}) * 1000000)::bigint",
        "timestamptz '1970-01-01 00:00+00' + {0} * interval '1 microsecond'",
    ),
}
#: So many bits of a UUID, or of the hash of a text, make its integer.
_BITS: Final = 60
_UUID_NUMBER: Final = "('x' || left(replace({0}::text, '-', ''), 15))::bit(60)::bigint"
_TEXT_NUMBER: Final = "('x' || left(md5({0}::text), 15))::bit(60)::bigint"
_TEXTS: Final = frozenset({"text", "varchar", "bpchar", "name"})
#: For messages.
KEY_TYPES: Final = "an integer, a date, a timestamp, a UUID or a text"
#: Selects the rows without a key.
NO_KEY: Final = "{0} IS NULL"


def key_number(key: str, kind: str) -> str | None:
    """SQL for the integer of a key; None if keys of this type have none.

    Args:
        key: the column.
        kind: the name of its type.
    """
    if kind in _ORDERED:
        return _ORDERED[kind][0].format(identifier(key))
    if kind == "uuid":
        return _UUID_NUMBER.format(identifier(key))
    return _TEXT_NUMBER.format(identifier(key)) if kind in _TEXTS else None


def key_range(key: str, kind: str, start: int, stop: int) -> str:
    """SQL for the rows whose integers are in ``[start, stop)``."""
    if kind in _TEXTS:
        number = _TEXT_NUMBER.format(identifier(key))
        return f"{number} >= {start} AND {number} < {stop}"
    column, most = identifier(key), 1 << _BITS
    if kind != "uuid":
        to_key = _ORDERED[kind][1]
        return f"{column} >= {to_key.format(start)} AND {column} < {to_key.format(stop)}"
    # Behind the last UUID there is none.
    below = "" if stop >= most else f" AND {column} < '{_uuid(stop)}'::uuid"
    return f"{column} >= '{_uuid(start)}'::uuid{below}"


def key_order(key: str, kind: str) -> str:
    """SQL for the order in which ranges follow each other."""
    column = identifier(key)
    return f"{_TEXT_NUMBER.format(column)}, {column}" if kind in _TEXTS else column


def _uuid(number: int) -> str:
    """The first UUID with this integer."""
    return f"{number:015x}" + "0" * 17
