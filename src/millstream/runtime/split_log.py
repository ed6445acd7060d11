"""The split log: discovered splits, numbered, kept beside the checkpoint.

What it is: append-only; a source's splits are numbered in the order of discovery, and offsets
refer to them by number.  Splits are logged before any offset names them.
What it is not: positions, which are in the offsets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from millstream.connectors.source import Split
from millstream.crash_points import crash_point
from millstream.state.snapshot_files import directory_name

if TYPE_CHECKING:
    from millstream.checkpoint.storage import CheckpointStorage

__all__ = ["SplitLog"]


class SplitLog:
    """Splits by source in ``sources/<uid>/<number of the first>.json``."""

    def __init__(self, storage: CheckpointStorage) -> None:
        self._storage = storage

    def load(self, uid: str) -> list[Split]:
        """All logged splits of a source, in order of their number."""
        splits: list[Split] = []
        for name in self._storage.list_names(_directory(uid)):
            entries = json.loads(self._storage.read(name))
            splits.extend(Split(entry["id"], entry["properties"]) for entry in entries)
        return splits

    def append(self, uid: str, first: int, splits: list[Split]) -> list[Split]:
        """Log newly discovered splits.

        Two drivers may be at it, of which one is fenced already or will be.  Whichever is first,
        both go on with what it logged: a number means the same split to everybody.

        Args:
            uid: the source.
            first: the number of the first of them, which is that of the splits logged so far.
            splits: as discovered.

        Returns:
            What is logged from ``first`` on: ``splits``, or what another driver has logged there.
        """
        entries = [{"id": split.id, "properties": split.properties} for split in splits]
        crash_point("splits.log.before")
        name = f"{_directory(uid)}/{first:012d}.json"
        if not self._storage.put_if_absent(name, json.dumps(entries).encode()):
            return self.load(uid)[first:]
        crash_point("splits.log.after")
        return splits


def _directory(uid: str) -> str:
    """A directory of the source's own: that of "a" must not hold the one of "a/b"."""
    plain = "/" not in uid and uid not in {".", ".."}
    return f"sources/{uid if plain else directory_name(uid)}"
