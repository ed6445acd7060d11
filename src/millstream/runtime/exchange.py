"""The exchange between stages: frames, their writers, and the valves that combine watermarks.

A *frame* is the unit that engines move, on Spark one row of a shuffle; its payload is a whole
batch, a watermark or an acknowledgement.  All that a stage-0 task reads of one source split is one
channel; all that a later subtask sends is one channel.  Frames of a channel stay in order.
"""

from __future__ import annotations

import contextlib
import random
import struct
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.errors import ProgramError, TypeMismatchError, UserFunctionError, located
from millstream.graph.model import Partitioning
from millstream.runtime.columnar.partial_aggregates import is_partial
from millstream.runtime.columnar.row_groups import key_groups_of_column, key_groups_of_rows
from millstream.runtime.user_code import (
    FunctionContext,
    close_functions,
    functions_in,
    keys_of,
    open_functions,
    private_copy,
    user_error,
)
from millstream.state.key_codec import key_group, key_groups_of_array, subtask_of
from millstream.types.field_access import KeyColumns, field_of
from millstream.types.pickling import dumps, find_unpicklable, loads
from millstream.types.row import with_kind_column

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.operator import OperatorContext
    from millstream.graph.model import StreamEdge
    from millstream.runtime.operators.combiner import CombinerOperator
    from millstream.types.types import TypeInformation


#: Kinds of frames.
DATA_ARROW: Final = 0
DATA_PICKLE: Final = 1
WATERMARK: Final = 2
#: Payload 1: the channel became idle; 0: it is active again.
IDLE: Final = 3
#: The channel is over (a split read to its end): it holds no watermark back any more.
FINISHED: Final = 4
#: Names the attempt of the producer, once per producer and consumer.
PRODUCER_ATTEMPT: Final = 5
ACK: Final = 6

#: The stage number of frames that only the driver reads.
ACKNOWLEDGEMENT_STAGE: Final = 2**31 - 1

#: ``sequence`` counts within one producer and channel; ``watermark`` is the channel's watermark
#: when the frame was made.  Sorting by (watermark, edge, channel, sequence) therefore keeps each
#: channel in order and reads the channel that lags first.
FRAME_SCHEMA: Final = pa.schema(
    [
        ("stage", pa.int32()),
        ("subtask", pa.int32()),
        ("edge", pa.int32()),
        ("kind", pa.int32()),
        ("channel", pa.int32()),
        ("watermark", pa.int64()),
        ("sequence", pa.int64()),
        ("payload", pa.binary()),
    ]
)
FRAME_DDL: Final = (
    "stage int, subtask int, edge int, kind int, channel int, watermark bigint, "
    "sequence bigint, payload binary"
)
_TIMESTAMP_COLUMN: Final = "__timestamp"
#: A record batch is handed to Spark when its payloads reach this many bytes.
_FLUSH_BYTES: Final = 4 * 1024 * 1024
#: A payload with more bytes holds one record.  Transports and columns have limits, which records
#: that are each small enough must not meet because many of them were gathered.
_MOST_BYTES: Final = 64 * 1024 * 1024
_LONG: Final = struct.Struct(">q")


def encode_long(value: int) -> bytes:
    """Eight bytes, big-endian."""
    return _LONG.pack(value)


def decode_long(payload: bytes) -> int:
    """The inverse of ``encode_long``."""
    value: int = _LONG.unpack(payload)[0]
    return value


def encode_batch(batch: Batch) -> tuple[int, bytes]:
    """Serialize a batch; returns the frame kind and the payload."""
    if batch.type_info.arrow_schema is None:
        stamps = None
        if batch.raw_timestamps is not None:
            stamps = batch.timestamp_array.tobytes()
        # Rows carry their kinds themselves.
        beside = None if batch.raw_row_kinds is None else batch.raw_row_kinds.tobytes()
        try:
            return DATA_PICKLE, dumps((batch.values, stamps, beside))
        except Exception as error:
            message = (
                f"record {find_unpicklable(batch.values)}, so it cannot be sent to another task:"
                " emit plain data, or give the class __reduce__"
            )
            raise UserFunctionError(message) from error
    arrow = batch.arrow
    if batch.row_kinds is not None:
        arrow = with_kind_column(arrow, batch.row_kinds)
    if batch.raw_timestamps is not None:
        arrow = arrow.append_column(_TIMESTAMP_COLUMN, pa.array(batch.timestamp_array))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, arrow.schema) as writer:
        writer.write_batch(arrow)
    return DATA_ARROW, sink.getvalue().to_pybytes()


