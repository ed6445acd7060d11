"""Checks of calls whose constant arguments decide whether they make sense, as in Flink."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.errors import ProgramError
from millstream.expressions.nodes import Literal
from millstream.types.logical_types import SymbolType
from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.nodes import Expression

__all__ = ["check_constants"]

_OF_DAY: Final = frozenset({"HOUR", "MINUTE", "SECOND", "MILLISECOND"})
_MONTHS: Final = frozenset({"YEAR", "QUARTER", "MONTH", "DECADE", "CENTURY", "MILLENNIUM"})
_FINEST: Final = frozenset({"MICROSECOND", "NANOSECOND"})
_NUMBERS: Final = frozenset({"EPOCH", "DOW", "DOY", "ISODOW"})
_SHA2: Final = frozenset({224, 256, 384, 512})
_ADDED: Final = frozenset({"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", *_OF_DAY})


def check_constants(function: str, arguments: Sequence[Expression]) -> None:
    """Refuse constants that a function does not go with.

    Args:
        function: the name of the built-in function.
        arguments: of the call, which has a signature.

    Raises:
        ProgramError: a unit is none of a type, or an index is negative.
    """
    units = [
        each.value
        for each in arguments
        if isinstance(each, Literal) and isinstance(each.type, SymbolType)
    ]
    if function == "EXTRACT" and units:
        _check_part(str(units[0]), arguments[1])
    elif function in {"CEIL", "FLOOR"} and units and units[0] in _NUMBERS:
        message = f"{function}: nothing can be rounded to {units[0]}, which is a number."
        raise ProgramError(message)
    elif function == "TIMESTAMPADD" and units and units[0] not in _ADDED:
        message = f"TIMESTAMPADD: {units[0]} cannot be added; take one of {_listed(_ADDED)}."
        raise ProgramError(message)
    elif function == "SHA2" and isinstance(arguments[1], Literal):
        bits = arguments[1].value
        if bits is not None and bits not in _SHA2:
            message = f"SHA2: there are 224, 256, 384 and 512 bits, not {bits}."
            raise ProgramError(message)
    elif function == "ELT" and isinstance(arguments[0], Literal):
        index = arguments[0].value
        if isinstance(index, int) and index < 0:
            message = f"ELT: the index begins at 1; {index} is no index."
            raise ProgramError(message)


def _check_part(unit: str, operand: Expression) -> None:
    root = operand.type.root
    wrong = False
    if root is TypeRoot.DATE:
        wrong = unit in _FINEST
    elif root is TypeRoot.TIME_WITHOUT_TIME_ZONE:
        wrong = unit not in _OF_DAY
    elif root is TypeRoot.INTERVAL_YEAR_MONTH:
        wrong = unit not in _MONTHS
    if wrong:
        shown = operand.type.as_summary_string()
        message = f"EXTRACT: unit {unit} can not be applied to {shown}."
        raise ProgramError(message)


def _listed(units: frozenset[str]) -> str:
    return ", ".join(sorted(units))
