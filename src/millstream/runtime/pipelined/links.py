"""Links: ordered channels from one task to another, with credit in bytes.

A *link* carries the frames of all edges between two tasks.  ``OutLink`` counts what its consumer
has not processed yet, ``InLink`` queues what waits there.  ``LinkOutbox`` is the outbox of a stage
instance: each frame is sent on its link at once.

Credit only decides whether a task is run, and how many records it takes at a time: its output is
always accepted, so a barrier never waits for credit, and a link holds at most its limit and the
output of one batch.  The consumer sets the limit.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from millstream.configuration import options
from millstream.contracts.batch import Batch
from millstream.runtime.exchange import DATA_ARROW, DATA_PICKLE, Outbox

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa

    from millstream.configuration.configuration import Configuration
    from millstream.graph.model import JobGraph
    from millstream.runtime.exchange import Destination


#: Kinds of frames beside those of ``runtime/exchange.py``.  Records within a slot, by reference.
DATA_REFERENCE: Final = 16
#: ``number`` is that of the checkpoint, the payload a ``Barrier``.
BARRIER: Final = 17
#: ``number`` bytes were processed, and ``edge`` bytes may be under way from now on; goes against
#: the direction of its link.
CREDIT: Final = 18
#: The payload is a ``LatencyMarker``.
LATENCY: Final = 19
#: On the wire: kind, the four numbers of the link, attempt, edge, channel, number.
HEADER: Final = struct.Struct("<BHHHHIiiq")
_BARRIER: Final = struct.Struct("<?q")
#: Frames that hold records; all others need no credit.
RECORDS: Final = frozenset({DATA_ARROW, DATA_PICKLE, DATA_REFERENCE})
#: Of a frame beside its payload, so that a million empty ones are bounded too.
_FRAME_BYTES: Final = 64
#: A batch may take so large a part of the credit of a link, whatever is left of it.
_LEAST_PART: Final = 0.25
#: Bytes that a task sends for a record, before it is known.
_GUESSED_BYTES: Final = 100.0
#: After so many records the older ones count half.
_REMEMBERED_RECORDS: Final = 20_000


class TaskId(NamedTuple):
    """A task: a subtask of a stage."""

    stage: int
    subtask: int


class Link(NamedTuple):
    """From one task to another."""

    source: TaskId
    target: TaskId


class Header(NamedTuple):
    """The head of a frame on the wire."""

    kind: int
    link: Link
    #: Of the region that the link is in: what comes from tasks that were stopped is dropped.
    attempt: int
    edge: int
    channel: int
    number: int

    def pack(self) -> bytes:
        """The bytes."""
        (from_stage, source), (to_stage, target) = self.link
        return HEADER.pack(
            self.kind,
            from_stage,
            source,
            to_stage,
            target,
            self.attempt,
            self.edge,
            self.channel,
            self.number,
        )

    @staticmethod
    def unpack(content: bytes) -> Header:
        """The inverse of ``pack``."""
        kind, from_stage, source, to_stage, target, *rest = HEADER.unpack(content)
        link = Link(TaskId(from_stage, source), TaskId(to_stage, target))
        return Header(kind, link, *rest)


class Frame(NamedTuple):
    """A unit in a link: a batch, a watermark, a barrier or an end."""

    kind: int
    edge: int
    channel: int
    #: That of a barrier.
    number: int
    payload: bytes | memoryview | Batch
    #: Bytes for which the consumer gives credit back.
    size: int


class Barrier(NamedTuple):
    """The content of a barrier."""

    #: The producer's, of all that lies before it.
    attempt: str
    #: The input is over.
    final: bool
    #: Milliseconds since 1970 from which on it waits for nothing that lies before it.
    deadline: int

    def encode(self) -> bytes:
        """The payload of its frame."""
        return _BARRIER.pack(self.final, self.deadline) + self.attempt.encode()

    @staticmethod
    def decode(frame: Frame) -> Barrier:
        """The inverse of ``encode``."""
        if isinstance(frame.payload, Batch):
            message = "a barrier has records"
            raise TypeError(message)
        content = bytes(frame.payload)
        final, deadline = _BARRIER.unpack_from(content)
        return Barrier(content[_BARRIER.size :].decode(), final, deadline)


class OutLink:
    """The producer's end."""

    __slots__ = ("attempt", "in_flight", "limit", "link")

    def __init__(self, link: Link, limit: int, attempt: int = 0) -> None:
        self.link = link
        self.limit = limit
        self.attempt = attempt
        #: Bytes sent and not yet processed.
        self.in_flight = 0

    @property
    def has_credit(self) -> bool:
        """Return whether the producer may continue."""
        return self.in_flight < self.limit


