"""The tasks of a pipelined run in the process of a test: each plan is read, then a barrier follows.

``MiniCluster`` uses it in place of ``engines/local/engine.py``.  Tasks live from plan to plan, take
snapshots at barriers, and are scheduled in a seeded order.
"""

from __future__ import annotations

import contextlib
import random
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final, cast

import cloudpickle

from millstream.contracts.source import Boundedness, RangeCursor
from millstream.engines.pipelined.checkpoints import deadline_of
from millstream.runtime.job_files import bring_files, working_directory
from millstream.runtime.pipelined.control import (
    Acknowledged,
    Assigned,
    Completed,
    Grown,
    Paused,
    Progress,
    Retired,
    SourceEnded,
    TakeCheckpoint,
)
from millstream.runtime.pipelined.main_loop import MainLoop
from millstream.runtime.pipelined.transport import Transport
from millstream.runtime.pipelined.uploader import finished
from millstream.types.pickling import dumps_by_value, loads

if TYPE_CHECKING:
    from collections.abc import Callable

    import pyarrow as pa

    from millstream.checkpoint.model import TaskAck
    from millstream.graph.job_files import JobFiles
    from millstream.graph.model import JobGraph
    from millstream.runtime.pipelined.control import DriverMessage, SlotMessage
    from millstream.runtime.pipelined.transport import Received
    from millstream.runtime.pipelined.uploader import PendingAck
    from millstream.runtime.plan import EpochPlan, SplitAssignment


#: Seconds that pass from one look at the clock to the next.
_POLL_SECONDS: Final = 0.0005
#: While the clock is moved a poll takes next to nothing, a step so many seconds, and there are so
#: many turns: more than one tick of every slot, and never a millisecond between two turns of a
#: task, as silence is judged up to the last but one.
_SHORT_POLL: Final = 1e-6
_SHORT_STEP: Final = 0.0003
_SHORT_STEPS: Final = 18
#: Turns after which looks take next to nothing in every other turn: a task among many has less time
#: than it takes to check all its splits, and would never come to the last.
_PATIENT_STEPS: Final = 500
#: Turns after which a checkpoint hangs: there is nothing to wait for.
_MOST_STEPS: Final = 1_000_000


class _ListTransport(Transport):
    """Frames to slots of the same process."""

    def __init__(self, slot: int, frames: list[deque[Received]]) -> None:
        self._slot = slot
        self._frames = frames

    def send(self, slot: int, header: bytes, payload: bytes | memoryview | pa.Buffer) -> None:
        self._frames[slot].append((self._slot, header, memoryview(bytes(payload))))

    def poll(self, timeout: float) -> list[Received]:
        del timeout
        came = list(self._frames[self._slot])
        self._frames[self._slot].clear()
        return came

    def wake(self) -> None:
        """Nobody waits."""

    def queued(self) -> int:
        return 0

    def close(self) -> None:
        """Nothing is open."""