def _arrow_bytes(batch: Batch) -> int:
    """Bytes of a batch's columns, or a bound of them that is quick to say if it is low."""
    bound = batch.arrow.get_total_buffer_size()  # with all that slices leave out
    return int(bound if bound <= _MOST_BYTES else batch.arrow.nbytes)


def cut_by_size(batches: list[Batch]) -> Iterator[list[Batch]]:
    """Cut columnar batches into runs that are short enough to become one payload each.

    Args:
        batches: at least one; one that is too long is a run of its own.
    """
    if sum(batch.arrow.get_total_buffer_size() for batch in batches) <= _MOST_BYTES:
        yield batches
        return
    run: list[Batch] = []
    total = 0
    for batch in batches:
        size = int(batch.arrow.nbytes)
        if run and total + size > _MOST_BYTES:
            yield run
            run, total = [], 0
        run.append(batch)
        total += size
    yield run


def _payloads(batch: Batch) -> Iterator[tuple[int, bytes]]:
    """Serialize a batch, in as many payloads as its size makes it."""
    columnar = batch.type_info.arrow_schema is not None
    if not columnar or len(batch) == 1 or _arrow_bytes(batch) <= _MOST_BYTES:
        kind, payload = encode_batch(batch)
        # How long objects are is known when they are pickled.
        if columnar or len(batch) == 1 or len(payload) <= _MOST_BYTES:
            yield kind, payload
            return
        del payload
    middle = len(batch) // 2
    yield from _payloads(batch.slice(0, middle))
    yield from _payloads(batch.slice(middle, len(batch)))


def decode_batch(kind: int, payload: bytes | pa.Buffer, type_info: TypeInformation) -> Batch:
    """The inverse of ``encode_batch``."""
    if kind == DATA_PICKLE:
        values, stamps, kinds = cast(
            "tuple[list[object], bytes | None, bytes | None]", loads(bytes(payload))
        )
        timestamps = None if stamps is None else np.frombuffer(stamps, dtype=np.int64)
        row_kinds = None if kinds is None else np.frombuffer(kinds, dtype=np.int8)
        return Batch(type_info, values=values, timestamps=timestamps, row_kinds=row_kinds)
    with pa.ipc.open_stream(payload) as reader:
        arrow = reader.read_next_batch()
    timestamps = None
    if arrow.schema.names and arrow.schema.names[-1] == _TIMESTAMP_COLUMN:
        timestamps = arrow.column(arrow.num_columns - 1).to_numpy()
        arrow = arrow.select(list(range(arrow.num_columns - 1)))
    return Batch(type_info, arrow=arrow, timestamps=timestamps)


class Destination(NamedTuple):
    """Where a frame goes, and its place among others."""

    stage: int
    subtask: int
    edge: int = -1
    channel: int = -1
    watermark: int = MIN_TIMESTAMP
    sequence: int = -1


