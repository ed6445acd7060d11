"""The async wait operator: runs an AsyncFunction for many records at a time.

An event loop runs in a thread of the subtask, as in PyFlink.  The records of several batches are
in flight together, as many as the capacity allows, with the watermarks between them in a queue;
results leave in the order of batches and watermarks, and within a batch in the order of records, or
as they come.  Each split of a source has a queue, since their records and watermarks have different
channels; the capacity is that of all together.  A checkpoint waits for everything in flight, so
there is no state.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.functions.async_functions import AsyncFunctionDescriptor
from millstream.runtime.operators.base import Collector, FunctionOperator
from millstream.runtime.user_code import refuse_row, user_error
from millstream.types.row import Row
from millstream.types.time import milliseconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import (
        Checkpoint,
        OperatorSnapshot,
        PendingCalls,
        RestoreContext,
    )


#: Seconds that functions may take to end when their operator is closed.
_ENDING: Final = 1.0
#: A position in the batch, and the records that its record gives.
_Result = tuple[int, Iterable[Any]]


@dataclass(slots=True)
class _InFlight:
    """A batch whose records are in flight."""

    results: Future[list[_Result]]
    timestamps: list[int]


@dataclass(slots=True)
class _Status:
    """A watermark, or an idleness, that follows what is in flight."""

    send: Callable[[], None]


@dataclass(slots=True, eq=False)
class _Queue:
    """What is in flight, and what has to follow it."""

    items: deque[_InFlight | _Status] = field(default_factory=deque)
    records: int = 0

    @property
    def is_ready(self) -> bool:
        """Return whether its first item can be emitted without waiting."""
        first = self.items[0] if self.items else None
        return isinstance(first, _Status) or (first is not None and first.results.done())

    def cancel(self) -> None:
        """Drop everything."""
        for each in self.items:
            if isinstance(each, _InFlight):
                each.results.cancel()
        self.items.clear()
        self.records = 0


class AsyncWaitOperator(FunctionOperator):
    """Applies an AsyncFunction to every record."""

    def __init__(self, descriptor: AsyncFunctionDescriptor) -> None:
        super().__init__(descriptor.async_function)
        milliseconds = milliseconds_of(descriptor.timeout)
        self._timeout = milliseconds / 1000 if milliseconds > 0 else None
        self.concurrency = self._capacity = descriptor.capacity
        self._strategy = descriptor.async_retry_strategy
        predicate = self._strategy.get_retry_predicate()
        self._is_bad_result = predicate.result_predicate() or _never
        self._is_bad_error = predicate.exception_predicate() or _never
        self._is_ordered = descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED
        self._loop: asyncio.AbstractEventLoop | None = None
        self._collector = Collector(self, self.emit)
        self._queue = _Queue()
        #: Those of splits that were left.
        self._suspended: list[_Queue] = []

    def open(self) -> None:
        """Open the function, then start the loop."""
        super().open()
        self._loop = asyncio.new_event_loop()
        self._room = asyncio.Semaphore(self._capacity)
        # What is in flight when the process ends is not waited for.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the loop, then close the function."""
        if self._loop is not None:
            self._cancel_pending()
            with contextlib.suppress(TimeoutError):  # a function that does not let itself be ended
                asyncio.run_coroutine_threadsafe(_ended(), self._loop).result(_ENDING)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None
        super().close()

    def restore(self, restored: RestoreContext) -> None:
        super().restore(restored)
        self._cancel_pending()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        assert self._loop is not None  # noqa: S101 - it is open
        self.records_in += len(batch)
        results = asyncio.run_coroutine_threadsafe(self._all(batch.values), self._loop)
        self._queue.items.append(_InFlight(results, batch.timestamp_list))
        self._queue.records += len(batch)
        self._emit_done(most=self._capacity)

    def process_watermark(self, watermark: int) -> None:
        self._follow(partial(super().process_watermark, watermark))

    def process_idle(self, idle: bool) -> None:  # noqa: FBT001 - a status, named in the frame
        self._follow(partial(super().process_idle, idle))

    def process_processing_time(self, now: int) -> None:
        super().process_processing_time(now)
        self._emit_done()

    def flush(self) -> None:
        super().flush()
        self._emit_done()

    def finish_pending(self) -> None:
        self._emit_done(most=0)

    def suspend_pending(self) -> PendingCalls | None:
        self._emit_done()
        queue = self._queue
        if not queue.items:
            return None
        self._suspended.append(queue)
        self._queue = _Queue()
        return queue

    def resume_pending(self, pending: PendingCalls) -> None:
        if isinstance(pending, _Queue) and pending in self._suspended:
            self._suspended.remove(pending)
            self._queue = pending
            self._emit_done()

    def end_input(self) -> None:
        self._emit_done(most=0)
        super().end_input()

    def snapshot(self, checkpoint: Checkpoint) -> OperatorSnapshot:
        self._emit_done(most=0)
        return super().snapshot(checkpoint)

    def _follow(self, send: Callable[[], None]) -> None:
        """Send something after all that is in flight."""
        self._queue.items.append(_Status(send))
        self._emit_done()

    def _emit_done(self, most: int | None = None) -> None:
        """Emit the results that are there, in order.

        Args:
            most: wait until so many records are in flight at most; None: wait for none.
        """
        queue = self._queue
        while queue.items:
            first = queue.items[0]
            if isinstance(first, _Status):
                first.send()
            elif first.results.done() or (most is not None and queue.records > most):
                self._emit(first)
            else:
                break
            queue.items.popleft()

    def _emit(self, batch: _InFlight) -> None:
        try:
            results = batch.results.result()
        except BaseException:
            self._cancel_pending()
            raise
        self._queue.records -= len(batch.timestamps)
        if self._is_ordered:
            results.sort(key=lambda result: result[0])
        for position, records in results:
            self._collector.collect(records, batch.timestamps[position])
        self._collector.flush()

    def _cancel_pending(self) -> None:
        """Drop what is in flight."""
        for each in (self._queue, *self._suspended):
            each.cancel()
        self._suspended.clear()

    async def _all(self, values: list[Any]) -> list[_Result]:
        """The results of a batch, in the order in which they came."""
        records, results = iter(enumerate(values)), list[_Result]()
        some = min(self._capacity, len(values))
        workers = [asyncio.ensure_future(self._work(records, results)) for _ in range(some)]
        try:
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)
        return results

    async def _work(self, records: Iterator[tuple[int, Any]], results: list[_Result]) -> None:
        for position, value in records:
            try:
                async with self._room:
                    found = _checked(await self._in_time(value))
            except Exception as error:
                raise user_error(self.context, error, value) from error
            results.append((position, found))

    async def _in_time(self, value: Any) -> object:
        try:
            async with asyncio.timeout(self._timeout) as limit:
                return await self._attempts(value)
        except TimeoutError:
            if not limit.expired():
                raise  # the function's own
            return self.function.timeout(value)

    async def _attempts(self, value: Any) -> object:
        attempts, strategy = 1, self._strategy
        while True:
            try:
                result = await self.function.async_invoke(value)
                if not (self._is_bad_result(result) and strategy.can_retry(attempts)):
                    return result
            except Exception as error:
                if not (self._is_bad_error(error) and strategy.can_retry(attempts)):
                    raise
            await asyncio.sleep(strategy.get_backoff_time_millis(attempts) / 1000)
            attempts += 1


async def _ended() -> None:
    """Wait for all that was cancelled."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    await asyncio.gather(*others, return_exceptions=True)


def _never(_: object) -> bool:
    return False


def _checked(result: object) -> Iterable[Any]:
    if isinstance(result, Row):
        refuse_row(result)
    if not isinstance(result, Iterable):
        rule = "cannot be none" if result is None else "should be of list type"
        message = (
            f"The result of AsyncFunction {rule}: async_invoke() and timeout() must return a list "
            f"of records, not {result!r:.100}"
        )
        raise ProgramError(message)
    return result
