"""The conformance suite finds each way in which a cursor can be broken, and names the contract."""

from __future__ import annotations

import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest

from millstream.connectors.basic.collection import CollectionSource
from millstream.contracts.source import RangeCursor
from millstream.testing.conformance import ConformanceError, check_cursors

if TYPE_CHECKING:
    from millstream.contracts.source import SourceBatch, Split, SplitCursor


class _Waits(RangeCursor):
    def poll(self, most: int) -> SourceBatch | None:
        time.sleep(0.03)
        return super().poll(most)


class _Computes(RangeCursor):
    def poll(self, most: int) -> SourceBatch | None:
        end = time.thread_time() + 0.03
        while time.thread_time() < end:
            pass
        return super().poll(most)


class _Skips(RangeCursor):
    def extend(self, end: int, *, final: bool) -> None:
        super().extend(end, final=final)
        if self.position:
            self.position += 1


class _SaysSettled(RangeCursor):
    @property
    def settled(self) -> bool:
        return True


class _NeverSettles(RangeCursor):
    def poll(self, most: int) -> SourceBatch | None:
        return super().poll(1)

    @property
    def settled(self) -> bool:
        return False


class _KeepsFiles(RangeCursor):
    kept: list[IO[str]] = []  # noqa: RUF012 - shared, so that nobody closes them

    def close(self) -> None:
        super().close()
        self.kept.append(Path("/dev/null").open())  # noqa: SIM115 - the fault


class _KeepsFilesWhileOthersClose(_KeepsFiles):
    """As many files are open before and after."""

    others: list[IO[str]] = []  # noqa: RUF012 - what another test has left open

    def close(self) -> None:
        super().close()
        if self.others:
            self.others.pop().close()


TEETH: dict[type[RangeCursor], str] = {
    _Waits: r"cursor contract 1: a poll takes \d+ ms",
    _Computes: r"cursor contract 1: a poll takes \d+ ms",
    _Skips: "cursor contract 2: split collection, read by cursors opened at .*, gives",
    _SaysSettled: "cursor contract 2: split collection, read by cursors opened at .*, gives",
    _NeverSettles: "cursor contract 3: not settled after 500 polls",
    _KeepsFiles: "cursor contract 4: split collection: closed cursors leave .* open files",
    _KeepsFilesWhileOthersClose: "cursor contract 4: .* leave .* and [1-9][0-9]* open files",
}


class _Source(CollectionSource):
    def __init__(self, cursor: type[RangeCursor]) -> None:
        super().__init__(range(4_000))
        self.cursor = cursor

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        # If whole, no position within the piece is exact.
        return self.cursor(self, split, position, whole=self.cursor is not _Skips)


@pytest.mark.parametrize("cursor", TEETH, ids=lambda cursor: cursor.__name__)
def test_a_broken_cursor_is_found(cursor: type[RangeCursor]) -> None:
    others = _KeepsFilesWhileOthersClose.others
    others.extend(Path(__file__).open() for _ in range(100))  # noqa: SIM115 - closed below
    try:
        with pytest.raises(ConformanceError, match=TEETH[cursor]):
            check_cursors(_Source(cursor), patience=0.1)
    finally:
        for files in (_KeepsFiles.kept, _KeepsFilesWhileOthersClose.others):
            while files:
                files.pop().close()


def test_a_cursor_that_is_right() -> None:
    check_cursors(_Source(RangeCursor))
