"""The output tag: the name and type of a side output.

A function yields it in front of a value (``yield tag, value``), and ``get_side_output`` takes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.types.type_information import check_type_argument

if TYPE_CHECKING:
    from millstream.types.types import TypeInformation


class OutputTag:
    """Names a side output.  Two tags with the same id are the same tag."""

    __slots__ = ("tag_id", "type_info")

    def __init__(self, tag_id: str, type_info: TypeInformation | None = None) -> None:
        """Name a side output.

        Args:
            tag_id: Its name, unique among the side outputs of one operator.
            type_info: The type of its records; untyped (pickled) if it is left out.

        Raises:
            ValueError: the name is empty or not a string.
            ProgramError: ``type_info`` is no type.
        """
        if not isinstance(tag_id, str) or not tag_id:
            message = f"the id of an OutputTag must be a string that is not empty, got {tag_id!r}"
            raise ValueError(message)
        self.tag_id = tag_id
        check_type_argument(type_info, f"the type of OutputTag {tag_id!r}")
        self.type_info = type_info

    def __eq__(self, other: object) -> bool:
        """Tags are equal when their ids are."""
        return isinstance(other, OutputTag) and self.tag_id == other.tag_id

    def __hash__(self) -> int:
        """Hash of the id."""
        return hash(self.tag_id)

    def __repr__(self) -> str:
        """``OutputTag('late')``."""
        return f"OutputTag({self.tag_id!r})"
