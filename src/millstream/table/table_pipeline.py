"""TablePipeline: the result of ``Table.insert_into``, executed alone or in a ``StatementSet``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.statements import plans
from millstream.sql.statements.show import explain_targets
from millstream.table.compiled_plan import CompiledPlan
from millstream.table.explain_detail import Explainable
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.statements.session import Target
    from millstream.table.building import HasSession


class TablePipeline(Explainable):
    """A table on its way into another."""

    def __init__(self, environment: HasSession, target: Target) -> None:
        """Made by ``Table.insert_into``."""
        self._environment = environment
        self.target = target

    def __str__(self) -> str:
        """Where it goes."""
        return f"TablePipeline[{self.target.identifier.as_summary_string()}]"

    def execute(self) -> TableResult:
        """Start the job."""
        return TableResult(self._environment.session.insert([self.target]))

    def compile_plan(self) -> CompiledPlan:
        """The plan, to be kept and run later.

        Raises:
            ValidationError: it is made of something that no text says.
        """
        plan = plans.compiled(self._environment.session, [self.target])
        return CompiledPlan(plan, self._environment)

    def _explained(self, details: tuple[str, ...]) -> str:
        return explain_targets(self._environment.session, [self.target], details)

    def get_sink_identifier(self) -> ObjectIdentifier | None:
        """The full name of the table that is written; None if it has none.

        Returns:
            The name.
        """
        identifier = self.target.identifier
        return None if identifier.object_name.startswith("*anonymous_") else identifier
