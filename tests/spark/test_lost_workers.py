"""A Python worker of Spark's that user code ends is named with what it had last."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import cloudpickle
import pytest
from tests.local import test_last_given
from tests.local.test_last_given import Crashes, exits, timed
from tests.support.environments import environments

from millstream.common import Types
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import RestartStrategies
from millstream.errors import JobError, WorkerLostError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession
    from tests.local.test_last_given import Build

pytestmark = pytest.mark.spark

EXECUTIONS = pytest.mark.parametrize("execution", ["epochs", "pipelined"])


@pytest.fixture(autouse=True)
def _functions() -> Iterator[None]:
    """Ship what the workers cannot import."""
    cloudpickle.register_pickle_by_value(test_last_given)
    yield
    cloudpickle.unregister_pickle_by_value(test_last_given)


def lost(directory: Path, execution: str, build: Build, restarts: int = 0) -> str:
    env = environments(directory, {"millstream.execution": execution})(2, {})
    if restarts:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(restarts, 1))
    build(env.from_sequence(1, 60)).sink_to(BlackholeSink())
    with pytest.raises((WorkerLostError, JobError)) as caught:
        env.execute("lost")
    return str(caught.value)


@EXECUTIONS
def test_operator_and_record_are_named(execution: str, spark: SparkSession, tmp_path: Path) -> None:
    message = lost(tmp_path, execution, lambda s: s.map(exits, Types.LONG()).name("last"))
    assert message.endswith(" with record 33"), message
    assert "; it was last in operator 'last' (test_lost_workers.py:" in message


@EXECUTIONS
def test_a_crash_in_a_timer_names_the_timer_when_it_comes_again(
    execution: str, spark: SparkSession, tmp_path: Path
) -> None:
    message = lost(tmp_path, execution, timed(Crashes().map), restarts=1)
    found = re.search(r"in operator 'last' \((.*):\d+\) with the timer for 33 of key 0$", message)
    assert found is not None, message
