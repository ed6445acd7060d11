"""Random programs, said twice: as a program of Millstream's, and as a plain computation.

What it is: graphs of sources with several splits, maps, filters, unions, keyed operators with one
and two inputs, and all kinds of exchanges, at random parallelisms; streams are used several times,
so that records meet again behind ways of different length.  A record knows its way, and keyed
operators remember every record that they have met: two computations agree exactly if each record
has passed each operator equally often.

Some programs have windows of event time.  Each split is in order of time, so no record may be late,
whatever the order between splits.  What is behind a window is known at the end of the input only.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.common import Time, Types, WatermarkStrategy
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.connectors.basic.collect import CollectSink
from millstream.contracts.source import Boundedness, Source, SourceBatch, Split, SplitCursor
from millstream.datastream import (
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    StreamExecutionEnvironment,
)
from millstream.datastream.state import MapStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from millstream.contracts.source import KnownSplits
    from millstream.datastream import DataStream
    from millstream.types.types import TypeInformation

__all__ = [
    "WORLDS",
    "Computed",
    "Graph",
    "InFlight",
    "Operation",
    "SourceSpec",
    "computed",
    "number_of",
    "program",
    "random_graph",
    "rescaled",
    "split_id",
    "uid_of",
]

KEYS: Final = 13
#: Milliseconds.
WINDOW: Final = 70
_TYPE: Final = Types.TUPLE([Types.LONG(), Types.LONG()])
_EXCHANGES: Final = ("rebalance", "rescale", "shuffle", "broadcast", "custom", "global", "forward")

#: Number, and the way that it has come, as one number.
Record = tuple[int, int]


@dataclass(frozen=True)
class SourceSpec:
    """A source: how many records each of its splits has, and how it gives them."""

    splits: tuple[int, ...]
    parallelism: int
    #: Its splits grow; else they are complete from the beginning.
    grows: bool


@dataclass(frozen=True)
class Operation:
    """An operator; its number is that of the stream it makes."""

    kind: str
    inputs: tuple[int, ...]
    parallelism: int


@dataclass(frozen=True)
class Graph:
    """A program.  Streams are numbered: those of the sources, then those of the operations."""

    seed: int
    sources: tuple[SourceSpec, ...]
    operations: tuple[Operation, ...]
    #: Streams whose records are kept.
    sinks: tuple[int, ...]
    #: Records are columns; else pickled.
    is_typed: bool
    #: There are windows of event time.
    is_timed: bool = False

    @property
    def slots(self) -> int:
        """The widest parallelism."""
        widths = [each.parallelism for each in self.sources]
        return max(widths + [each.parallelism for each in self.operations])

    @property
    def behind_windows(self) -> set[int]:
        """The streams that windows have a part in."""
        found: set[int] = set()
        for number, each in enumerate(self.operations, len(self.sources)):
            if each.kind == "window" or not found.isdisjoint(each.inputs):
                found.add(number)
        return found

    @property
    def keyed(self) -> list[int]:
        """The operations with keyed state."""
        first = len(self.sources)
        kinds = [each.kind for each in self.operations]
        return [first + i for i, kind in enumerate(kinds) if kind in ("keyed", "connected")]


def random_graph(seed: int) -> Graph:
    """The graph of a seed; every third has windows."""
    chance = random.Random(seed)
    most = chance.choice([2, 2, 3, 4])
    is_timed = seed % 3 == 0

    def parallelism() -> int:
        return chance.randint(1, most)

    sources = tuple(
        SourceSpec(
            tuple(chance.choice([0, 5, 40, 120]) for _ in range(chance.randint(1, 4))),
            parallelism(),
            chance.random() < 0.6,
        )
        for _ in range(chance.randint(1, 3))
    )
    kinds = ["map", "filter", "union", "keyed", "keyed", "connected", *_EXCHANGES]
    kinds += ["window"] * 4 * is_timed
    operations: list[Operation] = []
    for _ in range(chance.randint(3, 7)):
        streams = len(sources) + len(operations)
        kind = chance.choice(kinds)
        inputs = chance.sample(range(streams), min(streams, _inputs(kind, chance)))
        if kind in ("union", "connected") and len(inputs) < 2:
            kind = "keyed"
        width = parallelism()
        if kind == "forward":
            width = _parallelism_of(inputs[0], sources, operations)
        operations.append(Operation(kind, tuple(inputs), width))
    streams = len(sources) + len(operations)
    read = {stream for each in operations for stream in each.inputs}
    sinks = tuple(s for s in range(streams) if s not in read or chance.random() < 0.2)
    is_typed = chance.random() < 0.5
    return Graph(seed, sources, tuple(operations), sinks, is_typed, is_timed)


def rescaled(graph: Graph, chance: random.Random) -> Graph:
    """The same program at other parallelisms, but where what it computes depends on them."""
    most = chance.choice([2, 3, 4])
    sources = tuple(replace(s, parallelism=chance.randint(1, most)) for s in graph.sources)
    operations: list[Operation] = []
    for each in graph.operations:
        width = chance.randint(1, most)
        if each.kind == "forward":
            width = _parallelism_of(each.inputs[0], sources, operations)
        elif each.kind == "broadcast":
            width = each.parallelism
        operations.append(replace(each, parallelism=width))
    return replace(graph, sources=sources, operations=tuple(operations))


def _inputs(kind: str, chance: random.Random) -> int:
    return {"union": chance.randint(2, 3), "connected": 2}.get(kind, 1)


def _parallelism_of(
    stream: int, sources: tuple[SourceSpec, ...], operations: Sequence[Operation]
) -> int:
    if stream < len(sources):
        return sources[stream].parallelism
    return operations[stream - len(sources)].parallelism


# -- what records become, in both computations ------------------------------------------------


def record_of(source: int, split: int, offset: int) -> Record:
    """The record at an offset of a split."""
    return (source * 100 + split) * 10_000 + offset, source


def passed(record: Record, number: int) -> Record:
    """A record that has passed an operation."""
    return record[0], (record[1] * 31 + number + 1) % 1_000_003


def is_kept(record: Record) -> bool:
    """What filters keep."""
    return (record[0] + record[1]) % 3 != 0


def key_of(record: Record) -> int:
    """What keyed operators key by."""
    return (record[0] * 7 + record[1]) % KEYS


def time_of(record: Record) -> int:
    """When a record of a source was, in milliseconds."""
    return record[0] % 10_000 * 10


def gathered(key: int, window: int, records: Iterable[Record]) -> Record:
    """What a window makes of its records, in whatever order they have come."""
    return key * 100_000 + window, sum(31 * number + way for number, way in records) % 1_000_003


# -- the plain computation ---------------------------------------------------------------------


#: A record and its time -> how often it is there.
Timed = Counter[tuple[Record, int]]


#: Uids of an operator and its reader -> records on their way between them.
InFlight = dict[tuple[str, str], Counter[Record]]


@dataclass
class Computed:
    """What the records up to some positions become, but for those in flight."""

    #: Stream -> its records; of those behind windows, as if the input were over.
    streams: list[Counter[Record]]
    #: Keyed operation -> (key, input and record) -> how often it was met.
    states: dict[int, Counter[tuple[int, str]]]
    #: Stream -> its records that its sink has.
    sinks: dict[int, Counter[Record]]


def computed(
    graph: Graph, positions: Mapping[str, int], in_flight: InFlight | None = None
) -> Computed:
    """Compute a program on what its splits have up to some positions.

    Args:
        graph: the program.
        positions: split -> how far it is read; those that are left out are not begun.
        in_flight: what was not processed of that.

    Raises:
        ValueError: something in flight is of no stream.
    """
    in_flight = in_flight or {}
    streams: list[Timed] = []
    states: dict[int, Counter[tuple[int, str]]] = {}
    for number, source in enumerate(graph.sources):
        records = (
            record_of(number, split, offset)
            for split in range(len(source.splits))
            for offset in range(positions.get(split_id(number, split), 0))
        )
        streams.append(Counter((record, time_of(record)) for record in records))
    for number, operation in enumerate(graph.operations, len(graph.sources)):
        inputs = [
            _without(streams[stream], in_flight, uid_of(stream), reader_of(number, operation))
            for stream in operation.inputs
        ]
        if operation.kind in ("keyed", "connected"):
            state = states[number] = Counter()
            for place, stream in enumerate(inputs):
                for (record, _), count in stream.items():
                    state[key_of(record), memory_of(place, record)] += count
        streams.append(_made(number, operation, inputs, in_flight))
    sinks = {
        number: _without_times(
            _without(streams[number], in_flight, uid_of(number), f"sink-{number}")
        )
        for number in graph.sinks
    }
    return Computed([_without_times(stream) for stream in streams], states, sinks)


def _without(stream: Timed, in_flight: InFlight, source: str, target: str) -> Timed:
    """A stream without the records in flight between two operators; each record has one time."""
    gone = in_flight.get((source, target))
    if not gone:
        return stream
    times = dict(stream.keys())
    left = stream.copy()
    for record, count in gone.items():
        time = times.get(record)
        if time is None or left[record, time] < count:
            message = f"{record} is in flight from {source} to {target} and was not sent so often"
            raise ValueError(message)
        left[record, time] -= count
    return +left


def _made(number: int, operation: Operation, inputs: list[Timed], in_flight: InFlight) -> Timed:
    if operation.kind == "window":
        return _windows(number, inputs[0])
    if operation.kind == "filter":  # two operators: what is kept goes through a map
        kept = Counter({each: n for each, n in inputs[0].items() if is_kept(each[0])})
        inputs = [_without(kept, in_flight, reader_of(number, operation), uid_of(number))]
    made: Timed = Counter()
    times = operation.parallelism if operation.kind == "broadcast" else 1
    for stream in inputs:
        for (record, time), count in stream.items():
            made[passed(record, number), time] += count * times
    return made


def _windows(number: int, stream: Timed) -> Timed:
    content: dict[tuple[int, int], list[Record]] = {}
    for (record, time), count in stream.items():
        content.setdefault((key_of(record), time // WINDOW), []).extend([record] * count)
    return Counter(
        (passed(gathered(key, window, records), number), (window + 1) * WINDOW - 1)
        for (key, window), records in content.items()
    )


def _without_times(stream: Timed) -> Counter[Record]:
    found: Counter[Record] = Counter()
    for (record, _), count in stream.items():
        found[record] += count
    return found


def split_id(source: int, split: int) -> str:
    """The name of a split."""
    return f"{source}-{split}"


def memory_of(place: int, record: Record) -> str:
    """Under which name keyed state has a record that came by an input."""
    return f"{place}:{record[0]}:{record[1]}"


# -- the program -------------------------------------------------------------------------------


def uid_of(number: int) -> str:
    """Of a source or an operation."""
    return f"node-{number}"


def reader_of(number: int, operation: Operation) -> str:
    """The uid of what reads the inputs of an operation."""
    return f"filter-{number}" if operation.kind == "filter" else uid_of(number)


def number_of(uid: str) -> int:
    """The number of the source or operation that an operator is a part of."""
    return int(uid.rpartition("-")[2])


def program(
    env: StreamExecutionEnvironment,
    graph: Graph,
    world: str,
    directory: Path,
    *,
    narrow: bool = False,
) -> None:
    """Build the program.

    Args:
        env: where.
        graph: what.
        world: the name of what the sources have (``WORLDS``).
        directory: where each sink has a directory of its own, named by the number of its stream.
        narrow: sinks are as wide as their streams, not as the job.
    """
    streams: list[DataStream] = []
    for number, spec in enumerate(graph.sources):
        source = GraphSource(number, spec, world, graph)
        times = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Times())
        stream = env.from_source(source, times if graph.is_timed else None, f"source {number}")
        streams.append(stream.uid(uid_of(number)).set_parallelism(spec.parallelism))
    made_type = _TYPE if graph.is_typed else None
    for number, operation in enumerate(graph.operations, len(graph.sources)):
        inputs = [streams[each] for each in operation.inputs]
        made = _operation(number, operation.kind, inputs, made_type)
        made.uid(uid_of(number)).name(f"{operation.kind} {number}")
        streams.append(made.set_parallelism(operation.parallelism))
    for number in graph.sinks:
        sink = CollectSink(directory / str(number), fsync=False)
        written = streams[number].sink_to(sink).uid(f"sink-{number}")
        if narrow:
            width = _parallelism_of(number, graph.sources, graph.operations)
            written.set_parallelism(width)


def _operation(
    number: int, kind: str, inputs: list[DataStream], made_type: TypeInformation | None
) -> DataStream:
    stream = inputs[0]
    if kind == "keyed":
        keyed = stream.key_by(key_of, Types.LONG())
        return keyed.process(Remember(number), made_type)
    if kind == "window":
        windows = TumblingEventTimeWindows.of(Time.milliseconds(WINDOW))
        windowed = stream.key_by(key_of, Types.LONG()).window(windows)
        return windowed.process(Gather(number), made_type)
    if kind == "connected":
        one, other = (each.key_by(key_of, Types.LONG()) for each in inputs)
        return one.connect(other).process(RememberBoth(number), made_type)
    if kind == "union":
        stream = stream.union(*inputs[1:])
    elif kind == "filter":
        stream = stream.filter(is_kept).uid(f"filter-{number}")
    elif kind == "custom":
        stream = stream.partition_custom(_partition, key_of)
    elif kind == "global":
        stream = stream.global_()
    elif kind in _EXCHANGES:
        stream = getattr(stream, kind)()
    return stream.map(lambda record: passed(tuple(record), number), made_type)


def _partition(key: Any, partitions: int) -> int:
    return int(key) % partitions


class _Memory:
    """How often each record was met, by key."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._seen: Any = None

    def open(self, context: Any) -> None:
        seen = MapStateDescriptor("seen", Types.STRING(), Types.LONG())
        self._seen = context.get_map_state(seen)

    def _meet(self, place: int, value: Iterable[int]) -> Iterator[Record]:
        number, way = value
        name = memory_of(place, (number, way))
        self._seen.put(name, (self._seen.get(name) or 0) + 1)
        yield passed((number, way), self._number)


