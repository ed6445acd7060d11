"""Environments on the local engine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Seconds.  Only a test that hangs waits so long.
DEADLINE = 120.0


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., StreamExecutionEnvironment]:
    """Make an environment of a parallelism, with settings."""

    def environment(
        parallelism: int = 2, settings: dict[str, str] | None = None
    ) -> StreamExecutionEnvironment:
        configuration = Configuration()
        entries = {
            "execution.target": "local",
            "millstream.local-directory": str(tmp_path / "local"),
            "millstream.checkpoint.fsync": "false",
            "millstream.progress": "off",
            "restart-strategy.type": "none",
        }
        for key, value in {**entries, **(settings or {})}.items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        return env.set_parallelism(parallelism)

    return environment


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""

    def wait(condition: Callable[[], bool], what: str) -> None:
        limit = time.monotonic() + DEADLINE
        while not condition():
            assert time.monotonic() < limit, f"not within {DEADLINE:.0f} s: {what}"
            time.sleep(0.02)

    return wait
