"""Pickling by value of records, state and committables where plain pickle cannot.

``dumps`` tries C pickle and falls back to cloudpickle, which also pickles instances of classes of
``__main__``.  Equal values may have different bytes; keys are encoded by ``state/key_codec.py``.
"""

from __future__ import annotations

import io
import pickle
import reprlib
from collections import ChainMap
from types import CodeType
from typing import TYPE_CHECKING, Any, ClassVar, Final

import cloudpickle

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping


PROTOCOL: Final = 5
_LONGEST_RECORD: Final = 200


def _code_of_file(file: str, make: Callable[..., CodeType], arguments: tuple[Any, ...]) -> CodeType:
    return make(*arguments).replace(co_filename=file)


def _reduce_code(code: CodeType) -> tuple[Callable[..., CodeType], tuple[Any, ...]]:
    make, arguments = cloudpickle.Pickler.dispatch_table[CodeType](code)
    return _code_of_file, (code.co_filename, make, arguments)


class ByValuePickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles functions of scripts by value, with the names of their files.

    cloudpickle 3.1.3 and later leaves the names out, so that errors of user code would point to
    ``<dynamic-code>`` instead of the user's file.
    """

    dispatch_table: ClassVar[MutableMapping[type, Callable[[Any], Any]]] = ChainMap(
        {CodeType: _reduce_code}, cloudpickle.Pickler.dispatch_table
    )


def dumps_by_value(value: object) -> bytes:
    """Pickle ``value``; functions and classes of scripts by value.

    Raises:
        Exception: whatever a ``__reduce__`` raises for what cannot be pickled.
    """
    buffer = io.BytesIO()
    ByValuePickler(buffer, PROTOCOL).dump(value)
    return buffer.getvalue()


def dumps(value: object) -> bytes:
    """Pickle ``value``; raises whatever cloudpickle raises for what nobody can pickle."""
    try:
        return pickle.dumps(value, PROTOCOL)
    except (pickle.PicklingError, AttributeError, TypeError):
        return dumps_by_value(value)


def find_unpicklable(values: Iterable[object]) -> str:
    """Describe the first value that cannot be pickled, and why; "a value" if each one can be."""
    for value in values:
        try:
            dumps(value)
        except Exception as error:  # noqa: BLE001 - whatever a ``__reduce__`` raises
            return f"{short_repr(value)} cannot be pickled ({type(error).__name__}: {error})"
    return "a value cannot be pickled"


def short_repr(value: object) -> str:
    """Return ``repr(value)`` cut to 200 characters; never raises."""
    try:
        text = repr(value)
    except Exception:  # noqa: BLE001 - a broken __repr__ must not hide the user's error
        text = reprlib.repr(object.__repr__(value))
    if len(text) > _LONGEST_RECORD:
        text = text[: _LONGEST_RECORD - 3] + "..."
    return text


def loads(content: bytes) -> object:
    """The inverse of ``dumps``; for bytes that this job wrote itself."""
    return pickle.loads(content)
