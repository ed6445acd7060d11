"""Cutting records and fragments of sessions into sessions, all keys at once.

What it is: which intervals of a key overlap or touch, directly or through others, and which records
are late by Flink's rule.

What it is not: state or aggregation (``session_state.py``, ``columnar_sessions.py``).

Read next: ``runtime/operators/windows/columnar_sessions.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Sessions", "cut", "late_records"]

#: Products below fit into 64 bits with room to spare.
_MOST: Final = 2**62


class Sessions:
    """Intervals in sessions, which are numbered by key, then by time."""

    __slots__ = ("ends", "of", "starts")

    def __init__(
        self, of: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> None:
        """Take the session of each interval, and start and end of each session."""
        self.of = of
        self.starts = starts
        self.ends = ends

    def __len__(self) -> int:
        """How many sessions there are."""
        return len(self.starts)


def cut(keys: NDArray[np.int64], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Sessions:
    """Find the sessions of intervals: those of one key that overlap or touch are in one.

    Args:
        keys: a number per interval; equal keys have equal numbers.
        starts: the first timestamp of each interval.
        ends: the last timestamp of each interval + 1.
    """
    if not len(keys):
        return Sessions(keys, starts, ends)
    order = _order(keys, starts)
    by_key, begins, stops = keys[order], starts[order], ends[order]
    fresh = np.empty(len(order), dtype=np.bool_)
    fresh[0] = True
    fresh[1:] = (by_key[1:] != by_key[:-1]) | (begins[1:] > _reached(by_key, stops)[:-1])
    firsts = np.flatnonzero(fresh)
    of = np.empty(len(order), dtype=np.int64)
    of[order] = np.cumsum(fresh) - 1
    return Sessions(of, begins[firsts], np.maximum.reduceat(stops, firsts))


def _reached(keys: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, per interval, the greatest end so far of its key; the keys ascend."""
    if bool((ends[1:] >= ends[:-1])[keys[1:] == keys[:-1]].all()):
        return ends
    # One accumulation for all keys: each key's ends are lifted above those of the key before.
    numbers = np.concatenate(([0], np.cumsum(keys[1:] != keys[:-1])))
    low, span = int(ends.min()), _span(ends)
    if span * len(keys) < _MOST:
        values, ranks = np.zeros(0, dtype=np.int64), ends - low
    else:
        values, ranks = np.unique(ends, return_inverse=True)
        span = len(values)
    reached: NDArray[np.int64] = np.maximum.accumulate(ranks + numbers * span) - numbers * span
    return values[reached] if len(values) else reached + low


def _order(keys: NDArray[np.int64], starts: NDArray[np.int64]) -> NDArray[np.int64]:
    """Sort by key, then by start; what is equal in both is in any order."""
    span = _span(starts)
    if _span(keys) * span < _MOST:  # sorted as one number, several times as fast
        return np.argsort((keys - keys.min()) * span + (starts - starts.min()))
    return np.lexsort((starts, keys))


def _span(numbers: NDArray[np.int64]) -> int:
    return int(numbers.max()) - int(numbers.min()) + 1


def late_records(
    keys: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    records: int,
    horizon: int,
) -> NDArray[np.bool_]:
    """Find the late records of a batch, as if they came one by one.

    A record is late if its session, merged with those that are open and with records that came
    before it, ends at the horizon or before: everything else about it is over.  An open session
    is never over, so such a record must touch neither one nor an earlier record that was taken.

    Args:
        keys: a number per interval; first those of open sessions, then those of the records, in
            the order in which they came.
        starts: the first timestamp of each interval.
        ends: the last timestamp of each interval + 1; of a record, its timestamp + the gap.
        records: how many of the intervals are records.
        horizon: the watermark less the allowed lateness.

    Returns:
        One boolean per record.
    """
    opened = len(keys) - records
    suspect = np.zeros(len(keys), dtype=np.bool_)
    suspect[opened:] = ends[opened:] - 1 <= horizon
    if not suspect.any():
        return suspect[opened:]
    sessions = cut(keys, starts, ends)
    # What has only suspects in reach is late, however they came.
    solid = np.zeros(len(sessions), dtype=np.bool_)
    solid[sessions.of[~suspect]] = True
    late = suspect & ~solid[sessions.of]
    doubtful = np.unique(sessions.of[suspect & ~late])
    for session in doubtful.tolist():
        _one_by_one(np.flatnonzero(sessions.of == session), starts, ends, suspect, opened, late)
    return late[opened:]


def _one_by_one(
    members: NDArray[np.int64],
    starts: NDArray[np.int64],
    ends: NDArray[np.int64],
    suspect: NDArray[np.bool_],
    opened: int,
    late: NDArray[np.bool_],
) -> None:
    """Decide on the suspects of one session, in which order matters."""
    taken: list[tuple[int, int]] = []
    for member in members.tolist():
        start, end = int(starts[member]), int(ends[member])
        apart = [each for each in taken if each[0] > end or each[1] < start]
        if len(apart) == len(taken) and member >= opened and suspect[member]:
            late[member] = True
            continue
        touched = [each for each in taken if each[0] <= end and each[1] >= start]
        begin = min([start, *(each[0] for each in touched)])
        taken = [*apart, (begin, max([end, *(each[1] for each in touched)]))]
