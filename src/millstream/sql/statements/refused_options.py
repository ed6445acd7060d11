"""Refuse options with which a statement would give other results than in Flink."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.errors import UnsupportedSqlError

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration

__all__ = ["refuse_options"]


def refuse_options(configuration: Configuration) -> None:
    """Check the options of a session (``configuration/flink_options.py`` lists those refused).

    Raises:
        UnsupportedSqlError: an option has a value that is not in this release.
    """
    refusal = configuration.refusal()
    if refusal is not None:
        raise UnsupportedSqlError(refusal)
