"""The frame reader: what a task of a later stage does with the frames of the exchange.

What it is: decodes frames and calls the operators that they are for; passes on, unread, what later
stages are to get.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from millstream.contracts.batch import Batch
from millstream.runtime.exchange import concatenate
from millstream.runtime.frames import (
    FINISHED,
    IDLE,
    PRODUCER_ATTEMPT,
    WATERMARK,
    decode_batch,
    decode_long,
)
from millstream.types.pickling import loads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.graph.model import StreamEdge
    from millstream.runtime.frames_in_flight import RestoredFrame
    from millstream.runtime.stage import StageInstance


#: What is gathered at most: rows, and bytes of their frames and of what came with those.
_MOST_ROWS: Final = 65_536
_MOST_BYTES: Final = 16 << 20
_NO_RECORDS: Final = frozenset({PRODUCER_ATTEMPT, WATERMARK, IDLE, FINISHED})


@dataclass(slots=True)
class _Gathered:
    """Batches of an edge that wait for others, and the frames behind them that hold no records."""

    edge: StreamEdge
    batches: list[Batch] = field(default_factory=list)
    behind: list[tuple[int, int, int, pa.Buffer]] = field(default_factory=list)
    rows: int = 0
    size: int = 0


class FrameReader:
    """Reads frames into the operators of a stage instance."""

    def __init__(self, instance: StageInstance) -> None:
        """Read for ``instance``, whose operators are restored."""
        self._instance = instance
        #: (stage, subtask, attempt) of each task whose frames were read.  A task that Spark ran
        #: twice may have made other records the second time: the driver publishes the epoch only
        #: if all its readers name the same attempt.
        self.consumed: list[tuple[int, int, str]] = []
        targets = Counter(edge.target for edge in instance.edges.values())
        #: What waits on the only edges of operators that gather their batches.
        self._gathered = {
            number: _Gathered(edge)
            for number, edge in instance.edges.items()
            if targets[edge.target] == 1
            and edge.target in instance.operators
            and instance.operators[edge.target].gathers_batches
        }

    def read(self, frames: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Process all frames, in the order in which they come; yields those of later stages."""
        level, outbox = self._instance.level, self._instance.outbox
        for rows in frames:
            if not rows.num_rows:
                continue
            # There are few rows, and most often one: no kernel is worth its call for them.
            if max(rows.column(0).to_pylist()) > level:
                later = pc.greater(rows.column(0), level)
                # The stages are one chain, so an edge that skips stages has its frames handed from
                # task to task; they were addressed by their producer and are not opened here.
                yield rows.filter(later)
                rows = rows.filter(pc.equal(rows.column(0), level))  # noqa: PLW2901
            edges = rows.column(2).to_pylist()
            kinds = rows.column(3).to_pylist()
            channels = rows.column(4).to_pylist()
            payloads = rows.column(7)
            for position, kind in enumerate(kinds):
                payload = payloads[position].as_buffer()
                self._take(edges[position], kind, channels[position], payload)
                # One frame can make any number of records.  Sent on between frames, what waits
                # here is bounded by what one of them makes.
                if outbox.is_full:
                    yield from outbox.drain()
            self._hold(rows.nbytes)
        for gathered in self._gathered.values():
            self._release(gathered)

    def _hold(self, size: int) -> None:
        """Count what all came with gathered batches: they are views of it, and keep it."""
        for gathered in self._gathered.values():
            if gathered.batches:
                gathered.size += size
                if gathered.size >= _MOST_BYTES:
                    self._release(gathered)

    def _take(self, edge_id: int, kind: int, channel: int, payload: pa.Buffer) -> None:
        """Process a frame, or gather it: some operators do less for one large batch.

        What is behind records on their edge stays behind them.
        """
        gathered = self._gathered.get(edge_id)
        if gathered is None:
            self.process(edge_id, kind, channel, payload)
        elif kind in _NO_RECORDS:
            if gathered.batches:
                gathered.behind.append((edge_id, kind, channel, payload))
            else:
                self.process(edge_id, kind, channel, payload)
        else:
            batch = decode_batch(kind, payload, gathered.edge.type_info)
            is_other = gathered.batches and not (
                batch.is_columnar
                and gathered.batches[0].is_columnar
                and batch.arrow.schema.equals(gathered.batches[0].arrow.schema)
            )
            if is_other:
                self._release(gathered)
            gathered.batches.append(batch)
            gathered.rows += len(batch)
            gathered.size += payload.size
            if gathered.rows >= _MOST_ROWS or gathered.size >= _MOST_BYTES:
                self._release(gathered)

    def _release(self, gathered: _Gathered) -> None:
        """Process what is gathered of an edge."""
        batches, behind = gathered.batches, gathered.behind
        gathered.batches, gathered.behind, gathered.rows, gathered.size = [], [], 0, 0
        self._instance.read_gauges()
        if batches:
            edge = gathered.edge
            operator = self._instance.operators[edge.target]
            operator.process_batch(concatenate(batches), edge.input_index)
        for frame in behind:
            self.process(*frame)

    def process_restored(self, frame: RestoredFrame) -> None:
        """Process a frame that was in flight in the checkpoint that the task begins with."""
        payload = frame.payload
        if isinstance(payload, Batch):
            edge = self._instance.edges[frame.edge]
            self._instance.operators[edge.target].process_batch(payload, edge.input_index)
        else:
            self.process(frame.edge, frame.kind, frame.channel, pa.py_buffer(payload))

    def process(self, edge_id: int, kind: int, channel: int, payload: pa.Buffer) -> None:
        """Process a frame of this stage.

        Args:
            edge_id: its edge.
            kind: of ``runtime/frames.py``.
            channel: the channel that it is of.
            payload: its content.
        """
        instance = self._instance
        if kind == PRODUCER_ATTEMPT:
            # Of no edge: a producer says once per reader, ahead of everything, which attempt it is.
            self.consumed.append(cast("tuple[int, int, str]", loads(payload.to_pybytes())))
            return
        instance.read_gauges()
        edge = instance.edges[edge_id]
        if kind == WATERMARK:
            watermark = decode_long(payload.to_pybytes())
            instance.channel_watermark(edge.target, edge_id, channel, watermark)
        elif kind == IDLE:
            idle = bool(decode_long(payload.to_pybytes()))
            instance.channel_status(edge.target, edge_id, channel, idle=idle)
        elif kind == FINISHED:
            instance.channel_finished(edge.target, edge_id, channel)
        else:
            batch = decode_batch(kind, payload, edge.type_info)
            instance.operators[edge.target].process_batch(batch, edge.input_index)
