"""Environments on the local engine."""

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
DEADLINE = 120.0


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., StreamExecutionEnvironment]:
    """Make an environment of a parallelism, with settings."""
    return environments(tmp_path, {"execution.target": "local"})


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return partial(wait_until, seconds=DEADLINE)
