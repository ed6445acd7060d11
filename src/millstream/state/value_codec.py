"""Bytes of state values of a declared type.

A value is encoded by its type alone: a record is its fields, those of a fixed width first, without
names or classes.  What a type does not hold exactly (a tuple in a state of rows, a number of more
than 64 bits) is pickled; the first byte says so, and a pickle is read in any place.  So values that
were pickled before their type was declared stay readable.  Types that pickle writes at least as
well stay pickled: objects of any kind, and lists and maps of strings and numbers.

First byte: below 0x80 a typed value; 0x80 a pickle; 0x81 a record of fields that are encoded one by
one; 0x82 a list or map of encoded elements.  Strings have no first byte of their own: UTF-8 never
begins with one of these.
"""

from __future__ import annotations

import datetime as dt
import struct
from contextlib import suppress
from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from millstream.state.serializers import dumps, dumps_all, loads
from millstream.types.basic_types import (
    BasicTypeInfo,
    BigDecimalTypeInfo,
    DecimalTypeInfo,
    SqlTimeTypeInfo,
)
from millstream.types.composite_types import (
    CompositeTypeInfo,
    DataclassTypeInfo,
    RecordClassTypeInfo,
    RowTypeInfo,
    is_slot,
)
from millstream.types.row import Row, RowKind, row_class
from millstream.types.type_information import (
    ListTypeInfo,
    MapTypeInfo,
    PrimitiveArrayTypeInfo,
    SerializedTypeInfo,
    TypeInformation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


_PICKLE: Final = 0x80
_FIELDS: Final = b"\x81"
_PARTS: Final = b"\x82"
_TYPED: Final = b"\x01"


class ValueCodec(NamedTuple):
    """The encoding of the values of one state."""

    encode: Callable[[Any], bytes]
    decode: Callable[[bytes], Any]
    #: ``encode`` of each of some values.
    encode_all: Callable[[list[Any]], list[bytes]]
    #: ``decode`` of each of some contents.
    decode_all: Callable[[list[bytes]], Iterable[Any]]
    is_typed: bool = True


def _each(encode: Callable[[Any], bytes], values: list[Any]) -> list[bytes]:
    return list(map(encode, values))


def _codec(encode: Callable[[Any], bytes], decode: Callable[[bytes], Any]) -> ValueCodec:
    return ValueCodec(encode, decode, partial(_each, encode), partial(map, decode))


def pickled(unpickle: Callable[[bytes], Any] = loads) -> ValueCodec:
    """Return the codec of values of any type."""
    return ValueCodec(dumps, unpickle, dumps_all, partial(map, unpickle), is_typed=False)


PICKLED: Final = pickled()


def codec_of(
    kind: TypeInformation | None,
    *,
    lists: bool = False,
    expires: bool = False,
    unpickle: Callable[[bytes], Any] = loads,
) -> ValueCodec:
    """Return the codec of the values of a state.

    Args:
        kind: their type; None if it is unknown.
        lists: an entry is a list of such values.
        expires: each value is a tuple of the time of its last access and the value itself.
        unpickle: reads what is pickled.
    """
    made = pickled(unpickle) if kind is None else _of_type(kind, unpickle)
    if expires:
        made = _timed(made, unpickle)
    if not lists:
        return made
    if made.is_typed and (expires or not _is_plain(kind)):
        return _list_of(made, unpickle)
    return pickled(unpickle)


# -- time to live ----------------------------------------------------------------------------------

_TIME: Final = struct.Struct(">Bq")


def _timed(inner: ValueCodec, unpickle: Callable[[bytes], Any]) -> ValueCodec:
    pack, unpack, size = _TIME.pack, _TIME.unpack_from, _TIME.size
    encode_value, decode_value = inner.encode, inner.decode

    def encode(kept: tuple[int, Any]) -> bytes:
        return pack(1, kept[0]) + encode_value(kept[1])

    def decode(content: bytes) -> tuple[int, Any]:
        if content[0] == _PICKLE:
            kept: tuple[int, Any] = unpickle(content)
            return kept
        return unpack(content)[1], decode_value(content[size:])

    return _codec(encode, decode)


def time_of(content: bytes, unpickle: Callable[[bytes], Any] = loads) -> int:
    """Return the time of a value that expires, without reading the value."""
    if content[0] == _PICKLE:
        return int(unpickle(content)[0])
    return int(_TIME.unpack_from(content)[1])


def oldest_time(content: bytes, unpickle: Callable[[bytes], Any] = loads) -> int | None:
    """Return the earliest time in a list of values that expire; None if it is empty."""
    if content[:1] == _PARTS:
        times = [time_of(each, unpickle) for each in unpickle(content[1:])]
    else:
        times = [int(each[0]) for each in unpickle(content)]
    return min(times, default=None)


# -- single values ---------------------------------------------------------------------------------


def _of_type(kind: TypeInformation, unpickle: Callable[[bytes], Any]) -> ValueCodec:
    made = None
    if isinstance(kind, CompositeTypeInfo):
        made = _RecordCodec(kind, unpickle).made()
    elif isinstance(kind, SerializedTypeInfo):
        made = _serialized(kind, unpickle)
    elif isinstance(kind, ListTypeInfo) and not _is_plain(kind.elem_type):
        made = _list_of(_of_type(kind.elem_type, unpickle), unpickle)
    elif isinstance(kind, MapTypeInfo) and not _is_plain(kind.value_type_info):
        made = _map_of(_of_type(kind.value_type_info, unpickle), unpickle)
    else:
        make = _SCALARS.get(_scalar_name(kind))
        made = None if make is None else make(unpickle)
    return made or pickled(unpickle)


#: Types of which a list is pickled as compactly.
_PLAIN: Final = frozenset(
    {"String", "Character", "Boolean", "Byte", "Short", "Integer", "Long", "Float", "Double"}
)


def _is_plain(kind: TypeInformation | None) -> bool:
    """Return whether lists of such values are pickled."""
    return kind is None or _scalar_name(kind) in {*_PLAIN, "bytes", ""}


def _scalar_name(kind: TypeInformation) -> str:
    """The name of a type without parts; empty for what is pickled, "parts" for other types."""
    if isinstance(kind, BasicTypeInfo | BigDecimalTypeInfo | SqlTimeTypeInfo):
        return str(kind)
    if isinstance(kind, DecimalTypeInfo):
        return "Long" if str(kind) == "BigInteger" else "BigDecimal"
    if isinstance(kind, PrimitiveArrayTypeInfo) and str(kind.elem_type) == "Byte":
        return "bytes"
    parts = CompositeTypeInfo | ListTypeInfo | MapTypeInfo | SerializedTypeInfo
    return "parts" if isinstance(kind, parts) else ""


def _text(unpickle: Callable[[bytes], Any]) -> ValueCodec:
    def encode(value: Any) -> bytes:
        if value.__class__ is str and value:
            try:
                content: bytes = value.encode()
            except UnicodeEncodeError:
                return dumps(value)
            return content
        return dumps(value)

    def decode(content: bytes) -> Any:
        return content.decode() if content[0] != _PICKLE else unpickle(content)

    return _codec(encode, decode)


def _binary(unpickle: Callable[[bytes], Any]) -> ValueCodec:
    def encode(value: Any) -> bytes:
        return _TYPED + value if value.__class__ is bytes else dumps(value)

    def decode(content: bytes) -> Any:
        return content[1:] if content[0] != _PICKLE else unpickle(content)

    return _codec(encode, decode)


def _serialized(kind: SerializedTypeInfo, unpickle: Callable[[bytes], Any]) -> ValueCodec:
    def encode(value: Any) -> bytes:
        return dumps(None) if value is None else _TYPED + kind.serialized(value)

    def decode(content: bytes) -> Any:
        return unpickle(content) if content[0] == _PICKLE else kind.deserialized(content[1:])

    return _codec(encode, decode)


_INTEGERS: Final = {
    1 + size: struct.Struct(f">B{code}") for size, code in ((1, "b"), (4, "i"), (8, "q"))
}
_BYTE, _NORMAL, _LONG = (each.pack for each in _INTEGERS.values())
_DOUBLE: Final = struct.Struct(">Bd")


def _encode_integer(value: Any) -> bytes:
    if value.__class__ is int:
        if -0x80 <= value < 0x80:  # noqa: PLR2004 - widths
            return _BYTE(1, value)
        if -0x80000000 <= value < 0x80000000:  # noqa: PLR2004
            return _NORMAL(1, value)
        if -0x8000000000000000 <= value < 0x8000000000000000:  # noqa: PLR2004
            return _LONG(1, value)
    return dumps(value)


def _encode_integers(values: list[Any]) -> list[bytes]:
    if set(map(type, values)) == {int}:
        with suppress(OverflowError):  # more than 64 bits
            numbers = np.array(values, ">i8")
            if numbers.min() >= -(2**31) and numbers.max() < 2**31:
                numbers = numbers.astype(">i4")
            return _tagged(numbers)
    return list(map(_encode_integer, values))


def _integer(unpickle: Callable[[bytes], Any]) -> ValueCodec:
    of_size = {size: each.unpack for size, each in _INTEGERS.items()}

    def decode(content: bytes) -> Any:
        if content[0] == _PICKLE:
            return unpickle(content)
        return of_size[len(content)](content)[1]

    def decode_all(contents: list[bytes]) -> Iterable[Any]:
        sizes = set(map(len, contents))
        if sizes == {9}:  # there is no pickle of a number of this size
            return _untagged(">i8", contents)
        if sizes == {5} and contents[0][0] != _PICKLE:
            joined = b"".join(contents)
            if _PICKLE not in joined[::5]:
                return _untagged(">i4", contents)
        return map(decode, contents)

    return ValueCodec(_encode_integer, decode, _encode_integers, decode_all)


def _tagged(numbers: np.ndarray[Any, Any]) -> list[bytes]:
    """The numbers as they lie in memory, each after the first byte of a typed value."""
    tagged = np.empty(len(numbers), [("first", "u1"), ("number", numbers.dtype)])
    tagged["first"], tagged["number"] = 1, numbers
    made: list[bytes] = tagged.view(f"V{tagged.itemsize}").tolist()
    return made


def _untagged(layout: str, contents: list[bytes]) -> list[Any]:
    """The numbers of values of one width."""
    numbers = np.frombuffer(b"".join(contents), [("first", "u1"), ("number", layout)])
    found: list[Any] = numbers["number"].tolist()
    return found


def _float(unpickle: Callable[[bytes], Any]) -> ValueCodec:
    pack, unpack = _DOUBLE.pack, _DOUBLE.unpack

    def encode(value: Any) -> bytes:
        return pack(1, value) if value.__class__ is float else dumps(value)

    def decode(content: bytes) -> Any:
        return unpack(content)[1] if content[0] != _PICKLE else unpickle(content)

    def encode_all(values: list[Any]) -> list[bytes]:
        if set(map(type, values)) == {float}:
            return _tagged(np.array(values, ">f8"))
        return list(map(encode, values))

    def decode_all(contents: list[bytes]) -> Iterable[Any]:
        if set(map(len, contents)) == {9}:  # there is no pickle of a number of this size
            return _untagged(">f8", contents)
        return map(decode, contents)

    return ValueCodec(encode, decode, encode_all, decode_all)


def _boolean(unpickle: Callable[[bytes], Any]) -> ValueCodec:
    def encode(value: Any) -> bytes:
        if value.__class__ is bool:
            return b"\x01\x01" if value else b"\x01\x00"
        return dumps(value)

    def decode(content: bytes) -> Any:
        return content[1] == 1 if content[0] != _PICKLE else unpickle(content)

    return _codec(encode, decode)


def _decimal(unpickle: Callable[[bytes], Any]) -> ValueCodec:
    def encode(value: Any) -> bytes:
        return str(value).encode() if value.__class__ is Decimal else dumps(value)

    def decode(content: bytes) -> Any:
        return Decimal(content.decode()) if content[0] != _PICKLE else unpickle(content)

    return _codec(encode, decode)


#: The fields of dates and times in bytes are part of the pickle format of Python, so they are
#: fixed; the class takes them in the place of numbers.
_TIMES: Final[dict[str, tuple[type, int]]] = {
    "Date": (dt.date, 4),
    "Time": (dt.time, 6),
    "Timestamp": (dt.datetime, 10),
}


def _moment(name: str, unpickle: Callable[[bytes], Any]) -> ValueCodec:
    cls: Any = _TIMES[name][0]

    def encode(value: Any) -> bytes:
        if value.__class__ is cls:
            parts: tuple[bytes, ...] = value.__reduce_ex__(4)[1]
            if len(parts) == 1:  # without a time zone
                return _TYPED + parts[0]
        return dumps(value)

    def decode(content: bytes) -> Any:
        return cls(content[1:]) if content[0] != _PICKLE else unpickle(content)

    return _codec(encode, decode)


def _zoned(unpickle: Callable[[bytes], Any]) -> ValueCodec:
    utc, cls = dt.UTC, dt.datetime

    def encode(value: Any) -> bytes:
        if value.__class__ is cls and value.tzinfo is utc:
            reduced: Any = value.__reduce_ex__(4)
            return _TYPED + bytes(reduced[1][0])
        return dumps(value)

    def decode(content: bytes) -> Any:
        if content[0] == _PICKLE:
            return unpickle(content)
        make: Any = cls
        return make(content[1:], utc)

    return _codec(encode, decode)


_SCALARS: Final[dict[str, Callable[[Callable[[bytes], Any]], ValueCodec]]] = {
    **dict.fromkeys(("String", "Character"), _text),
    **dict.fromkeys(("Byte", "Short", "Integer", "Long"), _integer),
    **dict.fromkeys(("Float", "Double"), _float),
    **{name: partial(_moment, name) for name in _TIMES},
    "Boolean": _boolean,
    "BigDecimal": _decimal,
    "TimestampLtz": _zoned,
    "bytes": _binary,
}


# -- lists and maps --------------------------------------------------------------------------------


def _list_of(inner: ValueCodec, unpickle: Callable[[bytes], Any]) -> ValueCodec:
    encode_item, decode_item = inner.encode, inner.decode

    def encode(value: Any) -> bytes:
        if value.__class__ is list:
            return _PARTS + dumps(list(map(encode_item, value)))
        return dumps(value)

    def decode(content: bytes) -> Any:
        if content[0] == _PICKLE:
            return unpickle(content)
        return list(map(decode_item, unpickle(content[1:])))

    return _codec(encode, decode)


_KEY: Final = struct.Struct(">BI")


def entry_codec(
    key: TypeInformation | None,
    value: TypeInformation | None,
    unpickle: Callable[[bytes], Any] = loads,
) -> ValueCodec:
    """Return the codec of entries of a map: tuples of a key and a value.

    Args:
        key: the type of keys; None if it is unknown.
        value: that of values.
        unpickle: reads what is pickled.
    """
    keys, values = codec_of(key, unpickle=unpickle), codec_of(value, unpickle=unpickle)
    if not values.is_typed:
        return values

    def encode(entry: tuple[Any, Any]) -> bytes:
        encoded = keys.encode(entry[0])
        return _KEY.pack(_PARTS[0], len(encoded)) + encoded + values.encode(entry[1])

    def decode(content: bytes) -> tuple[Any, Any]:
        if content[0] == _PICKLE:
            found: tuple[Any, Any] = unpickle(content)
            return found
        end = _KEY.size + int(_KEY.unpack_from(content)[1])
        return keys.decode(content[_KEY.size : end]), values.decode(content[end:])

    return _codec(encode, decode)


def _map_of(inner: ValueCodec, unpickle: Callable[[bytes], Any]) -> ValueCodec:
    encode_item, decode_item = inner.encode, inner.decode

    def encode(value: Any) -> bytes:
        if value.__class__ is dict:
            return _PARTS + dumps({key: encode_item(item) for key, item in value.items()})
        return dumps(value)

    def decode(content: bytes) -> Any:
        if content[0] == _PICKLE:
            return unpickle(content)
        return {key: decode_item(item) for key, item in unpickle(content[1:]).items()}

    return _codec(encode, decode)


# -- records ---------------------------------------------------------------------------------------

_WIDTHS: Final = {
    "Boolean": ("?", "bool"),
    "Byte": ("b", "int"),
    "Short": ("h", "int"),
    "Integer": ("i", "int"),
    "Long": ("q", "int"),
    "Float": ("d", "float"),
    "Double": ("d", "float"),
}
#: By name; the classes of numpy have some of these names too.
_CLASSES: Final[dict[str, Any]] = {each.__name__: each for each in (bool, int, float, str, bytes)}
#: The code of the first number of a record, and how many fields it has a bit for.  Above these are
#: the form of a row, in two bits, and a bit that is always zero.
_HEADS: Final = (("B", 5), ("H", 13), ("I", 29), ("Q", 61))


class _RecordCodec:
    """Makes the codec of a composite type.

    Layout: a number with a bit for each field that is None, the fields of a fixed width (zero for
    None), the lengths of the others (4 bytes each), these.  All numbers are big-endian.
    """

    def __init__(self, kind: CompositeTypeInfo, unpickle: Callable[[bytes], Any]) -> None:
        self._kind = kind
        self._names = kind.get_field_names()
        self._kinds = kind.get_field_types()
        self._unpickle = unpickle
        self._inner = [_of_type(each, unpickle) for each in self._kinds]
        self._widths = [_WIDTHS.get(self._width_name(each)) for each in self._kinds]
        self._fixed = [n for n, width in enumerate(self._widths) if width is not None]
        self._others = [n for n, width in enumerate(self._widths) if width is None]
        self._forms = self._forms_of()
        self._makers = self._makers_of()
        self._attributes = self._attributes_of()

    @staticmethod
    def _width_name(kind: TypeInformation) -> str:
        return str(kind) if isinstance(kind, BasicTypeInfo) else ""

    def _attributes_of(self) -> int | None:
        """How many fields of a class are in ``__dict__``; None if its instances have none."""
        if not isinstance(self._kind, RecordClassTypeInfo):
            return None
        cls = self._kind.cls
        if not cls.__dictoffset__:
            return None
        return sum(not is_slot(cls, name) for name in self._names)

    def _forms_of(self) -> list[tuple[Any, list[int]]]:
        """Classes of records with the field at each of their positions, by the number of the form.

        A state of rows also holds what is taken for one: rows whose names are in order of the
        alphabet, as keywords once made them, rows without names, and tuples.
        """
        order = list(range(len(self._names)))
        if isinstance(self._kind, RowTypeInfo):
            names = tuple(self._names)
            by_name = sorted(order, key=self._names.__getitem__)
            alphabetic = row_class(tuple(sorted(names)))
            return [(row_class(names), order), (alphabetic, by_name), (Row, order), (tuple, order)]
        if isinstance(self._kind, RecordClassTypeInfo):
            return [(self._kind.cls, order)]
        return [(tuple, order)]

    def made(self) -> ValueCodec | None:
        """Return the codec; None if records have too many fields."""
        head = next((each for each in _HEADS if each[1] >= len(self._names)), None)
        if head is None:
            return None
        codes = [str((self._widths[n] or "")[0]) for n in self._fixed]
        layout = struct.Struct(f">{head[0]}{''.join(codes)}{'I' * len(self._others)}")
        scope: dict[str, Any] = {
            "pack": layout.pack,
            "unpack": layout.unpack_from,
            "slow": partial(self._encode_slowly, layout, head[1]),
            "other": self._encode_other,
            "dumps": dumps,
            "rest": partial(self._decode_slowly, layout, head[1]),
            "refused": (struct.error, ValueError, AttributeError),
            "make": self._makers,
        }
        if isinstance(self._kind, RecordClassTypeInfo):
            scope["create"] = self._kind.maker()
        scope |= {f"encode{n}": self._inner[n].encode for n in self._others}
        scope |= {f"decode{n}": self._inner[n].decode for n in self._others}
        scope |= {f"class{n}": cls for n, (cls, _) in enumerate(self._forms)}
        source = "\n".join([*self._encoder(head[1]), *self._decoder(head[1], layout.size)])
        exec(source, scope)  # noqa: S102 - made of types
        made = _codec(scope["encode"], scope["decode"])
        if isinstance(self._kind, RecordClassTypeInfo) and pickles_itself(self._kind.cls):
            # What was typed before the class had such methods is read as that.
            return pickled(self._unpickle)._replace(decode=made.decode, decode_all=made.decode_all)
        return made

    def _makers_of(self) -> list[Callable[[Sequence[Any]], Any]]:
        """What makes a record of its fields in the order of the type, by form."""
        if isinstance(self._kind, RecordClassTypeInfo):
            make = self._kind.maker()
            return [lambda values: make(*values)]
        makers: list[Callable[[Sequence[Any]], Any]] = []
        for cls, order in self._forms:
            maker = row_class(None) if cls is Row else cls
            makers.append(partial(_reordered, maker, order))
        return makers

    # Source of the functions: what they do is the same for every record of the type.

    def _encoder(self, bits: int) -> list[str]:
        lines = ["def encode(v):"]
        for number, (_, order) in enumerate(self._forms):
            lines += [f" if v.__class__ is class{number}:"]
            if self._attributes is not None:  # others than the fields are not in the encoding
                lines += [f"  if len(v.__dict__) > {self._attributes}: return dumps(v)"]
            lines += ["  try:"]
            lines += [f"   {line}" for line in self._reads(order)]
            packed = ", ".join(
                [str(number << bits)]
                + [f"f{n}" for n in self._fixed]
                + [f"len(b{n})" for n in self._others]
            )
            parts = "".join(f" + b{n}" for n in self._others)
            tests = " and ".join(map(self._test_of, range(len(self._names))))
            lines += [f"   if {tests}:"]
            lines += [f"    b{n} = {self._bytes_of(n)}" for n in self._others]
            lines += [f"    return pack({packed}){parts}", "  except refused:", "   pass"]
            lines += [f"  return slow(v, {number})"]
        return [*lines, " return other(v)"]

    def _reads(self, order: list[int]) -> list[str]:
        if isinstance(self._kind, DataclassTypeInfo):
            return [f"f{n} = v.{name}" for n, name in enumerate(self._names)]
        return [f"{', '.join(f'f{n}' for n in order)}, = v"]

    def _class_of(self, number: int) -> str:
        width = self._widths[number]
        if width is not None:
            return width[1]
        name = _scalar_name(self._kinds[number])
        return {"String": "str", "Character": "str", "bytes": "bytes"}.get(name, "any")

    def _test_of(self, number: int) -> str:
        """Python that is true if a field is exactly of its type."""
        name = self._class_of(number)
        return f"f{number} is not None" if name == "any" else f"f{number}.__class__ is {name}"

    def _bytes_of(self, number: int) -> str:
        """Python for the bytes of a field that has no fixed width."""
        form = {"str": f"f{number}.encode()", "bytes": f"f{number}"}
        return form.get(self._class_of(number), f"encode{number}(f{number})")

    def _decoder(self, bits: int, size: int) -> list[str]:
        names = [f"f{n}" for n in self._fixed] + [f"n{n}" for n in self._others]
        lines = ["def decode(c):", " if c[0] < 0x80:", f"  m, {', '.join(names)}, = unpack(c)"]
        lines += [f"  if not m & {(1 << bits) - 1}:"]
        start = str(size)
        for n in self._others:
            part = f"c[{start}:e{n}]"
            form = {"str": f"{part}.decode()", "bytes": part}
            lines += [f"   e{n} = {start} + n{n}"]
            lines += [f"   f{n} = {form.get(self._class_of(n), f'decode{n}({part})')}"]
            start = f"e{n}"
        values = ", ".join(f"f{n}" for n in range(len(self._names)))
        if isinstance(self._kind, RowTypeInfo):
            lines += ["   if m == 0:", f"    return class0(({values},))"]
            lines += [f"   return make[m >> {bits}](({values},))"]
        elif isinstance(self._kind, RecordClassTypeInfo):
            lines += [f"   return create({values})"]
        else:
            lines += [f"   return ({values},)"]
        return [*lines, " return rest(c)"]

    # The same for records with a field that is None or is not exactly of its type.

    def _values(self, value: Any, form: int) -> list[Any]:
        """The fields in the order of the type."""
        if isinstance(self._kind, DataclassTypeInfo):
            return [getattr(value, name) for name in self._names]
        order, found = self._forms[form][1], list(value)
        values: list[Any] = [None] * len(order)
        for position, number in enumerate(order):
            values[number] = found[position]
        return values

    def _encode_slowly(self, layout: struct.Struct, bits: int, value: Any, form: int) -> bytes:
        with suppress(AttributeError):
            if len(self._names) != self._length_of(value):
                return dumps(value)
            values = self._values(value, form)
            return self._with_nulls(layout, bits, values, form) or self._one_by_one(value, values)
        return dumps(value)  # a field of the dataclass is not set

    def _length_of(self, value: Any) -> int:
        return len(self._names) if isinstance(self._kind, DataclassTypeInfo) else len(value)

    def _with_nulls(
        self, layout: struct.Struct, bits: int, values: list[Any], form: int
    ) -> bytes | None:
        """The record if all fields are None or fit; else None."""
        mask = form << bits
        numbers: list[Any] = []
        for n in self._fixed:
            if values[n] is None:
                mask |= 1 << n
            elif values[n].__class__ is not _CLASSES[self._class_of(n)]:
                return None
            numbers.append(values[n] or 0)
        contents: list[bytes] = []
        for n in self._others:
            if values[n] is None:
                mask |= 1 << n
                contents.append(b"")
            elif (content := self._content_of(n, values[n])) is not None:
                contents.append(content)
            else:
                return None
        try:
            head = layout.pack(mask, *numbers, *map(len, contents))
        except struct.error:
            return None
        return b"".join([head, *contents])

    def _content_of(self, number: int, field: Any) -> bytes | None:
        form = self._class_of(number)
        if form == "any":
            return self._inner[number].encode(field)
        if field.__class__ is not _CLASSES[form]:
            return None
        if form == "bytes":
            return bytes(field)
        try:
            return bytes(field.encode())
        except UnicodeEncodeError:
            return None

    def _one_by_one(self, value: Any, values: list[Any]) -> bytes:
        """The record as a pickle of its fields, each of which is encoded."""
        if isinstance(self._kind, RowTypeInfo) and not isinstance(value, Row):
            return dumps(value)
        contents = [
            None if field is None else inner.encode(field)
            for field, inner in zip(values, self._inner, strict=True)
        ]
        names = kind = None
        if isinstance(value, Row):
            names, kind = value.get_field_names(), value.get_row_kind().value
        return _FIELDS + dumps((names, kind, contents))

    def _encode_other(self, value: Any) -> bytes:
        """A value of no known form: a row of another kind, or something else that was taken."""
        is_row = isinstance(self._kind, RowTypeInfo) and isinstance(value, Row)
        if is_row and value.get_field_names() == self._names:
            return self._one_by_one(value, list(value))
        return dumps(value)

    def _decode_slowly(self, layout: struct.Struct, bits: int, content: bytes) -> Any:
        if content[0] == _PICKLE:
            return self._unpickle(content)
        if content[:1] == _FIELDS:
            return self._decode_one_by_one(content)
        mask, *numbers = layout.unpack_from(content)
        form, start = mask >> bits, layout.size
        values: list[Any] = [None] * len(self._names)
        for n, number in zip(self._fixed, numbers, strict=False):
            values[n] = number
        for n, length in zip(self._others, numbers[len(self._fixed) :], strict=True):
            part = content[start : start + length]
            start += length
            if not mask >> n & 1:
                values[n] = self._field_of(n, part)
        for n in self._fixed:
            if mask >> n & 1:
                values[n] = None
        return self._makers[form](values)

    def _field_of(self, number: int, part: bytes) -> Any:
        form = self._class_of(number)
        if form == "any":
            return self._inner[number].decode(part)
        return part if form == "bytes" else part.decode()

    def _decode_one_by_one(self, content: bytes) -> Any:
        names, kind, contents = self._unpickle(content[1:])
        values = [
            None if each is None else inner.decode(each)
            for each, inner in zip(contents, self._inner, strict=True)
        ]
        if kind is None:
            return self._makers[0](values)
        if names is None:
            return row_class(None, RowKind(kind))(values)
        order = [self._names.index(name) for name in names]
        return _reordered(row_class(tuple(names), RowKind(kind)), order, values)


def pickles_itself(cls: type) -> bool:
    """Return whether a dataclass or named tuple has methods of its own for pickling."""
    names = ("__reduce__", "__reduce_ex__", "__getstate__", "__setstate__")
    methods = [vars(each).get(name) for each in cls.__mro__[:-1] for name in names]
    return any(method and method.__module__ != "dataclasses" for method in methods)


def _reordered(maker: Any, order: list[int], values: Sequence[Any]) -> Any:
    return maker([values[n] for n in order])
