"""Frames in flight of an unaligned checkpoint, which a restored task processes first.

**Time.** Frames in flight follow the snapshot of their producer, whose watermark promises that
nothing older comes *after it*.  So each channel with frames in flight is restored as a channel
of its own beside those of the run (its number is negative), at the time that its reader knew.
Watermarks, idleness and ends in flight move it, in the order in which they were sent; when all are
processed these channels end, and the time of the producers holds.  Until then they hold time back.

**Rescaling.** After a keyed exchange a subtask takes the records of its key groups out of all that
overlap them, and watermarks of each; after others, all that subtask j was given goes to subtask j
modulo the new parallelism (Flink's RANGE and ROUND_ROBIN).

**Another exchange, key or number of key groups.** The frames of a subtask are not what it would get
now.  So each subtask reads all frames, and the new partitioner selects its records.  Unlike Flink,
which leaves them where they were.

Invariant: a record in flight reaches exactly one subtask, and is late only if it was before.

The overtaken frames of a task are one Arrow file, with a row per frame, in order per channel:
``channel`` (its number in the table of channels), ``kind`` (``runtime/exchange.py``) and
``payload``.  The table is JSON in the schema's metadata: for each channel its edge, by the uids at
both ends, the watermark and idleness that its reader knew at its snapshot, and whether it carries
the end of a source.
"""

from __future__ import annotations

import hashlib
import json
import sys
import types
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
import pyarrow as pa

from millstream.checkpoint.model import EDGE, FramesInFlight
from millstream.crash_points import crash_point
from millstream.errors import IncompatibleProgramError
from millstream.graph.model import Partitioning
from millstream.graph.validation import edge_names
from millstream.runtime.columnar.partial_aggregates import is_partial
from millstream.runtime.exchange import DATA_ARROW, DATA_PICKLE, WATERMARK, decode_batch
from millstream.runtime.plan import refresh_time
from millstream.state.key_codec import key_group_range
from millstream.state.local_copies import read_table, stored_table
from millstream.types.field_access import KeyColumns, field_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.graph.model import JobGraph, StreamEdge
    from millstream.graph.validation import EdgeName
    from millstream.runtime.exchange import Partitioner
    from millstream.runtime.plan import EpochPlan
    from millstream.runtime.stage import StageInstance


_FORMAT_KEY: Final = b"millstream.in-flight.format"
_FORMAT: Final = b"1"
_CHANNELS_KEY: Final = b"millstream.in-flight.channels"
_FIELDS: Final = (
    pa.field("channel", pa.int32()),
    pa.field("kind", pa.int8()),
    pa.field("payload", pa.large_binary()),
)


@dataclass(frozen=True, slots=True)
class ChannelInFlight:
    """A channel with frames in flight, as its reader knew it."""

    edge: EdgeName
    #: Milliseconds.
    watermark: int
    idle: bool
    #: Its maximum is the end of a source, which counts when all producers of the edge have said it.
    ends: bool = False


class FrameInFlight(NamedTuple):
    """One frame."""

    #: The place of its channel in the table of channels.
    channel: int
    kind: int
    payload: bytes | memoryview


def write_frames(
    stage: int,
    subtask: int,
    channels: Sequence[ChannelInFlight],
    frames: Sequence[FrameInFlight],
    storage: CheckpointStorage,
    cuts: Mapping[EdgeName, str],
) -> FramesInFlight:
    """Make the frames in flight of a task durable, and say where they are.

    Args:
        stage: of the task.
        subtask: of the task.
        channels: all that the frames are of.
        frames: at least one; in order per channel.
        storage: of the checkpoint.
        cuts: of the edges: by what their records were shared out.
    """
    table = [[list(each.edge), each.watermark, each.idle, each.ends] for each in channels]
    metadata = {_FORMAT_KEY: _FORMAT, _CHANNELS_KEY: json.dumps(table).encode()}
    values = zip(*frames, strict=True)
    columns = [pa.array(each, to.type) for each, to in zip(values, _FIELDS, strict=True)]
    batch = pa.record_batch(columns, schema=pa.schema(_FIELDS, metadata=metadata))
    file, content = stored_table(batch, f"state/in-flight/{stage}-{subtask}", "in-flight")
    crash_point("in-flight.upload.before")
    storage.write(file["remote"], content)
    crash_point("in-flight.upload.after")
    edges = tuple(dict.fromkeys(each.edge for each in channels))
    known = tuple(cuts[each] for each in edges)
    return FramesInFlight(stage, subtask, edges, len(frames), file, known)