class Remember(_Memory, KeyedProcessFunction):
    """Remembers what it meets."""

    def process_element(self, value: Any, ctx: Any) -> Iterator[Record]:
        yield from self._meet(0, value)


class RememberBoth(_Memory, KeyedCoProcessFunction):
    """Remembers what it meets on either input."""

    def process_element1(self, value: Any, ctx: Any) -> Iterator[Record]:
        yield from self._meet(0, value)

    def process_element2(self, value: Any, ctx: Any) -> Iterator[Record]:
        yield from self._meet(1, value)


class Gather(ProcessWindowFunction[Any, Any, Any, Any]):
    """Makes one record of a window."""

    def __init__(self, number: int) -> None:
        self._number = number

    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Iterator[Record]:
        records = [(number, way) for number, way in elements]
        window = context.window().start // WINDOW
        yield passed(gathered(key, window, records), self._number)


class _Times(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return time_of(value)


# -- the sources -------------------------------------------------------------------------------

#: Name -> split -> how far it has grown; all copies of a source see the same.
WORLDS: dict[str, dict[str, int]] = {}


class GraphSource(Source):
    """The records of a ``SourceSpec``, as far as its world has them."""

    def __init__(self, number: int, spec: SourceSpec, world: str, graph: Graph) -> None:
        self.number = number
        self.spec = spec
        self.world = world
        self.seed = graph.seed
        self.side_by_side = graph.is_timed
        self.is_typed = graph.is_typed

    @property
    def boundedness(self) -> Boundedness:
        return Boundedness.BOUNDED

    @property
    def produced_type(self) -> TypeInformation:
        return _TYPE if self.is_typed else Types.PICKLED_BYTE_ARRAY()

    def discover(self, known: KnownSplits) -> list[Split]:
        names = [split_id(self.number, split) for split in range(len(self.spec.splits))]
        return [Split(name) for name in names if name not in known]

    def end_offset(self, split: Split) -> int:
        return WORLDS[self.world][split.id]

    def is_final(self, split: Split) -> bool:
        return not self.spec.grows or self.end_offset(split) == self._size(split)

    def _size(self, split: Split) -> int:
        return self.spec.splits[int(split.id.split("-")[1])]

    def read(self, split: Split, start: int, stop: int) -> Iterator[SourceBatch]:
        number = int(split.id.split("-")[1])
        values = [record_of(self.number, number, offset) for offset in range(start, stop)]
        if self.is_typed:
            yield SourceBatch(arrow=_TYPE.to_arrow(values))
        else:
            yield SourceBatch(values=list(values))

    def open_cursor(self, split: Split, position: int) -> SplitCursor:
        return MoodyCursor(self, split, position)


class MoodyCursor(SplitCursor):
    """Gives a few records at a time, sometimes none, and does not always know where it stands."""

    def __init__(self, source: GraphSource, split: Split, position: int) -> None:
        self.position = position
        self._source = source
        self._split = split
        self._given = position
        self._end = position
        self._final = False
        self._chance = random.Random(f"{source.seed} {split.id} {position}")

    @property
    def settled(self) -> bool:
        return self.position == self._given

    @property
    def is_over(self) -> bool:
        return self._final and self.position >= self._end

    def extend(self, end: int, *, final: bool) -> None:
        self._end, self._final = end, final

    def poll(self, most: int) -> SourceBatch | None:
        if self._given >= self._end or self._chance.random() < 0.3:
            return None
        stop = min(self._end, self._given + min(most, self._chance.randint(1, 6)))
        (batch,) = self._source.read(self._split, self._given, stop)
        was_settled = self.settled
        self._given = stop
        if not was_settled or stop == self._end or self._chance.random() < 0.6:
            self.position = stop
        return batch

    def close(self) -> None:
        pass
