"""AsyncDataStream: the four ways to apply an AsyncFunction to a stream."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from millstream.datastream.type_choice import choose_output_type
from millstream.errors import ProgramError
from millstream.functions.async_functions import (
    NO_RETRY_STRATEGY,
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryStrategy,
)
from millstream.runtime.operators import AsyncWaitFactory
from millstream.types.time import milliseconds_of

if TYPE_CHECKING:
    from millstream.datastream.data_stream import DataStream
    from millstream.types.time import DurationLike
    from millstream.types.types import TypeInformation


_Mode = AsyncFunctionDescriptor.OutputMode


class AsyncDataStream:
    """Applies asynchronous functions to streams; all methods make a new stream.

    Records are under way together within a batch: nothing is at a checkpoint, so none is asked for
    twice that was asked for before it.
    """

    @staticmethod
    def unordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Results go on as they come, but never past a watermark.

        Args:
            data_stream: the records.
            async_function: what is asked for each of them.
            timeout: how long a record may take; 0: as long as it takes.
            capacity: how many records are under way at most, in each subtask.
            output_type: the type of the results.

        Raises:
            ProgramError: something of it cannot be used.
        """
        return _wait(data_stream, async_function, timeout, capacity, output_type, _Mode.UNORDERED)

    @staticmethod
    def unordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """As ``unordered_wait``; records are tried again by the strategy, within the time."""
        mode, strategy = _Mode.UNORDERED, async_retry_strategy
        return _wait(data_stream, async_function, timeout, capacity, output_type, mode, strategy)

    @staticmethod
    def ordered_wait(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """Results go on in the order of the records; otherwise as ``unordered_wait``."""
        return _wait(data_stream, async_function, timeout, capacity, output_type, _Mode.ORDERED)

    @staticmethod
    def ordered_wait_with_retry(
        data_stream: DataStream,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        async_retry_strategy: AsyncRetryStrategy[Any],
        capacity: int = 100,
        output_type: TypeInformation | None = None,
    ) -> DataStream:
        """As ``ordered_wait``; records are tried again by the strategy, within the time."""
        mode, strategy = _Mode.ORDERED, async_retry_strategy
        return _wait(data_stream, async_function, timeout, capacity, output_type, mode, strategy)


def _wait(
    stream: DataStream,
    function: AsyncFunction[Any, Any],
    timeout: DurationLike,
    capacity: int,
    output_type: TypeInformation | None,
    mode: AsyncFunctionDescriptor.OutputMode,
    strategy: AsyncRetryStrategy[Any] = NO_RETRY_STRATEGY,
) -> DataStream:
    _check(function, timeout, capacity, strategy)
    descriptor = AsyncFunctionDescriptor(function, timeout, capacity, strategy, mode)
    chosen = choose_output_type(output_type, function.async_invoke, unwrap=True)
    code: dict[str, object] = {"function": function, "retry strategy": strategy}
    return stream._operator("AsyncWait", AsyncWaitFactory(descriptor), chosen, code)  # noqa: SLF001 - streams of one package build each other


def _check(function: object, timeout: DurationLike, capacity: int, strategy: object) -> None:
    wrong = ""
    if not isinstance(function, AsyncFunction):
        wrong = f"needs an AsyncFunction, not {function!r}"
    elif not inspect.iscoroutinefunction(function.async_invoke):
        wrong = f"needs async_invoke of {type(function).__name__} to be declared as 'async def'"
    elif not isinstance(strategy, AsyncRetryStrategy):
        wrong = f"needs an AsyncRetryStrategy, not {strategy!r}"
    elif strategy is not NO_RETRY_STRATEGY and milliseconds_of(timeout) <= 0:
        wrong = "with a retry strategy needs a timeout above zero, within which records are tried"
    elif capacity <= 0:
        wrong = f"needs a capacity above zero, not {capacity}"
    if wrong:
        message = f"AsyncDataStream {wrong}"
        raise ProgramError(message)
