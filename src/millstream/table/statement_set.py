"""StatementSet: several INSERTs that run as one job and share common subplans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from millstream.errors import ProgramError, ValidationError
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.parser.parser import parse_statement
from millstream.sql.statements import plans
from millstream.sql.statements.show import explain_targets
from millstream.table.compiled_plan import CompiledPlan
from millstream.table.explain_detail import Explainable
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    from millstream.sql.statements.session import Target
    from millstream.table.building import HasSession
    from millstream.table.table import Table
    from millstream.table.table_descriptor import TableDescriptor
    from millstream.table.table_pipeline import TablePipeline


class StatementSet(Explainable):
    """Collects INSERTs; made by ``TableEnvironment.create_statement_set``."""

    def __init__(self, environment: HasSession) -> None:
        self._environment = environment
        self._targets: list[Target] = []

    def add_insert_sql(self, stmt: str) -> Self:
        """Add an INSERT INTO.

        Raises:
            ValidationError: it is none.
        """
        statement = parse_statement(stmt)
        if not isinstance(statement, syntax.Insert):
            message = "Only insert statement is supported now."
            raise ValidationError(message)
        self._targets.append(self._environment.session.target(statement, stmt))
        return self

    def add_insert(
        self,
        target_path_or_descriptor: str | TableDescriptor,
        table: Table,
        overwrite: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> Self:
        """Add a table that goes to the table of a path."""
        self._targets.append(table.target(target_path_or_descriptor, overwrite=overwrite))
        return self

    def add(self, table_pipeline: TablePipeline) -> Self:
        """Add a table that is on its way: ``table.insert_into(path)``."""
        self._targets.append(table_pipeline.target)
        return self

    def _explained(self, details: tuple[str, ...]) -> str:
        return explain_targets(self._environment.session, self._targets, details)

    def attach_as_datastream(self) -> None:
        """Make the INSERTs ends of the program, which ``env.execute()`` starts with its streams.

        Raises:
            ProgramError: there are no statements.
        """
        session = self._environment.session
        for each in session.sinks(self._taken()):
            session.program.add_transformation(each)

    def _taken(self) -> list[Target]:
        if not self._targets:
            message = "The statement set is empty; add_insert_sql() fills it."
            raise ProgramError(message)
        targets, self._targets = self._targets, []
        return targets

    def compile_plan(self) -> CompiledPlan:
        """Plan the INSERTs, to be kept and run later; the set is empty afterwards.

        Raises:
            ProgramError: there are no statements.
            ValidationError: they are made of something that no text says.
        """
        plan = plans.compiled(self._environment.session, self._taken())
        return CompiledPlan(plan, self._environment)

    def execute(self) -> TableResult:
        """Start the job; the set is empty afterwards.

        Raises:
            ProgramError: there are no statements.
        """
        return TableResult(self._environment.session.insert(self._taken()))
