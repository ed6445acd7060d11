"""The split log: discovered splits, numbered, kept beside the checkpoint.

What it is: a source's splits are numbered in the order of discovery, and offsets refer to them by
number.  Splits are logged before any offset names them.

Layout, in ``sources/<uid>/``: one file per discovery, ``<number of the first>.json``, a list of
splits; and *parts*, ``<first>-<behind the last>.json``, each in the place of many files.  A part
has the splits that are not read to their end, and of all of them a digest of the id, by which a
source is told what it has found before: a split is never read twice, however long ago it was
finished.

Several drivers may be at it, of which all but one are fenced already or will be.  What holds
whatever they do:

Invariant: a file of a single discovery counts unless a part has its number.  (``put_if_absent``
lets only one be written under a number; if it was compacted away meanwhile, there is a part.)
Invariant: a file is deleted only if there is a part that has all its numbers, so every number is in
some file.  Files may overlap; of a number they all say the same.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final

from millstream.contracts.source import Split
from millstream.crash_points import crash_point
from millstream.errors import CorruptCheckpointError, UnknownFormatError
from millstream.state.local_copies import directory_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.contracts.checkpoint_storage import CheckpointStorage


#: With so many files of single discoveries they are made one part.
MOST_FILES: Final = 64

_VERSION: Final = 1
_DIGEST_SIZE: Final = 16
#: A newer run may be compacting while an older one, fenced already, lists.
_ATTEMPTS: Final = 5


class SeenSplits:
    """The ids of all splits that were ever found; it can be asked, not listed."""

    __slots__ = ("_digests",)

    def __init__(self) -> None:
        """Begin with none."""
        self._digests: set[bytes] = set()

    def __contains__(self, split_id: object) -> bool:
        """Whether a split of this id was found."""
        return _digest(str(split_id)) in self._digests

    def __len__(self) -> int:
        """How many there are."""
        return len(self._digests)

    def add(self, split_id: str) -> None:
        """Note that a split was found."""
        self._digests.add(_digest(split_id))

    def add_digests(self, digests: bytes) -> None:
        """Note many, as they are in a part."""
        self._digests.update(_pieces(digests))


@dataclass(slots=True)
class SplitTable:
    """What a driver holds of one source's splits."""

    #: How many are logged; the number of the next.
    count: int = 0
    seen: SeenSplits = field(default_factory=SeenSplits)
    #: By number, in order; those that are read to their end may be missing.
    splits: dict[int, Split] = field(default_factory=dict)

    def add(self, splits: Iterable[Split]) -> None:
        """Number further splits."""
        for split in splits:
            self.splits[self.count] = split
            self.seen.add(split.id)
            self.count += 1

    def forget(self, is_over: Callable[[int], bool]) -> None:
        """Drop the splits that are read to their end; their ids stay known."""
        over = [number for number in self.splits if is_over(number)]
        for number in over:
            del self.splits[number]


@dataclass(frozen=True, slots=True)
class _File:
    """One file, as it is used: for the numbers from ``first`` to ``stop``."""

    name: str
    first: int
    stop: int
    is_part: bool
    #: Of its content, if it is a single discovery.
    digest: bytes = b""

    @property
    def length(self) -> int:
        """How many splits are taken from it."""
        return self.stop - self.first


