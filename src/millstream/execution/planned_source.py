"""The sources of a run and their splits, on every engine, and the split log.

The splits of a source are numbered in the order of discovery, and offsets refer to them by number.
Splits are logged before any offset names them.

Layout of the log, in ``sources/<uid>/``: one file per discovery, ``<number of the first>.json``, a
list of splits; and *parts*, ``<first>-<after the last>.json``, each in place of many files.  A part
has the splits that are not read to their end, and of all splits a digest of the id, by which a
source recognizes what it has found before: a split is never read twice, however long ago it was
finished.

Several drivers may write to the log; all but one are fenced or will be.  In any case:

Invariant: a file of a single discovery counts unless a part has its number.  (``put_if_absent``
lets only one be written under a number; if it was compacted away meanwhile, there is a part.)
Invariant: a file is deleted only if there is a part that has all its numbers, so every number is in
some file.  Files may overlap; they agree on every number.
"""

from __future__ import annotations

import json
import math
import time
from base64 import b64decode, b64encode
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, Final, cast

from millstream.contracts.source import Split
from millstream.crash_points import crash_point
from millstream.errors import CheckpointError, CorruptCheckpointError, UnknownFormatError
from millstream.graph.model import sources_before
from millstream.graph.validation import connector_label
from millstream.state.local_copies import directory_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.checkpoint.model import SplitState
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.contracts.source import KnownSplits, Source
    from millstream.functions.watermark_strategy import WatermarkAlignment
    from millstream.graph.model import JobGraph


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
        self._digests: set[bytes] = set()

    def __contains__(self, split_id: object) -> bool:
        return _digest(str(split_id)) in self._digests

    def __len__(self) -> int:
        return len(self._digests)

    def add(self, split_id: str) -> None:
        """Note that a split was found."""
        self._digests.add(_digest(split_id))

    def add_digests(self, digests: bytes) -> None:
        """Note many, as they are in a part."""
        self._digests.update(_split_digests(digests))


@dataclass(slots=True)
class SplitTable:
    """The splits of one source, as the driver keeps them."""

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
        """Return how many splits are taken from it."""
        return self.stop - self.first


class SplitLog:
    """Splits by source in ``sources/<uid>/``."""

    def __init__(self, storage: CheckpointStorage) -> None:
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
        """The parts as (first, after the last), and the numbers at which single files begin."""
        names = list(self._storage.list_names(splits_directory(uid)))
        ranges = [name.rpartition("/")[2].removesuffix(".json").split("-") for name in names]
        parts = [(int(each[0]), int(each[1])) for each in ranges if len(each) > 1]
        return parts, {int(each[0]) for each in ranges if len(each) == 1}

    def append(self, uid: str, table: SplitTable, found: list[Split]) -> SplitTable:
        """Log newly discovered splits.

        Two drivers may be at it.  Whichever is first, both continue with what it logged: a number
        means the same split to everybody.

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
        """The digests and the unfinished splits of a part that begins at ``begin``."""
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


def _split_digests(digests: bytes) -> list[bytes]:
    return [digests[at : at + _DIGEST_SIZE] for at in range(0, len(digests), _DIGEST_SIZE)]


def _single_name(uid: str, first: int) -> str:
    return f"{splits_directory(uid)}/{first:012d}.json"


def _part_name(uid: str, first: int, stop: int) -> str:
    return f"{splits_directory(uid)}/{first:012d}-{stop:012d}.json"


def _begin_of(name: str) -> int:
    return int(name.rpartition("/")[2].partition("-")[0])


def _of(content: bytes) -> bytes:
    return blake2b(content, digest_size=_DIGEST_SIZE).digest()


def splits_directory(uid: str) -> str:
    """The directory of the source's own blobs: that of "a" must not hold the one of "a/b"."""
    plain = "/" not in uid and uid not in {".", ".."}
    return f"sources/{uid if plain else directory_name(uid)}"


#: JSON.
Offset = dict[str, object]


