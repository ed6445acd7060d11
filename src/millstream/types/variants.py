"""Variants: values of JSON with their own types, in the open Variant encoding.

Flink, Spark and Parquet share it: a dictionary of field names (the metadata), then the value.  Both
are in the narrowest form here, names in order of appearance, so the same JSON is always the same
bytes and bytes can be compared.
"""

from __future__ import annotations

import struct
from decimal import Decimal
from itertools import pairwise
from typing import Any, Final

from millstream.types.text_values import double_text, json_text

_PRIMITIVE, _SHORT_TEXT, _OBJECT, _ARRAY = range(4)
_NULL, _TRUE, _FALSE, _INT8 = range(4)
_DOUBLE: Final = 7
_DECIMAL4: Final = 8
_TEXT: Final = 16
_MOST_SHORT: Final = 63
_MOST_SMALL: Final = 255
_MOST_DIGITS: Final = 38
_VERSION: Final = 1
_INT_WIDTHS: Final = (1, 2, 4, 8)
#: Digits of the decimals of 4, 8 and 16 bytes.
_DECIMAL_DIGITS: Final = (9, 18, 38)
_LONG: Final = 1 << 63


def _width(number: int) -> int:
    """How many bytes a number takes."""
    return max(1, (number.bit_length() + 7) // 8)


def _bytes(number: int, width: int) -> bytes:
    return number.to_bytes(width, "little")


def _offsets(parts: list[bytes], width: int) -> bytes:
    found, at = [_bytes(0, width)], 0
    for part in parts:
        at += len(part)
        found.append(_bytes(at, width))
    return b"".join(found)


# -- writing ----------------------------------------------------------------------------------


def encode_variant(value: Any) -> bytes:
    """The bytes of a value of JSON.

    Args:
        value: None, bool, int, Decimal, float, str, list or dict.  A Decimal or an int that has
            too many digits becomes a float.
    """
    names: dict[str, int] = {}
    data = _encoded(value, names)
    parts = [name.encode("utf-8", "replace") for name in names]
    width = _width(max(sum(map(len, parts)), len(parts)))
    head = bytes([_VERSION | (width - 1) << 6]) + _bytes(len(parts), width)
    return head + _offsets(parts, width) + b"".join(parts) + data


def _encoded(value: Any, names: dict[str, int]) -> bytes:  # noqa: PLR0911 - a table
    if value is None:
        return _primitive(_NULL)
    if isinstance(value, bool):
        return _primitive(_TRUE if value else _FALSE)
    if isinstance(value, int):
        return _integer(value)
    if isinstance(value, Decimal):
        return _decimal(value)
    if isinstance(value, float):
        return _primitive(_DOUBLE, struct.pack("<d", value))
    if isinstance(value, str):
        text = value.encode("utf-8", "replace")
        if len(text) <= _MOST_SHORT:
            return bytes([len(text) << 2 | _SHORT_TEXT]) + text
        return _primitive(_TEXT, _bytes(len(text), 4) + text)
    if isinstance(value, list | tuple):
        return _array([_encoded(each, names) for each in value])
    if isinstance(value, dict):
        return _object(value, names)
    message = f"a {type(value).__name__} is no value of JSON: {value!r:.100}"
    raise TypeError(message)


def _primitive(kind: int, data: bytes = b"") -> bytes:
    return bytes([kind << 2 | _PRIMITIVE]) + data


def _integer(value: int) -> bytes:
    if not -_LONG <= value < _LONG:
        return _decimal(Decimal(value))
    for number, width in enumerate(_INT_WIDTHS):
        half = 1 << (8 * width - 1)
        if -half <= value < half:
            return _primitive(_INT8 + number, value.to_bytes(width, "little", signed=True))
    raise AssertionError


def _decimal(value: Decimal) -> bytes:
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - JSON has no NaN
    if exponent > 0 or -exponent > _MOST_DIGITS or len(digits) > _MOST_DIGITS:
        return _encoded(float(value), {})
    unscaled = int("".join(map(str, digits)))
    unscaled = -unscaled if sign else unscaled
    size = max(len(digits), -exponent)
    at = next(number for number, most in enumerate(_DECIMAL_DIGITS) if size <= most)
    data = unscaled.to_bytes(4 << at, "little", signed=True)
    return _primitive(_DECIMAL4 + at, bytes([-exponent]) + data)


def _counted(kind: int, count: int, flags: int, large: int) -> bytes:
    """The head of an array or object."""
    is_large = count > _MOST_SMALL
    head = kind | flags << 2 | is_large << large
    return bytes([head]) + _bytes(count, 4 if is_large else 1)


def _array(parts: list[bytes]) -> bytes:
    width = _width(sum(map(len, parts)))
    head = _counted(_ARRAY, len(parts), width - 1, 4)
    return head + _offsets(parts, width) + b"".join(parts)


def _object(value: dict[str, Any], names: dict[str, int]) -> bytes:
    parts: dict[str, bytes] = {}
    starts: dict[str, int] = {}
    at = 0
    for name, inner in value.items():
        names.setdefault(name, len(names))
        parts[name] = _encoded(inner, names)
        starts[name] = at
        at += len(parts[name])
    ordered = sorted(parts, key=lambda name: name.encode("utf-16-be", "surrogatepass"))
    id_width = _width(max((names[name] for name in ordered), default=0))
    width = _width(at)
    head = _counted(_OBJECT, len(parts), (id_width - 1) << 2 | (width - 1), 6)
    ids = b"".join(_bytes(names[name], id_width) for name in ordered)
    offsets = b"".join(_bytes(starts[name], width) for name in ordered) + _bytes(at, width)
    return head + ids + offsets + b"".join(parts.values())


# -- reading ----------------------------------------------------------------------------------


class _Reader:
    """The values in the bytes of a variant."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        width = (data[0] >> 6) + 1
        count = self._number(1, width)
        first = 1 + width
        self._names_at = first + (count + 1) * width
        offsets = [self._number(first + number * width, width) for number in range(count + 1)]
        self.names = [
            data[self._names_at + start : self._names_at + stop].decode()
            for start, stop in pairwise(offsets)
        ]
        #: Where the value begins.
        self.at = self._names_at + offsets[-1]

    def _number(self, at: int, width: int) -> int:
        return int.from_bytes(self._data[at : at + width], "little")

    def value(self, at: int) -> Any:
        """The value that begins there."""
        head = self._data[at]
        kind, flags = head & 3, head >> 2
        if kind == _SHORT_TEXT:
            return self._data[at + 1 : at + 1 + flags].decode()
        if kind == _PRIMITIVE:
            return self._primitive(flags, at + 1)
        if kind == _ARRAY:
            return [self.value(each) for each in self.elements(at) or ()]
        return {name: self.value(each) for name, each in (self.fields(at) or {}).items()}

    def _primitive(self, kind: int, at: int) -> Any:
        if kind <= _FALSE:
            return (None, True, False)[kind]
        if kind < _DOUBLE:
            width = _INT_WIDTHS[kind - _INT8]
            return int.from_bytes(self._data[at : at + width], "little", signed=True)
        if kind == _DOUBLE:
            return struct.unpack_from("<d", self._data, at)[0]
        if kind == _TEXT:
            length = self._number(at, 4)
            return self._data[at + 4 : at + 4 + length].decode()
        width = 4 << (kind - _DECIMAL4)
        unscaled = int.from_bytes(self._data[at + 1 : at + 1 + width], "little", signed=True)
        digits = tuple(map(int, str(abs(unscaled))))
        return Decimal((unscaled < 0, digits, -self._data[at]))

    def _count(self, at: int, large: int) -> tuple[int, int]:
        """How many parts there are, and where what follows begins."""
        width = 4 if self._data[at] >> large & 1 else 1
        return self._number(at + 1, width), at + 1 + width

    def elements(self, at: int) -> list[int] | None:
        """Where the elements of an array begin; None: it is none."""
        head = self._data[at]
        if head & 3 != _ARRAY:
            return None
        count, first = self._count(at, 4)
        width = (head >> 2 & 3) + 1
        data = first + (count + 1) * width
        return [data + self._number(first + number * width, width) for number in range(count)]

    def fields(self, at: int) -> dict[str, int] | None:
        """Where the fields of an object begin, in the order they came in; None: it is none."""
        head = self._data[at]
        if head & 3 != _OBJECT:
            return None
        count, first = self._count(at, 6)
        width, id_width = (head >> 2 & 3) + 1, (head >> 4 & 3) + 1
        offsets = first + count * id_width
        data = offsets + (count + 1) * width
        found = [
            (
                data + self._number(offsets + number * width, width),
                self.names[self._number(first + number * id_width, id_width)],
            )
            for number in range(count)
        ]
        return {name: start for start, name in sorted(found)}


def variant_field(data: bytes, name: str) -> bytes | None:
    """The field of an object; None: it has none of that name.

    Raises:
        ValueError: it is no object.
    """
    reader = _Reader(data)
    fields = reader.fields(reader.at)
    if fields is None:
        message = f"['{name}'] is for objects, and the variant is {variant_json(data):.100}"
        raise ValueError(message)
    return encode_variant(reader.value(fields[name])) if name in fields else None


def variant_element(data: bytes, index: int) -> bytes | None:
    """The element of an array, from 1; None: it has not so many.

    Raises:
        ValueError: it is no array.
    """
    reader = _Reader(data)
    elements = reader.elements(reader.at)
    if elements is None:
        message = f"[{index}] is for arrays, and the variant is {variant_json(data):.100}"
        raise ValueError(message)
    return (
        encode_variant(reader.value(elements[index - 1])) if 1 <= index <= len(elements) else None
    )


def _python(data: bytes) -> Any:
    reader = _Reader(data)
    return reader.value(reader.at)


def variant_json(data: bytes) -> str:
    """The JSON text, without blanks, fields in the order of their names."""
    return json_text(_python(data), _scalar_json)


def _scalar_json(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Decimal):
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return double_text(value) if isinstance(value, float) else str(value)


class Variant:
    """A value of VARIANT as programs see it: it can be compared, and be a key."""

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        """Take the bytes of the Variant encoding: metadata, then value."""
        self.data = data

    @staticmethod
    def of(value: Any) -> Variant:
        """The variant of a value of JSON.

        Args:
            value: None, bool, int, Decimal, float, str, list or dict of such.

        Raises:
            TypeError: it is none.
        """
        return Variant(encode_variant(value))

    def to_python(self) -> Any:
        """The value: None for JSON's null, a Decimal for a number with a point."""
        return _python(self.data)

    def to_json(self) -> str:
        """The JSON text, without blanks, fields in the order of their names."""
        return variant_json(self.data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Variant) and other.data == self.data

    def __hash__(self) -> int:
        return hash(self.data)

    def __str__(self) -> str:
        """The JSON text."""
        return self.to_json()

    def __repr__(self) -> str:
        """For people who debug."""
        return f"Variant({self.to_json()})"
