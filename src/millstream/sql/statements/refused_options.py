"""Options of Flink's that change what a query gives, and which are not here.

What it is: for each option the values with which results are those of this release; others are
refused, not waved away.
What it is not: options that are honoured (``configuration/options.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import UnsupportedSqlError

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration

__all__ = ["refuse_options"]

#: Key: values that are taken, and what to do instead.
_TAKEN: Final[dict[str, tuple[tuple[str, ...], str]]] = {
    "table.sql-dialect": (("default",), "statements are in Flink's default dialect"),
    "table.exec.sink.keyed-shuffle": (("auto", "none"), "rows of one key stay in order"),
    "table.exec.emit.early-fire.enabled": (("false",), "windows are given when they are over"),
    "table.exec.emit.late-fire.enabled": (("false",), "late rows are dropped"),
    "table.exec.emit.allow-lateness": (("0", "0 s", "0 ms"), "late rows are dropped"),
    "table.exec.deduplicate.insert-update-after-sensitive-enabled": (("true",), "it is always on"),
    "table.plan.compile.catalog-objects": (("all",), "plans hold their tables as a whole"),
    "table.plan.restore.catalog-objects": (("all",), "plans hold their tables as a whole"),
    "table.exec.legacy-cast-behaviour": (("disabled",), "CAST fails where it cannot convert"),
}


def refuse_options(configuration: Configuration) -> None:
    """Refuse what would give other results in Flink than here.

    Args:
        configuration: of the session.

    Raises:
        UnsupportedSqlError: an option has a value that is not in this release.
    """
    for key, (taken, instead) in _TAKEN.items():
        value = configuration.get_string(key, taken[0])
        if value.strip().lower() not in taken:
            message = f"Option '{key}' = '{value}' is not in this release: {instead}."
            raise UnsupportedSqlError(message)
