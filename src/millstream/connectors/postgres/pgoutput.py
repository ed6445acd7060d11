"""Messages of PostgreSQL's output plugin ``pgoutput``, protocol version 1, and values in them.

The format is that of the chapter "Logical Replication Message Formats" of PostgreSQL's manual.
"""

from __future__ import annotations

import datetime as dt
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.errors import MalformedRecordError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: Seconds from 1970 to 2000, where PostgreSQL's clock begins.
_EPOCH_2000: Final = 946_684_800


class UnchangedToast:
    """Stands for a large value that an update did not touch, and that the server did not send."""

    def __repr__(self) -> str:
        return "unchanged"


UNCHANGED: Final = UnchangedToast()
Value = bytes | None | UnchangedToast


@dataclass(frozen=True, slots=True)
class Begin:
    """A transaction begins, all of which is sent after its commit."""

    #: Where its commit record begins.
    commit_lsn: int
    #: Milliseconds since 1970, when it was committed.
    time: int
    #: The lower 32 bits of its number.
    xid: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A transaction is complete."""

    #: Where its commit record ends.
    end_lsn: int


@dataclass(frozen=True, slots=True)
class Relation:
    """The columns of a table, from here on."""

    oid: int
    schema: str
    table: str
    #: Name -> oid of its type, in the order of values.
    columns: dict[str, int]


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that was inserted, updated or deleted: ``kind`` is I, U or D."""

    oid: int
    kind: str
    #: The row as it was: whole (FULL), or NULL but for the key (DEFAULT); None: not sent.
    old: tuple[Value, ...] | None
    new: tuple[Value, ...] | None
    #: Whether ``old`` holds the key alone.
    is_key: bool = False


@dataclass(frozen=True, slots=True)
class Truncate:
    """All rows of tables were deleted."""

    oids: tuple[int, ...]


Message = Begin | Commit | Relation | RowChange | Truncate


class _Bytes:
    """Reads a message from its begin to its end."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    def number(self, form: str) -> int:
        """The next integer, of a format of ``struct``."""
        (found,) = struct.unpack_from(form, self._content, self._at)
        self._at += struct.calcsize(form)
        return int(found)

    def byte(self) -> str:
        """The next byte as a character."""
        return chr(self.number(">B"))

    def text(self) -> str:
        """The next text, which ends with a zero byte."""
        end = self._content.index(0, self._at)
        found = self._content[self._at : end].decode()
        self._at = end + 1
        return found

    def row(self) -> tuple[Value, ...]:
        """The next row."""
        return tuple(self._value() for _ in range(self.number(">H")))

    def _value(self) -> Value:
        kind = self.byte()
        if kind == "n":
            return None
        if kind == "u":
            return UNCHANGED
        size = self.number(">I")
        self._at += size
        return self._content[self._at - size : self._at]


def parse(content: bytes) -> Message | None:
    """Return a message; None for those that say nothing of rows (types, origins).

    Raises:
        SourceError: it is not of this version of the protocol.
    """
    reader = _Bytes(content)
    kind = reader.byte()
    if kind == "B":
        lsn, micros = reader.number(">Q"), reader.number(">q")
        return Begin(lsn, micros // 1000 + 1000 * _EPOCH_2000, reader.number(">I"))
    if kind == "C":
        reader.number(">B")
        reader.number(">Q")
        return Commit(reader.number(">Q"))
    if kind == "R":
        return _relation(reader)
    if kind in "IUD":
        return _change(reader, kind)
    if kind == "T":
        count = reader.number(">I")
        reader.number(">B")
        return Truncate(tuple(reader.number(">I") for _ in range(count)))
    if kind in "YOM":
        return None
    message = f"pgoutput sent a message {kind!r}, which its protocol version 1 does not have"
    raise SourceError(message)


def _relation(reader: _Bytes) -> Relation:
    oid, schema, table = reader.number(">I"), reader.text(), reader.text()
    reader.byte()  # the replica identity
    columns = {}
    for _ in range(reader.number(">H")):
        reader.number(">B")
        name = reader.text()
        columns[name] = reader.number(">I")
        reader.number(">i")
    return Relation(oid, schema, table, columns)


def _change(reader: _Bytes, kind: str) -> RowChange:
    oid, part = reader.number(">I"), reader.byte()
    old = None
    is_key = part == "K"
    if part in "KO":
        old = reader.row()
        part = reader.byte() if kind == "U" else ""
    return RowChange(oid, kind, old, reader.row() if part == "N" else None, is_key)


# -- values ----------------------------------------------------------------------------------------


def array_items(text: str) -> list[str | None] | None:
    """Return the items of a one-dimensional array of PostgreSQL's, as texts.

    Raises:
        ValueError: it has several dimensions.
    """
    if text.startswith("["):  # bounds that do not begin at 1
        text = text.partition("=")[2]
    items: list[str | None] = []
    at, end = 1, len(text) - 1
    while at < end:
        if text[at] == "{":
            message = f"{text!r:.100} has several dimensions"
            raise ValueError(message)
        found: list[str] = []
        quoted = text[at] == '"'
        at += quoted
        while at < end and text[at] != ('"' if quoted else ","):
            at += text[at] == "\\"
            found.append(text[at])
            at += 1
        item = "".join(found)
        items.append(None if item == "NULL" and not quoted else item)
        at += 1 + quoted
    return items


def _time(text: str) -> dt.time:
    return dt.time.fromisoformat(text)


#: Arrow type -> makes a value of a text, where Arrow cannot.
_PARSERS: Final[dict[pa.DataType, Callable[[str], object]]] = {
    pa.bool_(): {"t": True, "f": False}.__getitem__,
    pa.float32(): float,
    pa.float64(): float,
    pa.time32("s"): _time,
    pa.time32("ms"): _time,
    pa.time64("us"): _time,
    pa.time64("ns"): _time,
    pa.binary(): lambda text: bytes.fromhex(text.removeprefix("\\x")),
}


def readable(kind: pa.DataType) -> bool:
    """Return whether texts of PostgreSQL's can be read as values of a type."""
    if pa.types.is_list(kind):
        return readable(kind.value_type) and not pa.types.is_list(kind.value_type)
    types = pa.types
    return (
        kind in _PARSERS
        or types.is_integer(kind)
        or types.is_decimal(kind)
        or types.is_string(kind)
        or types.is_date(kind)
        or types.is_timestamp(kind)
    )


