"""Key groups, and canonical bytes of keys: equal in every process and on every machine.

The first byte is the type, so 1, True and 1.0 are three keys.  Lists, dicts and rows may be keys as
well: equality of keys is that of their bytes.  Numpy scalars count as the Python value they hold.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import struct
import zlib
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np
import pyarrow as pa

from millstream.errors import ProgramError, StateError
from millstream.functions.window import CountWindow, GlobalWindow, TimeWindow, Window
from millstream.state.serializers import (
    dumps,
    find_class,
    is_importable,
    load_stored,
    remember_class,
    stored_place,
)
from millstream.types.row import Row, row_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray


#: What a key is looked up by in memory: int and str as they are, all else by its encoded bytes.
CacheKey: TypeAlias = int | str | bytes

INT_TAG: Final = 0x69  # "i"
INT: Final = struct.Struct(">Bq")
_FLOAT: Final = struct.Struct(">Bd")
_LENGTH: Final = struct.Struct(">I")
_SMALLEST: Final = -(2**63)
_LARGEST: Final = 2**63 - 1


def cache_key(key: object) -> CacheKey:
    """What ``key`` is looked up by in memory."""
    kind = type(key)
    if kind is int or kind is str:
        return key  # type: ignore[return-value]
    if isinstance(key, np.generic):
        return cache_key(key.item())
    return encode_key(key)


def uncache_key(key: CacheKey) -> object:
    """The key that ``cache_key`` was made of (an equal one)."""
    return decode_key(key) if type(key) is bytes else key


def encode_key(key: object) -> bytes:
    """The canonical bytes of ``key``.

    Raises:
        StateError: the key holds something that cannot be pickled.
    """
    encoder = _ENCODERS.get(type(key))
    return encoder(key) if encoder is not None else _encode_other(key)


def decode_key(encoded: bytes) -> object:
    """A key equal to the one that was encoded.

    Raises:
        StateError: the bytes are not those of a key.
    """
    decoder = _DECODERS.get(encoded[:1])
    if decoder is None:
        message = f"these bytes are not an encoded key: {encoded[:40]!r}"
        raise StateError(message)
    return decoder(encoded[1:])


def _encode_int(key: int) -> bytes:
    if _SMALLEST <= key <= _LARGEST:
        return INT.pack(INT_TAG, key)
    return b"I" + key.to_bytes(key.bit_length() // 8 + 1, "big", signed=True)


def _encode_float(key: float) -> bytes:
    # There is one zero and one NaN among keys.
    return _FLOAT.pack(0x66, math.nan if key != key else key + 0.0)  # noqa: PLR0124


def _encode_decimal(key: Decimal) -> bytes:
    sign, digits, exponent = key.as_tuple()
    if not isinstance(exponent, int):
        return b"m" + str(key).encode()
    text = "".join(map(str, digits)).lstrip("0")
    stripped = text.rstrip("0")
    if not stripped:
        return b"m0"
    exponent += len(text) - len(stripped)
    return f"m{'-' if sign else ''}{stripped}E{exponent}".encode()


def _pack(parts: Iterable[bytes]) -> bytes:
    return b"".join([_LENGTH.pack(len(part)) + part for part in parts])


def unpack(packed: bytes) -> Iterator[bytes]:
    """The parts of a key that holds others, each as it is encoded."""
    position = 0
    while position < len(packed):
        (length,) = _LENGTH.unpack_from(packed, position)
        position += 4
        yield packed[position : position + length]
        position += length


def _encode_mapping(key: dict[object, object]) -> bytes:
    entries = sorted((encode_key(name), encode_key(value)) for name, value in key.items())
    return b"d" + _pack(part for entry in entries for part in entry)


def _decode_mapping(packed: bytes) -> dict[object, object]:
    parts = [decode_key(part) for part in unpack(packed)]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def _encode_class(cls: type) -> bytes:
    if not is_importable(cls):
        remember_class(cls)
    return ":".join(stored_place(cls)).encode()


def _decode_class(encoded: bytes) -> type:
    module, _, name = encoded.decode().partition(":")
    return find_class(module, name)


def _encode_row(key: Row) -> bytes:
    names = getattr(key, "_fields", None)
    return b"R" + _pack(
        [encode_key(None if names is None else tuple(names)), *map(encode_key, key)]
    )


def _decode_row(packed: bytes) -> Row:
    names, *values = (decode_key(part) for part in unpack(packed))
    if names is None:
        return Row(*values)
    return row_class(cast("tuple[str, ...]", names))(values)


def _encode_dataclass(key: object) -> bytes:
    fields = dataclasses.fields(key)  # type: ignore[arg-type]
    values = (encode_key(getattr(key, each.name)) for each in fields)
    return b"D" + _pack([_encode_class(type(key)), *values])


def _decode_dataclass(packed: bytes) -> object:
    first, *rest = unpack(packed)
    cls: Any = _decode_class(first)
    made: object = cls.__new__(cls)
    for each, part in zip(dataclasses.fields(cls), rest, strict=True):
        object.__setattr__(made, each.name, decode_key(part))
    return made


def _decode_named_tuple(packed: bytes) -> object:
    first, *rest = unpack(packed)
    return _decode_class(first)(*map(decode_key, rest))


def _decode_enum(packed: bytes) -> object:
    cls, name = unpack(packed)
    return _decode_class(cls)[name.decode()]  # type: ignore[index]


def _encode_timedelta(key: timedelta) -> bytes:
    return b"l" + f"{key.days},{key.seconds},{key.microseconds}".encode()


def _encode_other(key: object) -> bytes:
    if isinstance(key, np.generic):
        return encode_key(key.item())
    if isinstance(key, Row):
        return _encode_row(key)
    if isinstance(key, Enum):
        return b"E" + _pack([_encode_class(type(key)), key.name.encode()])
    if dataclasses.is_dataclass(key):
        return _encode_dataclass(key)
    if isinstance(key, tuple) and hasattr(key, "_fields"):
        return b"N" + _pack([_encode_class(type(key)), *map(encode_key, key)])
    return b"P" + _pickle(key)


def _pickle(key: object) -> bytes:
    # Without back references, or a key that holds one object twice would differ from an equal
    # one that holds two equal objects.
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, 5)
    pickler.fast = True
    try:
        pickler.dump(key)
    except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
        return dumps(key)
    return buffer.getvalue()


_ENCODERS: Final[dict[type, Callable[..., bytes]]] = {
    int: _encode_int,
    str: lambda key: b"s" + key.encode("utf-8", "surrogatepass"),
    bytes: lambda key: b"b" + key,
    bytearray: lambda key: b"B" + bytes(key),
    bool: lambda key: b"T" if key else b"F",
    float: _encode_float,
    type(None): lambda _: b"n",
    tuple: lambda key: b"t" + _pack(map(encode_key, key)),
    list: lambda key: b"L" + _pack(map(encode_key, key)),
    dict: _encode_mapping,
    set: lambda key: b"S" + _pack(sorted(map(encode_key, key))),
    frozenset: lambda key: b"Z" + _pack(sorted(map(encode_key, key))),
    Decimal: _encode_decimal,
    datetime: lambda key: b"w" + key.isoformat().encode(),
    date: lambda key: b"y" + key.isoformat().encode(),
    time: lambda key: b"h" + key.isoformat().encode(),
    timedelta: _encode_timedelta,
}

_DECODERS: Final[dict[bytes, Callable[[bytes], object]]] = {
    b"i": lambda rest: int.from_bytes(rest, "big", signed=True),
    b"I": lambda rest: int.from_bytes(rest, "big", signed=True),
    b"s": lambda rest: rest.decode("utf-8", "surrogatepass"),
    b"b": lambda rest: rest,
    b"B": bytearray,
    b"T": lambda _: True,
    b"F": lambda _: False,
    b"f": lambda rest: struct.unpack(">d", rest)[0],
    b"n": lambda _: None,
    b"t": lambda rest: tuple(map(decode_key, unpack(rest))),
    b"L": lambda rest: list(map(decode_key, unpack(rest))),
    b"d": _decode_mapping,
    b"S": lambda rest: set(map(decode_key, unpack(rest))),
    b"Z": lambda rest: frozenset(map(decode_key, unpack(rest))),
    b"m": lambda rest: Decimal(rest.decode()),
    b"w": lambda rest: datetime.fromisoformat(rest.decode()),
    b"y": lambda rest: date.fromisoformat(rest.decode()),
    b"h": lambda rest: time.fromisoformat(rest.decode()),
    b"l": lambda rest: timedelta(*map(int, rest.decode().split(","))),
    b"R": _decode_row,
    b"E": _decode_enum,
    b"D": _decode_dataclass,
    b"N": _decode_named_tuple,
    b"P": load_stored,
}


_PLAIN: Final = frozenset({int, str, bool, float, bytes})


class KeyTypes:
    """What was seen of the keys of one operator subtask since the last snapshot."""

    __slots__ = ("_found", "_looked")

    def __init__(self) -> None:
        self._found: set[str] = set()
        self._looked = False

    def see(self, keys: Sequence[Any]) -> None:
        """Look at the keys of a batch."""
        if not keys:
            return
        sample = (keys[0], keys[-1]) if self._looked else keys
        self._looked = True
        for key in {type(key): key for key in sample}.values():
            name = type_of_key(key)
            if name is not None:
                self._found.add(name)

    def see_column(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Look at a key column (``runtime/columnar/row_groups.py``)."""
        if not len(keys):
            return
        if pa.types.is_binary(keys.type):
            self.see([decode_key(keys[0].as_py()), decode_key(keys[len(keys) - 1].as_py())])
        else:
            self._found.add("str" if pa.types.is_string(keys.type) else "int")

    def take(self) -> list[str]:
        """Return what was found, and begin again."""
        found = sorted(self._found)
        self._found = set()
        self._looked = False
        return found


