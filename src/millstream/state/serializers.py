"""Bytes of state values: pickle, with the classes of the user's script stored by name.

Classes that cannot be imported, above all those of ``__main__``, are written as module and
qualified name and found again among the classes that came with the job, so after a restart a value
is an instance of the class of the running program.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import pickle
import sys
from typing import TYPE_CHECKING, Any, Final, Self

import cloudpickle
import numpy as np

from millstream.errors import StateError
from millstream.types.composite_types import record_fields
from millstream.types.pickling import ByValuePickler

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray


PROTOCOL: Final = 5

#: (module, qualified name) -> the class, for classes that cannot be imported.
_classes: Final[dict[tuple[str, str], type]] = {}
#: Types of values that plain pickle refused before; they skip the attempt.
_refused: Final[set[type]] = set()

#: Old module and name -> new ones, of classes that have moved since values were stored.
_moved: Final[dict[str, str]] = {}
#: What is in ``_moved`` as modules and names.
_places: Final[dict[str, tuple[str, str]]] = {}

_plain_dumps: Final = pickle.dumps
#: The inverse of ``dumps``; for bytes that this job wrote itself.
loads: Final = pickle.loads


def dumps(value: object) -> bytes:
    """Pickle ``value``.

    Raises:
        StateError: the value holds something that cannot be pickled at all.
    """
    if type(value) not in _refused:
        try:
            return _plain_dumps(value, PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError, RecursionError):
            pass
    return _dumps_by_name(value)


def dumps_all(values: list[Any]) -> list[bytes]:
    """Pickle each of some values; numbers many times faster than one by one.

    Raises:
        StateError: as ``dumps``.
    """
    kinds = set(map(type, values))
    if kinds == {float}:
        return _pickles_of(np.array(values, ">f8"), b"G")
    if kinds == {int}:
        with contextlib.suppress(OverflowError):  # more than 64 bits
            numbers = np.array(values, "<i8")
            if numbers.min() >= -(2**31) and numbers.max() < 2**31:
                return _pickles_of(numbers.astype("<i4"), b"J")
            return _pickles_of(numbers, b"\x8a\x08")
    return list(map(dumps, values))


def _pickles_of(numbers: NDArray[Any], opcode: bytes) -> list[bytes]:
    """Pickles as ``pickle`` reads them: the opcode's argument is the number as it lies in memory.

    Args:
        numbers: what is pickled.
        opcode: BININT, LONG1 with the length of the number, or BINFLOAT.
    """
    head = b"\x80" + bytes((PROTOCOL,)) + opcode
    layout = np.dtype([("head", f"V{len(head)}"), ("number", numbers.dtype), ("stop", "V1")])
    pickles = np.empty(len(numbers), layout)
    pickles["head"], pickles["number"], pickles["stop"] = np.void(head), numbers, np.void(b".")
    made: list[bytes] = pickles.view(f"V{layout.itemsize}").tolist()
    return made


def _dumps_by_name(value: object) -> bytes:
    buffer = io.BytesIO()
    try:
        _ByNamePickler(buffer, PROTOCOL).dump(value)
    except Exception as error:
        kind = type(value)
        message = (
            f"a state value of type {kind.__module__}.{kind.__qualname__} cannot be pickled:"
            f" {error}; keep plain data in state, or give the class __reduce__"
        )
        raise StateError(message) from error
    _refused.add(type(value))
    return buffer.getvalue()


class _ByNamePickler(ByValuePickler):
    """Writes classes that cannot be imported by name, the rest as cloudpickle does."""

    def reducer_override(self, obj: object) -> object:
        if isinstance(obj, type) and not is_importable(obj):
            remember_class(obj)
            return find_class, (obj.__module__, obj.__qualname__)
        return super().reducer_override(obj)


def is_importable(cls: type) -> bool:
    """Return whether a worker finds ``cls`` by importing its module."""
    return cls.__module__ != "__main__" and _attribute(cls.__module__, cls.__qualname__) is cls


def remember_class(cls: type) -> None:
    """Let ``find_class`` find ``cls`` in this process if it cannot be imported."""
    _classes[cls.__module__, cls.__qualname__] = cls


def find_class(module: str, name: str) -> type:
    """The class called ``name`` in ``module``, as the running program has it.

    Raises:
        StateError: the program has no such class any more.
    """
    module, name = new_place(module, name)
    found = _class_in(module, name)
    if found is None:
        message = (
            f"state holds values of class {module}.{name}, which the program does not have;"
            f" {MISSING_CLASS_ADVICE}"
        )
        raise StateError(message)
    _classes[module, name] = found
    return found


def _class_in(module: str, name: str) -> type | None:
    known = _classes.get((module, name))
    if known is not None:
        return known
    found = _attribute(module, name)
    return found if isinstance(found, type) else _shipped_class(module, name)


def class_called(full_name: str) -> type | None:
    """The class that had this module and qualified name, as the program has it; None if it has not.

    Where the module ends is not said: a class may be nested.
    """
    parts = _moved.get(full_name, full_name).split(".")
    places = ((".".join(parts[:at]), ".".join(parts[at:])) for at in range(len(parts) - 1, 0, -1))
    return next((cls for place in places if (cls := _class_in(*place)) is not None), None)


#: What to do if the class of a value is missing.
MISSING_CLASS_ADVICE: Final = (
    "restore the class under its old name, set millstream.state.moved-classes to OLD:NEW, with the"
    " modules of both, if it has moved, or start without this state"
)


def set_moved_classes(moved: Mapping[str, str]) -> None:
    """Let this process find classes that have moved: old module and name -> new ones."""
    _moved.clear()
    _places.clear()
    _moved.update(moved)


def moved_classes() -> Mapping[str, str]:
    """Return the classes that have moved, as ``set_moved_classes`` got them."""
    return _moved


def new_place(module: str, name: str) -> tuple[str, str]:
    """Return where a class is now, by its module and qualified name."""
    moved = _moved.get(f"{module}.{name}")
    if moved is None:
        return module, name
    if moved not in _places:
        _places[moved] = _split(moved)
    return _places[moved]


def stored_place(cls: type) -> tuple[str, str]:
    """Return where a class was when keys of it were first stored: keys are found by their bytes.

    A class that has moved is taken to have been as deeply nested before.
    """
    module, name = cls.__module__, cls.__qualname__
    if not _moved:
        return module, name
    depth = name.count(".") + 1
    old = [before for before, after in _moved.items() if after == f"{module}.{name}"]
    if not old or old[0].count(".") < depth:
        return module, name
    parts = old[0].rsplit(".", depth)
    return parts[0], ".".join(parts[1:])


def _split(full_name: str) -> tuple[str, str]:
    """Module and qualified name: the module is the longest part that can be imported."""
    parts = full_name.split(".")
    for at in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:at])
        with contextlib.suppress(ImportError):
            if module not in sys.modules:
                importlib.import_module(module)
            return module, ".".join(parts[at:])
    return ".".join(parts[:-1]), parts[-1]


def unpickler() -> Callable[[bytes], Any]:
    """Return the inverse of ``dumps`` for state of a checkpoint, whose classes may have moved."""
    return _loads_moved if _moved else loads


def load_stored(content: bytes) -> Any:
    """Unpickle what a checkpoint may have, whose classes may have moved."""
    return _loads_moved(content) if _moved else loads(content)


def _loads_moved(content: bytes) -> Any:
    return _MovedUnpickler(io.BytesIO(content)).load()


class _MovedUnpickler(pickle.Unpickler):
    """Finds classes that have moved."""

    def find_class(self, module: str, name: str) -> Any:
        if new_place(module, name) == (module, name):
            return super().find_class(module, name)
        return find_class(module, name)  # may be one of ``__main__``, which only this finds


class StoredRecord:
    """The fields of a dataclass or named tuple as a pickle has them, whatever the class is by now.

    A conversion replaces those in the places of a recorded type.  Others, as in a field of any
    type, are pickled as what they stand for.
    """

    #: The names of the fields when it was pickled.
    names: tuple[str, ...] = ()
    #: Module and name of the class then.
    place: tuple[str, str] = ("", "")

    def __new__(cls, *values: Any) -> Self:
        """Take the fields of a named tuple."""
        made = object.__new__(cls)
        made.__dict__.update(zip(cls.names, values, strict=True) if values else ())
        return made

    def __setstate__(self, state: Any) -> None:
        """Take what the class or ``pickle`` has saved: a dict, slots, or values by position."""
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, dict):
                self.__dict__.update(part)
            elif part is not None:
                self.__dict__.update(zip(self.names, part, strict=True))

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """That of the program: pickle compares it with the class that it is to write."""
        return find_class(*type(self).place)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """As an instance of the class that the program has."""
        return self._restored().__reduce_ex__(protocol)

    def _restored(self) -> object:
        kept, cls, gone = dict(vars(self)), find_class(*type(self).place), set[str]()
        if dataclasses.is_dataclass(cls):
            fields = {field.name: field for field in dataclasses.fields(cls)}
            gone = set(type(self).names) - set(fields)
            for name in set(fields) - set(kept):
                default, factory = fields[name].default, fields[name].default_factory
                if factory is not dataclasses.MISSING:
                    kept[name] = factory()
                elif default is not dataclasses.MISSING:
                    kept[name] = default
        made: Any
        if issubclass(cls, tuple):
            gone = set(type(self).names) | set(record_fields(cls) or ())
            made = _restored_tuple(cls, kept)
        else:
            made = object.__new__(cls)
        for name, value in kept.items():
            if name not in gone:
                object.__setattr__(made, name, value)
        return made


def _restored_tuple(cls: Any, kept: Mapping[str, Any]) -> Any:
    """A named tuple of its stored fields, with defaults for those that are new.

    Raises:
        StateError: a new field has no default.
    """
    fields = {**cls._field_defaults, **kept}
    missing = [name for name in cls._fields if name not in fields]
    if missing:
        message = (
            f"state holds values of class {cls.__module__}.{cls.__qualname__} without the fields"
            f" {', '.join(missing)}, which have no default; give them defaults"
        )
        raise StateError(message)
    return cls._make(fields[name] for name in cls._fields)


def loads_recorded(content: bytes, records: Mapping[str, tuple[str, ...]]) -> Any:
    """Unpickle a value with ``StoredRecord`` objects in the place of some dataclasses.

    Args:
        content: the pickle.
        records: the names of the fields when it was written, by module and name of the class.
    """
    return _RecordUnpickler(content, records).load() if records else unpickler()(content)


class _RecordUnpickler(_MovedUnpickler):
    """Finds stand-ins for some classes, also where they were written by name."""

    def __init__(self, content: bytes, records: Mapping[str, tuple[str, ...]]) -> None:
        super().__init__(io.BytesIO(content))
        self._records = records
        self._made: dict[str, type] = {}

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, find_class.__name__):
            return self._class_by_name
        return self._stand_in(module, name) or super().find_class(module, name)

    def _class_by_name(self, module: str, name: str) -> type:
        return self._stand_in(module, name) or find_class(module, name)

    def _stand_in(self, module: str, name: str) -> type | None:
        full = f"{module}.{name}"
        if full not in self._records:
            return None
        if full not in self._made:
            body = {"names": self._records[full], "place": (module, name)}
            self._made[full] = type(name, (StoredRecord,), body)
        return self._made[full]


def _attribute(module: str, name: str) -> object | None:
    try:
        found: object = sys.modules.get(module) or importlib.import_module(module)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


def _shipped_class(module: str, name: str) -> type | None:
    """A class that reached this process by value, within the job."""
    tracked: dict[type, str] = getattr(
        cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_CLASS", {}
    )
    for cls in list(tracked):
        if cls.__module__ == module and cls.__qualname__ == name:
            return cls
    return None
