"""TO_CHANGELOG and FROM_CHANGELOG as operators.

What it is: the factory of a physical node.
What it is not: their arguments (``sql/binder/changelogs.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.runtime.operators.table.base import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE
from millstream.runtime.operators.table.changelog_codes import (
    FromChangelogFactory,
    ToChangelogFactory,
)

if TYPE_CHECKING:
    from millstream.contracts.operator import OperatorFactory
    from millstream.sql.planner.physical_changelogs import ChangelogFunction

__all__ = ["changelog_factory"]

_KINDS: Final = {
    "INSERT": INSERT,
    "UPDATE_BEFORE": UPDATE_BEFORE,
    "UPDATE_AFTER": UPDATE_AFTER,
    "DELETE": DELETE,
}


def changelog_factory(node: ChangelogFunction) -> OperatorFactory:
    """What makes the operator of a node."""
    if node.column is None:
        return ToChangelogFactory(tuple((int(_KINDS[kind]), code) for kind, code in node.codes))
    kinds = tuple((code, int(_KINDS[kind])) for kind, code in node.codes)
    return FromChangelogFactory(node.column, kinds)
