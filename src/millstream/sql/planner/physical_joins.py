"""Physical nodes of joins that are not of two changelogs: with what is looked up, and by time.

What it is: further nodes as those of ``sql/planner/physical.py``.
What it is not: the rules that make them (``lookup_joins.py``, ``joins.py``, ``temporal_joins.py``).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from millstream.sql.planner.logical import LookupHint
from millstream.sql.planner.physical import PhysicalNode, TwoInputs
from millstream.sql.planner.texts import columns_text, expression_text, right_name

if TYPE_CHECKING:
    from millstream.expressions.nodes import Expression
    from millstream.sql.catalog.connectors import TableLookup
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.planner.logical import JoinType
    from millstream.types.logical_types import RowType

__all__ = ["IntervalJoin", "LookupJoin", "TemporalJoin"]


@dataclass(eq=False, kw_only=True)
class LookupJoin(PhysicalNode):
    """Each row of the left with the rows of a table outside as it is now."""

    join: JoinType
    identifier: ObjectIdentifier
    table: CatalogTable
    lookup: TableLookup
    #: The columns that the table gives, and those that it is asked by.
    table_row: RowType
    names: tuple[str, ...]
    #: The columns of the left with the values.
    keys: tuple[int, ...]
    #: What the keys are, for people.
    texts: tuple[str, ...]
    #: Over the columns of the table: the columns of the right, and which rows count.
    right_row: RowType
    projections: tuple[Expression, ...]
    table_condition: Expression | None
    #: Over both sides, beside the keys.
    condition: Expression | None
    #: Whether there is at most one row for a key.
    is_one_row: bool
    hint: LookupHint = field(default=LookupHint())
    kind: ClassVar[str] = "LookupJoin"

    def details(self) -> str:
        pairs = zip(self.names, self.texts, strict=True)
        path = self.identifier.as_summary_string()
        if len(self.table_row) < len(self.table.schema.stored):
            path += f", project=[{', '.join(self.table_row.names)}]"
        parts = [
            f"table=[{path}]",
            f"joinType=[{self.join.value}]",
            f"lookup=[{', '.join(f'{name}={text}' for name, text in pairs)}]",
        ]
        if self.table_condition is not None:
            parts.append(f"where=[{expression_text(self.table_condition)}]")
        if self.condition is not None:
            parts.append(f"joinCondition=[{expression_text(self.condition)}]")
        return ", ".join([*parts, f"select=[{self.fields_text()}]"]) + self.hint.text


@dataclass(eq=False, kw_only=True)
class IntervalJoin(TwoInputs):
    """Pairs of rows whose times are near each other."""

    left_time: int
    right_time: int
    #: Milliseconds: right - left lies between them.
    lower: int
    upper: int
    is_rowtime: bool
    kind: ClassVar[str] = "IntervalJoin"

    def details(self) -> str:
        bounds = (
            f"isRowTime={str(self.is_rowtime).lower()}, leftLowerBound={-self.upper}, "
            f"leftUpperBound={-self.lower}, leftTimeIndex={self.left_time}, "
            f"rightTimeIndex={self.right_time}"
        )
        return (
            f"joinType=[{self.join.value}], windowBounds=[{bounds}], where=[{self.where()}], "
            f"select=[{self.fields_text()}]"
        )


@dataclass(eq=False, kw_only=True)
class TemporalJoin(TwoInputs):
    """Each row of the left with the version of the right at its event time."""

    left_time: int
    right_time: int
    kind: ClassVar[str] = "TemporalJoin"

    def details(self) -> str:
        left, right = (each.row for each in self.inputs)
        ours = columns_text(left, self.left_keys)
        theirs = ", ".join(right_name(left, right, each) for each in self.right_keys)
        condition = (
            f"__TEMPORAL_JOIN_CONDITION({left.names[self.left_time]}, "
            f"{right_name(left, right, self.right_time)}, "
            f"__TEMPORAL_JOIN_CONDITION_PRIMARY_KEY({theirs}), "
            f"__TEMPORAL_JOIN_LEFT_KEY({ours}), __TEMPORAL_JOIN_RIGHT_KEY({theirs}))"
        )
        where = self.where(condition)
        return f"joinType=[{self.join.value}], where=[{where}], select=[{self.fields_text()}]"
