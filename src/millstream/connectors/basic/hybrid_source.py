"""A source that reads others one after the other: what is stored, then what is live.

Its splits are those of its sources, ``<stage>/<id>``.  Each stage begins with an empty split
``<stage>/``: which stages have begun is seen in the list of known splits, so after a restart too.
The next stage begins when all splits of the one before are read to their ends.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

from millstream.contracts.source import Boundedness, OffsetCommits, RangeCursor, Source, Split
from millstream.errors import ProgramError, SourceError
from millstream.types.pickling import dumps, loads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Self

    from millstream.contracts.source import KnownSplits, SourceBatch, SplitCursor
    from millstream.object_stores import StoreAccess
    from millstream.types.types import TypeInformation


#: Makes a source when the one before it, its argument, is read to its end.
SourceFactory: TypeAlias = "Callable[[Source], Source]"
#: In the properties of a split.
_STAGE: Final = "stage"
_INNER: Final = "split"
_MADE: Final = "source"


@dataclass(frozen=True)
class _Known:
    """The splits of one stage among those that are known."""

    known: KnownSplits
    stage: int

    def __contains__(self, split_id: object) -> bool:
        return f"{self.stage}/{split_id}" in self.known

    def __len__(self) -> int:
        """None before the stage begins, then the most that there can be: they are not counted."""
        return len(self.known) if _begin_of(self.stage) in self.known else 0


class HybridSource(Source):
    """A source that reads several sources in order, all but the last of them bounded.

    The sources have one type.  Watermarks follow the records, as if one source had them all.
    """

    in_stages = True

    def __init__(self, first: Source, rest: Sequence[Source | SourceFactory]) -> None:
        """Made by ``builder``."""
        self._stages: list[Source | SourceFactory] = [first, *rest]
        #: Stage -> the source that was made of a factory, in this process.
        self._made: dict[int, Source] = {}
        #: Those that ``start`` has started and ``stop`` will stop.
        self._started: list[Source] = []
        #: As far as the driver was told: whether the last stage has begun, and has all its splits.
        self._is_last_begun = self._is_complete = False

    def __getstate__(self) -> dict[str, object]:
        """Leave what belongs to a process out."""
        return {**self.__dict__, "_made": {}, "_started": []}

    @staticmethod
    def builder(first_source: Source) -> HybridSourceBuilder:
        """Begin with a source, which is bounded."""
        return HybridSourceBuilder(first_source)

    @property
    def boundedness(self) -> Boundedness:
        last = self._stages[-1]
        return last.boundedness if isinstance(last, Source) else Boundedness.CONTINUOUS_UNBOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return self._fixed[0].produced_type

    @property
    def _fixed(self) -> list[Source]:
        """The sources that the program names."""
        return [each for each in self._stages if isinstance(each, Source)]

    @property
    def replayable(self) -> bool:  # type: ignore[override]
        """Return whether all of it can be read again."""
        return all(each.replayable for each in self._fixed)

    @property
    def side_by_side(self) -> bool:  # type: ignore[override]
        """Return whether splits of some stage hold the same time."""
        return any(each.side_by_side for each in self._fixed)

    @property
    def offsets_are_records(self) -> bool:  # type: ignore[override]
        """Return whether offsets count records in every stage."""
        return all(each.offsets_are_records for each in self._fixed)

    @property
    def discovery_interval(self) -> float:
        last = self._stages[-1]
        return last.discovery_interval if isinstance(last, Source) and self._is_last_begun else 0

    def opened_with(self, stores: StoreAccess) -> Self:
        made = self._copy_with(stores)
        made._stages = [  # noqa: SLF001 - the same class
            each.opened_with(stores) if isinstance(each, Source) else each for each in self._stages
        ]
        return made

    def validate(self) -> None:
        for each in self._fixed:
            each.validate()

    def start(self) -> None:
        for each in self._fixed:
            each.start()
            self._started.append(each)

    def stop(self) -> None:
        while self._started:
            self._started.pop().stop()

    # -- splits ----------------------------------------------------------------------------------

    @property
    def has_all_splits(self) -> bool:
        return self._is_complete

    def finds_more(self, known: KnownSplits, *, all_read: bool) -> bool:
        """Return whether a stage is to begin, or the last one may find more."""
        last = len(self._stages) - 1
        self._is_last_begun = _begin_of(last) in known
        if not self._is_last_begun:
            return all_read
        source = self._known_source(last)
        if source is None:
            return False
        finds_more = source.finds_more(_Known(known, last), all_read=all_read)
        self._is_complete = not finds_more and source.has_all_splits
        return finds_more

    def discover(self, known: KnownSplits) -> list[Split]:
        """Begin the next stage; of the last one, find what is new.

        A stage without splits has its first one nevertheless, so the one after it begins later.
        """
        last = len(self._stages) - 1
        stage = next((n for n in range(last) if _begin_of(n) not in known), last)
        begins = _begin_of(stage) not in known
        source = self._begin(stage) if begins else self._known_source(stage)
        if source is None:
            return []
        found = source.discover(_Known(known, stage))
        made = {} if isinstance(self._stages[stage], Source) else {_MADE: _packed(source)}
        splits = [Split(_begin_of(stage), {_STAGE: stage, **made})] if begins else []
        return splits + [
            Split(
                f"{stage}/{each.id}",
                {_STAGE: stage, _INNER: {"id": each.id, "properties": each.properties}, **made},
            )
            for each in found
        ]

    def _begin(self, stage: int) -> Source:
        given = self._stages[stage]
        if isinstance(given, Source):
            return given
        source = given(self._fixed[-1])
        self._check_made(source)
        source.validate()
        return self._take_made(stage, source)

    def _check_made(self, source: object) -> None:
        if not isinstance(source, Source):
            message = f"the last source of a HybridSource: its function returned {source!r:.100}"
            raise SourceError(message)
        if source.produced_type != self.produced_type:
            message = (
                f"the last source of a HybridSource makes {source.produced_type}, and those before"
                f" it {self.produced_type}; let its function return a source of that type"
            )
            raise SourceError(message)

    def _take_made(self, stage: int, source: Source) -> Source:
        self._made[stage] = made = source.opened_with(self.stores)
        if self._started:  # in the driver
            made.start()
            self._started.append(made)
        return made

    def _known_source(self, stage: int) -> Source | None:
        """Return the source of a stage; None if nothing of what was made is known here yet."""
        given = self._stages[stage]
        return given if isinstance(given, Source) else self._made.get(stage)

    def _inner(self, split: Split) -> tuple[Source, Split] | None:
        """Return whose split it is, and what it is there; None: it only begins a stage."""
        stage = cast("int", split.properties[_STAGE])
        given = self._stages[stage]
        if not isinstance(given, Source):
            packed = b64decode(cast("str", split.properties[_MADE]))
            given = self._made.get(stage) or self._take_made(stage, cast("Source", loads(packed)))
        inner = cast("dict[str, Any] | None", split.properties.get(_INNER))
        return None if inner is None else (given, Split(inner["id"], inner["properties"]))

    def start_offset(self, split: Split) -> int:
        found = self._inner(split)
        return 0 if found is None else found[0].start_offset(found[1])

    def end_offset(self, split: Split) -> int:
        found = self._inner(split)
        return 0 if found is None else found[0].end_offset(found[1])

    def ends_early(self, split: Split, position: int) -> None:
        found = self._inner(split)
        if found is not None:
            found[0].ends_early(found[1], position)

    def is_final(self, split: Split) -> bool:
        found = self._inner(split)
        return found is None or found[0].is_final(found[1])

    def next_stop(self, split: Split, start: int, limit: int, end: int) -> int:
        found = self._inner(split)
        return end if found is None else found[0].next_stop(found[1], start, limit, end)

    def first_limit(self, splits: Sequence[Split]) -> int:
        found = [each for each in map(self._inner, splits) if each is not None]
        source = found[-1][0] if found else self._fixed[0]
        return source.first_limit([split for owner, split in found if owner is source])

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        found = self._inner(split)
        return iter(()) if found is None else found[0].read(found[1], start, stop)

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        found = self._inner(split)
        if found is None:
            return RangeCursor(self, split, position)
        return found[0].open_cursor(found[1], position)

    # -- monitoring ------------------------------------------------------------------------------

    def metric_groups(self, split_id: str) -> Mapping[str, str]:
        stage, _, inner = split_id.partition("/")
        source = self._known_source(int(stage))
        return {} if source is None or not inner else source.metric_groups(inner)

    @property
    def commits(self) -> OffsetCommits | None:
        found = [
            (stage, source.commits)
            for stage in range(len(self._stages))
            if (source := self._known_source(stage)) is not None
        ]
        counts = [(stage, each) for stage, each in found if each is not None]
        if not counts:
            return None
        return OffsetCommits(
            sum(each.succeeded for _, each in counts),
            sum(each.failed for _, each in counts),
            {f"{n}/{name}": at for n, each in counts for name, at in each.offsets.items()},
        )

    def committed(self, offsets: dict[str, int]) -> None:
        stages: dict[int, dict[str, int]] = {}
        for name, offset in offsets.items():
            stage, _, inner = name.partition("/")
            if inner:
                stages.setdefault(int(stage), {})[inner] = offset
        for number, found in stages.items():
            source = self._known_source(number)
            if source is not None:
                source.committed(found)


class HybridSourceBuilder:
    """Builds a ``HybridSource``."""

    def __init__(self, first_source: Source) -> None:
        """Begin with a source."""
        _check(first_source, "builder")
        self._first = first_source
        self._rest: list[Source | SourceFactory] = []

    def add_source(self, source: Source | SourceFactory) -> HybridSourceBuilder:
        """Read a source after those before it.

        Args:
                source: the source; as the last one also a function, which is called with the source
                before it when that is read to its end, and returns the source.  What it returns is
                kept with the checkpoints.
        """
        if not callable(source):
            _check(source, "add_source")
        self._rest.append(source)
        return self

    def build(self) -> HybridSource:
        """Make the source.

        Raises:
            ProgramError: a source before the last has no end, or their types differ.
        """
        sources = [self._first, *self._rest]
        fixed = [(n, each) for n, each in enumerate(sources) if isinstance(each, Source)]
        if any(not isinstance(each, Source) for each in sources[:-1]):
            message = "only the last source of a HybridSource can be made by a function"
            raise ProgramError(message)
        for number, each in fixed:
            if number < len(sources) - 1 and each.boundedness is not Boundedness.BOUNDED:
                message = (
                    f"source {number} of a HybridSource, {type(each).__name__}, has no end, so no"
                    " source after it would be read; give it an end or make it the last one"
                )
                raise ProgramError(message)
            if each.produced_type != self._first.produced_type:
                message = (
                    f"source {number} of a HybridSource makes {each.produced_type}, and the first"
                    f" one {self._first.produced_type}; all sources make records of one type"
                )
                raise ProgramError(message)
        return HybridSource(self._first, self._rest)


def _begin_of(stage: int) -> str:
    """Return the id of the empty split with which a stage begins."""
    return f"{stage}/"


def _packed(source: Source) -> str:
    return b64encode(dumps(source)).decode("ascii")


def _check(source: object, method: str) -> None:
    if not isinstance(source, Source):
        message = f"{method}() of a HybridSource takes a source, not {source!r:.100}"
        raise ProgramError(message)
