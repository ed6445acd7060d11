"""Three-valued logic: AND, OR, NOT, IS TRUE etc.; AND and OR evaluate lazily, left to right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.functions.definition import (
    BOOLEAN,
    CallInfo,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    boolean,
    signature,
)

if TYPE_CHECKING:
    from collections.abc import Callable


functions: Final = FunctionGroup("logical")

_JUNCTION: Final = signature(boolean("boolean1"), boolean("boolean2"), result=BOOLEAN, repeats=True)
functions.special_form(
    "OR",
    signatures=[_JUNCTION],
    syntax="boolean1 OR boolean2",
    documentation="TRUE if one of the two is TRUE; TRUE OR UNKNOWN is TRUE.",
    examples=(("1 = 2 OR 2 = 2", "TRUE"),),
)
functions.special_form(
    "AND",
    signatures=[_JUNCTION],
    syntax="boolean1 AND boolean2",
    documentation="TRUE if both are TRUE; FALSE AND UNKNOWN is FALSE.",
    examples=(("1 = 2 AND 2 = 2", "FALSE"),),
)


def _invert(info: CallInfo, value: Any) -> Any:
    del info
    return pc.invert(value)


@functions.scalar(
    "NOT",
    signatures=[signature(boolean(), result=BOOLEAN)],
    kernel=_invert,
    can_fail=False,
    syntax="NOT boolean",
    examples=[("NOT 1 = 2", "TRUE")],
)
def logical_not(value: bool) -> object:  # noqa: FBT001 - a truth value
    """TRUE if the value is FALSE, FALSE if it is TRUE, UNKNOWN if it is UNKNOWN."""
    return not value


def _is(wanted: bool | None, *, negated: bool) -> Callable[[Any], object]:  # noqa: FBT001
    def reference(value: Any) -> object:
        return (value is wanted) is not negated

    return reference


def _is_kernel(wanted: bool | None, *, negated: bool) -> Callable[..., Any]:  # noqa: FBT001
    def kernel(info: CallInfo, value: Any) -> Any:
        del info
        if wanted is None:
            return pc.is_valid(value) if negated else pc.is_null(value)
        # UNKNOWN counts as the other truth value.
        known = pc.coalesce(value, pa.scalar(not wanted))
        return known if wanted is not negated else pc.invert(known)

    return kernel


def _test(word: str, wanted: bool | None, documentation: str) -> None:  # noqa: FBT001
    """List IS word and IS NOT word."""
    for negated in (False, True):
        name = f"IS NOT {word}" if negated else f"IS {word}"
        expected = _is(wanted, negated=negated)(True)  # noqa: FBT003
        functions.scalar(
            name,
            signatures=[signature(boolean(), result=BOOLEAN, nullability=Nullability.NEVER)],
            nulls=NullBehaviour.CALLED,
            kernel=_is_kernel(wanted, negated=negated),
            can_fail=False,
            syntax=f"boolean {name}",
            documentation=f"{'FALSE' if negated else 'TRUE'} if {documentation}, else the other.",
            examples=[(f"(1 = 1) {name}", str(expected).upper())],
        )(_is(wanted, negated=negated))


_test("FALSE", wanted=False, documentation="the value is FALSE")
_test("TRUE", wanted=True, documentation="the value is TRUE")
_test("UNKNOWN", wanted=None, documentation="the value is UNKNOWN (NULL)")
