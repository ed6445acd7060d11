"""Frames: the rows of the exchange, and how batches are serialized into them.

What it is: one frame is one row that Spark shuffles; its payload is a whole batch, a watermark or
an acknowledgement.  ``Outbox`` collects frames into Arrow record batches for Spark, and
``encode_batch``/``decode_batch`` turn batches into payloads: Arrow IPC where the type is known,
else a pickled list.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final, cast

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.errors import UserFunctionError
from millstream.types.pickling import dumps, find_unpicklable, loads
from millstream.types.row import with_kind_column

if TYPE_CHECKING:
    from collections.abc import Iterator

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


class Outbox:
    """Frames made by a task and not yet handed to Spark."""

    def __init__(self) -> None:
        self._columns: tuple[list[object], ...] = tuple([] for _ in FRAME_SCHEMA)
        self._bytes = 0

    def add(
        self,
        stage: int,
        subtask: int,
        edge: int,
        kind: int,
        payload: bytes,
        *,
        channel: int = -1,
        watermark: int = MIN_TIMESTAMP,
        sequence: int = -1,
    ) -> None:
        """Append one frame."""
        row = (stage, subtask, edge, kind, channel, watermark, sequence, payload)
        for column, value in zip(self._columns, row, strict=True):
            column.append(value)
        self._bytes += len(payload)

    def add_batch(
        self,
        stage: int,
        subtask: int,
        edge: int,
        batch: Batch,
        *,
        channel: int,
        watermark: int,
        sequence: int,
    ) -> int:
        """Append records: a frame, or several if it were too long.

        Returns:
            How many frames, which are numbered from ``sequence`` on.
        """
        first = sequence
        for kind, payload in _payloads(batch):
            self.add(
                stage,
                subtask,
                edge,
                kind,
                payload,
                channel=channel,
                watermark=watermark,
                sequence=sequence,
            )
            sequence += 1
        return sequence - first

    @property
    def is_full(self) -> bool:
        """Whether it is time to drain."""
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
