"""Reads the splits of a long-running task round robin.

The operators that keep event time per split are switched from one split to the next as in
micro-batch execution (``runtime/split_reader.py``): a split that is left keeps their state.  Calls
of asynchronous functions that are under way continue meanwhile; their results are emitted when the
split has its turn again.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from millstream.configuration import options
from millstream.contracts.batch import MAX_TIMESTAMP
from millstream.contracts.source import SourceBatch, Split
from millstream.errors import SourceError
from millstream.graph.validation import connector_label
from millstream.runtime.pipelined.batch_sizing import BatchSizer
from millstream.runtime.plan import END_OF_INPUT, SourceChain, SplitAssignment, SplitProgress
from millstream.runtime.split_reader import SplitReader
from millstream.runtime.user_code import reading

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from millstream.checkpoint.model import SplitState
    from millstream.contracts.source import SplitCursor
    from millstream.runtime.pipelined.links import LinkOutbox
    from millstream.runtime.plan import EpochPlan
    from millstream.runtime.split_reader import SuspendedCalls
    from millstream.runtime.stage import StageInstance


#: The channels from here on carry the end of a source: one per subtask.
END_CHANNEL: Final = 1 << 30
#: Seconds of work for which a batch should be long enough.
_BATCH_SECONDS: Final = 0.005


class _OpenSplit:
    """A split that is read here."""

    def __init__(self, assignment: SplitAssignment, chain: SourceChain) -> None:
        # Its operators are told, and do not find out by a clock that continued while nothing ran.
        assignment.idle = assignment.was_idle and assignment.start >= assignment.stop
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
        #: Of the last poll, what the operators did not get yet.
        self.rest: deque[SourceBatch] = deque()
        #: What was raised when the source was asked for more than what is being processed.
        self.failure: Exception | None = None
        #: While there is such: the last position known, and whether all before it was fed and
        #: nothing after it.
        self.known = assignment.start
        self.is_exact = True
        #: As it was left last; None while it has the operators.
        self.state: SplitState | None = None
        #: What was under way when it was left; None while it has the operators, or nothing was.
        self.calls: SuspendedCalls | None = None
        #: Read since the last checkpoint.
        self.records = 0
        #: Milliseconds: when a record came last, when it was found to have no more, and when time
        #: alone changes something.
        self.active = 0
        self.last_polled = 0
        self.due: int | None = None
        #: Whether the driver says that it waits, and the watermark after which it waits besides.
        self.held = False
        self.ceiling = MAX_TIMESTAMP
        #: Whether there was nothing more to read when it was looked at last.
        self.drained = False
        #: Position and watermark that the driver was told.
        self.reported: SplitProgress | None = None

    @property
    def settled(self) -> bool:
        """Return whether ``position`` is exact now."""
        return self.is_exact if self.rest else self.cursor.settled

    @property
    def position(self) -> int:
        """All before it was given to the operators."""
        return self.known if self.rest else self.cursor.position

    @property
    def is_over(self) -> bool:
        """Return whether the operators have all of it."""
        return not self.rest and self.cursor.is_over

    @property
    def idle_timeout(self) -> int | None:
        """Milliseconds without a record after which it is idle."""
        strategy = self.chain.source.watermark_strategy
        return None if strategy is None else strategy.idle_timeout


class SplitScheduler:
    """Reads the splits of one subtask of stage 0, round robin.

    Invariant: at most one split is *current*: the per-channel operators, the outputs and the
    writers of its source have its state and time.  All others have been left.

    Args:
        instance: of stage 0.
        plan: of the first epoch; its assignments are the splits that have begun.
        attempt: of the task.
        clock: milliseconds since 1970.
        seconds: a clock for short times, which stands still while the thread is not run.
        outbox: of the task.
    """

    def __init__(
        self,
        instance: StageInstance,
        plan: EpochPlan,
        attempt: str,
        clock: Callable[[], int],
        seconds: Callable[[], float],
        outbox: LinkOutbox,
    ) -> None:
        self._instance = instance
        self._outbox = outbox
        self._plan = plan
        self._clock = clock
        self._seconds = seconds
        self.reader = SplitReader(instance, plan, attempt)
        sources = [node for node in instance.nodes if node.kind == "source"]
        self._chains = {node.uid: SourceChain(instance, node) for node in sources}
        most = instance.graph.configuration.get(options.BATCH_SIZE)
        self._sizers = {
            uid: BatchSizer(most, _BATCH_SECONDS, chain.concurrency)
            for uid, chain in self._chains.items()
        }
        self._splits: dict[int, _OpenSplit] = {}
        #: Read to their ends, while their readers wait for what follows them.
        self._ending: dict[int, _OpenSplit] = {}
        #: Channels in the order of their turns.
        self._order: list[int] = []
        self._current: _OpenSplit | None = None
        self._is_settling = False
        #: The job is to stop, and its time to end.
        self._drains = False
        #: Read to their ends since the last checkpoint.
        self._finished: list[SplitState] = []
        self._over: dict[int, SplitProgress] = {}
        #: Checkpoint that is neither completed nor aborted -> position by channel.
        self._taken: dict[int, dict[int, int]] = {}

    def begin(self) -> None:
        """Take over the splits that have begun; the operators downstream of them are restored."""
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
        self._enter(split, resumes=True)
        if not assignment.idle:
            # What comes must not be overtaken by the time of others, which continue sooner.
            for node in split.chain.per_channel:
                self._instance.operators[node.id].process_idle(False)  # noqa: FBT003
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

    def limit(self, ceilings: Mapping[int, int]) -> None:
        """Let each split wait as soon as its watermark is higher than this, by channel."""
        for channel, split in self._splits.items():
            split.ceiling = ceilings.get(channel, MAX_TIMESTAMP)

    def drain(self) -> None:
        """Take every split for read to its end as soon as its position is exact."""
        self._drains = True

    def end_source(self, uid: str) -> None:
        """All of a source is read: its time is over."""
        chain = self._chains.get(uid)
        if chain is None:
            return
        if any(e.is_end_of_input and e.source_uid == uid for e in self._plan.assignments):
            return  # it was told before, and the job is drained now
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
        """Give each split in turn what is left of the time; whether anything was read."""
        if self._drains:
            return self._drain(deadline)
        worked = False
        for channel in list(self._order):
            split = self._splits[channel]
            if split.calls is not None and split.calls.is_ready:
                self._enter(split)
                worked = True
            if not self._waits(split) or not split.settled:
                worked = self._read(split, deadline) or worked
            self._order.remove(channel)
            if channel in self._splits:
                self._order.append(channel)
            if self._seconds() >= deadline:
                break
        return worked

    def _drain(self, deadline: float) -> bool:
        self.settle(deadline)
        exact = [each for each in self._splits.values() if each.settled]
        for split in exact:
            self._finish(split)
        self._order = list(self._splits)
        return bool(exact)

    def _read(self, split: _OpenSplit, deadline: float) -> bool:
        worked = False
        while not split.is_over and self._seconds() < deadline:
            found = self._step(split)
            split.drained = not found
            if not found:
                split.last_polled = self._clock()
                break
            worked = True
            if not self._outbox.has_credit:
                break
            if self._waits(split) and split.settled:
                break  # it is too far ahead, or was read on only for the sake of its position
        if split.is_over and not self._has_calls(split):
            self._finish(split)
            return True
        return worked

    def _has_calls(self, split: _OpenSplit) -> bool:
        """Whether something of a split is under way, which others need not wait for."""
        if split is self._current:
            self._leave()
        return split.calls is not None

    def _step(self, split: _OpenSplit) -> bool:
        """Give the operators one batch; False if there is none now."""
        sizer = self._sizers[split.assignment.source_uid]
        batch = self._gather(split, sizer)
        if batch is None:
            return False
        split.is_exact = batch.position is not None
        if batch.position is not None:
            split.known = batch.position
        began = self._seconds()
        self._emit(split, batch)
        sizer.processed(len(batch), self._seconds() - began)
        self._outbox.processed(len(batch))
        if self._outbox.is_used_up:
            for writer in split.chain.writers:
                writer.flush()
            self._outbox.flushed()
        return True

    def _allowed(self, sizer: BatchSizer) -> int:
        """Records of the next batch at most; a barrier that waits for positions needs no credit."""
        return sizer.limit if self._is_settling else self._outbox.allowed(sizer.limit)

    def _gather(self, split: _OpenSplit, sizer: BatchSizer) -> SourceBatch | None:
        """The next batch, of as many records as are worth a call; None if there are none now.

        A source that has much may give it in small parts.
        """
        if split.failure is not None:
            raise split.failure
        if not split.rest:
            self._poll(split, sizer)
        if not split.rest:
            return None
        first, limit = split.rest.popleft(), self._allowed(sizer)
        if len(first) > limit:
            # A source may give more at once than it is asked for.
            split.rest.appendleft(first.slice(limit, len(first)))
            first = first.slice(0, limit)
        parts, count = [first], len(first)
        while sizer.is_costly and count < sizer.wanted:
            part = self._following(split, parts[-1], sizer, limit - count)
            if part is None:
                break
            parts.append(part)
            count += len(part)
        for part in parts[:-1]:
            if part.position is not None:
                split.known = part.position
        return SourceBatch.joined(parts)

    def _following(
        self, split: _OpenSplit, last: SourceBatch, sizer: BatchSizer, most: int
    ) -> SourceBatch | None:
        """What the source has next, if it can be processed together with what it gave last."""
        if not split.rest:
            try:
                self._poll(split, sizer)
            except Exception as error:  # noqa: BLE001 - raised when all before it is processed
                split.failure = error
        if not split.rest:
            return None
        found = split.rest[0]
        fits = len(found) <= most and last.is_followed_by(found)
        return split.rest.popleft() if fits else None

    def _poll(self, split: _OpenSplit, sizer: BatchSizer) -> None:
        split.known = split.cursor.position
        began = self._seconds()
        with reading(split.label, split.assignment.split.id):
            found = split.cursor.poll(self._allowed(sizer))
        if found is not None:
            sizer.polled(self._seconds() - began)
            split.rest.append(found)

    def _emit(self, split: _OpenSplit, read: SourceBatch) -> None:
        self._enter(split)
        # Not the time of the last tick: none comes while there is no credit.
        split.active = self._clock()
        split.assignment.idle = False
        split.records += self.reader.emit(split.chain.source, read)

    def _finish(self, split: _OpenSplit) -> None:
        self._enter(split)
        split.assignment.finished = True
        self._leave(waits=True)
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
        """Return what follows these splits is assigned: their readers stop waiting for them.

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

    def _enter(self, split: _OpenSplit, *, resumes: bool = False) -> None:
        if self._current is split:
            return
        self._leave()
        self._plan.processing_time = self._clock()
        calls, split.calls = split.calls, None
        self.reader.enter(split.chain, split.assignment, resumes=resumes, calls=calls)
        split.state = None
        self._current = split

    def _leave(self, *, waits: bool = False) -> None:
        """Take the operators from the current split; ``waits``: with nothing under way."""
        split, self._current = self._current, None
        if split is None:
            return
        assignment, chain = split.assignment, split.chain
        self.reader.due.clear()
        split.calls = None if waits else self.reader.suspend(chain)
        states = self.reader.leave(chain, assignment)
        operators = (self._instance.operators[node.id] for node in chain.per_channel)
        due = (when for each in operators if (when := each.due()) is not None)
        split.due = min((*self.reader.due, *due), default=None)
        for writer in chain.writers:
            writer.flush()
        assignment.start = assignment.stop = split.position
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
            if self._waits(split):
                split.active = now
            elif split.due is not None and split.due <= now and split is not current:
                # To be entered tells its operators only what time it is.
                self._enter(split)
                self._move_clock(split, now)
                self._leave()
            self._check_idleness(split)

    def _move_clock(self, split: _OpenSplit, now: int) -> None:
        for node in reversed(split.chain.per_channel):
            self._instance.operators[node.id].process_processing_time(now)

    def _check_idleness(self, split: _OpenSplit) -> None:
        timeout = split.idle_timeout
        if timeout is None or split.assignment.idle or not split.drained:
            return
        # Not the time now: while nobody looks, for want of credit or time, there may be records.
        if split.last_polled - split.active < timeout:
            return
        split.assignment.idle = True
        self._enter(split)
        self._instance.operators[split.chain.source.id].process_idle(True)  # noqa: FBT003
        self._leave()

    # -- checkpoints ---------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Return whether a checkpoint can be taken: all positions are exact."""
        return all(split.settled for split in self._splits.values())

    def settle(self, deadline: float) -> None:
        """Read only what is needed for that."""
        self._is_settling = True
        for split in list(self._splits.values()):
            while not split.settled and self._seconds() < deadline:
                if not self._step(split):
                    break
        self._is_settling = False

    def snapshot(self, epoch: int) -> list[SplitState]:
        """Return where all splits stand in a checkpoint; those that are over are told once."""
        self._leave(waits=True)
        for split in [each for each in self._splits.values() if each.calls is not None]:
            self._enter(split)
            self._leave(waits=True)
        found, self._finished = self._finished, []
        for split in self._splits.values():
            if split.state is not None:
                found.append(replace(split.state, position=split.position, records=split.records))
            split.records = 0
        self._taken[epoch] = {at: each.position for at, each in self._splits.items()}
        return found

    def committed(self, epoch: int) -> None:
        """Note that a checkpoint is completed, and tell the cursors."""
        positions = self._taken.get(epoch, {})
        self._taken = {taken: at for taken, at in self._taken.items() if taken > epoch}
        for channel, position in positions.items():
            split = self._splits.get(channel)
            if split is not None:
                with reading(split.label, split.assignment.split.id):
                    split.cursor.committed(position)

    def abandon(self, epoch: int) -> None:
        """Forget a checkpoint that was aborted."""
        self._taken.pop(epoch, None)

    def due(self) -> int | None:
        """Milliseconds at which something changes by time alone; None: never."""
        return min((each.due for each in self._splits.values() if each.due), default=None)

    def progress(self) -> dict[int, SplitProgress]:
        """Return what the driver does not know yet of how far splits are, by channel."""
        news, self._over = self._over, {}
        for channel, split in self._splits.items():
            now = SplitProgress(
                split.position, self._watermark(split), bool(split.assignment.idle), over=False
            )
            if now != split.reported:
                split.reported = news[channel] = now
        return news

    def _watermark(self, split: _OpenSplit) -> int:
        """Milliseconds; of the one that has the operators it is what they have sent on."""
        if split.state is None:
            return self._instance.outputs[split.chain.source.id].watermark
        return split.state.watermark

    def _waits(self, split: _OpenSplit) -> bool:
        """Return whether it is too far ahead of others to be read on."""
        if split.held or split.ceiling == MAX_TIMESTAMP:
            return split.held
        return not split.assignment.idle and self._watermark(split) > split.ceiling

    def close(self) -> None:
        """Release what is read."""
        while self._splits:
            self._splits.popitem()[1].cursor.close()
