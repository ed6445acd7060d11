"""Unaligned checkpoints: when a barrier overtakes, and the frames in flight that are recorded.

A barrier has a *deadline*.  Until then the links of a task are aligned
(``runtime/pipelined/task.py``).  Then it overtakes: the task takes its snapshot at once, as if all
barriers had come before the frames that wait.  The checkpoint also stores those: from each link the
frames before its barrier.  Frames enter on the left and are processed from the right::

    link 1:   7 | b a           the barrier has arrived: a, b are in flight, the link is recorded
    link 2:   d c               it has not: c, d are in flight, and all that arrives before it (e)
    link 2:   f | 7 | e d c     now it has: link 2 is recorded, and the checkpoint has a to e

Processing continues meanwhile, and belongs to the next checkpoint.  The task sends its own barrier
with a deadline that has passed, so that it overtakes in all tasks downstream, too.

Frames wait only at the consumers' ends of links: a slot accepts frames whatever its tasks do.  So a
barrier overtakes there all that a producer has sent before it.

Some edges keep their order (``graph/validation.py``): their frames before the barrier are processed
before the snapshot, ahead of the frames of other edges.

Invariant: each frame is in exactly one snapshot: one before a barrier is in the state of its reader
or in flight, one after it in neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.graph.validation import aligned_edges, edge_names
from millstream.runtime.exchange import encode_batch
from millstream.runtime.frames_in_flight import (
    ChannelInFlight,
    FrameInFlight,
    cut_of,
    write_frames,
)
from millstream.runtime.pipelined.control import NEVER
from millstream.runtime.pipelined.links import BARRIER, LATENCY, Barrier
from millstream.runtime.pipelined.splits import END_CHANNEL

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from millstream.checkpoint.model import FramesInFlight
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.runtime.frames_in_flight import RestoredFrame
    from millstream.runtime.pipelined.links import Frame, InLink, Link, TaskId
    from millstream.runtime.stage import StageInstance


class Recording:
    """The frames in flight to one task in one checkpoint.

    Args:
        number: of the checkpoint.
        instance: of the task, as it is at its snapshot.
        first: what is in flight ahead of all that lies in links.
    """

    def __init__(
        self, number: int, instance: StageInstance, first: Iterable[RestoredFrame | Frame]
    ) -> None:
        self.number = number
        #: Producer -> its attempt, of the barriers that have come.
        self.attempts: dict[TaskId, str] = {}
        self._instance = instance
        self._names = edge_names(instance.graph)
        #: What the task knows of the time of its channels.
        self._known = {
            key: time for valve in instance.valves.values() for key, time in valve.channels.items()
        }
        self._frames: list[RestoredFrame | Frame] = []
        self._missing: set[Link] = set()
        for frame in first:
            self._keep(frame)

    @property
    def is_complete(self) -> bool:
        """Return whether all barriers have come."""
        return not self._missing

    def begin(self, link: InLink, barrier: Barrier | None) -> None:
        """Record what lies in a link, and, if its barrier has not come, what will.

        Args:
            link: the link.
            barrier: if it has come; it was reached, or lies in the link.
        """
        if barrier is None:
            self._missing.add(link.link)
            link.recorders.append(self)
        else:
            self.attempts[link.link.source] = barrier.attempt
            if not any(f.kind == BARRIER and f.number == self.number for f in link.frames):
                return  # what lies there is after it
        for frame in link.frames:
            if frame.kind != BARRIER:
                self._keep(frame)
            elif frame.number == self.number:
                break

    def take(self, frame: Frame) -> None:
        """Take a frame that has come on a link that is recorded."""
        self._keep(frame)

    def _keep(self, frame: RestoredFrame | Frame) -> None:
        """Add a frame as it is now.

        Python objects, of which what is left of a long batch consists, are given to functions
        before the file is written, and those may change them.  Columns nobody changes.
        """
        if frame.kind == LATENCY:
            return  # it would be as old as the checkpoint
        payload = frame.payload
        if isinstance(payload, Batch) and payload.type_info.arrow_schema is None:
            kind, content = encode_batch(payload)
            frame = frame._replace(kind=kind, payload=content)
        self._frames.append(frame)

    def end(self, link: InLink, barrier: Barrier) -> None:
        """The barrier of a link has come; nothing after it is in flight."""
        link.recorders.remove(self)
        self._missing.remove(link.link)
        self.attempts[link.link.source] = barrier.attempt

    def drop(self, links: Iterable[InLink]) -> None:
        """Release all, and record no more: the checkpoint was aborted."""
        for link in links:
            if self in link.recorders:
                link.recorders.remove(self)
        self._missing.clear()
        self._frames.clear()

    def write(self, storage: CheckpointStorage) -> FramesInFlight | None:
        """Make it durable; any thread may, once it is complete.  None: nothing is in flight."""
        if not self._frames:
            return None
        numbers: dict[tuple[int, int], int] = {}
        frames = []
        for frame in self._frames:
            number = numbers.setdefault((frame.edge, frame.channel), len(numbers))
            payload, kind = frame.payload, frame.kind
            if isinstance(payload, Batch):
                kind, payload = encode_batch(payload)
            frames.append(FrameInFlight(number, kind, bytes(payload)))
        channels = []
        for edge, channel in numbers:
            # One that the task has not heard of may have much to say: it holds time back.
            watermark, idle = self._known.get((edge, channel), (MIN_TIMESTAMP, False))
            ends = channel >= END_CHANNEL
            channels.append(ChannelInFlight(self._names[edge], watermark, idle, ends))
        instance = self._instance
        graph = instance.graph
        cuts = {
            self._names[edge]: cut_of(graph, instance.edges[edge])
            for edge in {edge for edge, _ in numbers}
        }
        return write_frames(instance.number, instance.subtask, channels, frames, storage, cuts)


class Alignment:
    """The barriers that have come on the links into a task."""

    def __init__(
        self,
        instance: StageInstance,
        inputs: Sequence[InLink],
        clock: Callable[[], int],
        complete: Callable[[], None],
    ) -> None:
        self._instance = instance
        self._inputs = inputs
        self._clock = clock
        self._complete = complete
        graph = instance.graph
        #: Edges on which nothing is overtaken, and the links that they share.
        self._aligned = aligned_edges(graph)
        ends = {
            graph.stage_of(edge.source).number
            for edge in graph.edges
            if edge.id in self._aligned and edge.target in instance.operators
        }
        self._waiting = [link for link in inputs if link.link.source.stage in ends]
        #: Checkpoint -> link -> its barrier; of those that the task has not taken.
        self._come: dict[int, dict[Link, Barrier]] = {}
        #: The last checkpoint that the task has taken.
        self._taken = -1
        #: Links whose frames were put into the order in which a checkpoint wants them.
        self._sorted: tuple[int, set[Link]] = -1, set()
        for link in inputs:
            link.on_barrier = self._record_barrier

    def _record_barrier(self, link: InLink, frame: Frame) -> None:
        barrier = Barrier.decode(frame)
        for recorder in list(link.recorders):
            if recorder.number == frame.number:
                recorder.end(link, barrier)
                self._complete()
                return
        if frame.number <= self._taken:
            return  # that of a checkpoint which was aborted while it was recorded
        self._come.setdefault(frame.number, {})[link.link] = barrier

    def deadline(self, number: int) -> int:
        """That of the barriers of a checkpoint, in milliseconds since 1970."""
        come = self._come.get(number)
        return min(barrier.deadline for barrier in come.values()) if come else NEVER

    def is_urgent(self, number: int) -> bool:
        """Return whether the barriers of a checkpoint wait no longer."""
        deadline = self.deadline(number)
        return deadline < NEVER and self._clock() >= deadline

    def can_overtake(self, number: int) -> bool:
        """Return whether nothing is left that the barriers of a checkpoint do not overtake.

        What is left is processed before all else.
        """
        if self._sorted[0] != number:
            self._sorted = number, set()
        come = self._come[number]
        for link in self._waiting:
            if link.link in come and link.link not in self._sorted[1]:
                self._sorted[1].add(link.link)
                if not link.blocked:
                    self._bring_forward(link, number)
        return all(link.link in come and not link.ahead for link in self._waiting)

    def _bring_forward(self, link: InLink, number: int) -> None:
        """Let the frames that a barrier does not overtake be the first: others lie before them."""
        frames = list(link.frames)
        kinds = [(frame.kind, frame.number) for frame in frames]
        if (BARRIER, number) not in kinds:
            return
        stop = kinds.index((BARRIER, number))
        first = [frame for frame in frames[:stop] if frame.edge in self._aligned]
        others = [frame for frame in frames[:stop] if frame.edge not in self._aligned]
        link.frames.clear()
        link.frames.extend((*first, *others, *frames[stop:]))
        link.ahead = len(first)

    def first_link(self) -> InLink | None:
        """The link whose next frame is wanted before all others."""
        return next((link for link in self._waiting if link.ahead and not link.blocked), None)

    def overtake(self, number: int, first: Iterable[RestoredFrame | Frame]) -> Recording:
        """Begin to record what a checkpoint leaves behind; the snapshot is taken now.

        Args:
            number: of the checkpoint.
            first: what is in flight ahead of all that lies in links.
        """
        self._taken = number
        recording = Recording(number, self._instance, first)
        come = self._come.pop(number)
        for link in self._inputs:
            recording.begin(link, come.get(link.link))
            link.blocked = False
        return recording

    def taken(self, number: int) -> None:
        """The task has aligned all links, and takes its snapshot now."""
        self._taken = number
        self._come.pop(number, None)
