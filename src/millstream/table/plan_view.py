"""PlanView: a table of the Table API, or a stream, under a name of a catalog."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from millstream.sql.catalog.columns import PhysicalColumn
from millstream.sql.catalog.objects import CatalogBaseTable
from millstream.sql.catalog.schema import ResolvedSchema

if TYPE_CHECKING:
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["PlanView"]


@dataclass(frozen=True, kw_only=True)
class PlanView(CatalogBaseTable):
    """A table of the Table API, or a stream, under a name of a catalog."""

    plan: LogicalNode

    @staticmethod
    def of(plan: LogicalNode) -> PlanView:
        """A view of a plan."""
        columns = tuple(PhysicalColumn(each.name, each.type) for each in plan.row.fields)
        return PlanView(schema=ResolvedSchema(columns), plan=plan)

    @property
    def is_view(self) -> bool:
        """It is."""
        return True