class PipelinedTasks:
    """Runs the tasks of plans, which live from one plan to the next.

    Args:
        graph: the job, pickled.
        files: of the job.
        slots: how many: the widest parallelism.
        tasks: how many acknowledge.
        seed: of the order of turns.
    """

    #: Milliseconds after which barriers overtake; None: they never do.  What the job's options say
    #: of it is not heeded: tasks would continue after a plan, while their output is committed.
    patience: ClassVar[int | None] = None

    def __init__(self, graph: bytes, files: JobFiles, slots: int, tasks: int, seed: int) -> None:
        self._pickled = graph
        self._files = files
        self._slots = slots
        self._tasks = tasks
        self._random = random.Random(seed)  # noqa: S311 - a seeded test
        self._loops: list[MainLoop] = []
        self._messages: list[list[DriverMessage]] = [[] for _ in range(slots)]
        #: The clock for short times, and the duration of a poll.
        self._seconds = 0.0
        self._step = _POLL_SECONDS
        self._now = 0
        #: (source, split) -> channel, unique in the run, and where it is to be read up to.
        self._channels: dict[tuple[str, str], int] = {}
        self._wanted: dict[int, int] = {}
        self._read: dict[int, int] = {}
        sources = {node.uid: node.source for node in self._graph().nodes.values()}
        self._bounded = {
            uid
            for uid, source in sources.items()
            if source is not None and source.boundedness is Boundedness.BOUNDED
        }
        #: Channels of splits that are over and hold time back: the next plan has what follows them.
        self._over: list[int] = []
        self._acks: list[TaskAck] = []

    def run(
        self, plan: EpochPlan, waiting: frozenset[tuple[str, str]] = frozenset()
    ) -> list[TaskAck]:
        """Read what a plan says, then take a checkpoint.

        Args:
            plan: of an epoch.
            waiting: source and split of those that have more than the plan lets them read.

        Returns:
            What tasks acknowledge.
        """
        try:
            return self._run(plan, waiting)
        except BaseException as error:
            # As at a restart: what comes next begins with new tasks, from the last checkpoint.
            self._forget(error)
            raise

    def _run(self, plan: EpochPlan, waiting: frozenset[tuple[str, str]]) -> list[TaskAck]:
        self._now = plan.processing_time
        self._acks = []
        ends = [each for each in plan.assignments if each.is_end_of_input]
        splits = [each for each in plan.assignments if not each.is_end_of_input]
        bring_files(self._files)
        with working_directory(self._files):
            if self._loops:
                self._send(Completed(plan.epoch - 1))
                self._go_on(splits)
            else:
                self._begin(plan, splits)
            held = (channel for name, channel in self._channels.items() if name in waiting)
            # While the clock moves: what has more is not idle.
            self._send(Paused(frozenset(held)))
            self._move_clock()
            self._send(Paused(frozenset()))
            self._step_until(self._has_read, "its splits to be read")
            over = [each for each in splits if each.finished]
            self._over += [each.channel for each in over if each.source_uid in self._bounded]
            self._retire([each.channel for each in over if each.source_uid not in self._bounded])
            for uid in dict.fromkeys(each.source_uid for each in ends):
                self._send(SourceEnded(uid))
            deadline = deadline_of(None if plan.final else self.patience, self._now)
            self._send(TakeCheckpoint(plan.epoch, plan.final, self._now, deadline))
            self._step_until(lambda: len(self._acks) == self._tasks, "acknowledgements")
        return self._acks

    def _begin(self, plan: EpochPlan, splits: list[SplitAssignment]) -> None:
        plan.assignments = splits
        self._note(splits)
        pickled = dumps_by_value(plan)
        frames: list[deque[Received]] = [deque() for _ in range(self._slots)]
        self._loops = [
            MainLoop(
                slot,
                self._graph,
                lambda: cast("EpochPlan", cloudpickle.loads(pickled)),
                _ListTransport(slot, frames),
                self._handle,
                partial(self._finish, slot),
                lambda: self._now,
                self._look,
            )
            for slot in range(self._slots)
        ]
        for loop in self._loops:
            loop.restore()

    def _look(self) -> float:
        self._seconds += self._step
        return self._seconds

    def _graph(self) -> JobGraph:
        graph = cast("JobGraph", cloudpickle.loads(self._pickled))
        for node in graph.nodes.values():
            if node.source is not None:
                # The plan says how far is read: a cursor that finds records itself would continue.
                node.source.open_cursor = partial(RangeCursor, node.source)  # type: ignore[method-assign]
        return graph

    def _note(self, splits: list[SplitAssignment]) -> None:
        for assignment in splits:
            name = assignment.source_uid, assignment.split.id
            assignment.channel = self._channels.setdefault(name, len(self._channels))
            self._wanted[assignment.channel] = assignment.stop

    def _go_on(self, splits: list[SplitAssignment]) -> None:
        known = set(self._channels)
        self._wanted.clear()
        self._note(splits)
        new = [each for each in splits if (each.source_uid, each.split.id) not in known]
        for slot in range(self._slots):
            mine = tuple(each for each in new if each.subtask == slot)
            if mine:
                self._messages[slot].append(Assigned(mine))
        old = [each for each in splits if each not in new]
        final = frozenset(each.channel for each in old if each.finished)
        self._send(Grown({each.channel: each.stop for each in old}, final))
        over, self._over = self._over, []
        self._retire(over)

    def _retire(self, channels: list[int]) -> None:
        self._send(Retired(frozenset(channels)))

    def _send(self, message: DriverMessage) -> None:
        for messages in self._messages:
            messages.append(message)

    def _handle(self, message: SlotMessage) -> None:
        if isinstance(message, Acknowledged):
            self._acks.append(cast("TaskAck", loads(message.ack)))
        elif isinstance(message, Progress):
            self._read.update(
                {channel: split.position for channel, split in message.splits.items()}
            )

    def _finish(self, slot: int, pending: PendingAck) -> None:
        self._handle(finished(slot, pending))

    def _has_read(self) -> bool:
        return all(self._read.get(channel) == stop for channel, stop in self._wanted.items())

    def _move_clock(self) -> None:
        """Have every task told the time of the plan, ahead of its records and of its barrier."""
        self._step = _SHORT_POLL
        for _ in range(_SHORT_STEPS):
            self._seconds += _SHORT_STEP
            self._turn()
        self._step = _POLL_SECONDS
        self._turn()

    def _step_until(self, condition: Callable[[], bool], what: str) -> None:
        for step in range(_MOST_STEPS):
            if condition():
                self._step = _POLL_SECONDS
                return
            self._step = _SHORT_POLL if step % 2 and step > _PATIENT_STEPS else _POLL_SECONDS
            self._turn()
        message = f"nothing goes on, waiting for {what}"
        raise AssertionError(message)

    def _turn(self) -> None:
        order = list(range(self._slots))
        self._random.shuffle(order)
        for slot in order:
            messages, self._messages[slot] = self._messages[slot], []
            self._loops[slot].step(messages, 0.0)

    def _forget(self, error: BaseException) -> None:
        try:
            self.close()
        except Exception as other:  # noqa: BLE001 - the first error is the one to tell
            error.add_note(f"then, while its tasks were closed: {other!r}")
        self._messages = [[] for _ in range(self._slots)]
        self._channels.clear()
        self._read.clear()
        self._over.clear()

    def close(self) -> None:
        """Close the user functions."""
        with contextlib.ExitStack() as closing:
            while self._loops:
                closing.callback(self._loops.pop().close)