class Outbox:
    """Frames made by a task and not yet handed to the engine."""

    def __init__(self) -> None:
        self._columns: tuple[list[object], ...] = tuple([] for _ in FRAME_SCHEMA)
        self._bytes = 0
        #: Bytes of all that was ever added.
        self.added = 0

    def add(self, to: Destination, kind: int, payload: bytes) -> None:
        """Append one frame."""
        stage, subtask, edge, channel, watermark, sequence = to
        row = (stage, subtask, edge, kind, channel, watermark, sequence, payload)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._bytes += len(payload)
        self.added += len(payload)

    def add_batch(self, to: Destination, batch: Batch) -> int:
        """Append records: a frame, or several if it were too long.

        Returns:
            How many frames, which are numbered from that of ``to`` on.
        """
        count = 0
        for kind, payload in _payloads(batch):
            self.add(to._replace(sequence=to.sequence + count) if count else to, kind, payload)
            count += 1
        return count

    @property
    def is_full(self) -> bool:
        """Return whether it is time to drain."""
        return self._bytes >= _FLUSH_BYTES

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Hand over what has been added, and forget it."""
        if not self._columns[0]:
            return
        arrays = [
            pa.array(column, type=field.type)
            for column, field in zip(self._columns, FRAME_SCHEMA, strict=True)
        ]
        for column in self._columns:
            column.clear()
        self._bytes = 0
        yield pa.RecordBatch.from_arrays(arrays, schema=FRAME_SCHEMA)


#: Keys whose subtask is remembered per edge; the memory is bounded, not the number of keys.
_REMEMBERED_KEYS: Final = 500_000


class Partitioner(ABC):
    """Chooses targets; opened before and closed after that."""

    def open(self) -> None:
        """Open the user's functions."""

    def close(self) -> None:
        """Close the user's functions."""

    @abstractmethod
    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        """The subtask of each record, or one for all, or None for every subtask (broadcast)."""


class _ByFunctions(Partitioner):
    """Has functions of the user's, called as those of the operator that reads the edge."""

    def __init__(self, reader: OperatorContext, given: Sequence[Any]) -> None:
        self._reader = reader
        self._functions = [each for part in given for each in functions_in(part)]
        self._opened = False

    def open(self) -> None:
        self._opened = True
        open_functions(self._functions, FunctionContext(self._reader), self._reader)

    def close(self) -> None:
        if self._opened:
            self._opened = False
            close_functions(self._functions, self._reader)


def key_column(batch: Batch, field: str | int) -> pa.Array | None:
    """The column that a pure field access reads, None if the batch is not columnar."""
    if not batch.is_columnar:
        return None
    arrow = batch.arrow
    if isinstance(field, int):
        return arrow.column(field) if 0 <= field < arrow.num_columns else None
    position = arrow.schema.get_field_index(field)
    return arrow.column(position) if position >= 0 else None


class _HashPartitioner(_ByFunctions):
    """By key group, as Flink: stable over processes, machines and parallelisms."""

    def __init__(
        self,
        selector: Callable[[object], object],
        parallelism: int,
        max_parallelism: int,
        reader: OperatorContext,
    ) -> None:
        self._selector = private_copy(selector)
        super().__init__(reader, [self._selector])
        self._field = field_of(self._selector)
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism
        # Invariant: only keys of exactly the types int and str are in here, so that 1 and True,
        # which are equal in a dict but not as keys, cannot share an entry.
        self._known: dict[object, int] = {}

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        if self._parallelism == 1:
            return 0
        if is_partial(batch):
            keys_of_partials = batch.arrow.column(0)
            found = key_groups_of_column(keys_of_partials, self._max_parallelism)
            groups = found.astype(np.int64)
            return groups * self._parallelism // self._max_parallelism
        if self._field is not None:
            column = key_column(batch, self._field)
            if column is not None:
                groups = key_groups_of_array(column, self._max_parallelism).astype(np.int64)
                return groups * self._parallelism // self._max_parallelism
        known = self._known.get
        # Keys are those of the record as its reader will see it, where 1 for a DOUBLE is 1.0: both
        # sides must agree to which key group it belongs.
        keys = keys_of(batch.conformed.values, self._selector, self._reader)
        chosen = [known(key, -1) if type(key) is int or type(key) is str else -1 for key in keys]
        if -1 in chosen:
            self._fill(keys, chosen)
        return np.asarray(chosen, dtype=np.int64)

    def _fill(self, keys: list[object], chosen: list[int]) -> None:
        if len(self._known) > _REMEMBERED_KEYS:
            self._known.clear()
        for position, subtask in enumerate(chosen):
            if subtask >= 0:
                continue
            key = keys[position]
            group = key_group(key, self._max_parallelism)
            subtask = subtask_of(group, self._max_parallelism, self._parallelism)  # noqa: PLW2901
            chosen[position] = subtask
            if type(key) is int or type(key) is str:
                self._known[key] = subtask


