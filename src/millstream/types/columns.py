"""Arrow columns of flat values, lists, maps and records, read as Python values and made of them.

Every type system converts its columns here, and passes in how it converts what is inside.  Arrays
without nulls go through numpy, whose ``tolist`` runs in C; nulls are inserted afterwards.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from numpy.typing import NDArray


FromColumn: TypeAlias = "Callable[[pa.Array], Sequence[Any]]"
ToColumn: TypeAlias = "Callable[[Sequence[Any]], pa.Array]"


class MapKey(dict[Any, Any]):
    """A map that is a key of another one, and must not be changed."""

    def __hash__(self) -> int:  # type: ignore[override]
        """Equal maps have equal hashes, whatever the order of their entries."""
        return hash(frozenset((key, as_key(item)) for key, item in self.items()))


def as_key(value: Any) -> Any:
    """Return a value as the key of a dict: maps in it become ``MapKey``, lists tuples."""
    if isinstance(value, dict):
        return MapKey(value)
    if isinstance(value, list) or type(value) is tuple:
        return tuple(map(as_key, value))
    return value


def as_type(array: pa.Array, arrow_type: pa.DataType) -> pa.Array:
    """Return the array cast to a type, unless it has it already."""
    return array if array.type.equals(arrow_type) else array.cast(arrow_type, safe=False)


# -- columns to values ------------------------------------------------------------------------


def values_of(array: pa.Array) -> list[Any]:
    """Return the values of an array of a flat type, None where it is null.

    Of days and microseconds it gives ``date`` and naive ``datetime``.
    """
    types = pa.types
    if array.null_count and (types.is_integer(array.type) or types.is_floating(array.type)):
        # Numpy has no null for these.
        filled = array.fill_null(pa.scalar(0, pa.int64()).cast(array.type)).to_numpy().tolist()
        return _with_nulls(filled, array)
    values: list[Any] = array.to_numpy(zero_copy_only=False).tolist()
    return values


def _with_nulls(values: list[Any], array: pa.Array) -> list[Any]:
    if array.null_count:
        for position in np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False)).tolist():
            values[position] = None
    return values


def _bounds(array: pa.Array) -> tuple[slice, list[int]]:
    """Which items a list or map array holds, and where in these each list begins, and its end."""
    # Not flattened: a null list may stand over items.
    offsets = array.offsets.to_numpy()
    return slice(int(offsets[0]), int(offsets[-1])), (offsets - offsets[0]).tolist()


def lists_of(array: pa.Array, items: FromColumn) -> list[Any]:
    """Return the lists of a list array, as slices of what ``items`` makes of all items."""
    if len(array) == 0:
        return []
    held, bounds = _bounds(array)
    found = items(array.values[held])
    return _with_nulls([found[start:stop] for start, stop in pairwise(bounds)], array)


def maps_of(array: pa.Array, keys: FromColumn, items: FromColumn) -> list[Any]:
    """Return the maps of a map array as dicts."""
    if len(array) == 0:
        return []
    held, bounds = _bounds(array)
    names, found = keys(array.keys[held]), items(array.items[held])
    if pa.types.is_nested(array.type.key_type):
        names = list(map(as_key, names))
    maps: list[Any] = [
        dict(zip(names[start:stop], found[start:stop], strict=True))
        for start, stop in pairwise(bounds)
    ]
    return _with_nulls(maps, array)


def records_of(
    array: pa.Array, fields: Iterable[FromColumn], make: Callable[[list[Any]], list[Any]]
) -> list[Any]:
    """Return the records that ``make`` makes of the fields of a struct array."""
    columns = [field(child) for field, child in zip(fields, array.flatten(), strict=True)]
    return _with_nulls(make(columns), array)


# -- values to columns ------------------------------------------------------------------------


def _offsets(values: Sequence[Any]) -> tuple[NDArray[np.int32], pa.Array | None]:
    """Where each list or dict (or None) begins in all items, and the mask of what is None."""
    offsets: NDArray[np.int32] = np.zeros(len(values) + 1, dtype=np.int32)
    np.cumsum([0 if value is None else len(value) for value in values], out=offsets[1:])
    is_none = [value is None for value in values]
    return offsets, pa.array(is_none, pa.bool_()) if any(is_none) else None


def place_of_item(values: Sequence[Any], item: int) -> tuple[int, int]:
    """Return which list or dict holds an item of all of them, and where in it."""
    offsets, _ = _offsets(values)
    index = int(np.searchsorted(offsets, item, side="right")) - 1
    return index, item - int(offsets[index])


def list_column(
    values: Sequence[Any], items: ToColumn, arrow_type: pa.DataType | None = None
) -> pa.Array:
    """Return lists, or None, as a column."""
    offsets, mask = _offsets(values)
    column = items(list(chain.from_iterable(value for value in values if value is not None)))
    return pa.ListArray.from_arrays(pa.array(offsets), column, type=arrow_type, mask=mask)


def map_column(
    values: Sequence[Any], keys: ToColumn, items: ToColumn, arrow_type: pa.DataType | None = None
) -> pa.Array:
    """Return dicts, or None, as a column."""
    offsets, mask = _offsets(values)
    present = [value for value in values if value is not None]
    columns = (
        keys(list(chain.from_iterable(present))),
        items([item for value in present for item in value.values()]),
    )
    return pa.MapArray.from_arrays(pa.array(offsets), *columns, type=arrow_type, mask=mask)


def record_column(
    values: Sequence[Any],
    fields: Callable[[Sequence[Any]], list[pa.Array]],
    arrow_type: pa.DataType,
) -> pa.Array:
    """Return records, or None, as a column; ``fields`` gets those that are not None."""
    present: NDArray[np.bool_] = np.array([value is not None for value in values], bool)
    if not arrow_type.num_fields:
        return pa.array([{} if is_there else None for is_there in present.tolist()], arrow_type)
    if present.all():
        return pa.StructArray.from_arrays(fields(values), fields=list(arrow_type))
    arrays = fields([value for value in values if value is not None])
    # Row i of the struct is the next present record, or null.
    positions = pa.array(np.cumsum(present) - 1, mask=~present)
    spread = [array.take(positions) for array in arrays]
    return pa.StructArray.from_arrays(spread, fields=list(arrow_type), mask=pa.array(~present))
