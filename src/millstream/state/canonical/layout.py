"""Rows of a canonical savepoint: the entries of one section of keyed state, in columns.

What stands in the name of an entry (time, key, window, map key, number) has columns of its own;
so have values that are pickled and that a column holds exactly (``value_form.py``).  What a column
does not hold stands in the column beside it, with the ending ``_other``, as the store has it.  The
name of an entry is made from its columns and compared when it is written, so nothing is lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.errors import StateError
from millstream.functions.window import TimeWindow
from millstream.state.canonical.key_columns import (
    encoded_keys,
    held_keys,
    key_groups,
)
from millstream.state.canonical.value_form import OBJECT, ColumnCodec, ValueForm, infer_form
from millstream.state.key_codec import WindowCodec, encode_key
from millstream.state.key_context import heads_of_keys
from millstream.state.reader import readable_codec, readable_key
from millstream.state.rescale import keys_and_rests

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.state.registry import Section


#: Ending of the column of what another column does not hold.
OTHER: Final = "_other"
KEY: Final = "key"
MAP_KEY: Final = "map_key"
VALUE: Final = "value"
TIME: Final = "time"
SUBTASK: Final = "subtask"
NAME: Final = "name"
NUMBER: Final = "number"
POSITION: Final = "position"
LAST_ACCESS: Final = "last_access"
NAMESPACE: Final = "namespace"
WINDOW_START: Final = "window_start"
WINDOW_END: Final = "window_end"

_TIME: Final = struct.Struct(">Q")
_BIAS: Final = 2**63
#: Milliseconds; about the year 4100.
_LATEST: Final = 2**46
_TWO: Final = struct.Struct(">H")
_LENGTH: Final = struct.Struct(">I")
_WINDOWS: Final = WindowCodec()
_INTEGERS: Final = ("Byte", "Short", "Integer", "Long")
#: How many rows decide of a column's form.
SAMPLE: Final = 4096
#: Of chunks of windows' elements, and of all others.
_WINDOW_NUMBER: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")


@dataclass(frozen=True, slots=True)
class Entries:
    """Some entries of a store, taken apart, in lists of one length."""

    #: As ``encode_key`` makes them; empty in chunks.
    keys: list[bytes]
    #: What stands behind the keys.
    rests: list[bytes]
    times: list[int]
    #: Each is the value; of a list, its elements; of what expires, with times.  ``_OPAQUE`` if only
    #: the bytes are known.
    values: list[Any]
    stored: list[bytes]


NO_ENTRIES: Final = Entries([], [], [], [], [])


@dataclass(slots=True)
class _ValueRows:
    """The values of some entries as rows of the file."""

    #: Of each entry: how many rows it has; None: one.
    counts: list[int] | None
    #: In lists; null if a row is all of an entry.
    positions: pa.Array | None
    #: Milliseconds; None if it does not expire, or is only known as it is stored.
    accessed: list[int | None] | None
    columns: dict[str, pa.Array]


#: Stands for a value of which only the bytes are known.
_OPAQUE: Final = object()


@dataclass(slots=True)
class Column:
    """A column of values of one form, and beside it what that does not hold.

    Args:
        name: of the column.
        codec: of its form; None: it holds values as the store does.
    """

    name: str
    codec: ColumnCodec | None

    @property
    def fields(self) -> list[tuple[str, pa.DataType]]:
        """Names and types of the columns in the file."""
        if self.codec is None:
            return [(self.name, pa.binary())]
        return [(self.name, self.codec.type), (self.name + OTHER, pa.binary())]

    def fits(self, *values: Any) -> bool:
        """Return whether the column holds some values."""
        return self.codec is not None and self.codec.fits(*values)

    def columns(self, values: Sequence[Any], stored: Sequence[bytes]) -> dict[str, pa.Array]:
        """The columns of some rows.

        Args:
            values: of which it may hold some.
            stored: as the store has them.
        """
        if self.codec is None:
            return {self.name: pa.array(stored, pa.binary())}
        column, others = self.codec.array(values), pa.nulls(len(values), pa.binary())
        if column is None:
            held = [self.fits(value) for value in values]
            column = self.codec.array(
                [value if fits else None for value, fits in zip(values, held, strict=True)]
            )
            others = pa.array(stored, pa.binary(), mask=np.array(held, bool))
        return {self.name: column, self.name + OTHER: others}

    def read(self, batch: pa.RecordBatch) -> tuple[list[Any], list[bytes | None] | None]:
        """Values of some rows, and what stands in the store for others; None: nothing does."""
        if self.codec is None:
            return [None] * batch.num_rows, batch.column(self.name).to_pylist()
        return self.codec.values(batch.column(self.name)), self.others(batch)

    def others(self, batch: pa.RecordBatch) -> list[bytes | None] | None:
        """What the column does not hold of some rows; None: it holds them all."""
        others = batch.column(self.name + OTHER)
        return None if others.null_count == len(others) else others.to_pylist()

    def form(self) -> dict[str, Any]:
        """Its form as the metadata of the file has it."""
        return {"kind": "stored"} if self.codec is None else self.codec.form.to_json()

    @classmethod
    def of_form(cls, name: str, form: ValueForm) -> Column:
        """A column of that name; of values as the store has them where the form is not known."""
        return cls(name, ColumnCodec(form) if form.is_known else None)


class SectionLayout:
    """The columns of one section, and how entries are rows of them.

    Args:
        section: of a store.
        max_parallelism: of the operator; only entries need it.
        columns: forms of keys, map keys and values, as a file has them; None: they are found from
            the first entries.
    """

    def __init__(
        self,
        section: Section,
        max_parallelism: int = 0,
        columns: dict[str, ValueForm] | None = None,
    ) -> None:
        self.section = section
        self._groups = max_parallelism
        self.is_chunked = section.letter == "C"
        self._is_timed = section.letter == "T"
        self._has_map_key = section.namespace == "map key"
        self._has_window = "window" in section.namespace or section.namespace == "timer"
        self._has_number = section.namespace in ("number", "sequence", "window, number")
        self._number = _WINDOW_NUMBER if self._has_window else _NUMBER
        self._is_list = section.format in ("pickled list", "typed list")
        #: Whether the value is known, and not only its bytes.
        self._is_known = self._is_list or section.format in ("pickle", "typed")
        self._codec = readable_codec(section)
        self._expires = section.expires and self._is_known
        #: Whether a number may stand in more bytes than it needs (``ValueCodec.encode_all``).
        self._has_widths = section.format == "typed" and section.schema in _INTEGERS
        self._columns: dict[str, Column] = {}
        if columns is not None:
            self._columns = {name: Column.of_form(name, form) for name, form in columns.items()}

    # From entries to rows.

    def take_apart(
        self, names: list[bytes], stored: list[bytes], *, now: int | None = None
    ) -> Entries:
        """Take entries of the store apart, of which there are some.

        Args:
            names: of the entries.
            stored: their values.
            now: milliseconds of the clock by which the state expires: what has expired by then is
                left out; None: nothing is.
        """
        times = list(map(_time_of, names)) if self.is_chunked or self._is_timed else []
        if self.is_chunked:
            values = [_OPAQUE] * len(names)
            return Entries([], [name[3:] for name in names], times, values, stored)
        keys, rests = keys_and_rests(names, timed=self._is_timed)
        found = Entries(keys, rests, times, self._known_values(stored), stored)
        ttl = self.section.ttl
        return found if now is None or ttl is None else self._alive(found, now - ttl)

    def _alive(self, entries: Entries, until: int) -> Entries:
        """Leave out what was last accessed at ``until`` or before."""
        values, stored = list(entries.values), list(entries.stored)
        kept = []
        for at, value in enumerate(entries.values):
            elements = value if self._is_list else [value]
            if type(elements) is not list or not all(map(_is_stamped, elements)):
                kept.append(at)  # only its bytes are known
                continue
            alive = [each for each in elements if each[0] > until]
            if alive or not elements:
                kept.append(at)
            if 0 < len(alive) < len(elements):
                values[at] = alive
                if self._codec.is_typed:  # what is pickled may hold stand-ins
                    stored[at] = self._codec.encode(alive)
        columns = (entries.keys, entries.rests, entries.times, values, stored)
        return Entries(*([each[at] for at in kept] if each else [] for each in columns))  # type: ignore[arg-type] # five lists

    def _known_values(self, stored: list[bytes]) -> list[Any]:
        """Each value, if it is known and would be stored in equal bytes again."""
        if not self._is_known:
            return [_OPAQUE] * len(stored)
        try:
            values = list(self._codec.decode_all(stored))
            are_known = (
                not self._codec.is_typed
                or (self._has_widths and set(map(type, values)) == {int})
                or list(map(self._codec.encode, values)) == stored
            )
        except Exception:  # noqa: BLE001 - of whatever a value is
            are_known = False
        return values if are_known else list(map(self._value_of, stored))

    def _value_of(self, stored: bytes) -> Any:
        try:
            value = self._codec.decode(stored)
            # A pickle has several forms; what is equal and of the same types is the same.
            if self._codec.is_typed and self._codec.encode(value) != stored:
                if self._expires and not self._is_list:
                    return value[0], _OPAQUE
                return value if self._has_widths and type(value) is int else _OPAQUE
        except Exception:  # noqa: BLE001 - of whatever a value is: it stays as it is stored
            return _OPAQUE
        return value

    def find_forms(self, entries: Entries) -> None:
        """Choose the forms of columns from the first entries.

        Raises:
            StateError: a key cannot be read.
        """
        if self.is_chunked:
            self._columns = {VALUE: Column(VALUE, None)}
            return
        found = {KEY: infer_form(map(readable_key, entries.keys[:SAMPLE]))}
        if self._has_map_key:
            found[MAP_KEY] = infer_form(map(readable_key, entries.rests[:SAMPLE]))
        if self.section.format:
            found[VALUE] = infer_form(self._plain_values(entries.values[:SAMPLE]))
        self._columns = {name: Column.of_form(name, form) for name, form in found.items()}

    def _plain_values(self, values: list[Any]) -> Iterator[Any]:
        for value in values:
            elements = self._elements(value)
            yield from [value] if elements is None else (each for _, each in elements)

    def _elements(self, value: Any) -> list[tuple[int | None, Any]] | None:
        """Time of last access and value of each element; None if only the bytes are known."""
        found = value if self._is_list else [value]
        if type(found) is not list or found[:1] == [_OPAQUE]:
            return None
        if not self._expires:
            return [(None, each) for each in found]
        return found if all(map(_is_stamped, found)) else None

    @property
    def typed_columns(self) -> list[str]:
        """The names of the columns that have forms."""
        if self.is_chunked:
            return [VALUE]
        names = [KEY, MAP_KEY] if self._has_map_key else [KEY]
        return [*names, VALUE] if self.section.format else names

    @property
    def schema(self) -> pa.Schema:
        """The columns of the file, without metadata; those that are mostly null come last."""
        if self.is_chunked:
            fixed = [(SUBTASK, pa.int32()), (TIME, pa.int64()), (NAME, pa.binary())]
            return pa.schema([*fixed, *self._columns[VALUE].fields])
        fields = [(TIME, pa.int64())] if self._is_timed else []
        fields += self._columns[KEY].fields
        if self._has_map_key:
            fields += self._columns[MAP_KEY].fields
        else:
            if self._has_window:
                fields += [(WINDOW_START, pa.int64()), (WINDOW_END, pa.int64())]
            if self._has_number:
                fields.append((NUMBER, pa.int64()))
            fields.append((NAMESPACE, pa.binary()))
        if self._is_list:
            fields.append((POSITION, pa.int32()))
        if self._expires:
            fields.append((LAST_ACCESS, pa.timestamp("ms")))
        if self.section.format:
            fields += self._columns[VALUE].fields
        return pa.schema(sorted(fields, key=lambda each: each[0].endswith((OTHER, NAMESPACE))))

    @property
    def forms(self) -> dict[str, Any]:
        """The forms of its columns, as the metadata of the file has them."""
        return {name: column.form() for name, column in self._columns.items()}

    @property
    def value_forms(self) -> dict[str, ValueForm]:
        """The forms of its columns; OBJECT of those that hold values as the store does."""
        return {
            name: OBJECT if column.codec is None else column.codec.form
            for name, column in self._columns.items()
        }

    def batch(self, entries: Entries, subtask: int) -> pa.RecordBatch:
        """The rows of some entries.

        Raises:
            StateError: an entry has a name or a value that its section has not.
        """
        if self.is_chunked:
            columns = {
                SUBTASK: pa.array([subtask] * len(entries.rests), pa.int32()),
                TIME: pa.array(entries.times, pa.int64()),
                NAME: pa.array(entries.rests, pa.binary()),
                VALUE: pa.array(entries.stored, pa.binary()),
            }
            return self._record_batch(columns)
        columns = self._key_columns(KEY, entries.keys)
        columns.update(self._name_columns(entries.rests))
        if self._is_timed:
            columns[TIME] = pa.array(entries.times, pa.int64())
        rows = self._value_rows(entries)
        if rows.counts is not None:
            places = pa.array(np.repeat(np.arange(len(rows.counts)), rows.counts))
            columns = {name: column.take(places) for name, column in columns.items()}
        if self._is_list:
            columns[POSITION] = rows.positions
        if self._expires:
            columns[LAST_ACCESS] = pa.array(rows.accessed, pa.timestamp("ms"))
        columns.update(rows.columns)
        return self._record_batch(columns)

    def _record_batch(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        schema = self.schema
        return pa.record_batch([columns[name] for name in schema.names], schema=schema)

    def _value_rows(self, entries: Entries) -> _ValueRows:
        if not self.section.format:
            for stored in filter(None, entries.stored):
                message = f"an entry of {self.section.kind} has a value: {stored[:40]!r}"
                raise StateError(message)
            return _ValueRows(None, None, None, {})
        if self._is_list:
            return self._list_rows(entries)
        values: list[Any] = entries.values
        accessed: list[int | None] | None = None
        if self._expires:
            stamped = [each if _is_stamped(each) else (None, _OPAQUE) for each in values]
            accessed, values = (list(each) for each in zip(*stamped, strict=True))
        return _ValueRows(
            None, None, accessed, self._columns[VALUE].columns(values, entries.stored)
        )

    def _list_rows(self, entries: Entries) -> _ValueRows:
        column = self._columns[VALUE]
        counts: list[int] = []
        positions: list[int | None] = []
        accessed: list[int | None] = []
        values: list[Any] = []
        stored: list[bytes] = []
        for value, content in zip(entries.values, entries.stored, strict=True):
            elements = self._elements(value)
            if not elements or not column.fits(*(each for _, each in elements)):
                elements = [(None, _OPAQUE)]
                positions.append(None)
            else:
                positions.extend(range(len(elements)))
            counts.append(len(elements))
            for time, each in elements:
                accessed.append(time)
                values.append(each)
                stored.append(content)
        places = pa.array(positions, pa.int32())
        return _ValueRows(counts, places, accessed, column.columns(values, stored))

    def _key_columns(self, name: str, encoded: list[bytes]) -> dict[str, pa.Array]:
        """The columns of keys or map keys."""
        column = self._columns[name]
        if column.codec is None:
            return {name: pa.array(encoded, pa.binary())}
        held, others = held_keys(encoded, column.codec, readable_key)
        return {name: held, name + OTHER: others}

    def _name_columns(self, rests: list[bytes]) -> dict[str, pa.Array]:
        if self._has_map_key:
            return self._key_columns(MAP_KEY, rests)
        distinct = set(rests)
        if distinct == {b""}:
            kinds = dict.fromkeys((WINDOW_START, WINDOW_END, NUMBER), pa.int64())
            kinds[NAMESPACE] = pa.binary()
            return {name: pa.nulls(len(rests), kind) for name, kind in kinds.items()}
        parts = {rest: self._split(rest) for rest in distinct}
        starts, ends, numbers, others = zip(*map(parts.__getitem__, rests), strict=True)
        columns = {NAMESPACE: pa.array(others, pa.binary())}
        if self._has_window:
            columns[WINDOW_START] = pa.array(starts, pa.int64())
            columns[WINDOW_END] = pa.array(ends, pa.int64())
        if self._has_number:
            columns[NUMBER] = pa.array(numbers, pa.int64())
        return columns

    def _split(self, rest: bytes) -> tuple[int | None, int | None, int | None, bytes | None]:
        """Start and end of a window, a number, and what stands behind the key if it is neither."""
        nothing = (None, None, None, None)
        if not rest:
            return nothing
        at = len(rest) - self._number.size if self._has_number else len(rest)
        head, tail = rest[: max(at, 0)], rest[max(at, 0) :]
        number = int.from_bytes(tail, "big") if self._has_number else None
        start = end = None
        if self._has_window:
            encoded = head.removeprefix(b"w") if self.section.namespace == "timer" else head
            if encoded[:1] == b"t" and len(encoded) == WindowCodec.length_of(encoded):
                window = _WINDOWS.decode(encoded)
                start, end = window.start, window.end
        try:
            if self._join(start, end, number, None) == rest:
                return start, end, number, None
        except (OverflowError, struct.error):
            pass
        return None, None, None, rest

    def _join(
        self, start: int | None, end: int | None, number: int | None, namespace: bytes | None
    ) -> bytes:
        """What stands behind the key, of the parts that ``_split`` gives."""
        if namespace is not None:
            return namespace
        found = b""
        if start is not None and end is not None:
            found = b"w" if self.section.namespace == "timer" else b""
            found += _WINDOWS.encode(TimeWindow(start, end))
        return found if number is None else found + self._number.pack(number)

    # From rows to values for people and programs.

    def readable_rows(self, batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
        """Yield rows with keys and values as Python objects; nothing of the program is imported.

        A list of which the column holds no element is one row, with all of its elements.

        Raises:
            StateError: a key or value cannot be read.
        """
        shown = {
            name: batch.column(name).to_pylist()
            for name in batch.schema.names
            if not name.endswith(OTHER) and name not in self._columns
        }
        for name, column in self._columns.items():
            values, stored = column.read(batch)
            read = readable_key if name != VALUE else self._readable
            if stored is not None:
                values = [
                    value if other is None else read(other)
                    for value, other in zip(values, stored, strict=True)
                ]
            shown[name] = values
        names = [name for name in self.schema.names if name in shown]
        for row in zip(*(shown[name] for name in names), strict=True):
            yield dict(zip(names, row, strict=True))

    def _readable(self, stored: bytes) -> Any:
        if not self._is_known:
            return stored
        value = self._codec.decode(stored)
        if self._is_list and self._expires:
            return [each for _, each in value]
        return value[1] if self._expires else value

    # From rows to entries.

    def entries(
        self, batches: Iterator[pa.RecordBatch], index: int
    ) -> Iterator[tuple[list[int], list[bytes], list[bytes]]]:
        """Key groups (of chunks: subtasks), names and values of the entries of some rows.

        Args:
            batches: the rows, in the order in which they were written.
            index: the number that the section has in the new store.

        Yields:
            Some of them at a time.

        Raises:
            StateError: rows do not make entries.
        """
        number = _TWO.pack(index)
        if self.is_chunked:
            for batch in batches:
                subtasks, names, stored = (
                    batch.column(name).to_pylist() for name in (SUBTASK, NAME, VALUE)
                )
                yield subtasks, [b"C" + number + name for name in names], stored
            return
        for times, keys, rests, stored in self._values(batches):
            groups = key_groups(keys, self._groups)
            if self._is_timed:
                heads = [
                    b"T"
                    + number
                    + _TIME.pack(time + _BIAS)
                    + _TWO.pack(group)
                    + _LENGTH.pack(len(key))
                    + key
                    for time, group, key in zip(times, groups, keys, strict=True)
                ]
            else:
                heads = heads_of_keys(groups, index, keys)
            yield groups, list(map(bytes.__add__, heads, rests)) if any(rests) else heads, stored

    def _values(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[list[int], list[bytes], list[bytes], list[bytes]]]:
        """Times, encoded keys, what stands behind them, and values as they are stored."""
        if self._is_list:
            yield from self._lists(batches)
            return
        for batch in batches:
            if batch.num_rows:
                yield (*self._names(batch), self._stored_values(batch))

    def _lists(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[list[int], list[bytes], list[bytes], list[bytes]]]:
        # Elements of one list may go on in the next batch.
        place: tuple[int, bytes, bytes] | None = None
        elements: list[Any] = []
        found: list[tuple[int, bytes, bytes, bytes]] = []
        for batch in batches:
            positions = batch.column(POSITION).to_pylist()
            names = zip(*self._names(batch), strict=True)
            rows = zip(names, positions, *self._list_values(batch), strict=True)
            for name, position, value, stored in rows:
                if position != 0 and position is not None:
                    if name != place or position != len(elements):
                        message = (
                            f"row {position} of a list of state {self.section.name!r} does not"
                            " follow the one before it"
                        )
                        raise StateError(message)
                    elements.append(value)
                    continue
                if place is not None:
                    found.append((*place, self._codec.encode(elements)))
                place, elements = name, [value]
                if position is None:
                    found.append((*name, _present(stored, self.section.name)))
                    place = None
            if found:
                yield tuple(map(list, zip(*found, strict=True)))  # type: ignore[misc] # four lists
                found = []
        if place is not None:
            yield [place[0]], [place[1]], [place[2]], [self._codec.encode(elements)]

    def _names(self, batch: pa.RecordBatch) -> tuple[list[int], list[bytes], list[bytes]]:
        times = batch.column(TIME).to_pylist() if self._is_timed else [0] * batch.num_rows
        keys = self._encoded_keys(KEY, batch)
        if self._has_map_key:
            return times, keys, self._encoded_keys(MAP_KEY, batch)
        columns = {
            name: batch.column(name)
            for name in (WINDOW_START, WINDOW_END, NUMBER, NAMESPACE)
            if name in batch.schema.names
        }
        if all(column.null_count == len(column) for column in columns.values()):
            return times, keys, [b""] * batch.num_rows
        nothing = [None] * batch.num_rows
        parts = [
            columns[name].to_pylist() if name in columns else nothing
            for name in (WINDOW_START, WINDOW_END, NUMBER, NAMESPACE)
        ]
        return times, keys, [self._join(*each) for each in zip(*parts, strict=True)]

    def _encoded_keys(self, name: str, batch: pa.RecordBatch) -> list[bytes]:
        column = self._columns[name]
        if column.codec is None:
            stored: list[bytes] = batch.column(name).to_pylist()
            return [encode_key(None) if each is None else each for each in stored]
        return encoded_keys(batch.column(name), column.others(batch), column.codec)

    def _stored_values(self, batch: pa.RecordBatch) -> list[bytes]:
        if not self.section.format:
            return [b""] * batch.num_rows
        values, stored = self._list_values(batch)
        if self._columns[VALUE].codec is None:
            return [_present(each, self.section.name) for each in stored]
        encode = self._codec.encode
        return [
            encode(value) if other is None else other
            for value, other in zip(values, stored, strict=True)
        ]

    def _list_values(self, batch: pa.RecordBatch) -> tuple[list[Any], list[bytes | None]]:
        """Values, with their times of last access if they expire; and them as they are stored."""
        values, stored = self._columns[VALUE].read(batch)
        if self._expires:
            times = batch.column(LAST_ACCESS).cast(pa.int64()).to_pylist()
            values = list(zip(times, values, strict=True))
        return values, [None] * batch.num_rows if stored is None else stored


def _is_stamped(value: Any) -> bool:
    """Return whether a value has its time of last access, and that can be shown as a date."""
    return (
        type(value) is tuple
        and len(value) == 2  # noqa: PLR2004 - time and value
        and type(value[0]) is int
        and -_LATEST < value[0] < _LATEST
    )


def _time_of(name: bytes) -> int:
    return int(_TIME.unpack_from(name, 3)[0]) - _BIAS


def _present(stored: bytes | None, name: str) -> bytes:
    if stored is None:
        message = f"a row of state {name!r} has no value"
        raise StateError(message)
    return stored