def _column(texts: Sequence[str | None], kind: pa.DataType) -> pa.Array:
    parser = _PARSERS.get(kind)
    if parser is not None:
        return pa.array([None if each is None else parser(each) for each in texts], kind)
    if pa.types.is_list(kind):
        lists = [None if each is None else array_items(each) for each in texts]
        flat = [item for each in lists for item in each or ()]
        offsets, count = [], 0
        for each in lists:
            offsets.append(None if each is None else count)
            count += len(each or ())
        values = _column(flat, kind.value_type)
        return pa.ListArray.from_arrays(pa.array([*offsets, count], pa.int32()), values).cast(kind)
    column = pa.array(texts, pa.string())
    if pa.types.is_timestamp(kind):
        # With the digits that the server has, then those that the column is declared with.
        return column.cast(pa.timestamp("us", kind.tz)).cast(kind, safe=False)
    if pa.types.is_decimal(kind):
        # Rounded to the digits of the declared type, as a cast in SQL rounds.
        wide = column.cast(pa.decimal256(76, max(kind.scale, _scale(column))))
        return pc.round(wide, kind.scale, round_mode="half_towards_infinity").cast(kind)
    return column.cast(kind)


def _scale(column: pa.Array) -> int:
    parts = (each.partition(".")[2] for each in column.to_pylist() if each is not None)
    return min(37, max(map(len, parts), default=0))


def to_columns(
    rows: Sequence[Sequence[bytes | str | None]], schema: pa.Schema, place: str
) -> list[pa.Array]:
    """Make columns of rows of texts.

    Args:
        rows: with a value for each field.
        schema: the fields.
        place: the table, for errors.

    Raises:
        MalformedRecordError: names a column with a value that its type cannot hold.
    """
    texts = [
        [value.decode() if isinstance(value, bytes) else value for value in column]
        for column in (zip(*rows, strict=True) if rows else [()] * len(schema))
    ]
    columns = []
    for values, field in zip(texts, schema, strict=True):
        try:
            columns.append(_column(values, field.type))
        except (pa.ArrowException, ValueError, KeyError, OverflowError) as error:
            bad = next((each for each in values if not _fits(each, field.type)), None)
            message = (
                f"{place}: column {field.name!r} has the value {bad!r:.100}, which cannot be read"
                f" as {field.type}: declare the column with a type that holds it, or as STRING"
            )
            raise MalformedRecordError(message) from error
    return columns


def _fits(text: str | None, kind: pa.DataType) -> bool:
    try:
        _column([text], kind)
    except (pa.ArrowException, ValueError, KeyError, OverflowError):
        return False
    return True
