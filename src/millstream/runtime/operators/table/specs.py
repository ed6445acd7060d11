"""Parameters that factories of table operators share, and descriptions of their state.

Columns are positions in the operator's input, which has all that is computed already: a Calc
upstream evaluates arguments and filters.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final

from millstream.contracts.operator import StateSection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.user_functions import UserAggregate
    from millstream.types.logical_types import LogicalType, RowType


#: Flink's have no merge(), for the same reason.
_BY_ARRIVAL: Final = frozenset({"FIRST_VALUE", "LAST_VALUE"})


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """One aggregate of a query.

    ``function`` is one of ``SUPPORTED_AGGREGATES`` (``runtime/columnar/changelog_aggregates.py``),
    in capitals.  COUNT without arguments counts rows.  LISTAGG has its separator, a constant
    column, as second argument; without it, it is a comma.
    """

    function: str
    arguments: tuple[int, ...]
    #: Of the result.
    type: LogicalType
    #: A BOOLEAN column: only rows count for which it is true.
    filter: int | None = None
    distinct: bool = False
    #: ARRAY_AGG: whether nulls are left out.  (Others have the rule of their function.)
    ignore_nulls: bool = False
    #: The function, if it is a user's; ``function`` is its name then.
    user: UserAggregate | None = None

    @property
    def goes_by_arrival(self) -> bool:
        """Return whether its result depends on which row came first, so that slices hide it."""
        return self.user is None and self.function in _BY_ARRIVAL


@dataclass(frozen=True, slots=True)
class SortColumn:
    """A column that rows are ordered by.  In Flink nulls are the lowest values."""

    index: int
    descending: bool = False
    #: None: as the lowest values: first if ascending, last if descending.
    nulls_first: bool | None = None

    @property
    def has_nulls_first(self) -> bool:
        """Return whether nulls stand in front."""
        return not self.descending if self.nulls_first is None else self.nulls_first


class RankStrategy(Enum):
    """How a Top-N keeps up with its input."""

    #: The input is inserts only: rows after the N-th are forgotten.
    APPEND = "append"
    #: The input has updates and deletions: all rows are kept.
    RETRACT = "retract"
    #: The input updates rows by a key, and their order only ever moves them forward.
    UPDATE_FAST = "update fast"


class JoinKind(Enum):
    """The treatment of rows without a match by a join."""

    INNER = "inner"
    LEFT = "left"
    RIGHT = "right"
    FULL = "full"
    SEMI = "semi"
    ANTI = "anti"


@dataclass(frozen=True, slots=True)
class JoinSide:
    """One input of a join."""

    #: The columns that are to be equal to those of the other side.
    keys: tuple[int, ...]
    #: The smallest known key of its rows, None if there is none; it decides what is kept.
    unique_key: tuple[int, ...] | None = None

    @property
    def is_one_per_key(self) -> bool:
        """Return whether no two of its rows have the same join key."""
        return self.unique_key is not None and set(self.unique_key) <= set(self.keys)


# -- what is recorded of the state of operators ---


def columns_text(row_type: RowType) -> str:
    """Return the types of columns."""
    return ", ".join(str(field.type) for field in row_type)


def calls_text(calls: Sequence[AggregateCall]) -> str:
    """Return aggregate calls as a query has them."""
    return "; ".join(map(_call_text, calls))


def _call_text(call: AggregateCall) -> str:
    distinct = "DISTINCT " if call.distinct else ""
    arguments = ", ".join(map(str, call.arguments))
    condition = "" if call.filter is None else f" FILTER {call.filter}"
    return f"{call.function}({distinct}{arguments}){condition} {call.type}"


def order_text(order: Sequence[SortColumn]) -> str:
    """Return an order."""
    return ", ".join(map(str, order))


def one_row_section(row_type: RowType) -> StateSection:
    """Return the entry of an operator that keeps one row per key."""
    return StateSection("rows", "packed row by key", details={"columns": columns_text(row_type)})


def joined_section(
    name: str,
    left: RowType,
    right: RowType,
    keys: Sequence[str] = ("", ""),
    layout: str = "packed rows by join key",
) -> StateSection:
    """Return the entry of a join: the rows of both sides, and the keys they are kept by."""
    details = {"left": columns_text(left) + keys[0], "right": columns_text(right) + keys[1]}
    return StateSection(name, layout, details=details)


def ordered_section(
    name: str, layout: str, row_type: RowType, order: Sequence[SortColumn]
) -> StateSection:
    """Return the entry of an operator that keeps rows in an order."""
    columns = ", ".join(f"{each.name} {each.type.as_summary_string()}" for each in row_type.fields)
    return StateSection(name, layout, details={"columns": columns, "order": order_text(order)})
