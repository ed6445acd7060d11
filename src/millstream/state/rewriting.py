"""Writing entries of a store anew while it is restored: in other sections, or under other names.

What it is: for operators that find what another one kept.  The store may be
large: entries are read some thousand at a time, and a scan goes on behind what was written.

What it is not: a change of parallelism or backend (``state/rescale.py``).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.key_value_store import KeyValueStore

__all__ = [
    "key_and_rest",
    "scan_in_steps",
    "scan_state",
    "timed_key_and_rest",
]

_STEP: Final = 4096
#: Where the length of the key and the key stand in names of ``K`` and of ``T`` entries.
_LENGTH_AT: Final = 5
_KEY_AT: Final = 9
_TIMED_LENGTH_AT: Final = 13
_TIMED_KEY_AT: Final = 17


def scan_in_steps(store: KeyValueStore, start: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The entries of ``[start, stop)``; between two of them other ones may be written."""
    while True:
        entries = list(islice(store.scan(start, stop), _STEP))
        yield from entries
        if len(entries) < _STEP:
            return
        start = entries[-1][0] + b"\0"


def scan_state(
    store: KeyValueStore, index: int, key_groups: tuple[int, int]
) -> Iterator[tuple[bytes, bytes]]:
    """The ``K`` entries of the state of this number, in steps."""
    for group in range(*key_groups):
        prefix = b"K" + group.to_bytes(2, "big")
        start, stop = (prefix + number.to_bytes(2, "big") for number in (index, index + 1))
        yield from scan_in_steps(store, start, stop)


def key_and_rest(name: bytes) -> tuple[bytes, bytes]:
    """The encoded key in the name of a ``K`` entry, and what stands behind it."""
    end = _KEY_AT + int.from_bytes(name[_LENGTH_AT:_KEY_AT], "big")
    return name[_KEY_AT:end], name[end:]


def timed_key_and_rest(name: bytes) -> tuple[bytes, bytes]:
    """The encoded key in the name of a ``T`` entry, and what stands behind it."""
    end = _TIMED_KEY_AT + int.from_bytes(name[_TIMED_LENGTH_AT:_TIMED_KEY_AT], "big")
    return name[_TIMED_KEY_AT:end], name[end:]
