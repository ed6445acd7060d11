"""Asynchronous functions: how many at a time, in which order, how long and how often."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Time, Types
from millstream.contracts.batch import Batch
from millstream.datastream import (
    AsyncDataStream,
    AsyncFunction,
    AsyncRetryStrategy,
    StreamExecutionEnvironment,
)
from millstream.datastream.async_retry_predicates import (
    empty_result_predicate,
    exception_type_predicate,
    has_exception_predicate,
)
from millstream.datastream.async_retry_strategies import (
    NO_RETRY_STRATEGY,
    ExponentialBackoffDelayRetryStrategy,
    NoRetryStrategy,
)
from millstream.errors import ProgramError, UserFunctionError
from millstream.functions.async_functions import AsyncFunctionDescriptor
from millstream.runtime.operators import AsyncWaitFactory
from millstream.testing import OperatorHarness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.datastream import DataStream, RuntimeContext

_Mode = AsyncFunctionDescriptor.OutputMode


def harness(
    function: AsyncFunction[Any, Any],
    *,
    mode: AsyncFunctionDescriptor.OutputMode = _Mode.ORDERED,
    timeout: int = 0,
    capacity: int = 100,
    strategy: AsyncRetryStrategy[Any] = NO_RETRY_STRATEGY,
) -> OperatorHarness:
    descriptor = AsyncFunctionDescriptor(function, timeout, capacity, strategy, mode)
    return OperatorHarness(AsyncWaitFactory(descriptor))


def process(operator: OperatorHarness, records: list[tuple[int, int]]) -> None:
    """Values and timestamps, as one batch."""
    operator.process_all([value for value, _ in records], [time for _, time in records])


class Turns(AsyncFunction[int, int]):
    """Each record waits until the one with the next larger number is done."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.done = {number: asyncio.Event() for number in range(5)}

    async def async_invoke(self, value: int) -> list[int]:
        if value + 1 in self.done:
            await self.done[value + 1].wait()
        self.done[value].set()
        return [value, -value]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        (_Mode.ORDERED, [0, 0, 1, -1, 2, -2, 3, -3, 4, -4]),
        (_Mode.UNORDERED, [4, -4, 3, -3, 2, -2, 1, -1, 0, 0]),
    ],
)
def test_order(mode: AsyncFunctionDescriptor.OutputMode, expected: list[int]) -> None:
    with harness(Turns(), mode=mode) as operator:
        process(operator, [(number, 10 * number) for number in range(5)])
        assert operator.outputs == expected
        assert [time for _, time in operator.records] == [10 * abs(n) for n in expected]


