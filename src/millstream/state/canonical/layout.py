"""Rows of a canonical savepoint: the entries of one section of keyed state, in columns.

What stands in the name of an entry (time, key, window, map key, number) has columns of its own;
so have values that are pickled and that a column holds exactly (``value_form.py``).  What a column
does not hold stands in the column beside it, with the ending ``_other``, as the store has it.  The
name of an entry is made from its columns and compared when it is written, so nothing is lost.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from millstream.errors import StateError
from millstream.functions.window import TimeWindow
from millstream.state.canonical.value_form import OBJECT, ColumnCodec, ValueForm, infer_form
from millstream.state.key_codec import WindowCodec, encode_key, key_group_of_encoded
from millstream.state.key_context import head_of_key
from millstream.state.reader import readable_codec, readable_key
from millstream.state.rescale import key_and_rest, timed_key_and_rest

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
#: How many rows decide of a column's form.
SAMPLE: Final = 4096
#: Of chunks of windows' elements, and of all others.
_WINDOW_NUMBER: Final = struct.Struct(">I")
_NUMBER: Final = struct.Struct(">Q")


class Entry(NamedTuple):
    """An entry of a store, taken apart."""

    key: Any
    stored_key: bytes
    rest: bytes
    time: int
    #: The value; of a list, its elements; of what expires, with times.  ``_OPAQUE`` if only the
    #: bytes are known.
    value: Any
    stored: bytes


class _Row(NamedTuple):
    """An entry, or an element of a list, as a row of the file."""

    entry: Entry
    #: In the list; None if this is all of an entry.
    position: int | None = None
    #: Milliseconds; None if it does not expire, or is only known as it is stored.
    accessed: int | None = None
    value: Any = None
    #: The value as the store has it, if the column does not hold it.
    stored: bytes | None = None


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

    def fits(self, value: Any) -> bool:
        """Return whether the column holds a value."""
        return self.codec is not None and (value is None or self.codec.fits(value))

    def columns(self, values: list[Any], stored: list[bytes | None]) -> dict[str, pa.Array]:
        """The columns of some rows.

        Args:
            values: what fits; None where it does not.
            stored: as the store has it; None where the value fits.
        """
        if self.codec is None:
            return {self.name: pa.array(stored, pa.binary())}
        others = pa.array(stored, pa.binary())
        return {self.name: self.codec.array(values), self.name + OTHER: others}

    def read(self, batch: pa.RecordBatch) -> tuple[list[Any], list[bytes | None]]:
        """Values and stored values of some rows, as ``columns`` takes them."""
        if self.codec is None:
            return [None] * batch.num_rows, batch.column(self.name).to_pylist()
        values = self.codec.values(batch.column(self.name))
        return values, batch.column(self.name + OTHER).to_pylist()

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
        self._columns: dict[str, Column] = {}
        if columns is not None:
            self._columns = {name: Column.of_form(name, form) for name, form in columns.items()}

    # From entries to rows.

    def take_apart(self, name: bytes, stored: bytes) -> Entry:
        """Take an entry of the store apart.

        Raises:
            StateError: its key cannot be read.
        """
        if self.is_chunked:
            time = _time_of(name)
            return Entry(None, b"", name[3:], time, _OPAQUE, stored)
        timed = self._is_timed
        stored_key, rest = timed_key_and_rest(name) if timed else key_and_rest(name)
        value = self._value_of(stored) if self._is_known else _OPAQUE
        key = readable_key(stored_key)
        return Entry(key, stored_key, rest, _time_of(name) if timed else 0, value, stored)

    def _value_of(self, stored: bytes) -> Any:
        """The value, if it is known and would be stored in the same bytes again."""
        try:
            value = self._codec.decode(stored)
            # A pickle has several forms; what is equal and of the same types is the same.
            if self._codec.is_typed and self._codec.encode(value) != stored:
                return _OPAQUE
        except Exception:  # noqa: BLE001 - of whatever a value is: it stays as it is stored
            return _OPAQUE
        return value

    def find_forms(self, entries: Sequence[Entry]) -> None:
        """Choose the forms of columns from the first entries."""
        if self.is_chunked:
            self._columns = {VALUE: Column(VALUE, None)}
            return
        found = {KEY: infer_form(each.key for each in entries)}
        if self._has_map_key:
            found[MAP_KEY] = infer_form(readable_key(each.rest) for each in entries)
        if self.section.format:
            found[VALUE] = infer_form(self._plain_values(entries))
        self._columns = {name: Column.of_form(name, form) for name, form in found.items()}

    def _plain_values(self, entries: Sequence[Entry]) -> Iterator[Any]:
        for entry in entries:
            elements = self._elements(entry)
            yield from [entry.value] if elements is None else (value for _, value in elements)

    def _elements(self, entry: Entry) -> list[tuple[int | None, Any]] | None:
        """Time of last access and value of each element; None if only the bytes are known."""
        found = entry.value if self._is_list else [entry.value]
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

    def batch(self, entries: Sequence[Entry], subtask: int) -> pa.RecordBatch:
        """The rows of some entries.

        Raises:
            StateError: an entry has a name or a value that its section has not.
        """
        if self.is_chunked:
            columns = {
                SUBTASK: pa.array([subtask] * len(entries), pa.int32()),
                TIME: pa.array([each.time for each in entries], pa.int64()),
                NAME: pa.array([each.rest for each in entries], pa.binary()),
                VALUE: pa.array([each.stored for each in entries], pa.binary()),
            }
            return self._record_batch(columns)
        rows = [row for entry in entries for row in self._rows(entry)]
        columns = self._key_columns(KEY, [(row.entry.key, row.entry.stored_key) for row in rows])
        columns.update(self._name_columns([row.entry.rest for row in rows]))
        if self._is_timed:
            columns[TIME] = pa.array([row.entry.time for row in rows], pa.int64())
        if self._is_list:
            columns[POSITION] = pa.array([row.position for row in rows], pa.int32())
        if self._expires:
            columns[LAST_ACCESS] = pa.array([row.accessed for row in rows], pa.timestamp("ms"))
        if self.section.format:
            values, stored = [row.value for row in rows], [row.stored for row in rows]
            columns.update(self._columns[VALUE].columns(values, stored))
        return self._record_batch(columns)

    def _record_batch(self, columns: dict[str, pa.Array]) -> pa.RecordBatch:
        schema = self.schema
        return pa.record_batch([columns[name] for name in schema.names], schema=schema)

    def _rows(self, entry: Entry) -> Iterator[_Row]:
        if not self.section.format:
            if entry.stored:
                message = f"an entry of {self.section.kind} has a value: {entry.stored[:40]!r}"
                raise StateError(message)
            yield _Row(entry)
            return
        column = self._columns[VALUE]
        elements = self._elements(entry)
        if elements and all(column.fits(value) for _, value in elements):
            for position, (time, value) in enumerate(elements):
                yield _Row(entry, position, time, value)
            return
        time = None
        if elements and not self._is_list:
            time = elements[0][0]
        yield _Row(entry, accessed=time, stored=entry.stored)

    def _key_columns(self, name: str, keys: Sequence[tuple[Any, bytes]]) -> dict[str, pa.Array]:
        """The columns of keys or map keys, each given with its bytes in the store."""
        column = self._columns[name]
        values: list[Any] = []
        stored: list[bytes | None] = []
        known, is_held = b"", False
        for key, encoded in keys:
            if encoded != known:
                known = encoded
                is_held = column.fits(key) and encode_key(key) == known
            values.append(key if is_held else None)
            stored.append(None if is_held else known)
        return column.columns(values, stored)

    def _name_columns(self, rests: Sequence[bytes]) -> dict[str, pa.Array]:
        if self._has_map_key:
            return self._key_columns(MAP_KEY, [(readable_key(rest), rest) for rest in rests])
        starts, ends, numbers, others = zip(*map(self._split, rests), strict=True)
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
            shown[name] = [
                value if other is None else read(other)
                for value, other in zip(values, stored, strict=True)
            ]
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
    ) -> Iterator[tuple[int, bytes, bytes]]:
        """Key group (of chunks: subtask), name and value of each entry of some rows.

        Args:
            batches: the rows, in the order in which they were written.
            index: the number that the section has in the new store.

        Raises:
            StateError: rows do not make entries.
        """
        number = _TWO.pack(index)
        if self.is_chunked:
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in (SUBTASK, NAME, VALUE))
                for subtask, rest, stored in zip(*columns, strict=True):
                    yield subtask, b"C" + number + rest, stored
            return
        for time, key, rest, stored in self._values(batches):
            group = key_group_of_encoded(key, self._groups)
            if self._is_timed:
                head = b"T" + number + _TIME.pack(time + _BIAS) + _TWO.pack(group)
                yield group, head + _LENGTH.pack(len(key)) + key + rest, stored
            else:
                yield group, head_of_key(group, index, key) + rest, stored

    def _values(
        self, batches: Iterator[pa.RecordBatch]
    ) -> Iterator[tuple[int, bytes, bytes, bytes]]:
        """Time, encoded key, what stands behind it, and the value as it is stored."""
        if not self._is_list:
            for batch in batches:
                names = self._names(batch)
                yield from (
                    (*name, stored)
                    for name, stored in zip(names, self._stored_values(batch), strict=True)
                )
            return
        # Elements of one list may go on in the next batch.
        place: tuple[int, bytes, bytes] | None = None
        elements: list[Any] = []
        for batch in batches:
            positions = batch.column(POSITION).to_pylist()
            rows = zip(self._names(batch), positions, self._list_values(batch), strict=True)
            for name, position, (value, stored) in rows:
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
                    yield (*place, self._codec.encode(elements))
                place, elements = name, [value]
                if position is None:
                    yield (*name, _present(stored, self.section.name))
                    place = None
        if place is not None:
            yield (*place, self._codec.encode(elements))

    def _names(self, batch: pa.RecordBatch) -> Iterator[tuple[int, bytes, bytes]]:
        times = batch.column(TIME).to_pylist() if self._is_timed else [0] * batch.num_rows
        keys = _encoded_keys(*self._columns[KEY].read(batch))
        if self._has_map_key:
            rests = _encoded_keys(*self._columns[MAP_KEY].read(batch))
        else:
            nothing = [None] * batch.num_rows
            columns = [
                batch.column(name).to_pylist() if name in batch.schema.names else nothing
                for name in (WINDOW_START, WINDOW_END, NUMBER, NAMESPACE)
            ]
            rests = [self._join(*parts) for parts in zip(*columns, strict=True)]
        return zip(times, keys, rests, strict=True)

    def _stored_values(self, batch: pa.RecordBatch) -> list[bytes]:
        if not self.section.format:
            return [b""] * batch.num_rows
        column = self._columns[VALUE]
        if column.codec is None:
            found = column.read(batch)[1]
            return [_present(each, self.section.name) for each in found]
        return [
            self._codec.encode(value) if stored is None else stored
            for value, stored in self._list_values(batch)
        ]

    def _list_values(self, batch: pa.RecordBatch) -> list[tuple[Any, bytes | None]]:
        """Each value, with its time of last access if it expires; and it as it is stored."""
        values, stored = self._columns[VALUE].read(batch)
        if self._expires:
            times = batch.column(LAST_ACCESS).cast(pa.int64()).to_pylist()
            values = list(zip(times, values, strict=True))
        return list(zip(values, stored, strict=True))


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


def _encoded_keys(values: list[Any], stored: list[bytes | None]) -> list[bytes]:
    return [
        encode_key(value) if other is None else other
        for value, other in zip(values, stored, strict=True)
    ]


def _present(stored: bytes | None, name: str) -> bytes:
    if stored is None:
        message = f"a row of state {name!r} has no value"
        raise StateError(message)
    return stored
