"""Sections of state: what an operator keeps, in which layout, as a checkpoint records it.

What it is: plain data that an operator's factory gives (``state_sections``), that manifests carry,
and by which a program is compared with a checkpoint before any of its state is opened.

What it is not: the state, nor the names of the user's states within an operator: these are
recorded as the operator meets them (``KeyedState.described``).

Read next: ``checkpoint/program.py``, ``runtime/operators/windows/sections.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = [
    "FUNCTION_STATES",
    "StateSection",
    "describe_type",
    "section_from_json",
    "section_to_json",
]


@dataclass(frozen=True, slots=True)
class StateSection:
    """One thing that an operator keeps.

    Contract:
      1. A program that has a section of this name with other ``layout``, ``version`` or
         ``details`` would not find what is stored, or take it for something else.  (nobody)
      2. All texts are for people too: the error that refuses such a program has them.  (nobody)
    """

    #: What it is, among what the operator keeps: "windows".
    name: str
    #: How it is laid out: "panes of partial aggregates".
    layout: str
    #: Of the layout.
    version: int = 1
    #: What else decides whether it is found and understood: "content" -> "reduce".
    details: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Layout and details in a line."""
        rest = [f"{key}: {value}" for key, value in self.details.items()]
        version = f" (version {self.version})" if self.version > 1 else ""
        return "; ".join([f"{self.layout}{version}", *rest])


#: What functions keep by name; found by name, whatever the function is.
FUNCTION_STATES: Final = StateSection("states of the function", "by key and name")


def section_to_json(section: StateSection) -> dict[str, object]:
    """What a manifest, or a store, says of a section."""
    return {
        "name": section.name,
        "layout": section.layout,
        "version": section.version,
        "details": section.details,
    }


def section_from_json(value: Mapping[str, Any]) -> StateSection:
    """The section that ``value`` says.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it does not have the form of one.
    """
    return StateSection(
        name=str(value["name"]),
        layout=str(value["layout"]),
        version=int(value["version"]),
        details={str(key): str(text) for key, text in value["details"].items()},
    )


#: The type of values that are pickled, whatever they are.
_ANYTHING: Final = "PickledByteArrayTypeInfo"


def describe_type(type_info: object) -> str | None:
    """A declared type as it is recorded; None if nothing was declared or it says nothing."""
    if type_info is None:
        return None
    text = str(type_info)
    return None if text == _ANYTHING else text
