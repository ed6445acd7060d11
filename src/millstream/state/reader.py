"""Reading the state of a checkpoint without the program that wrote it.

State files are copied into a temporary directory; nothing in the checkpoint is touched, so it may
be read while the job runs.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import pickle
import re
import tempfile
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from millstream.contracts.operator import OperatorStateKind
from millstream.errors import StateError
from millstream.state.backend import open_store
from millstream.state.chunks import KEY, counted_rows, decoded_chunk, fragment_runs
from millstream.state.key_codec import WindowCodec, decode_key, unpack
from millstream.state.operator_state import StateReader
from millstream.state.packed_buckets import decoded_bucket
from millstream.state.registry import Section, is_list_format, read_sections
from millstream.state.rescale import key_and_rest, own_states, timed_key_and_rest
from millstream.state.value_codec import codec_of, entry_codec, pickled
from millstream.types.recorded_types import type_of_record
from millstream.types.row import row_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from millstream.checkpoint.model import Manifest
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.key_value_store import KeyValueStore, StateHandle
    from millstream.contracts.operator import OperatorStateHandle
    from millstream.state.value_codec import ValueCodec
    from millstream.types.row import Row


_CODE: Final = re.compile(r"[biufcSUVMmO]\d{1,9}")
_UNITS: Final = {"Y", "M", "W", "D", "h", "m", "s", "ms", "us", "ns", "ps", "fs", "as"}
_OBJECTS: Final = np.dtype(object)
#: What stands for the class of arrays; nothing can be made of it but by ``_reconstruct``.
_ARRAY: Final = object()


class _Type:
    """Stands for a ``dtype``."""

    made: np.dtype[Any] = np.dtype("V0")

    def __init__(self, code: str, *_: object) -> None:
        """Take a code as NumPy pickles it: ``f8``."""
        if not _CODE.fullmatch(code):
            message = f"{code!r} is no plain NumPy type"
            raise ValueError(message)
        self.made = np.dtype(code)

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        """Take byte order, fields and unit of time."""
        _, order, part, names, fields, size, *rest = state
        if self.made == _OBJECTS:
            return
        if part is not None:
            self.made = np.dtype((_plain(part[0]), part[1]))
        elif names is not None:
            formats = [_plain(fields[name][0]) for name in names]
            offsets = [fields[name][1] for name in names]
            described = {"names": names, "formats": formats, "offsets": offsets, "itemsize": size}
            self.made = np.dtype(described)  # type: ignore[call-overload] # of a pickle
        else:
            unit = _unit(rest[-1]) if self.made.kind in "mM" else ""
            self.made = np.dtype(f"{self.made.str[1:]}{unit}").newbyteorder(order)

    def __repr__(self) -> str:
        return repr(self.made)


def _plain(kind: object) -> np.dtype[Any]:
    """The type without objects that a ``_Type`` stands for."""
    if not isinstance(kind, _Type) or kind.made.hasobject:
        message = f"a NumPy value of type {kind!r} is not read"
        raise ValueError(message)
    return kind.made


def _unit(metadata: Any) -> str:
    unit, count, *_ = metadata[-1] if isinstance(metadata[-1], tuple) else metadata
    name = unit.decode()
    return f"[{int(count)}{name}]" if name in _UNITS else ""


class _Array(np.ndarray[Any, Any]):
    """An array whose content is checked before NumPy takes it."""

    def __setstate__(self, state: Any) -> None:
        """Take shape, type, order and content."""
        *_, shape, kind, by_columns, content = state
        count = math.prod(shape)
        if isinstance(content, list) and isinstance(kind, _Type) and kind.made == _OBJECTS:
            found, size = _OBJECTS, len(content)  # objects that were read as all others
        else:
            found, size = _plain(kind), len(content)
            count *= found.itemsize
        if size != count or min(shape, default=0) < 0 or not isinstance(content, (list, bytes)):
            message = f"a NumPy array of shape {shape} and type {found} has {size} of content"
            raise ValueError(message)
        super().__setstate__((1, shape, found, bool(by_columns), content))  # type: ignore[arg-type] # a bool, as pickled

    def __repr__(self) -> str:
        """As that of the array that it is."""
        return repr(self.view(np.ndarray))


def _reconstruct(kind: object, *_: object) -> _Array:
    """An empty array, whose content comes as its state."""
    if kind is not _ARRAY:
        message = f"arrays of {kind!r} are not read"
        raise ValueError(message)
    return _Array((0,), np.int8)


def _scalar(kind: object, content: bytes = b"") -> Any:
    found = _plain(kind)
    if len(content) != found.itemsize:
        message = f"a NumPy value of type {found} has {len(content)} bytes"
        raise ValueError(message)
    # Of a copy: what is read does not hold on to the pickle.
    return np.frombuffer(content, found).copy()[0] if content else np.zeros((), found)[()]


#: What a pickle asks for -> what it is given.
NUMPY: Final[dict[tuple[str, str], Any]] = {
    ("numpy", "ndarray"): _ARRAY,
    ("numpy", "dtype"): _Type,
    ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
    ("numpy.core.multiarray", "scalar"): _scalar,
    ("numpy._core.multiarray", "scalar"): _scalar,
}


#: Classes and functions that a value may be made of: they do nothing but hold what they are given.
_HARMLESS: Final = {
    "builtins": {"bytearray", "complex", "frozenset", "range", "set", "slice"},
    "collections": {"Counter", "OrderedDict", "defaultdict", "deque"},
    "datetime": {"date", "datetime", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "uuid": {"UUID", "SafeUUID"},
    "millstream.types.row": {"RowKind", "row_class"},
    "millstream.types.composite_types": {"TaggedUnion"},
    "millstream.types.time": {"Duration", "Instant", "Time"},
    "millstream.functions.window": {"CountWindow", "GlobalWindow", "TimeWindow"},
}
#: What types stand for in pickles: ``defaultdict(int)``.
_TYPES: Final = {"bool", "bytes", "dict", "float", "int", "list", "object", "str", "tuple"}


class Foreign:
    """An object of a class that is not here: its name, what it was made of, and its fields."""

    def __init__(self, name: str, *arguments: object) -> None:
        """Take the name of the class, and the arguments that it was called with."""
        self.name = name
        self.arguments = list(arguments)
        self.fields: dict[str, object] = {}

    def __setstate__(self, state: object) -> None:
        """Take the fields, as pickle gives them."""
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:
            if isinstance(part, dict):
                self.fields.update({str(key): value for key, value in part.items()})
            elif part is not None:
                self.arguments.append(part)

    def append(self, item: object) -> None:
        """Take an item of a list."""
        self.arguments.append(item)

    def extend(self, items: Any) -> None:
        """Take items of a list."""
        self.arguments.extend(items)

    def add(self, item: object) -> None:
        """Take an item of a set."""
        self.arguments.append(item)

    def __setitem__(self, key: object, value: object) -> None:
        """Take an entry of a dictionary."""
        self.arguments.append((key, value))

    def __call__(self, *arguments: object, **fields: object) -> Foreign:
        made = Foreign(self.name, *self.arguments, *arguments)
        made.fields.update(fields)
        return made

    def __repr__(self) -> str:
        """``shop.Order(number=3)``."""
        parts = [repr(each) for each in self.arguments]
        parts += [f"{name}={value!r}" for name, value in self.fields.items()]
        return f"{self.name}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        """Of the class alone: what is in it may still come."""
        return hash(self.name)


class _Reader(pickle.Unpickler):
    """Finds harmless classes, and stands ``Foreign`` in for all others."""

    def find_class(self, module: str, name: str) -> Any:
        if name in _HARMLESS.get(module, ()) or (module == "builtins" and name in _TYPES):
            return super().find_class(module, name)
        if (module, name) in NUMPY:
            return NUMPY[module, name]
        if (module, name) == ("millstream.state.serializers", "find_class"):
            return _class_by_name
        return _stand_in(module, name)


def _stand_in(module: str, name: str) -> type[Foreign]:
    """A class whose objects show the name of the one that is not here."""
    shown = name if module == "builtins" else f"{module}.{name}"

    def make(cls: type[Foreign], *arguments: object, **fields: object) -> Foreign:
        made = object.__new__(cls)
        Foreign.__init__(made, shown, *arguments)
        made.fields.update(fields)
        return made

    body = {"__new__": make, "__init__": lambda *_, **__: None}
    return type(name.rpartition(".")[2], (Foreign,), body)


def _class_by_name(module: str, name: str) -> type[Foreign]:
    """A class that was stored by name, as those of a script are."""
    return _stand_in(module, name)


def readable_value(stored: bytes) -> Any:
    """The value that was pickled; nothing of the program is imported or run.

    Raises:
        StateError: the bytes are no pickle.
    """
    try:
        return _Reader(io.BytesIO(stored)).load()
    except Exception as error:
        message = f"a value cannot be read ({type(error).__name__}: {error}): {stored[:40]!r}"
        raise StateError(message) from error


def readable_key(encoded: bytes) -> Any:
    """The key with these bytes, as ``encode_key`` made them; nothing of the program is imported.

    Raises:
        StateError: the bytes are not those of a key.
    """
    read = _READERS.get(encoded[:1])
    return decode_key(encoded) if read is None else read(encoded[1:])


def _parts(packed: bytes) -> list[Any]:
    return list(map(readable_key, unpack(packed)))


def _mapping(packed: bytes) -> Foreign:
    parts = _parts(packed)
    return Foreign("dict", *zip(parts[::2], parts[1::2], strict=True))


def _enum(packed: bytes) -> Foreign:
    kind, name = unpack(packed)
    return Foreign(f"{_class_name(kind)}.{name.decode()}")


def _object(packed: bytes) -> Foreign:
    kind, *values = unpack(packed)
    return Foreign(_class_name(kind), *map(readable_key, values))


def _row(packed: bytes) -> Row:
    names, *values = _parts(packed)
    return row_class(None if names is None else tuple(names))(values)


#: What reads the keys that hold others, or are of classes of the program, by their tags.
_READERS: Final[dict[bytes, Callable[[bytes], Any]]] = {
    b"t": lambda rest: tuple(_parts(rest)),
    b"L": _parts,
    b"S": lambda rest: Foreign("set", *_parts(rest)),
    b"Z": lambda rest: Foreign("frozenset", *_parts(rest)),
    b"d": _mapping,
    b"E": _enum,
    b"D": _object,
    b"N": _object,
    b"R": _row,
    b"P": readable_value,
}


def _class_name(encoded: bytes) -> str:
    return encoded.decode().replace(":", ".")


def readable_window(encoded: bytes) -> tuple[object, bytes]:
    """The window that a namespace begins with, and the rest; bytes if it is of a kind of its own.

    A namespace that is no window comes out as it is.
    """
    length = WindowCodec.length_of(encoded)
    if length is None:
        return encoded, b""
    window, rest = encoded[:length], encoded[length:]
    if window[:1] in b"tgc":
        return WindowCodec().decode(window), rest
    content = window[5:]
    return (readable_key(content) if window[:1] == b"x" else content), rest


_TIME_AT: Final = 3
_TIME_SIZE: Final = 8
_SIGN: Final = 2**63
#: Letter, number, time, form of key and number of the flush of a chunk; of fragments the time is
#: that number, and the last byte tells runs from marks.
_CHUNK_NAME: Final = {"panes": 20, "session fragments": 13}
_BATCH: Final = 1024


@dataclass(frozen=True, slots=True)
class StateEntry:
    """One entry of a section, for people."""

    key: object
    value: object
    #: What it is kept under beside the key: window, map key...; None if there is nothing.
    namespace: object = None
    #: Milliseconds: of a timer, or the last of a window or pane.
    time: int | None = None


@dataclass(frozen=True, slots=True)
class StoredSection:
    """A section of an operator, over all its subtasks."""

    section: Section
    entries: int
    #: Of names and values.
    size: int


class OperatorState:
    """The state of one operator of a checkpoint."""

    def __init__(
        self,
        uid: str,
        stores: list[tuple[KeyValueStore, StateHandle]],
        states: list[tuple[int, dict[str, tuple[ValueCodec, Sequence[bytes]]]]],
        described: dict[str, Section],
    ) -> None:
        self.uid = uid
        self._stores = stores
        #: Subtask, and the elements of its states.
        self._states = states
        self._described = described
        # The key groups of all subtasks together are all there are.
        self._max_parallelism = max((handle["key_groups"][1] for _, handle in stores), default=0)

    def sections(self) -> list[StoredSection]:
        """Every section in order of name, then every operator state."""
        found: dict[str, StoredSection] = {}
        for store, _ in self._stores:
            for section in read_sections(store):
                count = size = 0
                for name, value in scan_section(store, section):
                    count += 1
                    size += len(name) + len(value)
                before = found.get(section.name)
                if before is not None:
                    count, size = count + before.entries, size + before.size
                found[section.name] = StoredSection(section, count, size)
        sections = [found[name] for name in sorted(found)]
        for state, section in sorted(self._described.items()):
            sizes = [len(element) for _, element, _ in self._elements(state)]
            sections.append(StoredSection(section, len(sizes), sum(sizes)))
        return sections

    def _elements(self, name: str) -> Iterator[tuple[int, bytes, ValueCodec]]:
        """Subtask, element and codec; of broadcast state, the same in all, those of one."""
        for subtask, states in self._states:
            if name in states:
                codec, elements = states[name]
                yield from ((subtask, element, codec) for element in elements)
                if self._described[name].kind == OperatorStateKind.BROADCAST.label:
                    return

    def entries(self, name: str) -> Iterator[StateEntry]:
        """The entries of the section of this name, subtask by subtask, in the order of the store.

        Raises:
            StateError: an entry cannot be read.
        """
        for store, handle in self._stores:
            for section in read_sections(store):
                if section.name == name:
                    first, stop = handle["key_groups"]
                    yield from _entries(store, section, (self._max_parallelism, (first, stop)))
        for subtask, element, codec in self._elements(name):
            value = codec.decode(element)
            if self._described[name].kind == OperatorStateKind.BROADCAST.label:
                yield StateEntry(*value)
            else:
                yield StateEntry(None, value, namespace=subtask)


@contextlib.contextmanager
def open_state(storage: CheckpointStorage, manifest: Manifest, uid: str) -> Iterator[OperatorState]:
    """Read the state of an operator of a checkpoint.

    Raises:
        CorruptCheckpointError: a file of the checkpoint is missing or damaged.
    """
    acks = manifest.operators.get(uid, [])
    handles = [ack.state for ack in acks if ack.state is not None]
    read = StateReader(storage)
    states: list[tuple[int, dict[str, tuple[ValueCodec, Sequence[bytes]]]]] = []
    described: dict[str, Section] = {}
    for ack in acks:
        own = own_states(ack.operator_states)
        elements = {
            name: (readable_elements(part.handle), read(part)) for name, (part,) in own.items()
        }
        states.append((ack.subtask, elements))
        for name, state in ack.operator_states.items():
            described[name] = Section(name, -1, state.kind.label, "S", "", "pickle", state.type)
    with contextlib.ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="millstream-state-")))
        stores = []
        for number, handle in enumerate(handles):
            first, stop = handle["key_groups"]
            store = open_store(
                handle["backend"],
                storage,
                uid,
                number,
                (first, stop),
                [handle],
                f"read-{number}",
                root,
            )
            stack.callback(store.close)
            stores.append((store, handle))
        yield OperatorState(uid, stores, states, described)


def scan_section(store: KeyValueStore, section: Section) -> Iterator[tuple[bytes, bytes]]:
    """The entries of a section as they are stored, in order."""
    index = section.index.to_bytes(2, "big")
    after = (section.index + 1).to_bytes(2, "big") if section.index < 0xFFFF else b"\xff\xff\xff"  # noqa: PLR2004
    letter = section.letter.encode()
    if section.letter != "K":
        yield from store.scan(letter + index, letter + after)
        return
    position = b"K"
    while True:  # group by group: the number of the section stands behind it
        entry = next(iter(store.scan(position, b"L")), None)
        if entry is None:
            return
        group = entry[0][:3]
        yield from store.scan(group + index, group + after)
        position = b"K" + (int.from_bytes(group[1:], "big") + 1).to_bytes(2, "big")


def _entries(
    store: KeyValueStore, section: Section, groups: tuple[int, tuple[int, int]]
) -> Iterator[StateEntry]:
    if section.letter == "C":
        yield from _chunk_entries(store, section, groups)
        return
    entries = scan_section(store, section)
    while batch := list(islice(entries, _BATCH)):
        for name, value in batch:
            yield _entry(section, name, value)


def _entry(section: Section, name: bytes, value: bytes) -> StateEntry:
    timed = section.letter == "T"
    key, rest = timed_key_and_rest(name) if timed else key_and_rest(name)
    time = _time_of(name) if timed else None
    return StateEntry(readable_key(key), _value(section, value), _namespace(section, rest), time)


def _time_of(name: bytes) -> int:
    return int.from_bytes(name[_TIME_AT : _TIME_AT + _TIME_SIZE], "big") - _SIGN


def _namespace(section: Section, rest: bytes) -> object:
    """What stands behind the key."""
    if not rest:
        return None
    if section.namespace == "map key":
        return readable_key(rest)
    if section.namespace == "bucket":
        return int.from_bytes(rest, "big")
    if section.namespace in ("number", "sequence"):
        return int.from_bytes(rest[:8], "big")  # the epoch, or the number of the chunk
    if section.namespace == "timer":
        rest = rest.removeprefix(b"w")  # timers of windows
    window, behind = readable_window(rest)
    return (window, int.from_bytes(behind, "big")) if behind else window


@lru_cache(maxsize=100)
def _codec(schema: str, form: str, expires: bool) -> ValueCodec:  # noqa: FBT001
    """The codec of typed values; dataclasses are rows."""
    recorded = json.loads(schema)
    kind = None if recorded is None else type_of_record(recorded, "row")
    lists = is_list_format(form)
    return codec_of(kind, lists=lists, expires=expires, unpickle=readable_value)


def readable_codec(section: Section) -> ValueCodec:
    """The codec of the values of a section, which finds no class of the program."""
    if section.format.startswith("typed"):
        return _codec(json.dumps(section.schema), section.format, section.expires)
    return pickled(readable_value)


def readable_elements(handle: OperatorStateHandle) -> ValueCodec:
    """The codec of the elements of an operator state, which finds no class of the program."""
    kind, key = (
        None if schema is None else type_of_record(schema, "row")
        for schema in map(handle.schemas.get, ("schema", "key_schema"))
    )
    if handle.kind is OperatorStateKind.BROADCAST:
        return entry_codec(key, kind, readable_value)
    return codec_of(kind, unpickle=readable_value)


def _value(section: Section, stored: bytes) -> object:
    if section.format == "":
        return None
    if section.format == "packed":
        return stored
    if section.format == "packed map":
        return decoded_bucket(stored)[2]
    value = readable_codec(section).decode(stored)
    if section.format == "pickled windows":
        return [
            (readable_window(window)[0], [readable_window(each)[0] for each in states])
            for window, states in value
        ]
    return value


def _chunk_entries(
    store: KeyValueStore, section: Section, groups: tuple[int, tuple[int, int]]
) -> Iterator[StateEntry]:
    """The rows of columnar chunks, those of other subtasks and those taken out left away."""
    length = _CHUNK_NAME[section.kind]
    if section.kind == "session fragments":
        for _, table, alive, _ in fragment_runs(scan_section(store, section), length, groups):
            yield from (_fragment(row) for row in counted_rows(table, alive))
        return
    for name, value in scan_section(store, section):
        for row in counted_rows(*decoded_chunk(name, length, value, groups)):
            yield StateEntry(_key(row), row, None, _time_of(name))


def _key(row: dict[str, Any]) -> object:
    """Take the key out of a row."""
    key = row.pop(KEY)
    return readable_key(key) if isinstance(key, bytes) else key


def _fragment(row: dict[str, Any]) -> StateEntry:
    key = _key(row)
    try:
        bounds = (row.pop("window_start"), row.pop("window_end"))
    except KeyError as error:
        message = f"a session fragment of key {key!r} has no {error}"
        raise StateError(message) from error
    return StateEntry(key, row, bounds)
