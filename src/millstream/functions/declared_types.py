"""Functions of state that are held to the types that the state's descriptor declares.

What it is: a check of every value that goes into state, made once per descriptor.
What it is not: the handles that ask for it (``state/typed_state.py``).
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from millstream.errors import TypeMismatchError
from millstream.types.type_information import TypeInformation
from millstream.types.value_check import compile_check, misfit

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CheckedAggregate", "check_of", "checked_reduce", "writer"]

_ADVICE = "write such a value, or declare another type in the state's descriptor"


def writer(
    kind: object, what: str, write: Callable[[Any], None] | None = None
) -> Callable[[Any], None]:
    """A function that checks one value and then hands it to ``write``.

    Args:
        kind: the type that was declared; None: nothing is checked.
        what: what is written, for the message: "state 'n'", "state 'n', map key".
        write: takes the value; None: the value is only checked.
    """
    take = write or _nothing
    check = check_of(kind, what)
    if check is None:
        return take
    fits, refuse = check

    def check_and_write(value: Any) -> None:
        if not fits(value):
            refuse(value)
        take(value)

    return check_and_write


def _nothing(value: object) -> None:
    del value


def check_of(kind: object, what: str) -> tuple[Callable[[Any], bool], Callable[[Any], None]] | None:
    """A quick predicate, and what raises for a value that it is false of; None: any value fits."""
    if not isinstance(kind, TypeInformation):
        return None
    fits = compile_check(kind)
    return None if fits is None else (fits, partial(_refuse, kind, what))


def _refuse(kind: TypeInformation, what: str, value: object) -> None:
    """Raise TypeMismatchError unless the value fits after all (a numpy number, a subclass)."""
    text = misfit(kind, value, _ADVICE)
    if text is not None:
        message = f"{what} is declared as {kind}: {text}"
        raise TypeMismatchError(message)


def checked_reduce(
    reduce: Callable[[Any, Any], Any], kind: object, name: str
) -> Callable[[Any, Any], Any]:
    """``reduce``, whose results are checked if a type was declared."""
    check = writer(kind, f"state {name!r}, what its reduce function returned")
    if check is _nothing:
        return reduce

    def reduce_and_check(one: Any, other: Any) -> Any:
        result = reduce(one, other)
        check(result)
        return result

    return reduce_and_check


class CheckedAggregate:
    """An AggregateFunction whose accumulators are checked."""

    def __init__(self, function: Any, kind: object, name: str) -> None:
        """Take the function, the type of its accumulators and the name of the state."""
        self._function = function
        self._check = writer(kind, f"state {name!r}, the accumulator that add() returned")
        self.create_accumulator = function.create_accumulator
        self.get_result = function.get_result

    def add(self, value: Any, accumulator: Any) -> Any:
        """Add and check."""
        result = self._function.add(value, accumulator)
        self._check(result)
        return result
