"""Waiting for jobs."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest
from tests.support.environments import wait_until

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds.  Only a test that hangs waits so long.
DEADLINE = 120.0


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return partial(wait_until, seconds=DEADLINE)