class Recorder(Protocol):
    """Takes what comes on a link for a checkpoint whose snapshot was taken ahead of its barrier."""

    number: int

    def take(self, frame: Frame) -> None:
        """Take a frame that is not after the barrier."""

    def end(self, link: InLink, barrier: Barrier) -> None:
        """The barrier has come."""


class InLink:
    """The consumer's end."""

    __slots__ = (
        "_was_ahead",
        "ahead",
        "attempt",
        "blocked",
        "frames",
        "limit",
        "link",
        "on_barrier",
        "processed",
        "recorders",
    )

    def __init__(self, link: Link, limit: int, attempt: int = 0) -> None:
        self.link = link
        self.limit = limit
        self.attempt = attempt
        self.frames: deque[Frame] = deque()
        #: The barrier has come, and those of other links have not.
        self.blocked = False
        #: Bytes whose credit was not given back yet.
        self.processed = 0
        #: So many frames at the head are wanted before all others: a barrier does not overtake
        #: them.
        self.ahead = 0
        self._was_ahead = False
        #: Told of barriers when they come, wherever in the link they lie.
        self.on_barrier: Callable[[InLink, Frame], None] = _nobody
        self.recorders: list[Recorder] = []

    def put(self, frame: Frame) -> None:
        """Record what has come."""
        self.frames.append(frame)
        if frame.kind == BARRIER:
            self.on_barrier(self, frame)
        else:
            for recorder in self.recorders:
                recorder.take(frame)

    def take(self) -> Frame:
        """The next frame, to be processed."""
        self._was_ahead = self.ahead > 0
        self.ahead -= self._was_ahead
        return self.frames.popleft()

    def put_back(self, frame: Frame) -> None:
        """Let what is left of the frame that was taken last be the next."""
        self.frames.appendleft(frame)
        self.ahead += self._was_ahead

    def take_following(self, frame: Frame) -> Frame | None:
        """The next frame, if it can be processed together with the one that was taken last.

        Args:
            frame: the one that was taken last: records of the same edge and channel follow it, and
                none is wanted before all others if that was not.
        """
        if not self.frames or (self.ahead > 0) is not self._was_ahead:
            return None
        following = self.frames[0]
        is_alike = following.edge == frame.edge and following.channel == frame.channel
        return self.take() if is_alike and following.kind in RECORDS else None

    @property
    def is_ready(self) -> bool:
        """Return whether there is something to process."""
        return bool(self.frames) and not self.blocked

    def take_credit(self) -> int:
        """Bytes to give back now: in large portions, or all when nothing waits here."""
        if self.processed and (not self.frames or 4 * self.processed >= self.limit):
            given, self.processed = self.processed, 0
            return given
        return 0


def _nobody(link: InLink, frame: Frame) -> None:
    """Until a task listens."""
    del link, frame