def read_frames(
    handle: FramesInFlight, storage: CheckpointStorage
) -> tuple[list[ChannelInFlight], list[FrameInFlight]]:
    """Return what ``write_frames`` was given.

    Raises:
        CorruptCheckpointError: the file is missing or is not what was written.
        UnknownFormatError: it was written in another format.
    """
    table = read_table(storage, handle.file, "frames in flight", _FORMAT_KEY, _FORMAT)
    channels = [
        ChannelInFlight(EDGE.read(edge), int(watermark), bool(idle), bool(ends))
        for edge, watermark, idle, ends in json.loads(table.schema.metadata[_CHANNELS_KEY])
    ]
    rows = zip(*(table.column(field.name).to_pylist() for field in _FIELDS), strict=True)
    return channels, [FrameInFlight(*row) for row in rows]


#: The cut of which nothing is known.
UNKNOWN: Final = ""
#: In the place of a word that is not known.
_UNKNOWN_DIGEST: Final = "?"
_PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
#: The package whose objects are compared by what they have.
_OWN: Final = __name__.partition(".")[0]
#: How deep functions are followed.
_DEEPEST: Final = 8


class _UnknownError(Exception):
    """Something cannot be compared."""


def cut_of(graph: JobGraph, edge: StreamEdge) -> str:
    """By what the records of an edge are shared out to subtasks.

    Returns:
        A text that another way of sharing them out does not have; ``UNKNOWN`` if there is none.
    """
    kind = edge.partitioning.name
    if edge.partitioning not in (Partitioning.HASH, Partitioning.CUSTOM):
        return kind
    digest = _digest((edge.key_selector, edge.partitioner))
    if digest == _UNKNOWN_DIGEST:
        return UNKNOWN
    cut = f"{kind} {graph.nodes[edge.target].max_parallelism} {digest}"
    return cut if edge.combiner is None else f"{cut} {_digest(edge.combiner)}"


def is_other_aggregation(cut: str, graph: JobGraph, edge: StreamEdge) -> bool:
    """Return whether partial aggregates cannot be merged by the reader of an edge.

    Returns:
        True if it is known that they cannot: nothing is said of what cannot be compared.
    """
    if edge.combiner is None:
        return True
    before, now = cut.split(" ")[2:], cut_of(graph, edge).split(" ")[2:]
    pairs = zip(before, now, strict=False)
    return any(old != new and _UNKNOWN_DIGEST not in (old, new) for old, new in pairs)


def _digest(value: object) -> str:
    """A word for what it is; ``_UNKNOWN_DIGEST`` if it cannot be compared."""
    try:
        how = "\n".join(_described(value, _DEEPEST))
    except (_UnknownError, ValueError):  # or it encloses what is not there yet
        return _UNKNOWN_DIGEST
    return hashlib.sha256(how.encode()).hexdigest()[:16]


def _described(value: object, depth: int) -> Iterator[str]:
    if depth <= 0:
        raise _UnknownError
    if isinstance(value, tuple):
        yield f"{len(value)} of"
        for each in value:
            yield from _described(each, depth - 1)
    elif type(value) in _PLAIN or isinstance(value, KeyColumns):
        yield repr(value)
    elif callable(value):
        yield from _described_function(value, depth)
    elif isinstance(value, types.ModuleType) and value.__name__ in sys.stdlib_module_names:
        yield value.__name__
    elif isinstance(value, dict):
        yield from _described(tuple(value.items()), depth)
    elif type(value).__module__.partition(".")[0] == _OWN:
        yield type(value).__qualname__
        yield from _described(tuple(_attributes(value)), depth - 1)
    else:
        raise _UnknownError


def _attributes(value: object) -> Iterator[tuple[str, object]]:
    """Yield what an object of Millstream's own has: windows and aggregates are told apart by it."""
    names = [name for kind in type(value).__mro__ for name in getattr(kind, "__slots__", ())]
    yield from ((name, getattr(value, name)) for name in names if hasattr(value, name))
    yield from getattr(value, "__dict__", {}).items()


def _described_function(function: object, depth: int) -> Iterator[str]:
    field = field_of(function) if callable(function) else None
    if field is not None:
        yield f"field {field!r}"
    elif isinstance(function, types.BuiltinFunctionType | type):
        if function.__module__ not in sys.stdlib_module_names:
            raise _UnknownError
        yield f"{function.__module__}.{function.__qualname__}"
    elif isinstance(function, types.FunctionType):
        yield from _described_code(function.__code__, function.__globals__, depth)
        enclosed = tuple(cell.cell_contents for cell in function.__closure__ or ())
        by_name = tuple((function.__kwdefaults__ or {}).items())
        yield from _described((enclosed, function.__defaults__ or (), by_name), depth)
    else:
        raise _UnknownError


