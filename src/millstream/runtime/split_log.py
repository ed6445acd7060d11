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
from millstream.errors import FencedError

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
        for name in self._storage.list_names(f"sources/{uid}"):
            entries = json.loads(self._storage.read(name))
            splits.extend(Split(entry["id"], entry["properties"]) for entry in entries)
        return splits

    def append(self, uid: str, first: int, splits: list[Split]) -> None:
        """Log newly discovered splits; ``first`` is the number of the first of them.

        Raises:
            FencedError: another driver has logged splits meanwhile.
        """
        entries = [{"id": split.id, "properties": split.properties} for split in splits]
        crash_point("splits.log.before")
        name = f"sources/{uid}/{first:012d}.json"
        if not self._storage.put_if_absent(name, json.dumps(entries).encode()):
            message = (
                f"another driver has logged splits of source {uid} ({name} exists): this run is "
                f"fenced. Stop one of the two."
            )
            raise FencedError(message)
        crash_point("splits.log.after")
