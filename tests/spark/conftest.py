"""Environments on the Spark session of all tests."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import cloudpickle
import pytest
from tests.support.environments import environments, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from millstream.datastream import StreamExecutionEnvironment

#: Seconds.  Only a test that hangs waits so long.
DEADLINE = 180.0


@pytest.fixture(autouse=True)
def _ship_test_modules(request: pytest.FixtureRequest) -> Iterator[None]:
    """Functions of test modules go to the workers by value: these cannot import the modules."""
    module = request.module
    cloudpickle.register_pickle_by_value(module)
    yield
    cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path) -> Callable[..., StreamExecutionEnvironment]:
    """Make an environment of a parallelism, with settings."""
    return environments(tmp_path, {})


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return partial(wait_until, seconds=DEADLINE)
