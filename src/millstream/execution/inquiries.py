"""Asking the systems behind sources, which may take long to answer, or never do.

What it is: the questions, and one thread per source, which is asked one thing after the other;
whoever asks goes on, and looks for the answer later.

What it is not: what follows from the answers (``execution/split_enumerator.py``).

Read next: ``execution/split_enumerator.py``.
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
    from collections.abc import Callable

    from millstream.contracts.source import KnownSplits, Source, Split

__all__ = ["Answer", "Inquiries", "Inquiry", "Question", "SplitEnd", "end_of", "is_read_at_once"]

_T = TypeVar("_T")

#: Seconds for which whoever asks waits at once: what is near answers at once.
_PATIENCE: Final = 0.002
#: Seconds of a source's silence that are worth a word.
_LONG_SILENCE: Final = 10.0
_LOG: Final = logging.getLogger("millstream")


@dataclass(slots=True)
class SplitEnd:
    """How far a split can be read."""

    end: int
    #: It is its last.
    final: bool


@dataclass(slots=True)
class Question:
    """What is asked of a source; it is asked in another thread."""

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
    """What a source has answered."""

    found: list[Split]
    #: Of those of them that are read at once, by id.
    ends: dict[str, SplitEnd]
    #: Of those that are read, by channel.
    grown: dict[int, SplitEnd]


class Inquiry(Generic[_T]):
    """Something that was asked.

    Args:
        label: who was.
        question: asks it.
    """

    def __init__(self, label: str, question: Callable[[], _T]) -> None:
        self._label = label
        self._question = question
        self._answer: _T | None = None
        self._error: BaseException | None = None
        self._answered = threading.Event()
        self._asked = time.monotonic()
        #: The silence was spoken of.
        self._told_of = False

    def ask(self) -> None:
        """Ask; takes as long as it takes."""
        try:
            self._answer = self._question()
        except BaseException as error:  # noqa: BLE001 - raised to whoever looks for the answer
            self._error = error
        self._answered.set()

    def wait(self, seconds: float) -> None:
        """Wait for the answer, if it comes soon."""
        self._answered.wait(seconds)

    @property
    def is_answered(self) -> bool:
        """Whether the answer is there; a long silence is spoken of, once."""
        if self._answered.is_set():
            return True
        if not self._told_of and time.monotonic() - self._asked > _LONG_SILENCE:
            self._told_of = True
            _LOG.warning(
                "%s has not said for %.0f s what there is to read; what is known is read on",
                *(self._label, _LONG_SILENCE),
            )
        return False

    def answer(self) -> _T:
        """The answer, which is there; raises what asking has raised."""
        if self._error is not None:
            raise self._error
        return cast("_T", self._answer)


class Inquiries:
    """Asks sources.

    Args:
        in_threads: in a thread per source; else at once, for tests that are to be the same again.
    """

    def __init__(self, *, in_threads: bool = False) -> None:
        self._in_threads = in_threads
        self._asked: dict[str, queue.SimpleQueue[Callable[[], None] | None]] = {}

    def ask(self, uid: str, label: str, question: Callable[[], _T]) -> Inquiry[_T]:
        """Ask something; waits for a moment, and no longer.

        Args:
            uid: of the source; what was asked of it before is to be answered.
            label: what people call it.
            question: asks it; runs in the thread.
        """
        inquiry = Inquiry(label, question)
        if not self._in_threads:
            inquiry.ask()
            return inquiry
        if uid not in self._asked:
            orders = self._asked[uid] = queue.SimpleQueue()
            # Not waited for by anybody: one that never has an answer must not keep a program.
            threading.Thread(
                target=_work, args=(orders,), name=f"millstream-ask-{uid}", daemon=True
            ).start()
        self._asked[uid].put(inquiry.ask)
        inquiry.wait(_PATIENCE)
        return inquiry

    def close(self) -> None:
        """Ask nothing more; threads end when they have their answers."""
        for orders in self._asked.values():
            orders.put(None)


def _work(orders: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (ask := orders.get()) is not None:
        ask()


def is_read_at_once(source: Source, split: Split) -> bool:
    """Whether a split is read as soon as it is found; others wait for a subtask."""
    return source.side_by_side or not source.is_final(split)


def end_of(source: Source, split: Split) -> SplitEnd:
    """Ask how far a split can be read now."""
    # In this order: the end of a split that is final already is its last.
    final = source.is_final(split)
    return SplitEnd(source.end_offset(split), final)
