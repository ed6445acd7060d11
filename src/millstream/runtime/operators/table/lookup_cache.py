"""The cache of a lookup join: rows by key, for a while.

What it is: Flink's partial cache: of so many keys the ones that were used last, each for so long
behind its last use, or behind the answer.
What it is not: state: it is empty after a restore.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from millstream.contracts.lookup import LookupCaching

__all__ = ["LookupCache"]


class LookupCache:
    """Packed rows by packed key."""

    def __init__(self, caching: LookupCaching) -> None:
        """Take the limits."""
        self._caching = caching
        #: Key -> when it was written and used, and its rows; the one used last is at the end.
        self._kept: OrderedDict[bytes, tuple[int, int, list[bytes]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._kept)

    def get(self, key: bytes, now: int) -> list[bytes] | None:
        """The rows of a key; None: they are to be asked for."""
        kept = self._kept.get(key)
        if kept is None:
            return None
        written, used, rows = kept
        caching = self._caching
        if _is_over(written, caching.expire_after_write, now) or _is_over(
            used, caching.expire_after_access, now
        ):
            del self._kept[key]
            return None
        self._kept[key] = (written, now, rows)
        self._kept.move_to_end(key)
        return rows

    def put(self, key: bytes, rows: list[bytes], now: int) -> None:
        """Keep an answer."""
        if not rows and not self._caching.missing_keys:
            return
        self._kept[key] = (now, now, rows)
        self._kept.move_to_end(key)
        most = self._caching.max_rows
        while most is not None and len(self._kept) > most:
            self._kept.popitem(last=False)


def _is_over(since: int, length: int | None, now: int) -> bool:
    return length is not None and now - since >= length
