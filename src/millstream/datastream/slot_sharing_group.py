"""SlotSharingGroup: accepted so that PyFlink programs run; Spark places tasks.

What it is: a name.  What it is not: a request for resources.

Read next: ``datastream/named_operator.py``.
"""

from __future__ import annotations

__all__ = ["SlotSharingGroup"]


class SlotSharingGroup:
    """A named group; has no effect."""

    def __init__(self, name: str = "default") -> None:
        """Take the name."""
        self._name = name

    def get_name(self) -> str:
        """The name."""
        return self._name
