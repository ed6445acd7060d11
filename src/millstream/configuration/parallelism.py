"""Parallelism: what may be set, and what holds where nothing is set."""

from __future__ import annotations

import os
from typing import Final

from millstream.errors import ProgramError

__all__ = [
    "MAX_PARALLELISM",
    "available_cores",
    "check_max_parallelism",
    "check_parallelism",
    "default_max_parallelism",
]

#: As in Flink: a key group has two bytes.
MAX_PARALLELISM: Final = 32768
#: The fewest key groups that are derived from a parallelism.
_LEAST_DERIVED: Final = 128


def check_parallelism(parallelism: int) -> int:
    """Return ``parallelism`` if it is a positive number; raises ProgramError."""
    if isinstance(parallelism, bool) or not isinstance(parallelism, int) or parallelism < 1:
        message = f"parallelism must be a positive number, not {parallelism!r}"
        raise ProgramError(message)
    return parallelism


def check_max_parallelism(max_parallelism: int) -> int:
    """Return ``max_parallelism`` if it is from 1 to 32768; raises ProgramError."""
    if (
        isinstance(max_parallelism, bool)
        or not isinstance(max_parallelism, int)
        or not 1 <= max_parallelism <= MAX_PARALLELISM
    ):
        message = f"max parallelism must be from 1 to {MAX_PARALLELISM}, not {max_parallelism!r}"
        raise ProgramError(message)
    return max_parallelism


def default_max_parallelism(parallelism: int) -> int:
    """Return the number of key groups of an operator for which the program sets none.

    As in Flink: 1.5 times the parallelism, rounded up to a power of two, from 128 to 32768.
    """
    wanted = parallelism + parallelism // 2
    return min(max(1 << (wanted - 1).bit_length(), _LEAST_DERIVED), MAX_PARALLELISM)


def available_cores() -> int:
    """The number of processor cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
