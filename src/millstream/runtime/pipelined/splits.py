"""Splits read side by side, by turns, by a task that goes on.

What it is: the cursors of a subtask's splits, and whose turn it is.  The operators that keep event
time per split are taken from one split to the next as the epoch engine does it
(``runtime/split_reader.py``): a split that is left has their state, and gives it back when its turn
comes.

What it is not: the choice of who reads a split, and how far (``execution/split_enumerator.py``).

Read next: ``contracts/source.py``, ``runtime/pipelined/task.py``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.contracts.source import Split
from millstream.errors import SourceError
from millstream.graph.validation import connector_label
from millstream.runtime.pipelined.messages import SplitProgress
from millstream.runtime.plan import END_OF_INPUT, SplitAssignment
from millstream.runtime.restored_time import SourceChain
from millstream.runtime.source_errors import reading
from millstream.runtime.split_reader import SplitReader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.checkpoint.model import SplitState
    from millstream.contracts.source import SourceBatch, SplitCursor
    from millstream.runtime.plan import EpochPlan
    from millstream.runtime.stage import StageInstance

__all__ = ["END_CHANNEL", "SplitTurns"]

#: The channels from here on carry the end of a source: one per subtask.
END_CHANNEL: Final = 1 << 30
#: Seconds of work for which a batch should be long enough.
_BATCH_SECONDS: Final = 0.005
_LEAST_RECORDS: Final = 256


class _OpenSplit:
    """A split that is read here."""

    def __init__(self, assignment: SplitAssignment, chain: SourceChain) -> None:
        self.assignment = assignment
        self.chain = chain
        source = chain.source.source
        if source is None:
            message = f"source {chain.source.name!r} has nothing to read"
            raise SourceError(message)
        self.label = connector_label(chain.source)
        with reading(self.label, assignment.split.id):
            self.cursor: SplitCursor = source.open_cursor(assignment.split, assignment.start)
        self.cursor.extend(assignment.stop, final=assignment.finished)
        assignment.finished = False
        assignment.stop = assignment.start
        #: As it was left last; None while it has the operators.
        self.state: SplitState | None = None
        #: Read since the last checkpoint.
        self.records = 0
        #: Milliseconds: when a record came last, and when time alone changes something.
        self.active = 0
        self.due: int | None = None
        self.held = False
        #: Whether there was nothing more to read when it was looked at last.
        self.drained = False
        #: Position and watermark that the driver was told.
        self.told: SplitProgress | None = None

    @property
    def idle_timeout(self) -> int | None:
        """Milliseconds without a record after which it is idle."""
        strategy = self.chain.source.watermark_strategy
        return None if strategy is None else strategy.idle_timeout


class SplitTurns:
    """Reads the splits of one subtask of stage 0, by turns.

    Invariant: at most one split is *current*: the per-channel operators, the outputs and the
    writers of its source have its state and time.  All others have been left.

    Args:
        instance: of stage 0.
        plan: of the first epoch; its assignments are the splits that have begun.
        attempt: of the task.
        clock: milliseconds since 1970.
        seconds: a clock for short times.
    """

    def __init__(
        self,
        instance: StageInstance,
        plan: EpochPlan,
        attempt: str,
        clock: Callable[[], int],
        seconds: Callable[[], float],
    ) -> None:
        self._instance = instance
        self._plan = plan
        self._clock = clock
        self._seconds = seconds
        self.reader = SplitReader(instance, plan, attempt)
        sources = [node for node in instance.nodes if node.kind == "source"]
        self._chains = {node.uid: SourceChain(instance, node) for node in sources}
        self._most = instance.graph.configuration.get(options.BATCH_SIZE)
        self._limit = min(self._most, 4 * _LEAST_RECORDS)
        self._splits: dict[int, _OpenSplit] = {}
        #: Read to their ends, while their readers wait for what follows them.
        self._ending: dict[int, _OpenSplit] = {}
        #: Channels in the order of their turns.
        self._order: list[int] = []
        self._current: _OpenSplit | None = None
        #: The job is to stop, and its time to end.
        self._drains = False
        #: Read to their ends since the last checkpoint.
        self._finished: list[SplitState] = []
        self._over: dict[int, SplitProgress] = {}

    def begin(self) -> None:
        """Take over the splits that have begun; the operators behind them are restored."""
        mine = [
            each
            for each in self._plan.assignments
            if each.subtask == self._instance.subtask and each.source_uid in self._chains
        ]
        # Those of other subtasks have told valves what they wait for, and count no more.
        self._plan.assignments = mine
        for assignment in list(mine):
            self._take(assignment, announced=True)

    def assign(self, assignments: Iterable[SplitAssignment]) -> None:
        """Read further splits; their readers are told that they have to wait for them."""
        for assignment in assignments:
            if assignment.source_uid in self._chains:
                self._plan.assignments.append(assignment)
                self._take(assignment, announced=False)

    def _take(self, assignment: SplitAssignment, *, announced: bool) -> None:
        split = _OpenSplit(assignment, self._chains[assignment.source_uid])
        split.active = self._clock()
        self._splits[assignment.channel] = split
        self._order.append(assignment.channel)
        # Restored and left at once: what is due by time alone is known, and its state is there for
        # the next checkpoint though nothing was read.
        self._enter(split)
        if not announced:
            for writer in split.chain.writers:
                writer.emit_idle(False)  # noqa: FBT003 - as in the contract
        self._leave()

    def extend(self, ends: Mapping[int, int], final: Iterable[int]) -> None:
        """Take from the driver how far splits can be read now."""
        last = set(final)
        for channel, end in ends.items():
            if channel in self._splits:
                self._splits[channel].cursor.extend(end, final=channel in last)
                self._splits[channel].drained = False

    def hold(self, channels: frozenset[int]) -> None:
        """Let these splits wait, and no others."""
        for channel, split in self._splits.items():
            split.held = channel in channels

    def drain(self) -> None:
        """Take every split for read to its end as soon as its position is exact."""
        self._drains = True

    def end_source(self, uid: str) -> None:
        """All of a source is read: its time is over."""
        chain = self._chains.get(uid)
        if chain is None:
            return
        self._leave()
        self.retire([c for c, each in self._ending.items() if each.assignment.source_uid == uid])
        subtask = self._instance.subtask
        name = Split(f"{END_OF_INPUT}-{subtask}")
        end = SplitAssignment(uid, name, subtask, 0, 0, END_CHANNEL + subtask)
        self._plan.assignments.append(end)
        self.reader.enter(chain, end)
        self._instance.operators[chain.source.id].process_watermark(MAX_TIMESTAMP)
        self.reader.leave(chain, end)
        for writer in chain.writers:
            writer.flush()

    # -- reading -------------------------------------------------------------------------------

    def read(self, deadline: float) -> bool:
        """Give each split in turn what is left of the time; whether anything was read.

        Args:
            deadline: of the clock for short times.
        """
        if self._drains:
            return self._drain(deadline)
        worked = False
        for channel in list(self._order):
            split = self._splits[channel]
            if not split.held or not split.cursor.settled:
                worked = self._read(split, deadline) or worked
            self._order.remove(channel)
            if channel in self._splits:
                self._order.append(channel)
            if self._seconds() >= deadline:
                break
        return worked

    def _drain(self, deadline: float) -> bool:
        self.settle(deadline)
        exact = [each for each in self._splits.values() if each.cursor.settled]
        for split in exact:
            self._finish(split)
        self._order = list(self._splits)
        return bool(exact)

    def _read(self, split: _OpenSplit, deadline: float) -> bool:
        worked = False
        while (began := self._seconds()) < deadline:
            found = self._poll(split)
            split.drained = found is None
            if found is None:
                break
            worked = True
            for each in found.cut(self._most):
                self._feed(split, each)
            self._resize(self._seconds() - began)
        if split.cursor.is_over:
            self._finish(split)
            return True
        return worked

    def _poll(self, split: _OpenSplit) -> SourceBatch | None:
        with reading(split.label, split.assignment.split.id):
            return split.cursor.poll(self._limit)

    def _feed(self, split: _OpenSplit, read: SourceBatch) -> None:
        self._enter(split)
        split.active = self._plan.processing_time
        split.assignment.idle = False
        split.records += self.reader.feed(split.chain.source, read)

    def _resize(self, seconds: float) -> None:
        """Have batches of about a fixed time of work: a barrier waits for the one before it."""
        if seconds > 2 * _BATCH_SECONDS:
            self._limit = max(_LEAST_RECORDS, self._limit // 2)
        elif seconds < _BATCH_SECONDS / 2:
            self._limit = min(self._most, self._limit * 2)

    def _finish(self, split: _OpenSplit) -> None:
        self._enter(split)
        split.assignment.finished = True
        self._leave()
        channel = split.assignment.channel
        self._ending[channel] = self._splits.pop(channel)
        split.cursor.close()
        self._plan.assignments.remove(split.assignment)
        for node in split.chain.nodes:
            self.reader.reached.pop((channel, node.id), None)
        if split.state is not None:
            self._finished.append(replace(split.state, records=split.records))
            self._over[channel] = SplitProgress(
                split.assignment.stop, split.state.watermark, idle=False, over=True
            )

    def retire(self, channels: Iterable[int]) -> None:
        """What follows these splits is assigned: their readers stop waiting for them.

        Args:
            channels: of splits that are read to their ends, here or by other subtasks.
        """
        for channel in channels:
            split = self._ending.pop(channel, None)
            if split is None:
                continue
            self._leave()
            self.reader.enter(split.chain, split.assignment)
            for writer in split.chain.writers:
                writer.emit_finished()
                writer.flush()

    # -- whose operators they are --------------------------------------------------------------

    def _enter(self, split: _OpenSplit) -> None:
        if self._current is split:
            return
        self._leave()
        self._plan.processing_time = self._clock()
        self.reader.enter(split.chain, split.assignment)
        split.state = None
        self._current = split

    def _leave(self) -> None:
        split, self._current = self._current, None
        if split is None:
            return
        assignment, chain = split.assignment, split.chain
        self.reader.due.clear()
        states = self.reader.leave(chain, assignment)
        operators = (self._instance.operators[node.id] for node in chain.per_channel)
        due = (when for each in operators if (when := each.due()) is not None)
        split.due = min((*self.reader.due, *due), default=None)
        for writer in chain.writers:
            writer.flush()
        assignment.start = assignment.stop = split.cursor.position
        assignment.operators = states
        assignment.was_idle = self._instance.outputs[chain.source.id].idle
        split.state = self.reader.state_of(chain, assignment, states, 0)

    # -- time ----------------------------------------------------------------------------------

    def tick(self, now: int) -> None:
        """Move the clock: splits become idle, and watermarks are made that are due."""
        self._plan.processing_time = now
        current = self._current
        if current is not None:
            self._move_clock(current, now)
        for split in list(self._splits.values()):
            if split.held:
                split.active = now
            elif split.due is not None and split.due <= now and split is not current:
                # To be entered tells its operators only what time it is.
                self._enter(split)
                self._move_clock(split, now)
                self._leave()
            self._look_for_idleness(split, now)

    def _move_clock(self, split: _OpenSplit, now: int) -> None:
        for node in reversed(split.chain.per_channel):
            self._instance.operators[node.id].process_processing_time(now)

    def _look_for_idleness(self, split: _OpenSplit, now: int) -> None:
        timeout = split.idle_timeout
        if timeout is None or split.assignment.idle or not split.drained:
            return
        if now - split.active < timeout:
            return
        split.assignment.idle = True
        self._enter(split)
        self._instance.operators[split.chain.source.id].process_idle(True)  # noqa: FBT003
        self._leave()

    # -- checkpoints ---------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether a checkpoint can be taken: all positions are exact."""
        return all(split.cursor.settled for split in self._splits.values())

    def settle(self, deadline: float) -> None:
        """Read only what is needed for that."""
        for split in list(self._splits.values()):
            while not split.cursor.settled and self._seconds() < deadline:
                found = self._poll(split)
                if found is None:
                    break
                for each in found.cut(self._most):
                    self._feed(split, each)

    def snapshot(self) -> list[SplitState]:
        """Where all splits stand; those that are over are told once."""
        self._leave()
        found, self._finished = self._finished, []
        for split in self._splits.values():
            if split.state is not None:
                found.append(
                    replace(split.state, position=split.cursor.position, records=split.records)
                )
            split.records = 0
        return found

    def due(self) -> int | None:
        """Milliseconds at which something changes by time alone; None: never."""
        return min((each.due for each in self._splits.values() if each.due), default=None)

    def progress(self) -> dict[int, SplitProgress]:
        """What the driver does not know yet of how far splits are, by channel."""
        news, self._over = self._over, {}
        for channel, split in self._splits.items():
            output = self._instance.outputs[split.chain.source.id]
            state = split.state
            watermark = output.watermark if state is None else state.watermark
            now = SplitProgress(
                split.cursor.position, watermark, bool(split.assignment.idle), over=False
            )
            if now != split.told:
                split.told = news[channel] = now
        return news

    def close(self) -> None:
        """Let go of what is read."""
        while self._splits:
            self._splits.popitem()[1].cursor.close()
