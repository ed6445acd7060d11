"""CompiledPlan: planned INSERTs that can be stored and executed later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.statements import plans
from millstream.table.explain_detail import Explainable
from millstream.table.table_result import TableResult

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.sql.statements.plans import Plan
    from millstream.table.building import HasSession


class CompiledPlan(Explainable):
    """A plan that does not change any more, with the names under which operators keep state."""

    def __init__(self, plan: Plan, t_env: HasSession) -> None:
        """Made by TableEnvironment."""
        self._plan = plan
        self._t_env = t_env

    def __str__(self) -> str:
        """As ``explain``."""
        return self.explain()

    def as_json_string(self) -> str:
        """The plan as JSON."""
        return self._plan.text

    def print_json_string(self) -> None:
        """Print the plan as JSON."""
        print(self.as_json_string())  # noqa: T201 - what it is for

    def write_to_file(
        self,
        file: str | Path,
        ignore_if_exists: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        """Write the plan as JSON.

        Args:
            file: the path.
            ignore_if_exists: a file that is there already is left as it is.

        Raises:
            ValidationError: there is a file, or it cannot be written.
        """
        session = self._t_env.session
        plans.written(session, lambda: self._plan, str(file), keep=ignore_if_exists)

    def get_flink_version(self) -> str:
        """The release of Millstream that compiled the plan."""
        return self._plan.release

    def execute(self) -> TableResult:
        """Start the job."""
        return TableResult(plans.run_plan(self._t_env.session, self._plan))

    def _explained(self, details: tuple[str, ...]) -> str:
        return plans.explained(self._t_env.session, self._plan, details)
