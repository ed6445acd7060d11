"""Asynchronous functions for ``AsyncDataStream``, and their retry strategies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar

from millstream.errors import ProgramError
from millstream.functions.functions import Function

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.time import DurationLike


IN = TypeVar("IN")
OUT = TypeVar("OUT")


class AsyncFunction(Function, Generic[IN, OUT]):
    """Makes records of a record while it makes those of others.

    It runs in the event loop of its subtask: what blocks the loop keeps all others waiting.
    """

    @abstractmethod
    async def async_invoke(self, value: IN) -> list[OUT]:
        """Return the records that a record gives; an error fails the job, or is tried again."""

    def timeout(self, value: IN) -> list[OUT]:
        """Return what a record gives for which the time was up.

        Raises:
            TimeoutError: which fails the job; unless the program says otherwise.
        """
        message = f"Async function call has timed out for input: {value}"
        raise TimeoutError(message)


class AsyncRetryPredicate(ABC, Generic[OUT]):
    """After what a record is tried again."""

    @abstractmethod
    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        """Return which results are no good; None: all are."""

    @abstractmethod
    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        """Return which errors may pass; None: none may."""


class AsyncRetryStrategy(ABC, Generic[OUT]):
    """How often a record is tried, and when again."""

    @abstractmethod
    def can_retry(self, current_attempts: int) -> bool:
        """Return whether it may be tried again after so many attempts."""

    @abstractmethod
    def get_backoff_time_millis(self, current_attempts: int) -> int:
        """Return the time until then, in milliseconds."""

    @abstractmethod
    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        """Return after what."""

    @staticmethod
    def no_restart() -> NoRetryStrategy[Any]:
        """Each record is tried once."""
        return NO_RETRY_STRATEGY

    @staticmethod
    def fixed_delay(
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> FixedDelayRetryStrategy[Any]:
        """Again after the same time; see ``FixedDelayRetryStrategy``."""
        return FixedDelayRetryStrategy(
            max_attempts, backoff_time_millis, result_predicate, exception_predicate
        )

    @staticmethod
    def exponential_backoff(
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[Any]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> ExponentialBackoffDelayRetryStrategy[Any]:
        """Again after a time that grows; see ``ExponentialBackoffDelayRetryStrategy``."""
        return ExponentialBackoffDelayRetryStrategy(
            max_attempts,
            initial_delay,
            max_retry_delay,
            multiplier,
            result_predicate,
            exception_predicate,
        )


class RetryPredicate(AsyncRetryPredicate[OUT]):
    """Two predicates, either of which may be None."""

    def __init__(
        self,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        self._result_predicate = result_predicate
        self._exception_predicate = exception_predicate

    def result_predicate(self) -> Callable[[list[OUT]], bool] | None:
        return self._result_predicate

    def exception_predicate(self) -> Callable[[Exception], bool] | None:
        return self._exception_predicate


class NoRetryStrategy(AsyncRetryStrategy[OUT]):
    """Each record is tried once."""

    def can_retry(self, current_attempts: int) -> bool:
        del current_attempts
        return False

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        del current_attempts
        return -1

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return RetryPredicate(None, None)


class _Repeated(AsyncRetryStrategy[OUT]):
    """So many further attempts."""

    def __init__(self, max_attempts: int, predicate: RetryPredicate[OUT], **more: float) -> None:
        for name, number in {"max_attempts": max_attempts, **more}.items():
            if number <= 0:
                message = f"{name} should be greater than zero, not {number}"
                raise ProgramError(message)
        self._max_attempts = max_attempts
        self._predicate = predicate

    def can_retry(self, current_attempts: int) -> bool:
        return current_attempts <= self._max_attempts

    def get_retry_predicate(self) -> AsyncRetryPredicate[OUT]:
        return self._predicate


class FixedDelayRetryStrategy(_Repeated[OUT]):
    """Again after the same time.

    Args:
        max_attempts: how often a record is tried again.
        backoff_time_millis: when, in milliseconds.
        result_predicate: after which results; None: after none.
        exception_predicate: after which errors; None: after none.

    Raises:
        ProgramError: a number is not above zero.
    """

    def __init__(
        self,
        max_attempts: int,
        backoff_time_millis: int,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        predicate = RetryPredicate(result_predicate, exception_predicate)
        super().__init__(max_attempts, predicate, backoff_time_millis=backoff_time_millis)
        self._backoff_time_millis = backoff_time_millis

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        del current_attempts
        return self._backoff_time_millis


class ExponentialBackoffDelayRetryStrategy(_Repeated[OUT]):
    """Again after a time that grows.  Unlike PyFlink's, other records do not change it.

    Args:
        max_attempts: how often a record is tried again.
        initial_delay: when for the first time, in milliseconds.
        max_retry_delay: the longest time.
        multiplier: by which it grows.
        result_predicate: after which results; None: after none.
        exception_predicate: after which errors; None: after none.

    Raises:
        ProgramError: a number is not above zero.
    """

    def __init__(
        self,
        max_attempts: int,
        initial_delay: int,
        max_retry_delay: int,
        multiplier: float,
        result_predicate: Callable[[list[OUT]], bool] | None,
        exception_predicate: Callable[[Exception], bool] | None,
    ) -> None:
        super().__init__(
            max_attempts,
            RetryPredicate(result_predicate, exception_predicate),
            initial_delay=initial_delay,
            max_retry_delay=max_retry_delay,
            multiplier=multiplier,
        )
        self._initial_delay = initial_delay
        self._max_retry_delay = max_retry_delay
        self._multiplier = multiplier

    def get_backoff_time_millis(self, current_attempts: int) -> int:
        delay: float = self._initial_delay
        for _ in range(current_attempts - 1):
            delay = int(min(delay * self._multiplier, self._max_retry_delay))
        return int(delay)


#: Each record is tried once.
NO_RETRY_STRATEGY: Final[NoRetryStrategy[Any]] = NoRetryStrategy()


def empty_result_predicate(result: list[Any] | None) -> bool:
    """Return whether there is no record among the results."""
    return not result


def has_exception_predicate(error: Exception | None) -> bool:
    """Return whether there is an error, whichever."""
    return error is not None


def exception_type_predicate(
    error: Exception | None, expected_error_type: type[BaseException]
) -> bool:
    """Return whether the error is of that type."""
    return isinstance(error, expected_error_type)


class AsyncFunctionDescriptor:
    """An asynchronous function and how it is run.

    Args:
        async_function: the function.
        timeout: how long a record may take, with all its attempts; 0: as long as it takes.
        capacity: how many records are under way at most.
        async_retry_strategy: when a record is tried again.
        output_mode: in which order results are emitted.
    """

    class OutputMode(Enum):
        """In which order results are emitted."""

        #: In that of the records.
        ORDERED = 0
        #: As they come, but never past a watermark.
        UNORDERED = 1

    def __init__(
        self,
        async_function: AsyncFunction[Any, Any],
        timeout: DurationLike,
        capacity: int,
        async_retry_strategy: AsyncRetryStrategy[Any],
        output_mode: OutputMode,
    ) -> None:
        self.async_function = async_function
        self.timeout = timeout
        self.capacity = capacity
        self.async_retry_strategy = async_retry_strategy
        self.output_mode = output_mode
