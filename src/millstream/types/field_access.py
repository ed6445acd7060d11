"""Recognition of functions that only read one field of a record.

``lambda r: r.origin``, ``lambda r, t: r["time"]`` and ``operator.itemgetter(1)`` are known by their
bytecode, so key selectors and timestamp assigners of that form can read a whole Arrow column
instead of being called per record.
"""

from __future__ import annotations

import dis
import operator
import types
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from millstream.errors import ProgramError
from millstream.types.composite_types import (
    NamedTupleTypeInfo,
    RecordClassTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.type_information import TypeInformation


_NO_OPERATION: Final = frozenset({"RESUME", "NOP", "CACHE", "NOT_TAKEN"})
_CONSTANTS: Final = frozenset({"LOAD_CONST", "LOAD_SMALL_INT"})
_GETTER_STEPS: Final = 3
_ITEM_STEPS: Final = 4


def field_of(function: Callable[..., object]) -> str | int | None:
    """The one field that the function reads from its first argument and returns.

    Args:
        function: a function, lambda, bound method, attrgetter or itemgetter.

    Returns:
        The name (of an attribute, or a string in brackets) or the index (may be negative); None if
        the function does anything else.
    """
    if isinstance(function, operator.attrgetter | operator.itemgetter):
        return _of_getter(function)
    position = 0
    if isinstance(function, types.MethodType):
        position, function = 1, function.__func__
    if not isinstance(function, types.FunctionType):
        return None
    code = function.__code__
    if position >= code.co_argcount:
        return None
    return _of_code(code, code.co_varnames[position])


def _of_getter(getter: object) -> str | int | None:
    # Pickling knows them as (class, arguments).
    arguments = cast("tuple[object, tuple[object, ...]]", getter.__reduce__())[1]
    if len(arguments) != 1:
        return None
    field: object = arguments[0]
    if isinstance(getter, operator.attrgetter):
        return field if isinstance(field, str) and "." not in field else None
    return _constant(field)


def _constant(value: object) -> str | int | None:
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _of_code(code: types.CodeType, argument: str) -> str | int | None:
    steps = [step for step in dis.get_instructions(code) if step.opname not in _NO_OPERATION]
    if not steps or not steps[0].opname.startswith("LOAD_FAST") or steps[0].argval != argument:
        return None
    if steps[-1].opname != "RETURN_VALUE":
        return None
    if len(steps) == _GETTER_STEPS and steps[1].opname == "LOAD_ATTR":
        return str(steps[1].argval)
    if len(steps) == _ITEM_STEPS and steps[1].opname in _CONSTANTS and _is_subscript(steps[2]):
        return _constant(steps[1].argval)
    return None


def _is_subscript(step: dis.Instruction) -> bool:
    return step.opname == "BINARY_SUBSCR" or (step.opname == "BINARY_OP" and step.argrepr == "[]")


def column_of(type_info: TypeInformation, field: str | int | None) -> int | None:
    """The position of the column that holds a field that ``field_of`` found.

    None if the records have no such field, so that calling the function raises what it should.
    """
    if isinstance(field, str) and isinstance(type_info, RowTypeInfo | RecordClassTypeInfo):
        position = type_info.get_field_index(field)
        return position if position >= 0 else None
    positional = RowTypeInfo | TupleTypeInfo | NamedTupleTypeInfo
    if isinstance(field, int) and isinstance(type_info, positional):
        count = len(type_info.get_field_types())
        return field % count if -count <= field < count else None
    return None


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
