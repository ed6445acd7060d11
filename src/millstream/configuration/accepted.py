"""Options of PyFlink's that mean nothing here: accepted, and each said once.

One that would change results is refused instead.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["accept", "say_once"]

_LOG: Final = logging.getLogger("millstream")
_said: Final[set[str]] = set()


def say_once(text: str) -> None:
    """Warn of what a program does, once per process."""
    if text not in _said:
        _said.add(text)
        _LOG.warning("%s", text)


def accept(option: str, reason: str) -> None:
    """Say, once per process, that an option has no effect.

    Args:
        option: as the program writes it, such as ``set_buffer_timeout()``.
        reason: why it needs none.
    """
    say_once(f"{option} has no effect, {reason}")
