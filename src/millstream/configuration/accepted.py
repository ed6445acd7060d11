"""Options of PyFlink's that mean nothing here: accepted, and each said once.

What it is: what a setter calls that has nothing to set, so that whoever relies on it learns of it.
What it is not: for options that would change results; those are refused.
"""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["accept"]

_LOG: Final = logging.getLogger("millstream")
_said: Final[set[tuple[str, str]]] = set()


def accept(option: str, reason: str) -> None:
    """Say, once per process, that an option has no effect.

    Args:
        option: as the program writes it, such as ``set_buffer_timeout()``.
        reason: why it needs none.
    """
    if (option, reason) not in _said:
        _said.add((option, reason))
        _LOG.warning("%s has no effect, %s", option, reason)