def type_of_key(key: object) -> str | None:
    """The name of the type of a key; None if the key, or a part of it, is None and has none."""
    kind = type(key)
    if kind in _PLAIN:
        return kind.__name__
    if isinstance(key, np.generic):
        return type_of_key(key.item())
    name = kind.__qualname__
    if kind.__module__ != "builtins":
        name = f"{kind.__module__}.{name}"
    parts: Sequence[object] = ()
    if isinstance(key, Row):
        names = key.get_field_names()
        name = "Row" if names is None else f"Row({', '.join(names)})"
        parts = key
    elif isinstance(key, tuple | list):
        parts = key
    elif dataclasses.is_dataclass(key):
        parts = [getattr(key, each.name) for each in dataclasses.fields(key)]
    names_of_parts = [type_of_key(part) for part in parts]
    if key is None or None in names_of_parts:
        return None
    return f"{name}[{', '.join(map(str, names_of_parts))}]" if parts else name


_MASK: Final = 2**64 - 1
_FIRST_FACTOR: Final = 0xFF51AFD7ED558CCD
_SECOND_FACTOR: Final = 0xC4CEB9FE1A85EC53
_SHIFT: Final = np.uint64(33)


def key_group(key: object, max_parallelism: int) -> int:
    """The key group of ``key``, in ``range(max_parallelism)``."""
    return key_group_of_cache_key(cache_key(key), max_parallelism)


