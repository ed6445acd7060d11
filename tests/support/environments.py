"""Environments and waiting for tests of jobs, whatever the engine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["environments", "wait_until"]

_POLL_SECONDS = 0.02


def environments(
    directory: Path, engine: dict[str, str]
) -> Callable[..., StreamExecutionEnvironment]:
    """What makes an environment of a parallelism, with settings.

    Args:
        directory: of the test.
        engine: the settings that choose the engine.
    """
    entries = {
        **engine,
        "millstream.local-directory": str(directory / "local"),
        "millstream.checkpoint.fsync": "false",
        "millstream.progress": "off",
        "restart-strategy.type": "none",
    }

    def environment(
        parallelism: int = 2, settings: dict[str, str] | None = None
    ) -> StreamExecutionEnvironment:
        configuration = Configuration()
        for key, value in {**entries, **(settings or {})}.items():
            configuration.set_string(key, value)
        env = StreamExecutionEnvironment.get_execution_environment(configuration)
        return env.set_parallelism(parallelism)

    return environment


def wait_until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    """Wait for a condition, with a deadline that only a failure reaches."""
    limit = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < limit, f"not within {seconds:.0f} s: {what}"
        time.sleep(_POLL_SECONDS)
