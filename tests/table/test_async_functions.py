"""Asynchronous scalar functions: attempts, timeouts and how many wait at a time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.common import Row
from millstream.connectors.basic.collect import read_collected
from millstream.errors import ConfigurationError, UserFunctionError
from millstream.table.expressions import col
from millstream.table.udf import udf
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

PREFIX = "table.exec.async-scalar."


#: Numbers for which the function below was called, and how many calls waited; of this process,
#: where the tasks run: functions are pickled.
CALLS: list[int] = []
WAITING = [0, 0]


@pytest.fixture(autouse=True)
def no_calls() -> None:
    CALLS.clear()
    WAITING[:] = 0, 0


def run(function: Any, directory: Path, options: Mapping[str, str], count: int = 1) -> list[Any]:
    """The results of a function for numbers from 0; tasks run in this process."""
    env = environment(1)
    for name, value in {"retry_delay": "1 ms", **options}.items():
        env.get_config().set(PREFIX + name.replace("_", "-"), value)
    table = env.from_elements([(number,) for number in range(count)], ["n"])
    made = table.select(udf(function, result_type="INT")(col("n")))
    session = env.session
    end = session.collected(made.plan, str(directory))
    MiniCluster(session.program.graph_of([end], "test")).run()
    return list(read_collected(directory))


def failing(times: int) -> Callable[[int], Any]:
    """A function that raises as often as that."""

    async def function(number: int) -> int:
        from tests.table.test_async_functions import CALLS as CALLED

        CALLED.append(number)
        if len(CALLED) <= times:
            message = "not yet"
            raise ConnectionError(message)
        return number + 7

    return function


@pytest.mark.both_engines
@pytest.mark.parametrize(
    ("options", "times"),
    [({}, 0), ({}, 3), ({"max_attempts": "1"}, 1), ({"max_attempts": "5"}, 5)],
)
def test_a_call_that_raises_is_repeated(
    options: dict[str, str], times: int, tmp_path: Path
) -> None:
    assert [tuple(row) for row in run(failing(times), tmp_path, options)] == [(7,)]
    assert len(CALLS) == times + 1


@pytest.mark.parametrize(
    ("options", "attempts"),
    [({}, 4), ({"max_attempts": "2"}, 3), ({"retry_strategy": "NO_RETRY"}, 1)],
)
def test_the_job_fails_after_the_last_attempt(
    options: dict[str, str], attempts: int, tmp_path: Path
) -> None:
    with pytest.raises(UserFunctionError, match="ConnectionError: not yet"):
        run(failing(100), tmp_path, options)
    assert len(CALLS) == attempts


def test_a_row_has_a_time_for_all_attempts(tmp_path: Path) -> None:
    async def waits(_: int) -> int:
        await asyncio.Event().wait()
        return 1

    with pytest.raises(UserFunctionError, match="has timed out for input: \\[0\\]; it has 20 ms"):
        run(waits, tmp_path, {"timeout": "20 ms"})


@pytest.mark.parametrize(("options", "most"), [({}, 10), ({"max_concurrent_operations": "3"}, 3)])
def test_so_many_calls_wait_at_a_time(options: dict[str, str], most: int, tmp_path: Path) -> None:
    async def function(number: int) -> int:
        from tests.table.test_async_functions import WAITING as NOW

        NOW[0] += 1
        NOW[1] = max(NOW)
        for _ in range(3):  # of the event loop
            await asyncio.sleep(0)
        NOW[0] -= 1
        return number

    found = run(function, tmp_path, options, count=40)
    assert found == [Row(_c0=number) for number in range(40)]
    assert 1 < WAITING[1] <= most


def test_options_that_make_no_sense_are_refused() -> None:
    env = environment(1)
    with pytest.raises(ConfigurationError):
        env.execute_sql(f"SET '{PREFIX}retry-strategy' = 'SOMETIMES'")
