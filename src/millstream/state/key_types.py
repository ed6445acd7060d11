"""Types of keys: of what kind the keys of an operator are, as a checkpoint records it.

What it is: names such as ``int`` or ``tuple[str, int]``.  State lies under the bytes of its key,
which begin with the key's type; so a program whose keys are of another type finds nothing of what
is stored.  That is noticed when the first keys arrive (``checkpoint/program.py``).

What it is not: a check of every key.  A stream may have keys of several types; one look at the
first batch between two snapshots, and at the ends of each further one, is enough to tell a
changed program.

Read next: ``state/key_codec.py``.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.state.key_codec import decode_key
from millstream.types.row import Row

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["KeyTypes", "type_of_key"]

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
        """What was found, and begin anew."""
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
