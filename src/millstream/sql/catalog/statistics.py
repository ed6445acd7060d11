"""Statistics of tables and partitions: how many rows there are, and what columns hold.

What it is: what somebody has said of a table, under PyFlink's names; a catalog keeps it, and
EXPLAIN ESTIMATED_COST goes by the number of rows.
What it is not: measured by anybody here.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from millstream.errors import CatalogError
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CatalogColumnStatistics", "CatalogTableStatistics"]

_UNKNOWN: Final = -1
#: What can be said of a column.
_FIGURES: Final = (
    "min",
    "max",
    "ndv",
    "null_count",
    "avg_length",
    "max_length",
    "true_count",
    "false_count",
)


@dataclass(frozen=True, slots=True)
class CatalogTableStatistics:
    """How large a table, or a partition of one, is; None: nobody knows."""

    row_count: int | None = None
    #: Of files; the name is PyFlink's.
    field_count: int | None = None
    #: Bytes, as they are kept.
    total_size: int | None = None
    #: Bytes, before they are compressed.
    raw_data_size: int | None = None
    properties: Mapping[str, str] | None = None

    def get_row_count(self) -> int:
        """How many rows there are; -1 if nobody knows."""
        return _known(self.row_count)

    def get_field_count(self) -> int:
        """How many files there are; -1 if nobody knows."""
        return _known(self.field_count)

    def get_total_size(self) -> int:
        """How many bytes are kept; -1 if nobody knows."""
        return _known(self.total_size)

    def get_raw_data_size(self) -> int:
        """How many bytes there are before they are compressed; -1 if nobody knows."""
        return _known(self.raw_data_size)

    def get_properties(self) -> dict[str, str]:
        """What else was said."""
        return dict(self.properties or {})

    def copy(self) -> CatalogTableStatistics:
        """The same again."""
        return replace(self)


def _known(value: int | None) -> int:
    return _UNKNOWN if value is None else value


@dataclass(frozen=True, slots=True)
class CatalogColumnStatistics:
    """What the columns of a table, or of a partition of one, hold.

    Args:
        column_statistics_data: by column, figures by name: ``min``, ``max``, ``ndv`` (different
            values), ``null_count``, ``avg_length``, ``max_length``, ``true_count``,
            ``false_count``; as many of them as are known.
        properties: what else is to be kept.

    Raises:
        CatalogError: a figure has another name.
    """

    column_statistics_data: Mapping[str, Mapping[str, object]] | None = None
    properties: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        """Check the names of the figures."""
        for column, figures in self.get_column_statistics_data().items():
            for name in figures:
                if name not in _FIGURES:
                    hint = did_you_mean(name, _FIGURES)
                    message = (
                        f"Statistics of column '{column}' have no '{name}'.{hint} There are: "
                        f"{listed(_FIGURES)}."
                    )
                    raise CatalogError(message)

    def get_column_statistics_data(self) -> dict[str, dict[str, object]]:
        """The figures of each column of which something is known."""
        return {name: dict(each) for name, each in (self.column_statistics_data or {}).items()}

    def get_properties(self) -> dict[str, str]:
        """What else was said."""
        return dict(self.properties or {})

    def copy(self) -> CatalogColumnStatistics:
        """The same again."""
        return replace(self)
