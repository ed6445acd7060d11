"""All built-in functions by name or alias, without regard to case."""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from typing import TYPE_CHECKING, Final

from millstream.errors import ProgramError
from millstream.expressions.functions import (
    aggregate,
    arithmetic,
    bitmap,
    collection,
    comparison,
    conditional,
    conversion,
    json,
    string_encodings,
    strings,
    temporal,
    temporal_formats,
)
from millstream.expressions.functions.definition import FunctionGroup

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.expressions.functions.definition import FunctionDefinition


#: In the order of Flink's reference.  A module's functions count when they are in here.
_GROUPS: Final = (
    comparison.functions,
    comparison.logical,
    arithmetic.functions,
    strings.functions,
    string_encodings.functions,
    temporal.functions,
    temporal_formats.functions,
    conditional.functions,
    conversion.functions,
    collection.functions,
    json.functions,
    json.variants,
    collection.construction,
    aggregate.grouping,
    string_encodings.hashes,
    bitmap.functions,
    aggregate.functions,
)


def function_groups() -> list[FunctionGroup]:
    """The groups, in the order of Flink's reference."""
    groups: dict[str, FunctionGroup] = {}
    for listed in _GROUPS:
        group = groups.setdefault(listed.name, FunctionGroup(listed.name))
        group.definitions.extend(listed.definitions)
    return list(groups.values())


@cache
def built_in_functions() -> Mapping[str, FunctionDefinition]:
    """Every name and alias, in upper case, with its definition.

    Raises:
        ValueError: two functions have one name.
    """
    found: dict[str, FunctionDefinition] = {}
    for group in function_groups():
        for definition in group.definitions:
            for name in (definition.name, *definition.aliases):
                if name in found:
                    message = f"two functions are called {name}"
                    raise ValueError(message)
                found[name] = definition
    return found


def find_function(name: str) -> FunctionDefinition | None:
    """The built-in function of that name or alias, whatever its case; None if there is none."""
    functions = built_in_functions()
    return functions.get(name) or functions.get(name.upper())


def get_function(name: str) -> FunctionDefinition:
    """The built-in function of that name.

    Raises:
        ProgramError: there is none; the message has the names that are most like it.
    """
    found = find_function(name)
    if found is None:
        close = get_close_matches(name.upper(), built_in_functions(), n=3)
        hint = f"; did you mean {' or '.join(close)}?" if close else ""
        message = f"there is no function {name}{hint}"
        raise ProgramError(message)
    return found