def initial_offset() -> Offset:
    """The offset before the first epoch."""
    return {"epoch": -1, "time": 0, "final": False, "sources": {}}


class NumberRanges:
    """A set of numbers of which most are neighbours.

    Invariant: ranges are in order, and no two of them overlap or touch.
    """

    __slots__ = ("_firsts", "_stops")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        """Take ranges (first, after the last) in order."""
        pairs = list(ranges)
        self._firsts = [first for first, _ in pairs]
        self._stops = [stop for _, stop in pairs]

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._firsts, number) - 1
        return index >= 0 and number < self._stops[index]

    def add(self, number: int) -> None:
        """Add a number that is in none of the ranges."""
        firsts, stops = self._firsts, self._stops
        index = bisect_right(firsts, number)
        joins_before = index > 0 and stops[index - 1] == number
        joins_behind = index < len(firsts) and firsts[index] == number + 1
        if joins_before and joins_behind:
            stops[index - 1] = stops.pop(index)
            del firsts[index]
        elif joins_before:
            stops[index - 1] += 1
        elif joins_behind:
            firsts[index] -= 1
        else:
            firsts.insert(index, number)
            stops.insert(index, number + 1)

    def take_range_at(self, first: int) -> int:
        """Remove the range that begins at ``first``; returns its stop, or ``first``."""
        if not self._firsts or self._firsts[0] != first:
            return first
        del self._firsts[0]
        return self._stops.pop(0)

    def to_json(self) -> list[list[int]]:
        """The ranges, in order."""
        return [list(pair) for pair in zip(self._firsts, self._stops, strict=True)]


@dataclass(slots=True)
class Position:
    """The mutable form of one source's part of an offset."""

    known: int = 0
    done: int = 0
    #: Splits after ``done`` that are read to their end as well.
    over: NumberRanges = field(default_factory=NumberRanges)
    at: dict[int, int] = field(default_factory=dict)
    idle: set[int] = field(default_factory=set)
    #: All is read, and the maximum watermark is still to come.
    untold: bool = False

    @staticmethod
    def of(offset: Offset, uid: str) -> Position:
        """The part of the source ``uid``; at the beginning if there is none."""
        sources = cast("dict[str, dict[str, object]]", offset["sources"])
        part = sources.get(uid)
        if part is None:
            return Position()
        at = cast("dict[str, int]", part["at"])
        over = cast("list[tuple[int, int]]", part.get("over", []))
        return Position(
            known=cast("int", part["known"]),
            done=cast("int", part["done"]),
            over=NumberRanges(over),
            at={int(number): position for number, position in at.items()},
            idle=set(cast("list[int]", part["idle"])),
            untold=bool(part.get("untold", False)),
        )

    def is_over(self, number: int) -> bool:
        """Return whether the split is read to its end."""
        return number < self.done or number in self.over

    def has_read(self, table: SplitTable) -> bool:
        """Return whether all splits of the source are read to their ends."""
        return self.done == table.count

    def finish(self, number: int) -> None:
        """Note that the split, which has begun, is read to its end."""
        del self.at[number]
        self.idle.discard(number)
        self.over.add(number)
        self.done = self.over.take_range_at(self.done)

    def to_json(self) -> dict[str, object]:
        """The part of the offset."""
        over = self.over.to_json()
        return {
            "known": self.known,
            "done": self.done,
            **({"over": over} if over else {}),
            "at": {str(number): self.at[number] for number in sorted(self.at)},
            "idle": sorted(self.idle),
            **({"untold": True} if self.untold else {}),
        }


#: Epochs of a backlog may take this many times the target duration.
_BACKLOG_FACTOR: Final = 5.0
#: One step changes the limit by at most these factors, so that one slow epoch does not upset it.
_GROW: Final = 4.0
_SHRINK: Final = 0.5
#: First guess of the seconds of an epoch that do not depend on its size.
_FIXED_SECONDS: Final = 0.3
#: Weight of a new observation.
_WEIGHT: Final = 0.3
#: The limit never falls below this part of the initial one.
_LEAST_PART: Final = 64
#: An epoch takes at least this many times its fixed cost.
_LEAST_TOTAL: Final = 2.0