def _described_code(code: types.CodeType, names: dict[str, object], depth: int) -> Iterator[str]:
    yield code.co_code.hex()
    yield repr((code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars))
    yield from _described_constants(code.co_consts, names, depth)
    for name in code.co_names:  # attributes have names too
        if name in names:
            yield name
            yield from _described(names[name], depth - 1)


def _described_constants(
    constants: Iterable[object], names: dict[str, object], depth: int
) -> Iterator[str]:
    for each in constants:
        if isinstance(each, types.CodeType):
            yield from _described_code(each, names, depth - 1)
        elif isinstance(each, frozenset):
            yield repr(sorted(map(repr, each)))
        else:
            yield from _described(each, depth - 1)


#: Channels of frames in flight have this number and those below it.
_FIRST_CHANNEL: Final = -2


class RestoredFrame(NamedTuple):
    """One frame."""

    edge: int
    channel: int
    #: Of ``runtime/exchange.py``.
    kind: int
    #: Records out of which those of other subtasks were taken are a batch.
    payload: bytes | memoryview | Batch


class RestoredFrames:
    """The frames that were in flight to one task.

    Contract:
      1. Made before time is restored, which has to know ``channels``.  (``TaskState``)
      2. Nothing else is given to the operators until it is empty.  (tasks)
    """

    def __init__(self, instance: StageInstance, plan: EpochPlan) -> None:
        self._instance = instance
        self._plan = plan
        #: (edge, channel) -> watermark and idleness, as its reader knew them.
        self.channels: dict[tuple[int, int], tuple[int, bool]] = {}
        self._partitioners: dict[int, Partitioner] = {}
        names = edge_names(instance.graph) if plan.in_flight else {}
        self._edges = {
            names[edge.id]: edge
            for edge in instance.graph.edges
            if edge.id in names and edge.target in instance.operators
        }
        found = [frame for handle in plan.in_flight for frame in self._read(handle)]
        # Where the operators at both ends of an edge share a task now, the later ones first: what
        # they had in flight is older than what the others make.
        places = {node.id: -place for place, node in enumerate(instance.nodes)}
        found.sort(key=lambda frame: places[instance.edges[frame.edge].target])
        self._frames = deque(found)

    def __len__(self) -> int:
        return len(self._frames)

    def left(self) -> list[RestoredFrame]:
        """The frames that are left, in order per channel."""
        return list(self._frames)

    def channels_of(self, node: int) -> dict[tuple[int, int], tuple[int, bool]]:
        """The channels into a node."""
        edges = self._instance.edges
        return {key: time for key, time in self.channels.items() if edges[key[0]].target == node}

    def process_next(self, process: Callable[[RestoredFrame], Batch | None]) -> None:
        """Have a frame processed, ahead of the others; after the last, time continues.

        Args:
            process: gives it to its operator, or some of its records, and returns the others.
        """
        frame = self._frames.popleft()
        rest = process(frame)
        if rest is not None:
            self._frames.appendleft(frame._replace(payload=rest))
        elif not self._frames:
            self._end()

    def _end(self) -> None:
        """End the channels, those first that are behind: the last one left has the latest time."""
        instance = self._instance
        found = []
        for edge, channel in self.channels:
            target = instance.edges[edge].target
            time = instance.valves[target].channels.get((edge, channel))
            if time is not None:
                found.append((time[0], target, edge, channel))
        for _, target, edge, channel in sorted(found):
            instance.channel_finished(target, edge, channel)
        self.channels.clear()
        refresh_time(instance)

    # -- what of it is this task's -------------------------------------------------------------

    def _read(self, handle: FramesInFlight) -> list[RestoredFrame]:
        mine: dict[EdgeName, bool] = {}
        for name in handle.edges:
            edge = self._edges.get(name)
            is_all = None if edge is None else self._is_all(edge, handle, name)
            if is_all is not None:
                mine[name] = is_all
        if not mine:
            return []
        channels, frames = read_frames(handle, self._plan.storage)
        frames = self._without_early_ends(channels, frames)
        numbers: dict[int, tuple[int, int]] = {}
        found = []
        for frame in frames:
            channel = channels[frame.channel]
            if channel.edge not in mine:
                continue
            edge_id = self._edges[channel.edge].id
            self._require_mergeable(handle, channel.edge, frame)
            payload = self._payload(edge_id, frame, is_all=mine[channel.edge])
            if payload is None:
                continue
            # Only now: a channel of which nothing is this task's would hold time back for ever.
            if frame.channel not in numbers:
                key = edge_id, _FIRST_CHANNEL - len(self.channels)
                self.channels[key] = channel.watermark, channel.idle
                numbers[frame.channel] = key
            found.append(RestoredFrame(*numbers[frame.channel], frame.kind, payload))
        return found

    def _require_mergeable(
        self, handle: FramesInFlight, name: EdgeName, frame: FrameInFlight
    ) -> None:
        """Raise IncompatibleProgramError if partial aggregates are of another aggregation."""
        edge, graph = self._edges[name], self._instance.graph
        if frame.kind != DATA_ARROW or not is_other_aggregation(handle.cut(name), graph, edge):
            return
        if not is_partial(decode_batch(frame.kind, pa.py_buffer(frame.payload), edge.type_info)):
            return
        node = graph.nodes[edge.target]
        message = (
            f"the program does not fit the checkpoint: partial aggregates are in flight in it to"
            f" operator '{node.name}' ({node.location}), by another key, of other windows or of"
            " other aggregates than it has now. Run the job with the program that it had, and stop"
            " it: nothing is in flight in the checkpoint that stop() makes"
        )
        raise IncompatibleProgramError(message)

    def _without_early_ends(
        self, channels: list[ChannelInFlight], frames: list[FrameInFlight]
    ) -> list[FrameInFlight]:
        """Leave the end of a source out, but the last if all producers have said it.

        If some have not, the next run tells all of them that the source is over.
        """
        ends: dict[EdgeName, list[FrameInFlight]] = {}
        for frame in frames:
            channel = channels[frame.channel]
            if channel.ends and frame.kind == WATERMARK:
                ends.setdefault(channel.edge, []).append(frame)
        early: list[FrameInFlight] = []
        for name, found in ends.items():
            is_whole = len(found) >= self._plan.old_parallelism(name.source)
            early += found[:-1] if is_whole else found
        return [frame for frame in frames if not any(frame is each for each in early)]

    def _is_all(self, edge: StreamEdge, handle: FramesInFlight, name: EdgeName) -> bool | None:
        """Return whether all that an old subtask had on an edge is this task's; None: nothing is.

        Cases, the first that applies:

        1. Records are shared out as they were, to as many -> what was a subtask's is its own.
        2. By key now, as they were -> a part of what overlaps its key groups is.
        3. By key or by a partitioner now, and otherwise before -> a part of all may be.
        4. All go to one subtask now, or each to all, and otherwise before -> so does what all had.
        5. Any subtask will do -> subtask n's is that of n modulo the new parallelism.
        """
        node, mine = self._instance.graph.nodes[edge.target], self._instance.subtask
        now, before = node.parallelism, self._plan.old_parallelism(node.uid)
        subtask, cut, kind = handle.subtask, handle.cut(name), edge.partitioning
        is_same = cut != UNKNOWN and cut == cut_of(self._instance.graph, edge)
        if is_same and now == before:
            return True if subtask == mine else None
        if kind is Partitioning.HASH and is_same:
            first, stop = key_group_range(subtask, node.max_parallelism, before)
            own, end = key_group_range(mine, node.max_parallelism, now)
            return False if first < end and own < stop else None
        if kind in (Partitioning.HASH, Partitioning.CUSTOM):
            return False
        if kind in (Partitioning.GLOBAL, Partitioning.BROADCAST) and not is_same:
            return True if mine == 0 or kind is Partitioning.BROADCAST else None
        return True if subtask % now == mine else None

    def _payload(
        self, edge_id: int, frame: FrameInFlight, *, is_all: bool
    ) -> bytes | memoryview | Batch | None:
        if is_all or frame.kind not in (DATA_ARROW, DATA_PICKLE):
            return frame.payload
        edge, subtask = self._instance.edges[edge_id], self._instance.subtask
        batch = decode_batch(frame.kind, pa.py_buffer(frame.payload), edge.type_info)
        if edge_id not in self._partitioners:
            self._partitioners[edge_id] = self._instance.partitioner_into(edge)
        targets = self._partitioners[edge_id].targets(batch)
        if isinstance(targets, np.ndarray):
            positions = np.flatnonzero(targets == subtask)
            if len(positions) < len(batch):
                return batch.take(positions) if len(positions) else None
            return batch
        return batch if targets in (None, subtask) else None