def key_group_of_cache_key(key: CacheKey, max_parallelism: int) -> int:
    """The key group of a key in the form that ``cache_key`` gives."""
    if type(key) is int:
        if _SMALLEST <= key <= _LARGEST:
            mixed = key & _MASK
            mixed = (mixed ^ (mixed >> 33)) * _FIRST_FACTOR & _MASK
            mixed = (mixed ^ (mixed >> 33)) * _SECOND_FACTOR & _MASK
            return (mixed ^ (mixed >> 33)) % max_parallelism
        return zlib.crc32(encode_key(key)) % max_parallelism
    encoded = key if type(key) is bytes else encode_key(key)
    return zlib.crc32(encoded) % max_parallelism


def key_group_of_encoded(encoded: bytes, max_parallelism: int) -> int:
    """The key group of a key, from the bytes that ``encode_key`` has made of it."""
    if encoded[0] == INT_TAG:
        return key_group_of_cache_key(INT.unpack(encoded)[1], max_parallelism)
    return zlib.crc32(encoded) % max_parallelism


def key_groups_of_ints(keys: NDArray[np.int64], max_parallelism: int) -> NDArray[np.int32]:
    """The key groups of an array of 64-bit integers; agrees with ``key_group``."""
    mixed = keys.astype(np.int64, copy=False).view(np.uint64)
    mixed = (mixed ^ (mixed >> _SHIFT)) * np.uint64(_FIRST_FACTOR)
    mixed = (mixed ^ (mixed >> _SHIFT)) * np.uint64(_SECOND_FACTOR)
    mixed = mixed ^ (mixed >> _SHIFT)
    return (mixed % np.uint64(max_parallelism)).astype(np.int32)