class _KeyColumnsPartitioner(Partitioner):
    """By key group, of keys that are columns of a table."""

    def __init__(self, key: KeyColumns, parallelism: int, max_parallelism: int) -> None:
        self._key = key
        self._parallelism = parallelism
        self._max_parallelism = max_parallelism

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        if self._parallelism == 1:
            return 0
        arrow = batch.arrow
        columns = [arrow.column(index) for index in self._key.indexes]
        groups = key_groups_of_rows(columns, len(batch), self._max_parallelism)
        return groups * self._parallelism // self._max_parallelism


class _SameSubtask(Partitioner):
    """FORWARD over a stage boundary, and GLOBAL."""

    def __init__(self, subtask: int) -> None:
        self._subtask = subtask

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        del batch
        return self._subtask


class _RoundRobin(Partitioner):
    """REBALANCE and RESCALE: batches are dealt out in turn, large ones record by record."""

    def __init__(self, start: int, subtasks: list[int]) -> None:
        self._next = start
        self._subtasks = np.asarray(subtasks, dtype=np.int64)

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        count = len(self._subtasks)
        positions = (np.arange(len(batch)) + self._next) % count
        self._next = (self._next + len(batch)) % count
        return self._subtasks[positions]


class _Shuffle(Partitioner):
    """SHUFFLE: random, but the same at every replay."""

    def __init__(self, seed: int, parallelism: int) -> None:
        self._random = random.Random(seed)  # noqa: S311 - not for secrets
        self._parallelism = parallelism

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        drawn = [self._random.randrange(self._parallelism) for _ in range(len(batch))]
        return np.asarray(drawn, dtype=np.int64)


class _Broadcast(Partitioner):
    """BROADCAST: every subtask gets every record."""

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        del batch
        return None


class _Custom(_ByFunctions):
    """CUSTOM: the user's partitioner on the user's key."""

    def __init__(self, edge: StreamEdge, parallelism: int, reader: OperatorContext) -> None:
        if edge.partitioner is None:
            message = "a custom partitioning needs a partitioner"
            raise ProgramError(message)
        self._partitioner = private_copy(edge.partitioner)
        self._selector = private_copy(edge.key_selector or (lambda value: value))
        super().__init__(reader, [self._partitioner, self._selector])
        self._parallelism = parallelism

    def targets(self, batch: Batch) -> NDArray[np.int64] | int | None:
        values = batch.conformed.values
        keys = keys_of(values, self._selector, self._reader, "partition_custom")
        chosen: list[int] = []
        try:
            for key in keys:  # one by one: how many were chosen tells which record it was
                subtask = self._checked(self._partitioner(key, self._parallelism))
                chosen.append(subtask)
        except Exception as error:
            record = values[len(chosen)]
            doing = "choosing the subtask (partition_custom) of"
            raise user_error(self._reader, error, record, doing=doing) from error
        return np.asarray(chosen, dtype=np.int64)

    def _checked(self, subtask: object) -> int:
        if isinstance(subtask, int | np.integer) and 0 <= subtask < self._parallelism:
            return int(subtask)
        last = self._parallelism - 1
        message = f"the partitioner returned {subtask!r}, not a number from 0 to {last}"
        raise ProgramError(message)


def create_partitioner(
    edge: StreamEdge, subtask: int, source_parallelism: int, reader: OperatorContext
) -> Partitioner:
    """The partitioner of ``edge`` as seen from one producing subtask."""
    parallelism, max_parallelism = reader.parallelism, reader.max_parallelism
    kind = edge.partitioning
    if kind is Partitioning.HASH:
        if edge.key_selector is None:
            message = "a keyed edge needs a key selector"
            raise ProgramError(message)
        if isinstance(edge.key_selector, KeyColumns):
            return _KeyColumnsPartitioner(edge.key_selector, parallelism, max_parallelism)
        return _HashPartitioner(edge.key_selector, parallelism, max_parallelism, reader)
    if kind is Partitioning.CUSTOM:
        return _Custom(edge, parallelism, reader)
    others: dict[Partitioning, Callable[[], Partitioner]] = {
        Partitioning.FORWARD: lambda: _SameSubtask(subtask % parallelism),
        Partitioning.GLOBAL: lambda: _SameSubtask(0),
        Partitioning.BROADCAST: _Broadcast,
        Partitioning.SHUFFLE: lambda: _Shuffle(subtask, parallelism),
        Partitioning.RESCALE: lambda: _RoundRobin(
            0, _rescale_targets(subtask, source_parallelism, parallelism)
        ),
        Partitioning.REBALANCE: lambda: _RoundRobin(
            subtask % parallelism, list(range(parallelism))
        ),
    }
    return others[kind]()


