"""Environments on the Spark session of all tests."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import cloudpickle
import pytest
from tests.support.environments import environments, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import ModuleType

    from pyspark.sql import SparkSession

    from millstream.datastream import StreamExecutionEnvironment

JOB: Final = Path(__file__).parent / "counting_job.py"
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
def job() -> Iterator[ModuleType]:
    """``counting_job``, whose functions go to the workers by value."""
    specification = importlib.util.spec_from_file_location("counting_job", JOB)
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    sys.modules["counting_job"] = module
    specification.loader.exec_module(module)
    cloudpickle.register_pickle_by_value(module)
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules["counting_job"]


@pytest.fixture
def make(spark: SparkSession, tmp_path: Path) -> Callable[..., StreamExecutionEnvironment]:
    """Make an environment of a parallelism, with settings."""
    return environments(tmp_path, {})


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return partial(wait_until, seconds=DEADLINE)
