"""Columns: one Arrow array to a list of Python values, and back, as fast as the libraries allow.

What it is: the inner loops of ``types/type_information.py``.  Arrays without nulls go through
numpy, whose ``tolist`` runs in C; nulls are put in afterwards.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


class ColumnMismatchError(Exception):
    """A value of a column does not fit.  Internal: becomes a TypeMismatchError further up."""

    def __init__(self, index: int, value: object, expected: str, reason: str = "") -> None:
        super().__init__(index, value, expected, reason)
        self.index = index
        self.value = value
        self.expected = expected
        self.reason = reason
        #: The fields that lead to the value, outermost first.
        self.path: tuple[str, ...] = ()

    def within(self, field: str, index: int | None = None) -> ColumnMismatchError:
        """The same mismatch, seen from the column or row that holds this one."""
        outer = ColumnMismatchError(
            self.index if index is None else index, self.value, self.expected, self.reason
        )
        outer.path = (field, *self.path)
        return outer


class MapKey(dict[Any, Any]):
    """A map that is a key of another one, and must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Equal maps have equal hashes, whatever the order of their entries."""
        return hash(frozenset((key, as_key(item)) for key, item in self.items()))


def as_key(value: Any) -> Any:
    """Return a value as the key of a dict: maps in it become ``MapKey``, lists tuples."""
    if isinstance(value, dict):
        return MapKey(value)
    if isinstance(value, list):
        return tuple(map(as_key, value))
    if type(value) is tuple:
        return tuple(map(as_key, value))
    return value


def values_of(array: pa.Array) -> list[object]:
    """The values of an array of a flat type, None where it is null."""
    if array.null_count == 0 or not _needs_zero(array.type):
        as_list: list[object] = array.to_numpy(zero_copy_only=False).tolist()
        return as_list
    values: list[object] = (
        array.fill_null(pa.scalar(0, pa.int64()).cast(array.type)).to_numpy().tolist()
    )
    for position in null_positions(array):
        values[position] = None
    return values


def _needs_zero(data_type: pa.DataType) -> bool:
    """Whether numpy has no null for the type, so that a zero has to stand in for it."""
    return bool(pa.types.is_integer(data_type) or pa.types.is_floating(data_type))


def temporal_values_of(array: pa.Array) -> list[object]:
    """The values of a date32 or microsecond timestamp array as ``date`` or naive ``datetime``.

    What Python cannot hold (years after 9999) comes out of numpy as an integer, which raises.
    """
    values: list[object] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def null_positions(array: pa.Array) -> list[int]:
    """Where the array is null."""
    positions: list[int] = np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist()
    return positions


def offsets_of(values: Sequence[object]) -> tuple[pa.Array, pa.Array | None, list[object]]:
    """Flatten lists (or dicts, or None) for an Arrow list or map array.

    Returns:
        The offsets, the mask of what is None (None if nothing is), and all items in one list.
        Iterating a dict gives its keys.
    """
    lengths = [0 if value is None else len(value) for value in values]  # type: ignore[arg-type]
    offsets: NDArray[np.int32] = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    lists: Iterable[Iterable[object]] = (v for v in values if v is not None)  # type: ignore[misc]
    mask = None
    if None in set(map(_none_or_true, values)):
        mask = pa.array([value is None for value in values], pa.bool_())
    return pa.array(offsets, pa.int32()), mask, list(chain.from_iterable(lists))


def _none_or_true(value: object) -> bool | None:
    return None if value is None else True


def slices_of(array: pa.Array, convert: Callable[[int, int], object]) -> list[object]:
    """One Python value per list of a list or map array: ``convert(first, stop)``, or None.

    The positions count from the first item that any list of the array holds.
    """
    if len(array) == 0:
        return []
    offsets = array.offsets.to_numpy()
    bounds: list[int] = (offsets - offsets[0]).tolist()
    values = [convert(bounds[i], bounds[i + 1]) for i in range(len(array))]
    if array.null_count:
        for position in null_positions(array):
            values[position] = None
    return values