def key_groups_of_array(
    keys: pa.Array | pa.ChunkedArray, max_parallelism: int
) -> NDArray[np.int32]:
    """The key groups of a column of scalars; agrees with ``key_group`` of ``keys.to_pylist()``."""
    if isinstance(keys, pa.ChunkedArray):
        keys = keys.combine_chunks()
    kind = keys.type
    if pa.types.is_integer(kind) and keys.null_count == 0 and kind != pa.uint64():
        return key_groups_of_ints(keys.to_numpy(zero_copy_only=False), max_parallelism)
    if not pa.types.is_dictionary(kind):
        try:
            keys = keys.dictionary_encode("encode")
        except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # nested: one by one
            groups = [key_group(key, max_parallelism) for key in keys.to_pylist()]
            return np.array(groups, dtype=np.int32)
    groups = [key_group(key, max_parallelism) for key in keys.dictionary.to_pylist()]
    if keys.null_count:  # a dictionary that was given has its nulls among the indices
        groups.append(key_group(None, max_parallelism))
        keys = keys.indices.fill_null(len(groups) - 1)
    else:
        keys = keys.indices
    found: NDArray[np.int32] = np.array(groups, dtype=np.int32)[keys.to_numpy(zero_copy_only=False)]
    return found


def subtask_of(group: int, max_parallelism: int, parallelism: int) -> int:
    """The subtask that holds key group ``group``."""
    return group * parallelism // max_parallelism


def key_group_range(subtask: int, max_parallelism: int, parallelism: int) -> tuple[int, int]:
    """The first key group of ``subtask`` and the last one + 1."""
    first = -(-subtask * max_parallelism // parallelism)
    stop = -(-(subtask + 1) * max_parallelism // parallelism)
    return first, stop


_BIAS: Final = 2**71
_TIME_SIZE: Final = 9
_NUMBER: Final = struct.Struct(">cQ")
_WINDOW_CODEC_LENGTH: Final = struct.Struct(">cI")
_MOST_KNOWN: Final = 20_000


class WindowCodec:
    """Encodes and decodes the windows of one assigner."""

    __slots__ = ("_known", "_serializer")

    def __init__(self, serializer: Any = None) -> None:
        """Take what ``get_window_serializer`` returned; None or an object with ``serialize``."""
        self._serializer = serializer if hasattr(serializer, "serialize") else None
        self._known: dict[bytes, Window] = {}

    def encode(self, window: Any) -> bytes:
        """Return the bytes of ``window``.

        Raises:
            ProgramError: it is not a window.
        """
        kind = type(window)
        if kind is TimeWindow:
            start: int = window.start
            end: int = window.end
            return (
                b"t"
                + (start + _BIAS).to_bytes(_TIME_SIZE, "big")
                + (end + _BIAS).to_bytes(_TIME_SIZE, "big")
            )
        if kind is GlobalWindow:
            return b"g"
        if kind is CountWindow:
            return _NUMBER.pack(b"c", window.id)
        if not isinstance(window, Window):
            message = f"a window assigner returned {window!r}, which is not a Window"
            raise ProgramError(message)
        if self._serializer is not None:
            stream = io.BytesIO()
            self._serializer.serialize(window, stream)
            content = stream.getvalue()
            return _WINDOW_CODEC_LENGTH.pack(b"s", len(content)) + content
        content = encode_key(window)
        return _WINDOW_CODEC_LENGTH.pack(b"x", len(content)) + content

    @staticmethod
    def length_of(encoded: bytes) -> int | None:
        """How many bytes the window has that ``encoded`` begins with; None if it is no window."""
        letter = encoded[:1]
        if letter in b"sx" and len(encoded) >= _WINDOW_CODEC_LENGTH.size:
            return _WINDOW_CODEC_LENGTH.size + int(_WINDOW_CODEC_LENGTH.unpack_from(encoded)[1])
        return {b"t": 1 + 2 * _TIME_SIZE, b"g": 1, b"c": _NUMBER.size}.get(letter)

    def decode(self, encoded: bytes) -> Any:
        """Return the window with these bytes."""
        found = self._known.get(encoded)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[encoded] = self._decode(encoded)
        return found

    def _decode(self, encoded: bytes) -> Any:
        letter = encoded[:1]
        if letter == b"t":
            middle = 1 + _TIME_SIZE
            start = int.from_bytes(encoded[1:middle], "big") - _BIAS
            return TimeWindow(start, int.from_bytes(encoded[middle:], "big") - _BIAS)
        if letter == b"g":
            return GlobalWindow()
        if letter == b"c":
            return CountWindow(_NUMBER.unpack(encoded)[1])
        content = encoded[_WINDOW_CODEC_LENGTH.size :]
        if letter == b"s":
            if self._serializer is None:
                message = "the state holds windows of a serializer that the assigner no longer has"
                raise ProgramError(message)
            return self._serializer.deserialize(io.BytesIO(content))
        return decode_key(content)