def test_capacity() -> None:
    class Counting(AsyncFunction[int, int]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.now = 0

        async def async_invoke(self, value: int) -> list[int]:
            self.now += 1
            most = self.now
            await asyncio.sleep(0)
            self.now -= 1
            return [most]

    with harness(Counting(), capacity=7) as operator:
        process(operator, [(number, 0) for number in range(50)])
        assert max(map(int, map(str, operator.outputs))) == 7


class Meeting(AsyncFunction[int, int]):
    """No record is done before so many are under way."""

    def __init__(self, count: int) -> None:
        self.missing = count

    def open(self, runtime_context: RuntimeContext) -> None:
        self.all_are_there = asyncio.Event()

    async def async_invoke(self, value: int) -> list[int]:
        self.missing -= 1
        if not self.missing:
            self.all_are_there.set()
        await self.all_are_there.wait()
        return [value]


def fed_with_watermarks(operator: OperatorHarness, values: list[int]) -> None:
    """Give the operator short batches with a watermark behind each, as a running task does."""
    for value in values:
        operator.operator.process_batch(
            Batch(operator.input_type, values=[value], timestamps=[value])
        )
        operator.operator.process_watermark(value)


def test_batches_with_watermarks_between_them_are_under_way_together() -> None:
    with harness(Meeting(20), timeout=30_000, capacity=20) as operator:
        fed_with_watermarks(operator, list(range(20)))
        operator.operator.finish_pending()
        assert operator.outputs == list(range(20))
        assert operator.watermarks == list(range(20))
        kinds = [event[0] for event in operator.events]
        assert kinds == kinds[:2] * 20, "each watermark follows its record"


def test_no_more_than_the_capacity_is_under_way_in_several_batches() -> None:
    class Counting(AsyncFunction[int, int]):
        def open(self, runtime_context: RuntimeContext) -> None:
            self.now = 0

        async def async_invoke(self, value: int) -> list[int]:
            self.now += 1
            most = self.now
            await asyncio.sleep(0.001)
            self.now -= 1
            return [most]

    with harness(Counting(), capacity=7) as operator:
        fed_with_watermarks(operator, list(range(100)))
        operator.operator.finish_pending()
        assert max(map(int, map(str, operator.outputs))) == 7
        assert len(operator.outputs) == 100


def test_calls_of_a_split_that_was_left_continue() -> None:
    with harness(Meeting(4), timeout=30_000) as operator:
        fed_with_watermarks(operator, [10, 20])
        first = operator.operator.suspend_pending()
        fed_with_watermarks(operator, [1])
        second = operator.operator.suspend_pending()
        fed_with_watermarks(operator, [5])  # the last that all wait for
        assert first is not None
        assert second is not None
        operator.operator.finish_pending()
        operator.operator.resume_pending(second)
        operator.operator.finish_pending()
        assert operator.operator.suspend_pending() is None, "nothing is under way"
        operator.operator.resume_pending(first)
        operator.operator.finish_pending()
        assert operator.outputs == [5, 1, 10, 20]


def test_calls_of_a_split_that_was_left_are_dropped_when_the_operator_is_closed() -> None:
    operator = harness(Never())
    fed_with_watermarks(operator, [1])
    calls = operator.operator.suspend_pending()
    assert calls is not None
    assert not calls.is_ready
    operator.close()
    assert operator.outputs == []


def test_a_checkpoint_has_all_that_was_under_way() -> None:
    with harness(Meeting(5), timeout=30_000) as operator:
        fed_with_watermarks(operator, list(range(5)))
        operator.end_epoch()
        assert operator.outputs == list(range(5))


def test_what_is_under_way_is_dropped_when_the_operator_is_closed() -> None:
    operator = harness(Meeting(2))
    fed_with_watermarks(operator, [1])
    operator.close()
    assert operator.outputs == []


class Never(AsyncFunction[int, str]):
    async def async_invoke(self, value: int) -> list[str]:
        if value == 1:
            await asyncio.Event().wait()
        return ["in time"]


class NeverAndSo(Never):
    def timeout(self, value: int) -> list[str]:
        return [f"{value} was late"]


def test_time_is_up() -> None:
    with harness(NeverAndSo(), timeout=20) as operator:
        process(operator, [(0, 0), (1, 0)])
        assert operator.outputs == ["in time", "1 was late"]
    with (
        harness(Never(), timeout=20) as operator,
        pytest.raises(UserFunctionError, match=r"Async function call has timed out for input: 1"),
    ):
        process(operator, [(0, 0), (1, 0)])


class Failing(AsyncFunction[int, int]):
    """Gives the number of the attempt; the first ones fail, or give nothing."""

    def __init__(self, fails: int, *, error: type[Exception] | None = None) -> None:
        self.fails, self.error, self.attempts = fails, error, 0

    async def async_invoke(self, value: int) -> list[int]:
        self.attempts += 1
        if self.attempts > self.fails:
            return [self.attempts]
        if self.error is not None:
            message = f"attempt {self.attempts}"
            raise self.error(message)
        return []


def again(times: int, kind: type[Exception] | None = None) -> AsyncRetryStrategy[Any]:
    predicate = (
        has_exception_predicate
        if kind is None
        else lambda error: exception_type_predicate(error, kind)
    )
    return AsyncRetryStrategy.fixed_delay(times, 1, empty_result_predicate, predicate)


@pytest.mark.parametrize("error", [None, ValueError, TimeoutError])
def test_attempts(error: type[Exception] | None) -> None:
    with harness(Failing(3, error=error), timeout=10_000, strategy=again(3)) as operator:
        process(operator, [(1, 0)])
        assert operator.outputs == [4]


def test_attempts_are_over() -> None:
    with harness(Failing(3), timeout=10_000, strategy=again(2)) as operator:
        process(operator, [(1, 0)])
        assert operator.outputs == []  # the last result, whatever it is
    failing = Failing(3, error=ValueError)
    with (
        harness(failing, timeout=10_000, strategy=again(2)) as operator,
        pytest.raises(UserFunctionError, match="attempt 3"),
    ):
        process(operator, [(1, 0)])
    with (
        harness(failing, timeout=10_000, strategy=again(9, KeyError)) as operator,
        pytest.raises(UserFunctionError, match="attempt 1"),
    ):
        process(operator, [(1, 0)])


def test_attempts_end_with_the_time() -> None:
    class Late(Failing):
        def timeout(self, value: int) -> list[int]:
            return [-value]

    strategy = AsyncRetryStrategy.fixed_delay(9, 3_600_000, empty_result_predicate, None)
    with harness(Late(9), timeout=20, strategy=strategy) as operator:
        process(operator, [(7, 0)])
        assert operator.outputs == [-7]


def test_backoff() -> None:
    strategy: ExponentialBackoffDelayRetryStrategy[Any] = AsyncRetryStrategy.exponential_backoff(
        5, 100, 1000, 3.0, None, has_exception_predicate
    )
    assert [strategy.get_backoff_time_millis(n) for n in (1, 2, 3, 4, 1)] == [
        *(100, 300, 900, 1000, 100)
    ]
    assert [strategy.can_retry(n) for n in (1, 5, 6)] == [True, True, False]
    assert isinstance(AsyncRetryStrategy.no_restart(), NoRetryStrategy)
    with pytest.raises(ProgramError, match="max_attempts should be greater than zero, not 0"):
        again(0)


@pytest.mark.parametrize(("result", "rule"), [(None, "cannot be none"), (5, "of list type")])
def test_what_is_no_list(result: Any, rule: str) -> None:
    class Wrong(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> Any:
            return result

    with (
        harness(Wrong()) as operator,
        pytest.raises(ProgramError, match=f"{rule}.* must return a list of records"),
    ):
        process(operator, [(1, 0)])


def test_no_thread_is_left() -> None:
    before = set(threading.enumerate())  # those of other tests may end meanwhile
    with harness(Never()) as operator:
        process(operator, [(0, 0)])
        assert len(set(threading.enumerate()) - before) == 1
    assert not set(threading.enumerate()) - before


def stream() -> tuple[StreamExecutionEnvironment, DataStream]:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_configuration().set_string("execution.target", "local")
    env.set_parallelism(2)
    return env, env.from_collection(list(range(20)), Types.LONG())


def test_a_job() -> None:
    class Square(AsyncFunction[int, int]):
        async def async_invoke(self, value: int) -> list[int]:
            await asyncio.sleep(0.001)
            return [value * value]

    _, numbers = stream()
    squares = AsyncDataStream.ordered_wait(numbers, Square(), Time.seconds(10))
    assert squares.get_type() == Types.LONG()
    some = AsyncDataStream.unordered_wait_with_retry(
        squares, Square(), Time.seconds(10), again(2), 3, Types.LONG()
    )
    with some.execute_and_collect() as results:  # type: ignore[union-attr]
        found: Iterator[Any] = results
        assert sorted(found) == [n**4 for n in range(20)]


def test_what_cannot_be_used() -> None:
    class Plain(AsyncFunction[int, int]):
        def async_invoke(self, value: int) -> list[int]:  # type: ignore[override]
            return [value]

    _, numbers = stream()
    wait, second = AsyncDataStream.unordered_wait, Time.seconds(1)
    with pytest.raises(ProgramError, match="async_invoke of Plain to be declared as 'async def'"):
        wait(numbers, Plain(), second)
    with pytest.raises(ProgramError, match="needs an AsyncFunction, not <built-in"):
        wait(numbers, abs, second)  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="needs a capacity above zero, not 0"):
        wait(numbers, Never(), second, 0)
    retried = AsyncDataStream.ordered_wait_with_retry
    with pytest.raises(ProgramError, match="needs a timeout above zero"):
        retried(numbers, Never(), 0, again(1))
    with pytest.raises(ProgramError, match="needs an AsyncRetryStrategy, not None"):
        retried(numbers, Never(), second, None)  # type: ignore[arg-type]
