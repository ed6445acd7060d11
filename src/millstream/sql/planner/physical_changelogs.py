"""The physical node of TO_CHANGELOG and FROM_CHANGELOG.

What it is: a further node as those of ``sql/planner/physical.py``.
What it is not: the operators (``runtime/operators/table/changelog_codes.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from millstream.sql.planner.physical import PhysicalNode

__all__ = ["ChangelogFunction"]


@dataclass(eq=False, kw_only=True)
class ChangelogFunction(PhysicalNode):
    """Changes as rows with a code, or rows with a code as changes."""

    #: The column of the codes in the input; None: changes become rows.
    column: int | None
    #: Kinds of changes, by their names, with a code; a code stands once if it is read.
    codes: tuple[tuple[str, str], ...]
    kind: ClassVar[str] = "ProcessTableFunction"

    @property
    def function(self) -> str:
        """Its name in SQL."""
        return "TO_CHANGELOG" if self.column is None else "FROM_CHANGELOG"

    def details(self) -> str:
        codes = ", ".join(f"{kind}={code}" for kind, code in self.codes)
        return f"invocation=[{self.function}({codes})], select=[{self.fields_text()}]"
