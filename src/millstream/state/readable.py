"""Keys, windows and values of a store as somebody reads them who does not have the program.

What it is: a decoder that imports nothing of the program and runs none of its code.  An object of a
class of the program comes out as a ``Foreign``, which shows the name of the class and what is in
it; numbers, strings, containers, dates and Millstream's own values come out as they are.  So a
checkpoint can be read that comes from somebody else.

What it is not: what the job uses (``state/serializers.py``, ``state/key_codec.py``).

Read next: ``state/reader.py``.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import StateError
from millstream.state.key_codec import decode_key, unpack
from millstream.state.readable_arrays import NUMPY
from millstream.state.window_codec import WindowCodec
from millstream.types.row import row_class

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.row import Row

__all__ = ["Foreign", "readable_key", "readable_value", "readable_window"]

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
        """What a function that is not here would have returned."""
        made = Foreign(self.name, *self.arguments, *arguments)
        made.fields.update(fields)
        return made

    def __repr__(self) -> str:
        """``shop.Order(number=3)``."""
        parts = [repr(each) for each in self.arguments]
        parts += [f"{name}={value!r}" for name, value in self.fields.items()]
        return f"{self.name}({', '.join(parts)})"

    def __eq__(self, other: object) -> bool:
        """Whether it shows the same."""
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
