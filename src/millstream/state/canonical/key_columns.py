"""Encoded keys of state as columns, and back: the usual ones without an object for each."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.state.key_codec import (
    INT,
    INT_TAG,
    encode_key,
    key_group_of_encoded,
    key_groups_of_ints,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.state.canonical.value_form import ColumnCodec, ValueForm


_LENGTH: Final = struct.Struct(">I")
_INT_KEY: Final = np.dtype([("tag", "u1"), ("key", ">i8")])
_TEXTS: Final = {"str": b"s", "bytes": b"b"}


def key_column(encoded: Sequence[bytes], form: ValueForm) -> pa.Array | None:
    """Return the column of some keys, taken from their bytes.

    Args:
        encoded: as ``encode_key`` makes them.
        form: of the column.

    Returns:
        The column; None if a key may not be of the form, or the form is not a usual one.
    """
    if form.kind == "int":
        return _int_column(encoded)
    if form.kind in _TEXTS:
        return _text_column(encoded, form.kind)
    if form.kind == "tuple" and encoded:
        return _tuple_column(encoded, form)
    return None


def _int_column(encoded: Sequence[bytes]) -> pa.Array | None:
    if set(map(len, encoded)) != {INT.size}:
        return None
    keys = np.frombuffer(b"".join(encoded), _INT_KEY)
    if not (keys["tag"] == INT_TAG).all():
        return None
    return pa.array(keys["key"].astype(np.int64))


def _text_column(encoded: Sequence[bytes], kind: str) -> pa.Array | None:
    tag = _TEXTS[kind]
    if not all(key.startswith(tag) for key in encoded):
        return None
    column = pa.array([key[1:] for key in encoded], pa.binary())
    try:
        return column.cast(pa.string()) if kind == "str" else column
    except pa.ArrowInvalid:  # half of a surrogate pair
        return None


def _tuple_column(encoded: Sequence[bytes], form: ValueForm) -> pa.Array | None:
    parts = _parts(encoded, len(form.parts))
    if parts is None:
        return None
    arrays = []
    for part, each in zip(parts, form.parts, strict=True):
        array = key_column(part, each)
        if array is None:
            return None
        arrays.append(array)
    names = [f"f{number}" for number in range(len(arrays))]
    return pa.StructArray.from_arrays(arrays, names)


def _parts(encoded: Sequence[bytes], count: int) -> list[list[bytes]] | None:
    """The parts of tuples of one length; None if a key is none."""
    if not all(key.startswith(b"t") for key in encoded):
        return None
    joined = b"".join(encoded)
    content = np.frombuffer(joined, np.uint8)
    ends = np.cumsum(np.fromiter(map(len, encoded), np.int64, len(encoded)))
    at = np.concatenate([[0], ends[:-1]]) + 1
    found = []
    for _ in range(count):
        starts = at + _LENGTH.size
        if (starts > ends).any():
            return None
        lengths = content[at[:, None] + np.arange(_LENGTH.size)].view(">u4")[:, 0]
        at = starts + lengths
        if (at > ends).any():
            return None
        found.append([joined[a:b] for a, b in zip(starts.tolist(), at.tolist(), strict=True)])
    return found if (at == ends).all() else None


def encoded_keys(
    column: pa.Array, others: Sequence[bytes | None] | None, codec: ColumnCodec
) -> list[bytes]:
    """Return the bytes of the keys of a column, as ``encode_key`` makes them.

    Args:
        column: of keys.
        others: bytes of the keys that the column does not hold; None: it holds all of them.
        codec: of the column.
    """
    found = None
    if others is None and not column.null_count:
        found = _encoded(column, codec.form)
    if found is not None:
        return found
    encoded = list(map(encode_key, codec.values(column)))
    if others is None:
        return encoded
    return [key if other is None else other for key, other in zip(encoded, others, strict=True)]


def _encoded(column: pa.Array, form: ValueForm) -> list[bytes] | None:
    if column.null_count:
        return None
    if form.kind == "int":
        keys = np.empty(len(column), _INT_KEY)
        keys["tag"], keys["key"] = INT_TAG, column.to_numpy(zero_copy_only=False)
        found: list[bytes] = keys.view(f"V{_INT_KEY.itemsize}").tolist()
        return found
    if form.kind in _TEXTS:
        tag = _TEXTS[form.kind]
        contents = column.cast(pa.binary()).to_numpy(zero_copy_only=False)
        return [tag + content for content in contents.tolist()]
    if form.kind != "tuple":
        return None
    parts = [_encoded(*each) for each in zip(column.flatten(), form.parts, strict=True)]
    known = [part for part in parts if part is not None]
    return list(map(_packed, *known)) if len(known) == len(parts) else None


def _packed(*parts: bytes) -> bytes:
    length = _LENGTH.pack
    return b"t" + b"".join([length(len(part)) + part for part in parts])


def key_groups(encoded: Sequence[bytes], max_parallelism: int) -> list[int]:
    """Return the key group of each of some encoded keys."""
    if encoded and encoded[0][0] == INT_TAG:
        column = _int_column(encoded)
        if column is not None:
            groups: list[int] = key_groups_of_ints(column.to_numpy(), max_parallelism).tolist()
            return groups
    return [key_group_of_encoded(key, max_parallelism) for key in encoded]


def held_keys(
    encoded: Sequence[bytes], codec: ColumnCodec, read: Callable[[bytes], Any]
) -> tuple[pa.Array, pa.Array]:
    """Return the column of some keys, and that of the bytes of those that it does not hold.

    Args:
        encoded: the keys.
        codec: of the column.
        read: gives the key of its bytes.

    Raises:
        StateError: a key cannot be read.
    """
    column = key_column(encoded, codec.form)
    if column is not None:
        return column, pa.nulls(len(encoded), pa.binary())
    values: list[Any] = []
    others: list[bytes | None] = []
    known: dict[bytes, tuple[Any, bytes | None]] = {}
    for each in encoded:
        found = known.get(each)
        if found is None:
            key = read(each)
            is_held = codec.fits(key) and encode_key(key) == each
            found = known[each] = (key, None) if is_held else (None, each)
        values.append(found[0])
        others.append(found[1])
    column = codec.array(values)
    assert column is not None  # noqa: S101 - each fits
    return column, pa.array(others, pa.binary())
