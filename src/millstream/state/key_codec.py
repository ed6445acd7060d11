"""Canonical bytes of keys: equal keys have equal bytes in every process and on every machine.

What it is: ``encode_key`` and its inverse ``decode_key``.  The first byte says the type, so 1, True
and 1.0 are three keys.  Lists, dicts and rows may be keys as well: equality of keys is that of
their bytes.  Numpy scalars count as the Python value they hold.

What it is not: a serializer of values (``state/serializers.py``).  A key of a type not
listed here is pickled without back references; two such keys are equal if they pickle alike,
which holds for plain objects but not for, say, objects that hold sets.

Read next: ``state/key_groups.py``.
"""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import struct
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

import numpy as np

from millstream.errors import StateError
from millstream.state.serializers import dumps, find_class, is_importable, loads, remember_class
from millstream.types.row import Row, row_class

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

__all__ = ["CacheKey", "cache_key", "decode_key", "encode_key", "uncache_key", "unpack"]

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
    return f"{cls.__module__}:{cls.__qualname__}".encode()


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
    b"P": loads,
}
