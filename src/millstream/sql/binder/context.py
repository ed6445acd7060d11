"""What the binder knows of the session: catalogs, options, functions of users.

What it is: the surroundings of a statement, and where an error finds its text.
What it is not: the session (``sql/statements/session.py``), which makes it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from millstream.configuration import options
from millstream.sql.binder.errors import validation_error

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.configuration.configuration import Configuration
    from millstream.errors import ValidationError
    from millstream.sql.catalog.manager import CatalogManager
    from millstream.sql.parser.syntax import Node
    from millstream.sql.planner.logical import LogicalNode

__all__ = ["BindingContext"]


@dataclass(frozen=True)
class BindingContext:
    """The surroundings of a statement."""

    catalogs: CatalogManager
    configuration: Configuration
    #: The statement's text, for errors; None: the Table API made it.
    text: str | None = None
    #: Tables that have no name in a catalog (inline tables of the Table API), by a made-up one.
    inline: Mapping[str, LogicalNode] = field(default_factory=dict)
    #: The views whose queries are being bound.
    views: tuple[tuple[str, ...], ...] = ()
    #: Takes, by the id of each ``*``, the names of the columns that it stands for.
    stars: dict[int, list[tuple[str, ...]]] | None = None

    @property
    def is_batch(self) -> bool:
        """Whether all rows are there before anything is given."""
        return self.configuration.get(options.RUNTIME_MODE) == "BATCH"

    def with_text(self, text: str | None) -> BindingContext:
        """The same for another statement."""
        return replace(self, text=text)

    def error(self, node: Node | None, message: str) -> ValidationError:
        """That ``node`` is wrong."""
        return validation_error(self.text, node, message)
