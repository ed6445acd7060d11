"""Requests to the systems behind sources, which may take long to answer, or never do.

One thread per source sends one request after the other, in all runs of a job; callers continue, and
poll for the answer.  A source that has no answer when its run ends keeps its thread for a moment
longer.  Then it gets another one for the next run, and pending requests of the first are dropped.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Generic, TypeVar, cast

from millstream.execution.planned_source import new_splits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.contracts.source import KnownSplits, Source, Split


_LOG: Final = logging.getLogger("millstream")
_T = TypeVar("_T")

#: Seconds for which whoever asks waits at once: what is near answers at once.
_PATIENCE: Final = 0.002
#: Seconds that a source has, when a run ends or begins, for what it was asked in the run before.
_ENDING: Final = 2.0
#: Seconds between two looks whether an answer is still wanted.
_LOOK: Final = 0.05
#: Seconds of a source's silence that are worth a word.
_LONG_SILENCE: Final = 10.0


@dataclass(slots=True)
class SplitEnd:
    """How far a split can be read."""

    end: int
    #: It is its last.
    final: bool


@dataclass(slots=True)
class Question:
    """A question to a source, asked in another thread."""

    source: Source
    #: To look for further ones; None: not now.
    known: KnownSplits | None
    #: Channel -> split, its position, and its end as it is known.
    splits: dict[int, tuple[Split, int, SplitEnd]]

    def ask(self) -> Answer:
        """Ask; takes as long as the source's system takes to answer."""
        source = self.source
        found = [] if self.known is None else new_splits(source, self.known)
        ends = {
            split.id: end_of(source, split) for split in found if is_read_at_once(source, split)
        }
        return Answer(found, ends, self._grown())

    def _grown(self) -> dict[int, SplitEnd]:
        source = self.source
        grown: dict[int, SplitEnd] = {}
        for channel, (split, position, known) in self.splits.items():
            if source.cursors_follow and position < known.end:
                # It is not asked where to stop, but may notice that this is not what was read.
                source.next_stop(split, position, 1, known.end)
            if known.final:
                continue  # its end does not change any more
            now = grown[channel] = end_of(source, split)
            if position > now.end:
                source.ends_early(split, position)
        return grown


@dataclass(slots=True)
class Answer:
    """The answer of a source."""

    found: list[Split]
    #: Of those of them that are read at once, by id.
    ends: dict[str, SplitEnd]
    #: Of those that are read, by channel.
    grown: dict[int, SplitEnd]


class Inquiry(Generic[_T]):
    """Something that was asked."""

    def __init__(self, label: str, question: Callable[[], _T]) -> None:
        self._label = label
        self._question = question
        self._answer: _T | None = None
        #: What asking has raised, if it has by now.
        self.error: BaseException | None = None
        self._answered = threading.Event()
        self._asked = time.monotonic()
        #: The silence was spoken of.
        self._warned = False

    def ask(self) -> None:
        """Ask; takes as long as it takes."""
        try:
            self._answer = self._question()
        except BaseException as error:  # noqa: BLE001 - raised to whoever looks for the answer
            self.error = error
        self._answered.set()

    def wait(self, seconds: float) -> None:
        """Wait for the answer, if it comes soon."""
        self._answered.wait(seconds)

    @property
    def is_answered(self) -> bool:
        """Return whether the answer is there; a long silence is spoken of, once."""
        if self._answered.is_set():
            return True
        if not self._warned and time.monotonic() - self._asked > _LONG_SILENCE:
            self._warned = True
            _LOG.warning(
                "%s has not reported for %.0f s what there is to read; what is known is read"
                " further",
                *(self._label, _LONG_SILENCE),
            )
        return False

    def answer(self) -> _T:
        """The answer, which is there; raises what asking has raised."""
        if self.error is not None:
            raise self.error
        return cast("_T", self._answer)


class _Asker:
    """The thread of one source."""

    def __init__(self, uid: str) -> None:
        self._orders: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        #: What is not begun is dropped.
        self._given_up = False
        # Not waited for by anybody: one that never has an answer must not keep a program.
        threading.Thread(target=self._work, name=f"millstream-ask-{uid}", daemon=True).start()

    def put(self, order: Callable[[], None]) -> None:
        """Have something done after all else."""
        self._orders.put(order)

    def end(self) -> None:
        """End when all is done."""
        self._orders.put(None)

    def give_up(self) -> None:
        """End when what is being done is, and do nothing else."""
        self._given_up = True
        self._orders.put(None)

    def _work(self) -> None:
        while (order := self._orders.get()) is not None and not self._given_up:
            order()


class Inquiries:
    """Asks sources; kept from run to run.

    Contract:
      1. A source is asked in one thread, also to start and to stop, and one thing at a time.  The
         exception: it had no answer when its run ended.  (here)
      2. No question is asked from within another.  (caller)

    Args:
        in_threads: in a thread per source; else at once, for tests that are to be the same again.
    """

    def __init__(self, *, in_threads: bool = False) -> None:
        self._in_threads = in_threads
        self._askers: dict[str, _Asker] = {}

    def ask(self, uid: str, label: str, question: Callable[[], _T]) -> Inquiry[_T]:
        """Ask something; waits for a moment, and no longer.

        Args:
            uid: of the source; what was asked of it before is to be answered.
            label: what people call it.
            question: asks it; runs in the thread.
        """
        inquiry = self._put(uid, label, question)
        inquiry.wait(_PATIENCE)
        return inquiry

    def call(
        self,
        uid: str,
        label: str,
        question: Callable[[], _T],
        is_unwanted: Callable[[], bool] = lambda: False,
    ) -> _T:
        """Ask something, and wait for the answer.

        Raises:
            UnwantedError: it is not.
            Exception: what asking has raised.
        """
        inquiry = self._put(uid, label, question)
        while not inquiry.is_answered:
            inquiry.wait(_LOOK)
            if is_unwanted() and not inquiry.is_answered:
                raise AbandonedRequestError(label)
        return inquiry.answer()

    def _put(self, uid: str, label: str, question: Callable[[], _T]) -> Inquiry[_T]:
        inquiry = Inquiry(label, question)
        if self._in_threads:
            if uid not in self._askers:
                self._askers[uid] = _Asker(uid)
            self._askers[uid].put(inquiry.ask)
        else:
            inquiry.ask()
        return inquiry

    def settle(self, uids: Iterable[str]) -> None:
        """Wait a moment for what was asked; sources without an answer get other threads."""
        found = [(uid, self._put(uid, uid, lambda: None)) for uid in uids if uid in self._askers]
        deadline = time.monotonic() + _ENDING
        for uid, inquiry in found:
            inquiry.wait(max(0.0, deadline - time.monotonic()))
            if not inquiry.is_answered:
                self._askers.pop(uid).give_up()

    def close(self) -> None:
        """Ask nothing more; threads end when they have their answers."""
        while self._askers:
            self._askers.popitem()[1].end()


class AbandonedRequestError(Exception):
    """A source had no answer yet, and nobody wants it any more."""


def is_read_at_once(source: Source, split: Split) -> bool:
    """Return whether a split is read as soon as it is found; others wait for a subtask."""
    return source.side_by_side or not source.is_final(split)


def end_of(source: Source, split: Split) -> SplitEnd:
    """Ask how far a split can be read now."""
    # In this order: the end of a split that is final already is its last.
    final = source.is_final(split)
    return SplitEnd(source.end_offset(split), final)
