"""ExplainDetail, and the methods of all that has a plan to show."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum


class ExplainDetail(Enum):
    """A detail that a plan shows beside its nodes."""

    ESTIMATED_COST = 0
    CHANGELOG_MODE = 1
    JSON_EXECUTION_PLAN = 2
    PLAN_ADVICE = 3


class Explainable(ABC):
    """Something that has a plan."""

    @abstractmethod
    def _explained(self, details: tuple[str, ...]) -> str:
        """Return the plan with details of these names."""

    def explain(self, *extra_details: ExplainDetail | str) -> str:
        """Return the plan as text.

        Args:
            extra_details: ExplainDetail.CHANGELOG_MODE and others.
        """
        return self._explained(detail_names(extra_details))

    def print_explain(self, *extra_details: ExplainDetail | str) -> None:
        """Print the plan.

        Args:
            extra_details: as for ``explain``.
        """
        print(self.explain(*extra_details))  # noqa: T201 - what it is for


def detail_names(details: tuple[ExplainDetail | str, ...]) -> tuple[str, ...]:
    """Return the names of details of a plan, which may be given as text."""
    return tuple(getattr(each, "name", str(each)) for each in details)
