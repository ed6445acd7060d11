"""NumPy's arrays and scalars in pickles that come from somebody else.

What it is: what stands for NumPy's own constructors while such a pickle is read.  These trust what
they are given: an array of objects over bytes of the pickle's choice is an array of pointers, and a
type may be given fields that lie outside of it.  Here types are made of plain codes only, fields
are checked by NumPy, and content has the size that its type says.

What it is not: for what the job itself reads.

Read next: ``state/readable.py``.
"""

from __future__ import annotations

import math
import re
from typing import Any, Final

import numpy as np

__all__ = ["NUMPY"]

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