def _rescale_targets(subtask: int, source_parallelism: int, parallelism: int) -> list[int]:
    """The subtasks near ``subtask``: a block of targets, or one target for a block of sources."""
    if parallelism >= source_parallelism:
        first = subtask * parallelism // source_parallelism
        stop = max(first + 1, (subtask + 1) * parallelism // source_parallelism)
        return list(range(first, stop))
    return [subtask * parallelism // source_parallelism]


#: Records gathered per target before a frame is made, unless a watermark comes first.
_FRAME_RECORDS: Final = 16_384


class ExchangeWriter:
    """One edge, as seen from one producing subtask.

    Invariant: between two calls of ``switch_channel`` all frames are of one channel, and their
    watermark column is the watermark that the channel had when the records were emitted.
    """

    def __init__(
        self,
        edge: StreamEdge,
        stage: int,
        parallelism: int,
        partitioner: Partitioner,
        outbox: Outbox,
        combiner: CombinerOperator | None = None,
    ) -> None:
        self._edge = edge
        #: Id of the node that emits here.
        self.source_node = edge.source
        #: What that node is called in messages.
        self.producer = f"operator {edge.source}"
        self._stage = stage
        self._parallelism = parallelism
        self._partitioner = partitioner
        self._outbox = outbox
        self._combiner = combiner
        self._pending: list[list[Batch]] = [[] for _ in range(parallelism)]
        self._pending_records = 0
        self._channel = 0
        self._watermark = MIN_TIMESTAMP
        self._sequence = 0
        self._was_idle = False
        #: Bytes of records that were sent.
        self.sent = 0
        if combiner is not None:
            combiner.output = _CombinerOutput(self)

    def open(self) -> None:
        """Open the combiner, and the functions by which records are partitioned."""
        self._partitioner.open()
        if self._combiner is not None:
            self._combiner.open()

    def close(self) -> None:
        """Close both, whatever one of them raises."""
        with contextlib.ExitStack() as closing:
            closing.callback(self._partitioner.close)
            if self._combiner is not None:
                closing.callback(self._combiner.close)

    def switch_channel(self, channel: int, watermark: int, *, idle: bool = False) -> None:
        """Flush, and continue in another channel that has reached ``watermark``."""
        self.flush()
        self._was_idle = idle
        self._channel = channel
        self._watermark = watermark
        self._sequence = 0
        if self._combiner is not None:
            self._combiner.switch_channel(watermark)

    def emit(self, batch: Batch) -> None:
        """Send records."""
        if len(batch) == 0:
            return
        if self._combiner is not None:
            self._combiner.process_batch(batch.conformed)
        else:
            self.route(batch)

    def route(self, batch: Batch) -> None:
        """Cut a batch by target; what the combiner makes comes in here."""
        if len(batch) == 0:
            return
        self._make_columns(batch)
        targets = self._partitioner.targets(batch)
        if targets is None:
            for pending in self._pending:
                pending.append(batch)
        elif isinstance(targets, int):
            self._pending[targets].append(batch)
        else:
            self._split(batch, targets)
        self._pending_records += len(batch)
        # Counted over all targets: with skewed keys one frame grows, and memory does not.
        if self._pending_records >= _FRAME_RECORDS * self._parallelism:
            self._send_pending()

    def _make_columns(self, batch: Batch) -> None:
        """Check what a program gave, once for all edges; frames and key columns need it, too."""
        if batch.is_columnar or batch.type_info.arrow_schema is None:
            return
        try:
            _ = batch.arrow
        except TypeMismatchError as error:
            if error.is_located:
                raise
            message = f"output of {self.producer}: {error}"
            raise TypeMismatchError(message) from error

    def _split(self, batch: Batch, targets: NDArray[np.int64]) -> None:
        for subtask in range(self._parallelism):
            positions = np.flatnonzero(targets == subtask)
            if len(positions) == len(batch):  # the whole, without a copy
                self._pending[subtask].append(batch)
            elif len(positions):
                self._pending[subtask].append(batch.take(positions))

    def emit_watermark(self, watermark: int) -> None:
        """Send a watermark after everything emitted so far, to every target."""
        if watermark <= self._watermark:
            return  # time that stands still would cost a frame per target
        if self._combiner is not None:
            # It may hold back what belongs to windows that this watermark does not fire.
            self._combiner.process_watermark(watermark)
        # Records first: a watermark promises that nothing after it is older.  Its own frame still
        # has the time before it, so that readers sort it before all that comes after.
        self._send_pending()
        self._to_all(WATERMARK, encode_long(watermark))
        self._watermark = watermark

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        """Send that the channel is idle or active again.

        A channel that was idle when the epoch began and becomes active in it is so for the whole
        epoch: its frame goes ahead of those of all channels.  Else the first channel to be read
        would move time past what the others, which become active as well, have to say.
        """
        self.flush()
        first = self._was_idle and not idle
        self._was_idle = False
        self._to_all(IDLE, encode_long(int(idle)), MIN_TIMESTAMP if first else None)

    def emit_finished(self) -> None:
        """Send that the channel is over."""
        self.flush()
        self._to_all(FINISHED, b"")

    @property
    def holds_records(self) -> bool:
        """Return whether records are gathered that no frame has yet."""
        return self._pending_records > 0 or self._combiner is not None

    def flush(self) -> None:
        """Turn everything gathered into frames."""
        if self._combiner is not None:
            self._combiner.flush()
        self._send_pending()

    def _send_pending(self) -> None:
        if not self._pending_records:
            return
        for subtask, pending in enumerate(self._pending):
            for run in runs(pending):
                self._sequence += self._add_batch(subtask, concatenate(run))
            pending.clear()
        self._pending_records = 0

    def _add_batch(self, subtask: int, batch: Batch) -> int:
        before = self._outbox.added
        try:
            count = self._outbox.add_batch(self._to(subtask), batch)
        except UserFunctionError as error:
            message = f"output of {self.producer}: {error}"
            raise located(UserFunctionError(message)) from error
        self.sent += self._outbox.added - before
        return count

    def _to_all(self, kind: int, payload: bytes, order: int | None = None) -> None:
        for subtask in range(self._parallelism):
            self._outbox.add(self._to(subtask, order), kind, payload)
            self._sequence += 1

    def _to(self, subtask: int, order: int | None = None) -> Destination:
        # The minimum is for what goes ahead of everything.
        order = max(self._watermark, MIN_TIMESTAMP + 1) if order is None else order
        edge, channel, sequence = self._edge.id, self._channel, self._sequence
        return Destination(self._stage, subtask, edge, channel, order, sequence)


class _CombinerOutput:
    """Where a combiner's partial results go: back into the writer, after the combiner."""

    def __init__(self, writer: ExchangeWriter) -> None:
        self._writer = writer

    def emit(self, batch: Batch) -> None:
        self._writer.route(batch)

    def emit_side(self, tag: str, batch: Batch) -> None:
        """A combiner has no side outputs."""

    def emit_watermark(self, watermark: int) -> None:
        """Watermarks go past the combiner."""

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001
        """Idleness goes past the combiner."""


def runs(batches: list[Batch]) -> Iterator[list[Batch]]:
    """Cut into runs that become one batch each."""
    for run in _same_schema(batches):
        if all(batch.is_columnar for batch in run):
            # Before they are put together: a column has a limit, too.
            yield from cut_by_size(run)
        else:
            yield run


def _same_schema(batches: list[Batch]) -> list[list[Batch]]:
    """Cut into runs that can be one frame: partial aggregates of mixed keys differ in schema."""
    runs: list[list[Batch]] = []
    for batch in batches:
        previous = runs[-1][-1] if runs else None
        if previous is not None and (
            not (previous.is_columnar and batch.is_columnar)
            or previous.arrow.schema.equals(batch.arrow.schema)
        ):
            runs[-1].append(batch)
        else:
            runs.append([batch])
    return runs


def concatenate(batches: list[Batch]) -> Batch:
    """One batch of several of the same stream, in order."""
    if len(batches) == 1:
        return batches[0]
    first = batches[0]
    timestamps: NDArray[np.int64] | None = None
    if any(batch.raw_timestamps is not None for batch in batches):
        timestamps = np.concatenate([batch.timestamp_array for batch in batches])
    kinds: NDArray[np.int8] | None = None
    if any(batch.raw_row_kinds is not None for batch in batches):
        each = ((batch.row_kinds, len(batch)) for batch in batches)
        kinds = np.concatenate([np.zeros(n, np.int8) if k is None else k for k, n in each])
    if all(batch.is_columnar for batch in batches):
        arrow = pa.concat_batches([batch.arrow for batch in batches])
        return Batch(first.type_info, arrow=arrow, timestamps=timestamps, row_kinds=kinds)
    values: list[object] = []
    for batch in batches:
        values.extend(batch.values)
    return Batch(first.type_info, values=values, timestamps=timestamps, row_kinds=kinds)


class WatermarkValve:
    """The watermark of an operator: the minimum over its active channels, as in Flink.

    Invariant: ``current`` never shrinks.  Idle channels are left out and come back without moving
    time backwards; finished channels are left out for good.  If every channel is idle, so is the
    operator, and its watermark is then the highest of the idle ones, as in Flink.
    """

    def __init__(self, current: int, channels: dict[tuple[int, int], tuple[int, bool]]) -> None:
        self.current = current
        #: (edge, channel) -> watermark.
        self._watermarks = {key: watermark for key, (watermark, _) in channels.items()}
        self._idle = {key for key, (_, idle) in channels.items() if idle}
        self.idle = bool(channels) and len(self._idle) == len(channels)

    @property
    def channels(self) -> dict[tuple[int, int], tuple[int, bool]]:
        """(edge, channel) -> watermark and idleness, as it knows them now."""
        idle = self._idle
        return {key: (watermark, key in idle) for key, watermark in self._watermarks.items()}

    def watermark(self, edge: int, channel: int, watermark: int) -> int | None:
        """A channel has advanced; returns the operator's new watermark if it advanced too."""
        key = (edge, channel)
        if watermark <= self._watermarks.get(key, MIN_TIMESTAMP):
            return None
        self._watermarks[key] = watermark
        return self._advance()

    def status(self, edge: int, channel: int, *, idle: bool) -> int | None:
        """A channel became idle or active; returns as ``watermark``."""
        key = (edge, channel)
        # From now on the channel counts, though it has not said anything of its time: one that is
        # active and silent holds time back.
        self._watermarks.setdefault(key, MIN_TIMESTAMP)
        if idle:
            self._idle.add(key)
        else:
            self._idle.discard(key)
        self.idle = len(self._idle) == len(self._watermarks)
        return self._advance()

    def finished(self, edge: int, channel: int) -> int | None:
        """A channel is over; returns as ``watermark``."""
        key = (edge, channel)
        last = self._watermarks.pop(key, MIN_TIMESTAMP)
        self._idle.discard(key)
        # It may have been the only active one.  Without channels an operator counts as active, as
        # where a run begins without them.
        self.idle = bool(self._watermarks) and len(self._idle) == len(self._watermarks)
        if not self._watermarks:
            # The last channel: everything it promised holds, there is nobody else to wait for.
            return self._raise_to(last)
        return self._advance()

    def refresh(self) -> int | None:
        """Combine what the channels start an epoch with; returns as ``watermark``."""
        return self._advance()

    def _advance(self) -> int | None:
        active = [watermark for key, watermark in self._watermarks.items() if key not in self._idle]
        if active:
            return self._raise_to(min(active))
        if self._watermarks:
            # The highest: an idle channel promises nothing more, so the lowest would hold time back
            # for nobody.
            return self._raise_to(max(self._watermarks.values()))
        return None

    def _raise_to(self, watermark: int) -> int | None:
        if watermark <= self.current or watermark > MAX_TIMESTAMP:
            return None
        self.current = watermark
        return watermark
