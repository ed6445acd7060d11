"""Key columns: the key selector of tables, which says which columns the key is made of.

What it is: what an edge partitioned by key has for a selector where the stream is a table.  Both
ends of the edge read the columns as they are, see ``runtime/columnar/row_groups.py``.

What it is not: for records that are no columns: it refuses to be called.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.errors import ProgramError

__all__ = ["KeyColumns"]


@dataclass(frozen=True, slots=True)
class KeyColumns:
    """The positions of the columns that make up the key; none: all rows have the same key."""

    indexes: tuple[int, ...]

    def __call__(self, record: object) -> object:
        """Refuse.

        Raises:
            ProgramError: always: keys of tables are read from columns.
        """
        message = f"the key of a table is columns {list(self.indexes)}, not a part of {record!r}"
        raise ProgramError(message)