class EpochSizer:
    """Adapts a limit (in units of a source's offsets) to a target duration in seconds."""

    def __init__(self, initial: int, target_seconds: float) -> None:
        self.limit = initial
        #: A machine that stands still for a while must not lead to epochs of single records.
        self._least = max(1, initial // _LEAST_PART)
        self._target = target_seconds
        self._units = 0
        self._backlog = False
        self._fixed = _FIXED_SECONDS
        self._first = True
        self._last: tuple[int, float] | None = None

    def planned(self, units: int, *, backlog: bool) -> None:
        """The next epoch reads ``units``; ``backlog`` says that the limit held more back."""
        self._units = units
        self._backlog = backlog

    def finished(self, seconds: float) -> None:
        """The epoch took ``seconds``."""
        if not self._units:
            return
        if self._first:
            # It started the workers, so its time tells nothing of the fixed cost; but the next ones
            # will not take longer.
            self._first = False
            if not self._backlog:
                return
            self.limit = max(self.limit, self._wanted(seconds))
            return
        self._learn(self._units, seconds)
        if not self._backlog and seconds <= self._target:
            return
        self.limit = max(self._wanted(seconds), self._least)

    def _wanted(self, seconds: float) -> int:
        """How many units would take the time an epoch should take, if these took ``seconds``."""
        target = self._target * (_BACKLOG_FACTOR if self._backlog else 1.0)
        target = max(target, _LEAST_TOTAL * self._fixed)
        work = max(seconds - self._fixed, 0.01)
        factor = min(max((target - self._fixed) / work, _SHRINK), _GROW)
        return int(min(self._units, self.limit) * factor)

    def _learn(self, units: int, seconds: float) -> None:
        """Estimate the fixed cost from this epoch and the last one of clearly another size."""
        if self._last is not None:
            last_units, last_seconds = self._last
            if max(units, last_units) < 1.2 * min(units, last_units):
                return
            # Not negative: a smaller epoch that took longer tells of load, so of fixed cost.
            per_unit = max((seconds - last_seconds) / (units - last_units), 0.0)
            fixed = min(max(seconds - units * per_unit, 0.0), seconds)
            self._fixed += _WEIGHT * (fixed - self._fixed)
        self._last = (units, seconds)


@dataclass(slots=True)
class PlannedSource:
    """One source node as the driver sees it."""

    uid: str
    #: None for a Spark DataFrame: Spark keeps its offsets, and it has one split per subtask.
    source: Source | None
    parallelism: int
    #: Name and location in the program, for errors.
    label: str = "source"
    #: Milliseconds without data after which a split is idle; None: never.
    idleness: int | None = None
    #: With which other sources it keeps step; None: with none.
    alignment: WatermarkAlignment | None = None
    #: Uids of the sources that are read to their end before it.
    after: frozenset[str] = frozenset()
    table: SplitTable = field(default_factory=SplitTable)
    #: ``time.monotonic`` from which on to look for splits.
    next_discovery: float = -math.inf
    #: None until the first splits are found.
    sizer: EpochSizer | None = None
    #: Split number -> (position, milliseconds of the clock when it was reached).
    last_data: dict[int, tuple[int, float]] = field(default_factory=dict)
    #: Numbers of the splits that had more to read than the last planned epoch takes, because
    #: they are ahead of their group or because the epoch is full: they are not idle.
    waiting: set[int] = field(default_factory=set)
    #: Split id -> where it could be read up to when the source was asked last.
    ends: dict[str, int] = field(default_factory=dict)


def plan_sources(graph: JobGraph) -> list[PlannedSource]:
    """The sources of a job, as the driver sees them."""
    planned = []
    before = sources_before(graph)
    for node in graph.nodes.values():
        if node.kind == "source":
            strategy = node.watermark_strategy
            idleness = None if strategy is None else strategy.idle_timeout
            alignment = None if strategy is None else strategy.alignment
            planned.append(
                PlannedSource(
                    node.uid,
                    node.source,
                    node.parallelism,
                    connector_label(node),
                    idleness,
                    alignment,
                    before[node.uid],
                )
            )
    return planned


class SourceSplits:
    """Finds the splits of all sources of a run, and logs them."""

    def __init__(self, sources: list[PlannedSource], log: SplitLog, retained: int = 2) -> None:
        self._sources = sources
        self._log = log
        #: Where the last epochs began.
        self._starts: deque[Offset] = deque(maxlen=retained)
        for planned in sources:
            if planned.source is not None:
                planned.table = log.load(planned.uid)

    def begin_at(self, start: Offset) -> None:
        """Go on from a checkpoint: release the splits that were read to their end before it.

        Raises:
            CheckpointError: the log does not have the splits that it speaks of.
        """
        if self._starts and self._starts[-1] is start:
            return
        self._starts.append(start)
        for planned in self._sources:
            position = Position.of(start, planned.uid)
            self.require(planned, position)
            planned.table.forget(position.is_over)

    def discover(self, planned: PlannedSource, source: Source, *, all_read: bool) -> list[Split]:
        """Look for new splits of a source, if it is time.

        Args:
            planned: the source as the driver sees it.
            source: the source.
            all_read: the splits that are known are read to their ends.

        Returns:
            Those that were found; the table has them, or what another driver has logged.
        """
        if not self.is_due(planned, source, all_read=all_read):
            return []
        found = new_splits(source, planned.table.seen)
        self.take_in(planned, found)
        return found

    @staticmethod
    def is_due(planned: PlannedSource, source: Source, *, all_read: bool) -> bool:
        """Return whether it is time to look for new splits; then it is not for some time."""
        now = time.monotonic()
        table = planned.table
        if table.count and not source.finds_more(table.seen, all_read=all_read):
            return False
        if now < planned.next_discovery:
            return False
        planned.next_discovery = now + source.discovery_interval / 1000
        return True

    def take_in(self, planned: PlannedSource, found: list[Split]) -> None:
        """Log new splits of a source; the table has them, or what another driver has logged."""
        if found:
            planned.table = self._log.append(planned.uid, planned.table, found)
            self._compact(planned)

    def _compact(self, planned: PlannedSource) -> None:
        """Let the log drop splits that are finished at every checkpoint that is kept."""
        oldest = Position()
        if len(self._starts) == self._starts.maxlen:
            oldest = Position.of(self._starts[0], planned.uid)
        self._log.compact(planned.uid, oldest.is_over)

    def require(self, planned: PlannedSource, position: Position) -> None:
        """Have all splits that a position speaks of; another driver may have logged some.

        Raises:
            CheckpointError: the log does not have them.
        """
        if planned.source is None or _has(planned.table, position):
            return
        planned.table = self._log.load(planned.uid)
        if _has(planned.table, position):
            return
        message = (
            f"{planned.label}: the list of its splits does not go with the checkpoint; the "
            "directory was put back in part, or from copies of different times"
        )
        raise CheckpointError(message)

    def committed(self, splits: Mapping[str, Mapping[str, SplitState]]) -> None:
        """Tell the sources how far they are read by committed epochs, for their monitoring.

        Args:
            splits: source uid -> split id -> state, as in the manifest.
        """
        for planned in self._sources:
            if planned.source is not None:
                states = splits.get(planned.uid, {})
                planned.source.committed({name: each.position for name, each in states.items()})


def new_splits(source: Source, known: KnownSplits) -> list[Split]:
    """Ask a source for the splits that are not known; takes as long as its system does."""
    return [split for split in source.discover(known) if split.id not in known]


def choose_subtask(number: int, load: list[int], *, final: bool) -> int:
    """A complete split goes to the subtask with least to do, a growing one stays put."""
    if not final:
        return number % len(load)
    return load.index(min(load))


def _has(table: SplitTable, position: Position) -> bool:
    """Return whether a table has the splits that a position speaks of."""
    return table.count >= position.known and table.splits.keys() >= position.at.keys()
