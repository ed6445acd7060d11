"""Asking a table outside: one question at a time, or several side by side.

What it is: an ``Asker`` has one connection, asks again what fails, and, if that is wanted, what was
not found, a while later.  ``AskerPool`` has some, each in a thread of its own, for connections may
be used by one thread alone.
What it is not: for what goes on behind a batch: all questions of a batch are answered before it is
over, so none is under way at a checkpoint, and behind a restore they are asked again.

Read next: ``runtime/operators/table/lookup_join.py``.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from millstream.contracts.lookup import FoundRows
from millstream.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from millstream.contracts.lookup import LookupReader, LookupSource

__all__ = ["Asker", "AskerPool", "Asking"]

#: Connections of one task at most.
_MOST_THREADS: Final = 4
#: Seconds between two looks at how long questions are under way.
_LOOK: Final = 0.05


@dataclass(frozen=True)
class Asking:
    """How a table is asked; times in milliseconds."""

    #: How often a question that fails is asked again.
    max_retries: int = 3
    #: How long to wait before that; longer by as much before each other time.
    retry_delay: int = 1000
    #: How often keys without rows are asked for again, and how long to wait before each time.
    miss_attempts: int = 0
    miss_delay: int = 0
    #: Keys that are under way at a time; 0: questions are asked one behind the other.
    capacity: int = 0
    #: Whether rows may come in the order of answers.
    unordered: bool = False
    #: How long a question may take, with all that is asked again.
    timeout: int = 180_000


class Asker:
    """One connection.

    Args:
        source: what is asked.
        asking: how.
        where: the operator and the table, for errors.
    """

    def __init__(self, source: LookupSource, asking: Asking, where: str) -> None:
        self._source = source
        self._asking = asking
        self._where = where
        self._reader: LookupReader | None = None

    def ask(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        """The rows of some keys.

        Raises:
            SourceError: it failed as often as it may.
        """
        found = self._answer(keys, now)
        for attempt in range(1, self._asking.miss_attempts + 1):
            missing = np.setdiff1d(np.arange(keys.num_rows), found.keys)
            if not len(missing):
                break
            time.sleep(self._asking.miss_delay / 1000)
            later = now + attempt * self._asking.miss_delay
            more = self._answer(keys.take(pa.array(missing)), later)
            if len(more.keys):
                found = _together([found, more], [None, missing])
        return found

    def _answer(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        attempt = 0
        while True:
            try:
                if self._reader is None:
                    self._reader = self._source.open()
                return self._reader.lookup(keys, now)
            except SourceError as error:
                self.close()
                attempt += 1
                if attempt > self._asking.max_retries:
                    message = f"{self._where}: {error}"
                    raise SourceError(message) from error
                time.sleep(self._asking.retry_delay * attempt / 1000)

    def close(self) -> None:
        """Let go of the connection."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()


class _Question:
    """Some keys on their way."""

    def __init__(self, keys: pa.RecordBatch, places: NDArray[np.int64], now: int) -> None:
        self.keys = keys
        #: Where the keys stand among all that are asked for.
        self.places = places
        self.now = now
        #: When it was begun to be asked, in seconds of the monotonic clock.
        self.begun: float | None = None
        self.answer: Future[FoundRows] = Future()


class AskerPool:
    """Some connections, each in a thread; arguments as of ``Asker``."""

    def __init__(self, source: LookupSource, asking: Asking, where: str) -> None:
        self._made = source, asking, where
        self._asking = asking
        self._where = where
        self._waiting: SimpleQueue[_Question | None] = SimpleQueue()
        self._threads: list[threading.Thread] = []

    @property
    def _count(self) -> int:
        return min(_MOST_THREADS, self._asking.capacity)

    def ask(self, keys: pa.RecordBatch, now: int) -> FoundRows:
        """The rows of all keys.

        Raises:
            SourceError: a question failed as often as it may, or took too long.
        """
        parts = list(self.answers(keys, now))
        return _together([found for _, found in parts], [places for places, _ in parts])

    def answers(
        self, keys: pa.RecordBatch, now: int
    ) -> Iterator[tuple[NDArray[np.int64], FoundRows]]:
        """The answers as they come: which keys, by position, and their rows.

        Raises:
            SourceError: a question failed as often as it may, or took too long.
        """
        size = max(1, min(self._asking.capacity // self._count, -(-keys.num_rows // self._count)))
        questions = {}
        for begin in range(0, keys.num_rows, size):
            part = keys.slice(begin, size)
            question = _Question(part, np.arange(begin, begin + part.num_rows), now)
            questions[question.answer] = question
        self._start()
        for question in questions.values():
            self._waiting.put(question)
        try:
            while questions:
                for answer in self._next(questions):
                    yield questions.pop(answer).places, answer.result()
        finally:
            for answer in questions:  # nobody wants them any more
                answer.cancel()

    def _next(self, questions: dict[Future[FoundRows], _Question]) -> set[Future[FoundRows]]:
        while True:
            done, _ = wait(questions, timeout=_LOOK, return_when=FIRST_COMPLETED)
            if done:
                return done
            limit = time.monotonic() - self._asking.timeout / 1000
            for question in questions.values():
                if question.begun is not None and question.begun < limit:
                    message = f"{self._where}: no answer within {self._asking.timeout} ms"
                    raise SourceError(message)

    def _start(self) -> None:
        while len(self._threads) < self._count:
            # What is under way when the process ends is not waited for.
            thread = threading.Thread(target=self._work, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        asker = Asker(*self._made)
        waiting = self._waiting
        while (question := waiting.get()) is not None:
            if not question.answer.set_running_or_notify_cancel():
                continue
            question.begun = time.monotonic()
            try:
                found = asker.ask(question.keys, question.now)
            except BaseException as error:  # noqa: BLE001 - who waits for it raises it
                question.answer.set_exception(error)
            else:
                question.answer.set_result(found)
        asker.close()

    def close(self) -> None:
        """End the threads; one that hangs in a question is left behind."""
        for _ in self._threads:
            self._waiting.put(None)
        for thread in self._threads:
            thread.join(timeout=1)
        self._threads = []


def _together(
    parts: list[FoundRows], places: list[NDArray[np.int64] | None] | list[NDArray[np.int64]]
) -> FoundRows:
    """Answers to several questions as one; ``places`` of the keys of each, None: as they are."""
    keys = [
        found.keys if where is None else where[found.keys]
        for found, where in zip(parts, places, strict=True)
    ]
    rows = pa.concat_tables([found.rows for found in parts], promote_options="permissive")
    return FoundRows(np.concatenate(keys), rows)
