"""The async wait operator: runs an AsyncFunction for many records at a time.

What it is: an event loop in a thread of the subtask, as in PyFlink.  The records of a batch are
under way together, as many as the capacity allows; a batch is over when all of them are.  So
nothing is under way at a checkpoint or when a watermark comes, and there is no state.

What it is not: of use where one record in a batch takes very long: the others wait for it.

Read next: ``functions/async_functions.py``.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from millstream.errors import ProgramError
from millstream.functions.async_functions import AsyncFunctionDescriptor
from millstream.runtime.operators.base import Collector, FunctionOperator
from millstream.runtime.user_code import refuse_row, user_error
from millstream.types.row import Row
from millstream.types.time import milliseconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.batch import Batch

__all__ = ["AsyncWaitOperator"]

#: A position in the batch, and the records that its record gives.
_Result = tuple[int, Iterable[Any]]


class AsyncWaitOperator(FunctionOperator):
    """Applies an AsyncFunction to every record."""

    def __init__(self, descriptor: AsyncFunctionDescriptor) -> None:
        super().__init__(descriptor.async_function)
        milliseconds = milliseconds_of(descriptor.timeout)
        self._timeout = milliseconds / 1000 if milliseconds > 0 else None
        self.concurrency = descriptor.capacity
        self._strategy = descriptor.async_retry_strategy
        predicate = self._strategy.get_retry_predicate()
        self._is_bad_result = predicate.result_predicate() or _never
        self._is_bad_error = predicate.exception_predicate() or _never
        self._is_ordered = descriptor.output_mode is AsyncFunctionDescriptor.OutputMode.ORDERED
        self._loop: asyncio.AbstractEventLoop | None = None
        self._collector = Collector(self, self.emit)

    def open(self) -> None:
        """Open the function, then start the loop."""
        super().open()
        self._loop = asyncio.new_event_loop()
        # What is under way when the process ends is not waited for.
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the loop, then close the function."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None
        super().close()

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        del input_index
        assert self._loop is not None  # noqa: S101 - it is open
        self.records_in += len(batch)
        under_way = asyncio.run_coroutine_threadsafe(self._all(batch.values), self._loop)
        try:
            results = under_way.result()
        except BaseException:
            under_way.cancel()
            raise
        if self._is_ordered:
            results.sort(key=lambda result: result[0])
        timestamps = batch.timestamp_list
        for position, records in results:
            self._collector.collect(records, timestamps[position])
        self._collector.flush()

    async def _all(self, values: list[Any]) -> list[_Result]:
        """The results of a batch, in the order in which they came."""
        records, results = iter(enumerate(values)), list[_Result]()
        some = min(self.concurrency, len(values))
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


def _never(_: object) -> bool:
    return False


def _checked(result: object) -> Iterable[Any]:
    if isinstance(result, Row):
        refuse_row(result)
    if not isinstance(result, Iterable):
        message = f"async_invoke() and timeout() must return a list of records, not {result!r:.100}"
        raise ProgramError(message)
    return result