class LinkOutbox(Outbox):
    """The outbox of a task whose frames go on links at once."""

    def __init__(
        self,
        links: dict[TaskId, OutLink],
        is_near: Callable[[TaskId], bool],
        deliver: Callable[[Link, Frame], None],
    ) -> None:
        super().__init__()
        self._links = links
        self._near = {target for target in links if is_near(target)}
        self._deliver = deliver
        #: Bytes sent, and records processed for them; the older count less.
        self._sent, self._taken = _GUESSED_BYTES, 1.0
        #: Records processed since something was sent, or nothing was left to send.
        self._unsent = 0

    def add(self, to: Destination, kind: int, payload: bytes) -> None:
        size = self.size_of(kind, len(payload))
        self._send(to, Frame(kind, to.edge, to.channel, 0, payload, size))

    def add_batch(self, to: Destination, batch: Batch) -> int:
        """Send records: as they are within the slot, if they are columns, which nobody changes.

        Python objects are pickled within the slot too: whoever has emitted one may go on to change
        it while it waits.
        """
        if to[:2] not in self._near or batch.type_info.arrow_schema is None:
            return super().add_batch(to, batch)
        seen = batch.conformed
        size = self.size_of_columns(seen) + _FRAME_BYTES
        self._send(to, Frame(DATA_REFERENCE, to.edge, to.channel, 0, seen, size))
        return 1

    @staticmethod
    def size_of_columns(batch: Batch) -> int:
        """Bytes of records that are columns, with their timestamps."""
        return int(batch.arrow.nbytes) + 8 * len(batch)

    @staticmethod
    def size_of(kind: int, length: int) -> int:
        """Bytes of credit that a frame with so long a payload takes."""
        return length + _FRAME_BYTES if kind in RECORDS else 0

    def barrier(self, number: int, barrier: Barrier) -> None:
        """Send a barrier on all links, after all that was sent: it overtakes where that waits."""
        payload = barrier.encode()
        for target in self._links:
            self._send(target, Frame(BARRIER, -1, -1, number, payload, 0))

    @property
    def subtasks(self) -> dict[int, list[int]]:
        """The subtasks of each stage that the task sends to."""
        found: dict[int, list[int]] = {}
        for stage, subtask in self._links:
            found.setdefault(stage, []).append(subtask)
        return found

    def latency(self, target: TaskId, payload: bytes) -> None:
        """Send a latency marker after all that was sent; it takes no credit."""
        self._send(target, Frame(LATENCY, -1, -1, 0, payload, 0))

    @property
    def has_credit(self) -> bool:
        """Return whether the task may be run: all its consumers keep up."""
        return all(link.has_credit for link in self._links.values())

    def processed(self, records: int) -> None:
        """Note that the task has processed records: for them it sends something, now or later."""
        self._unsent += records

    def flushed(self) -> None:
        """Note that nothing is gathered: all was sent that comes of the records so far."""
        self._taken += self._unsent
        self._unsent = 0
        if self._taken > _REMEMBERED_RECORDS:
            self._sent, self._taken = self._sent / 2, self._taken / 2

    @property
    def _room(self) -> float:
        """Bytes for which the consumers have credit, without what is gathered and not sent."""
        least = min((e.limit - e.in_flight for e in self._links.values()), default=math.inf)
        return least - self._unsent * self._sent / self._taken

    def allowed(self, records: int) -> int:
        """Return how many of so many records the task may process at a time; at least one.

        Where little is left, it is a part of the whole credit: credit comes back in small portions,
        and batches would stay as small as these.
        """
        each = self._sent / self._taken
        room = self._room
        if records * each > room:
            room = max(room, _LEAST_PART * min(end.limit for end in self._links.values()))
        return records if records * each <= room else max(1, int(room / each))

    @property
    def is_used_up(self) -> bool:
        """Return whether what is gathered and not sent takes all credit."""
        return self._unsent > 0 and self._room <= 0

    @property
    def is_full(self) -> bool:
        """Never: what a task makes is taken as it is made."""
        return False

    def drain(self) -> Iterator[pa.RecordBatch]:
        """Nothing is left here."""
        return iter(())

    def _send(self, to: Destination | TaskId, frame: Frame) -> None:
        link = self._links[TaskId(to.stage, to.subtask)]
        if frame.size:
            self.added += frame.size
            self._sent += frame.size
            self.flushed()
        link.in_flight += frame.size
        self._deliver(link.link, frame)


def links_of(graph: JobGraph) -> Iterable[Link]:
    """All links of a job, each once: between all subtasks of two operators with an edge."""
    found: dict[Link, None] = {}
    for edge in graph.edges:
        source, target = graph.nodes[edge.source], graph.nodes[edge.target]
        from_stage, to_stage = (graph.stage_of(node.id).number for node in (source, target))
        if from_stage == to_stage:
            continue
        for one in range(source.parallelism):
            for other in range(target.parallelism):
                found[Link(TaskId(from_stage, one), TaskId(to_stage, other))] = None
    return found


