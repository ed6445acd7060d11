"""Environments on the pipelined engine, in processes of this machine."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import environments, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

#: Seconds.  Only a test that hangs waits so long.
DEADLINE = 60.0


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., StreamExecutionEnvironment]:
    """Make an environment of a parallelism, with settings."""
    engine = {"execution.target": "local", "millstream.execution": "pipelined"}
    return environments(tmp_path, engine)


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return partial(wait_until, seconds=DEADLINE)
