"""Maps of packed rows, for the keys of a whole batch: their entries are added as columns.

What it is: what operators do to ``PackedMaps`` of many keys at once.  A map is looked up once, and
new entries are put behind those that are there for all keys together (``grown``).
"""

from __future__ import annotations

from itertools import chain, compress, repeat
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.state.packed_buckets import count_of, grown, has_name

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from millstream.state.packed_state import PackedMaps, Place


#: What a bucket as it is stored takes beside its entries, and each of these at least.
_HEAD: Final = 9
_PER_ENTRY: Final = 8


def append_groups(
    maps: PackedMaps,
    keys: Sequence[Place],
    group_of_row: NDArray[np.int64],
    names: Sequence[bytes],
    values: Sequence[bytes],
) -> list[int]:
    """Add entries at the ends of maps, those that are sure to be new.

    Args:
        maps: whose buckets of these entries were fetched.
        keys: of groups of rows.
        group_of_row: the group of each row.
        names: one entry per row.
        values: of these.

    Returns:
        The rows that were not added: all those of maps of which any may be there already, or that
        are, or would be, more than one bucket.
    """
    order = np.argsort(group_of_row, kind="stable")
    ordered = group_of_row[order]
    starts = np.flatnonzero(np.append([True], ordered[1:] != ordered[:-1])[: len(order)])
    counts = np.diff(np.append(starts, len(order)))
    touched = [keys[group] for group in ordered[starts].tolist()]
    in_order = [names[row] for row in order.tolist()]
    found = list(map(maps.cache.__getitem__, touched))
    if len(touched) == len(in_order):
        may = [
            each is None or (type(each) is bytes and name not in each)
            for each, name in zip(found, in_order, strict=True)
        ]
    else:
        bounds = zip(starts.tolist(), (starts + counts).tolist(), strict=True)
        parts = (in_order[start:stop] for start, stop in bounds)
        may = [_are_new(each, part) for each, part in zip(found, parts, strict=True)]
    chosen = np.array(may, dtype=np.bool_)
    chosen &= _have_room(maps, found, counts)
    left: list[int] = []
    if not chosen.all():
        is_added = np.repeat(chosen, counts)
        left = np.sort(order[~is_added]).tolist()
        order, counts = order[is_added], counts[chosen]
        in_order = [names[row] for row in order.tolist()]
        found, touched = list(compress(found, chosen)), list(compress(touched, chosen))
    if touched:
        added = pa.array(in_order, pa.large_binary())
        of_added = pa.array([values[row] for row in order.tolist()], pa.large_binary())
        maps.set_buckets(touched, grown(found, counts, added, of_added), len(order))
    return left


def _are_new(found: Any, names: list[bytes]) -> bool:
    """Whether entries are sure not to be in a bucket, nor twice among themselves."""
    if len(names) > 1 and len(set(names)) < len(names):
        return False
    return found is None or (type(found) is bytes and not any(map(found.__contains__, names)))


def _have_room(
    maps: PackedMaps, found: Sequence[Any], added: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Which buckets can have so many entries more; others than stored ones cannot."""
    most = maps.most_per_bucket
    sizes = np.fromiter(
        [0 if each is None else len(each) if type(each) is bytes else -1 for each in found],
        np.int64,
        len(found),
    )
    has_room: NDArray[np.bool_] = added <= most
    has_room &= sizes >= 0
    # However short entries are, smaller buckets have fewer.
    close = np.flatnonzero(has_room & (sizes >= _HEAD + _PER_ENTRY * (most + 1 - added)))
    for at in close.tolist():
        has_room[at] = count_of(found[at]) + int(added[at]) <= most
    return has_room


def enter_groups(
    maps: PackedMaps,
    keys: Sequence[Place],
    counts: NDArray[np.int64],
    names: Sequence[bytes],
    value: bytes,
) -> NDArray[np.bool_]:
    """Set entries that are not there yet.

    Args:
        maps: whose buckets of these entries were fetched.
        keys: of which none comes twice.
        counts: how many entries each key has, at least one.
        names: of all of them, key by key, for one key none twice.
        value: of each entry that is set.

    Returns:
        Which of them were not there.
    """
    found = list(map(maps.cache.__getitem__, keys))
    starts = np.cumsum(counts) - counts
    is_new = np.zeros(len(names), dtype=np.bool_)
    slow = np.array([each is not None and type(each) is not bytes for each in found])
    if not slow.all():
        slow |= _looked_for(found, counts, names, slow, is_new)
        added = np.add.reduceat(is_new.astype(np.int64), starts)
        slow |= ~_have_room(maps, found, added)
        chosen = ~slow & (added > 0)
        rows = np.flatnonzero(is_new & np.repeat(chosen, counts)).tolist()
        if rows:
            new = pa.array([names[row] for row in rows], pa.large_binary())
            values = pa.array([value] * len(rows), pa.large_binary())
            touched, before = list(compress(keys, chosen)), list(compress(found, chosen))
            maps.set_buckets(touched, grown(before, added[chosen], new, values), len(rows))
    for group in np.flatnonzero(slow).tolist():
        run = slice(int(starts[group]), int(starts[group] + counts[group]))
        entered = maps.enter(keys[group], names[run], value)
        is_new[run] = True if entered is None else entered
    return is_new


def _looked_for(
    found: Sequence[Any],
    counts: NDArray[np.int64],
    names: Sequence[bytes],
    slow: NDArray[np.bool_],
    is_new: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """Set which names are new in buckets as they are stored; returns where that is not sure."""
    unsure = np.zeros(len(found), dtype=np.bool_)
    per_row = chain.from_iterable(
        repeat(None if skip else each, count)
        for each, skip, count in zip(found, slow.tolist(), counts.tolist(), strict=True)
    )
    is_new[:] = [
        each is None or name not in each for each, name in zip(per_row, names, strict=True)
    ]
    of_row = np.repeat(np.arange(len(found)), counts)
    for row in np.flatnonzero(~is_new).tolist():  # the bytes of the name are in the bucket
        is_there = has_name(found[of_row[row]], names[row])
        if is_there is None:
            unsure[of_row[row]] = True
        else:
            is_new[row] = not is_there
    return unsure