#: Bytes of credit of a link, at least.
_LEAST: Final = 256
#: Credit grows ahead of the period if it is to be so many times as large.
_SOON: Final = 2
#: Seconds in which something was processed that tell the throughput, at least.
_SHORTEST: Final = 0.005
#: Batches of a costly function for which there is credit, so that one comes while one is processed.
_BATCHES: Final = 2


@dataclass(frozen=True)
class CreditLimits:
    """How credit is chosen; see ``taskmanager.network.memory.buffer-debloat``."""

    #: Bytes of a link: where it begins, and the most.
    first: int
    most: int
    #: Seconds of work that a task's links should carry; between two measurements.
    target: float = 1.0
    period: float = 0.2
    #: Measurements of which the moving average consists.
    samples: int = 20
    #: Smaller changes, as a part of what it is, are not made.
    threshold: float = 0.25

    @staticmethod
    def of(configuration: Configuration, first: int, most: int) -> CreditLimits | None:
        """Read them; None: credit is the same all the time, as debloating is switched off."""
        enabled = options.BUFFER_DEBLOAT_ENABLED
        if configuration.contains(enabled) and not configuration.get(enabled):
            return None
        return CreditLimits(
            first=min(first, most),
            most=most,
            target=configuration.get(options.BUFFER_DEBLOAT_TARGET) / 1000,
            period=configuration.get(options.BUFFER_DEBLOAT_PERIOD) / 1000,
            samples=configuration.get(options.BUFFER_DEBLOAT_SAMPLES),
            threshold=configuration.get(options.BUFFER_DEBLOAT_THRESHOLD) / 100,
        )


class Debloater:
    """Measures the throughput of one task, and sets the credit of the links into it."""

    def __init__(self, inputs: Sequence[InLink], limits: CreditLimits, now: float) -> None:
        self._inputs = inputs
        self._limits = limits
        self._adjusted = now
        self._had_input = False
        #: Since the last measurement: seconds in which there was something to process, what was
        #: processed, and on which links.
        self._active = 0.0
        self._bytes = self._records = 0
        self._busy: set[int] = set()
        #: The same of the measurement before.
        self._were_busy: set[int] = set()
        #: Bytes per second, smoothed; None: not known.
        self._rate: float | None = None

    def processed(self, link: InLink, size: int, records: int) -> None:
        """Record what was processed of a link; bytes of the records alone, without their frames."""
        self._bytes += size
        self._records += records
        self._busy.add(id(link))

    def adjust(self, now: float, *, has_input: bool, batch: int) -> list[InLink]:
        """Take the time, and set the credit again if it is due.

        Args:
            now: seconds of the clock for short times.
            has_input: whether there is something to process.
            batch: records that the task wants at a time, whatever they cost.

        Returns:
            Links whose limits have changed.
        """
        if self._had_input:
            self._active += now - self._adjusted
        self._adjusted, self._had_input = now, has_input
        if self._active < _SHORTEST or not self._records:
            return []
        rate = self._bytes / self._active
        if self._active < self._limits.period:
            limit = self._limit(rate, batch)
            if limit < _SOON * max(link.limit for link in self._inputs):
                return []
        elif self._rate is not None and rate < self._rate:
            rate = self._rate + 2 / (self._limits.samples + 1) * (rate - self._rate)
        self._rate = rate
        changed = self._set(self._limit(rate, batch))
        self._active, self._bytes, self._records = 0.0, 0, 0
        self._were_busy, self._busy = self._busy, set()
        return changed

    def _limit(self, rate: float, batch: int) -> int:
        limits = self._limits
        wanted = rate * limits.target / len(self._busy | self._were_busy)
        batches = _BATCHES * batch * self._bytes / self._records
        return int(min(limits.most, max(_LEAST, wanted, batches)))

    def _set(self, limit: int) -> list[InLink]:
        threshold = self._limits.threshold
        changed = [
            link for link in self._inputs if abs(limit - link.limit) > threshold * link.limit
        ]
        for link in changed:
            link.limit = limit
        return changed