class SplitLog:
    """Splits by source in ``sources/<uid>/``."""

    def __init__(self, storage: CheckpointStorage) -> None:
        """Keep the splits in ``storage``."""
        self._storage = storage
        #: Source uid -> its files, in order, as far as they are known here.
        self._chains: dict[str, list[_File]] = {}

    def load(self, uid: str) -> SplitTable:
        """All logged splits of a source, but for those that were read long ago.

        Raises:
            CorruptCheckpointError: a file does not have its form.
            UnknownFormatError: a part was written by a newer release.
        """
        for _ in range(_ATTEMPTS - 1):
            try:
                return self._load(uid)
            except FileNotFoundError:
                continue
        return self._load(uid)

    def _load(self, uid: str) -> SplitTable:
        parts, singles = self._listed(uid)
        table, chain = SplitTable(), list[_File]()
        while True:
            first = table.count
            having = [part for part in parts if part[0] <= first < part[1]]
            if having:
                begin, stop = max(having, key=lambda part: part[1])
                name = _part_name(uid, begin, stop)
                digests, splits = self._read_part(name, begin, first)
                table.seen.add_digests(digests)
                table.splits.update(splits)
                table.count = stop
                chain.append(_File(name, first, stop, is_part=True))
            elif first in singles:
                name = _single_name(uid, first)
                content = self._storage.read(name)
                table.add(self._singles(name, content))
                chain.append(_File(name, first, table.count, is_part=False, digest=_of(content)))
            if table.count == first:
                self._chains[uid] = chain
                return table

    def _listed(self, uid: str) -> tuple[list[tuple[int, int]], set[int]]:
        """The parts as (first, behind the last), and the numbers at which single files begin."""
        names = list(self._storage.list_names(_directory(uid)))
        ranges = [name.rpartition("/")[2].removesuffix(".json").split("-") for name in names]
        parts = [(int(each[0]), int(each[1])) for each in ranges if len(each) > 1]
        return parts, {int(each[0]) for each in ranges if len(each) == 1}

    def append(self, uid: str, table: SplitTable, found: list[Split]) -> SplitTable:
        """Log newly discovered splits.

        Two drivers may be at it.  Whichever is first, both go on with what it logged: a number
        means the same split to everybody.

        Args:
            uid: the source.
            table: what is logged so far.
            found: as discovered.

        Returns:
            ``table`` with ``found``, or what another driver has logged in its place.
        """
        first = table.count
        name = _single_name(uid, first)
        content = json.dumps([_to_json(split) for split in found]).encode()
        crash_point("splits.log.before")
        if not self._storage.put_if_absent(name, content):
            return self.load(uid)
        crash_point("splits.log.after")
        parts, _ = self._listed(uid)
        if any(begin <= first < stop for begin, stop in parts):
            # Another driver had logged this number, and compacted it away.
            self._storage.delete([name])
            return self.load(uid)
        table.add(found)
        file = _File(name, first, table.count, is_part=False, digest=_of(content))
        self._chains.setdefault(uid, []).append(file)
        return table

    def compact(self, uid: str, is_over: Callable[[int], bool]) -> None:
        """Make one part of the files of single discoveries, if there are many.

        A part before them that is not longer is taken in, so the number of parts grows with the
        logarithm of that of the splits, and no split is copied more often than that.

        Cases (where it can stop -> what holds):

        1. The part is not written -> the files are there as before.
        2. The part is written, not all files are deleted -> it goes before them; they are deleted
           when a part next takes their numbers in.
        3. Another driver has compacted the files -> this one notices when it logs the next.

        What can never happen: a file is deleted of which no part has all numbers.

        Args:
            uid: the source.
            is_over: whether the split of a number was read to its end at the oldest checkpoint
                that is kept; of those only the digests stay.
        """
        chain = self._chains.get(uid, [])
        at = next((at for at, file in enumerate(chain) if not file.is_part), len(chain))
        if len(chain) - at < MOST_FILES:
            return
        while (
            at > 0 and chain[at - 1].stop - chain[at - 1].first <= chain[-1].stop - chain[at].first
        ):
            at -= 1
        first, stop = chain[at].first, chain[-1].stop
        content = self._merged(chain[at:], is_over)
        if content is None:
            return
        name = _part_name(uid, first, stop)
        crash_point("splits.compact.before")
        self._storage.put_if_absent(name, content)
        crash_point("splits.compact.after")
        self._chains[uid] = [*chain[:at], _File(name, first, stop, is_part=True)]
        parts, singles = self._listed(uid)
        whole = (first, stop)
        inside = [each for each in parts if first <= each[0] and each[1] <= stop and each != whole]
        self._storage.delete(
            [_part_name(uid, *part) for part in inside]
            + [_single_name(uid, number) for number in singles if first <= number < stop]
        )

    def _merged(self, files: list[_File], is_over: Callable[[int], bool]) -> bytes | None:
        """The content of a part; None if another driver has changed the files."""
        digests, splits = bytearray(), dict[str, Any]()
        for file in files:
            try:
                content = self._storage.read(file.name)
            except FileNotFoundError:
                return None
            if file.is_part:
                begin = _begin_of(file.name)
                some, found = self._read_part(file.name, begin, file.first, content)
                digests += some
            elif _of(content) == file.digest:
                found = dict(enumerate(self._singles(file.name, content), start=file.first))
                digests += b"".join(_digest(split.id) for split in found.values())
            else:
                return None
            left = {str(n): _to_json(split) for n, split in found.items() if not is_over(n)}
            splits.update(left)
        ids = b64encode(digests).decode("ascii")
        return json.dumps({"version": _VERSION, "ids": ids, "splits": splits}).encode()

    def _singles(self, name: str, content: bytes) -> list[Split]:
        try:
            return [_from_json(entry) for entry in json.loads(content)]
        except (ValueError, TypeError, KeyError) as error:
            raise self._corrupt(name, error) from error

    def _read_part(
        self, name: str, begin: int, first: int, content: bytes | None = None
    ) -> tuple[bytes, dict[int, Split]]:
        """The digests and the unfinished splits of a part that begins at ``begin``.

        Args:
            name: of the part.
            begin: the number of its first split.
            first: the number from which on they are wanted.
            content: of the part; None: it is read.
        """
        content = self._storage.read(name) if content is None else content
        try:
            value = json.loads(content)
            version = value["version"]
            if version == _VERSION:
                digests = b64decode(value["ids"], validate=True)[(first - begin) * _DIGEST_SIZE :]
                numbered = {int(n): entry for n, entry in value["splits"].items()}
                splits = {n: _from_json(numbered[n]) for n in sorted(numbered) if n >= first}
                return digests, splits
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise self._corrupt(name, error) from error
        message = (
            f"{name} in {self._storage.location} has format version {version}, this release reads "
            f"{_VERSION}; use the release that wrote it, or a newer one"
        )
        raise UnknownFormatError(message)

    def _corrupt(self, name: str, error: Exception) -> CorruptCheckpointError:
        return CorruptCheckpointError(
            f"{name} in {self._storage.location}, a list of source splits, is damaged ({error!r}); "
            "put the checkpoint directory back from a copy"
        )


def _to_json(split: Split) -> dict[str, object]:
    return {"id": split.id, "properties": split.properties}


def _from_json(entry: dict[str, Any]) -> Split:
    return Split(entry["id"], entry["properties"])


def _digest(split_id: str) -> bytes:
    return blake2b(split_id.encode("utf-8", "surrogateescape"), digest_size=_DIGEST_SIZE).digest()


def _pieces(digests: bytes) -> list[bytes]:
    return [digests[at : at + _DIGEST_SIZE] for at in range(0, len(digests), _DIGEST_SIZE)]


def _single_name(uid: str, first: int) -> str:
    return f"{_directory(uid)}/{first:012d}.json"


def _part_name(uid: str, first: int, stop: int) -> str:
    return f"{_directory(uid)}/{first:012d}-{stop:012d}.json"


def _begin_of(name: str) -> int:
    return int(name.rpartition("/")[2].partition("-")[0])


def _of(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_SIZE).digest()


def _directory(uid: str) -> str:
    """A directory of the source's own: that of "a" must not hold the one of "a/b"."""
    plain = "/" not in uid and uid not in {".", ".."}
    return f"sources/{uid if plain else directory_name(uid)}"
