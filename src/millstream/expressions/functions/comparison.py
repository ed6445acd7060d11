"""Comparisons and three-valued logic: =, <>, <, LIKE, IN, BETWEEN, IS NULL, AND, OR, NOT, IS TRUE.

Text is compared by code points without padding, numbers of different types by value, text with a
date or timestamp as that.  AND and OR evaluate lazily, left to right.
"""

from __future__ import annotations

import operator
import re
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.decimals import comparable_columns
from millstream.expressions.functions.definition import (
    BOOLEAN,
    CallInfo,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    on_columns,
    signature,
)
from millstream.expressions.java.regular_expressions import compile_pattern
from millstream.types.logical_types import BooleanType, LogicalType
from millstream.types.type_derivation import common_type, decimal_of
from millstream.types.type_roots import TypeFamily, TypeRoot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_ANY_TEXT: Final = "(?s:.*)"
#: As in Java, a dot is any character but the end of a line.
_ANY_CHARACTER: Final = "[^\n\r\u0085\u2028\u2029]"
_SIMILAR_SPECIAL: Final = "_%|*+?{}()[]^-"
_NAMED: Final = {
    "ALPHA": r"\p{Alpha}",
    "UPPER": r"\p{Upper}",
    "LOWER": r"\p{Lower}",
    "DIGIT": r"\d",
    "SPACE": " ",
    "WHITESPACE": r"\s",
    "ALNUM": r"\p{Alnum}",
}
#: Names of sets of characters, in capitals or small letters.
_CLASSES: Final = {
    f"[:{word}:]": text for name, text in _NAMED.items() for word in (name, name.lower())
}


def matches(pattern: re.Pattern[str], string: str) -> bool:
    """Return whether the whole string matches."""
    return pattern.fullmatch(string) is not None


def _escape_character(escape: str | None) -> str | None:
    if escape is not None and len(escape) != 1:
        message = f"the escape character must be one character, not {escape!r}"
        raise ValueError(message)
    return escape


@lru_cache(maxsize=1000)
def compiled_like(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression of a pattern of LIKE.

    Raises:
        ValueError: the escape character stands before something else than %, _ or itself.
    """
    # As in Flink, ESCAPE '' says that there is no such character.
    escape = _escape_character(escape or None)
    parts = []
    for literal, wildcard in _tokens(pattern, escape):
        if wildcard == "%":
            parts.append(_ANY_TEXT)
        elif wildcard == "_":
            parts.append(_ANY_CHARACTER)
        else:
            parts.append(re.escape(literal))
    return re.compile("".join(parts))


def _tokens(pattern: str, escape: str | None) -> list[tuple[str, str]]:
    """Pairs of a literal character and a wildcard, one of them empty."""
    tokens = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            following = pattern[position + 1 : position + 2]
            if following not in {"%", "_", escape}:
                message = f"the escape character of {pattern!r} stands before {following!r}"
                raise ValueError(message)
            tokens.append((following, ""))
            position += 1
        elif character in "%_":
            tokens.append(("", character))
        else:
            tokens.append((character, ""))
        position += 1
    return tokens


@lru_cache(maxsize=1000)
def compiled_similar(pattern: str, escape: str | None) -> re.Pattern[str]:
    """The regular expression of a pattern of SIMILAR TO: Java's, but for % and _.

    Raises:
        ValueError: it is no SQL regular expression.
    """
    escape = _escape_character(escape)
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            following = pattern[position + 1 : position + 2]
            if not following or (following not in _SIMILAR_SPECIAL and following != escape):
                message = f"the escape character of {pattern!r} stands before {following!r}"
                raise ValueError(message)
            parts.append(re.escape(following))
            position += 2
            continue
        if character == "[":
            text, position = _character_class(pattern, position)
            parts.append(text)
            continue
        # All else means what it means to Java, a dot any character, as in Flink.
        parts.append(_SIMILAR.get(character, character))
        position += 1
    return compile_pattern("".join(parts))


_SIMILAR: Final = {"%": _ANY_TEXT, "_": ".", "\\": "\\\\", "^": "\\^", "$": "\\$"}


def _character_class(pattern: str, start: int) -> tuple[str, int]:
    """A set in brackets, with the names in it, and where it ends."""
    inner = ""
    position = start + 1
    while position < len(pattern) and pattern[position] != "]":
        name = next((name for name in _CLASSES if pattern.startswith(name, position)), None)
        inner += pattern[position] if name is None else _CLASSES[name]
        position += 1 if name is None else len(name)
    if position == len(pattern):
        message = f"{pattern!r} has a [ without a ]"
        raise ValueError(message)
    return f"[{inner}]", position + 1


def like_column(info: CallInfo, string: Any, pattern: Any, *escape: Any) -> Any:
    """LIKE on a column, if pattern and escape character are constants."""
    if not isinstance(string, pa.Array) or not isinstance(pattern, pa.Scalar):
        return NotImplemented
    if not pattern.is_valid or any(
        not isinstance(item, pa.Scalar) or not item.is_valid for item in escape
    ):
        return NotImplemented
    plan = info.state.get("plan")
    if plan is None:
        character = escape[0].as_py() if escape else None
        plan = _plan(pattern.as_py(), _escape_character(character))
        info.state["plan"] = plan
    if plan[0] == "regex":
        return NotImplemented
    return _PLANS[plan[0]](string, plan[1])


def _plan(pattern: str, escape: str | None) -> tuple[str, str]:
    """Which kernel does it, and the text that it looks for."""
    tokens = _tokens(pattern, escape)
    wildcards = [i for i, (_, wildcard) in enumerate(tokens) if wildcard]
    if any(tokens[i][1] == "_" for i in wildcards):
        return "regex", ""
    text = "".join(literal for literal, _ in tokens)
    last = len(tokens) - 1
    by_place = {(): "equal", (last,): "prefix", (0,): "suffix", (0, last): "part"}
    return by_place.get(tuple(wildcards), "regex"), text


_PLANS: Final = {
    "equal": pc.equal,
    "prefix": pc.starts_with,
    "suffix": pc.ends_with,
    "part": pc.match_substring,
}


functions: Final = FunctionGroup("comparison")

_NESTED_UNORDERED: Final = (TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW, TypeRoot.RAW)
_UNORDERED: Final = frozenset({*_NESTED_UNORDERED, TypeRoot.BITMAP, TypeRoot.VARIANT})
_LIKENESS: Final = (
    TypeFamily.CHARACTER_STRING,
    TypeFamily.BINARY_STRING,
    TypeFamily.NUMERIC,
    TypeFamily.TIMESTAMP,
)


# -- what may be compared with what -----------------------------------------------------------


def comparison_types(left: LogicalType, right: LogicalType) -> tuple[LogicalType, ...] | None:
    """Return what two arguments are cast to so that they can be compared; None if they cannot."""
    if left.root is TypeRoot.NULL or right.root is TypeRoot.NULL:
        other = right if left.root is TypeRoot.NULL else left
        known = BooleanType() if other.root is TypeRoot.NULL else other
        return (
            known if left.root is TypeRoot.NULL else left,
            known if right.root is TypeRoot.NULL else right,
        )
    if left.is_a(TypeFamily.CHARACTER_STRING) and right.is_a(TypeFamily.CHARACTER_STRING):
        return left, right
    exact = TypeFamily.EXACT_NUMERIC
    if left.is_a(exact) and right.is_a(exact) and TypeRoot.DECIMAL in {left.root, right.root}:
        return decimal_of(left), decimal_of(right)
    return _with_time(left, right) or _with_time_swapped(left, right) or _in_common(left, right)


def _with_time(time: LogicalType, other: LogicalType) -> tuple[LogicalType, ...] | None:
    """A point in time beside its text, or beside a date."""
    if time.is_a(TypeFamily.DATETIME) and other.is_a(TypeFamily.CHARACTER_STRING):
        return time, time.with_nullability(other.is_nullable)
    if time.is_a(TypeFamily.TIMESTAMP) and other.root is TypeRoot.DATE:
        return time, time.with_nullability(other.is_nullable)
    return None


def _with_time_swapped(left: LogicalType, right: LogicalType) -> tuple[LogicalType, ...] | None:
    found = _with_time(right, left)
    return None if found is None else found[::-1]


def _in_common(left: LogicalType, right: LogicalType) -> tuple[LogicalType, ...] | None:
    alike = left.root is right.root or any(
        left.is_a(family) and right.is_a(family) for family in _LIKENESS
    )
    common = common_type([left, right]) if alike else None
    if common is None:
        return None
    return common.with_nullability(left.is_nullable), common.with_nullability(right.is_nullable)


def _equatable(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    return comparison_types(types[0], types[1])


def _ordered(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    if any(type_.root in _UNORDERED for type_ in types):
        return None
    return comparison_types(types[0], types[1])


def _all_comparable(types: Sequence[LogicalType]) -> tuple[LogicalType, ...] | None:
    """One type for all, so that IN and BETWEEN compare columns of the same type."""
    if any(comparison_types(types[0], other) is None for other in types[1:]):
        return None
    times = [type_ for type_ in types if type_.is_a(TypeFamily.DATETIME)]
    stamps = [type_ for type_ in times if type_.is_a(TypeFamily.TIMESTAMP)]
    # As for =, text beside a point in time is one, and a date beside a timestamp is one.
    common = common_type(stamps or times or list(types))
    if all(type_.root is TypeRoot.NULL for type_ in types):
        common = BooleanType()
    if common is None:
        return None
    return tuple(common.with_nullability(type_.is_nullable) for type_ in types)


# -- operators --------------------------------------------------------------------------------

_NESTED: Final = (TypeRoot.ARRAY, *_NESTED_UNORDERED)


def _comparing(name: str) -> Callable[..., Any]:
    """The kernel of an operator; nested values are left to the reference."""
    function = getattr(pc, name)

    def kernel(info: CallInfo, left: Any, right: Any) -> Any:
        type_ = info.argument_types[0]
        if type_.root in _NESTED:
            return NotImplemented
        if type_.root is TypeRoot.DECIMAL:
            left, right = comparable_columns(left, right)
        return function(left, right)

    return kernel


def _negated(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel of NOT."""

    def negation(info: CallInfo, *columns: Any) -> Any:
        found = kernel(info, *columns)
        return found if found is NotImplemented else pc.invert(found)

    return negation


def _list_opposite(name: str, documentation: str, syntax: str, example: tuple[str, str]) -> None:
    """List what is TRUE where the function that was listed last is FALSE."""
    other = functions.definitions[-1]
    decide = other.reference
    assert decide is not None  # noqa: S101 - it is no special form

    def reference(*values: Any) -> bool | None:
        found = decide(*values)
        return None if found is None else not found

    functions.add(
        replace(
            other,
            name=name,
            reference=reference,
            kernel=None if other.kernel is None else _negated(other.kernel),
            documentation=documentation,
            syntax=syntax,
            examples=(example,),
        )
    )


def _operator(
    name: str, kernel: str, reference: Callable[[Any, Any], object], documentation: str
) -> None:
    """List one of the six operators."""
    ordered = name not in {"=", "<>"}
    functions.scalar(
        name,
        signature(
            "any value1, any value2", result=BOOLEAN, unify=_ordered if ordered else _equatable
        ),
        aliases=["!="] if name == "<>" else [],
        kernel=_comparing(kernel),
        reads_leniently=not ordered,
        can_fail=False,
        syntax=f"value1 {name} value2",
        documentation=documentation,
        examples=[(f"2 {name} 1", str(bool(reference(2, 1))).upper())],
    )(reference)


_operator("=", "equal", operator.eq, "TRUE if value1 is equal to value2.")
_operator("<>", "not_equal", operator.ne, "TRUE if value1 is not equal to value2.")
_operator(">", "greater", operator.gt, "TRUE if value1 is greater than value2.")
_operator(">=", "greater_equal", operator.ge, "TRUE if value1 is greater than or equal to value2.")
_operator("<", "less", operator.lt, "TRUE if value1 is less than value2.")
_operator("<=", "less_equal", operator.le, "TRUE if value1 is less than or equal to value2.")


_IS: Final = signature("any", result=BOOLEAN, nullability=Nullability.NEVER)


functions.total(
    "IS NULL",
    "TRUE if the value is NULL.",
    lambda value: value is None,
    _IS,
    nulls=NullBehaviour.CALLED,
    kernel=on_columns(pc.is_null),
    syntax="value IS NULL",
    examples=[("1 IS NULL", "FALSE")],
)
functions.total(
    "IS NOT NULL",
    "TRUE if the value is not NULL.",
    lambda value: value is not None,
    _IS,
    nulls=NullBehaviour.CALLED,
    kernel=on_columns(pc.is_valid),
    syntax="value IS NOT NULL",
    examples=[("1 IS NOT NULL", "TRUE")],
)


_SAMENESS: Final = signature(
    "any value1, any value2", result=BOOLEAN, unify=_equatable, nullability=Nullability.NEVER
)


def _same(info: CallInfo, left: Any, right: Any) -> Any:
    if info.argument_types[0].root in _NESTED:
        return NotImplemented
    if info.argument_types[0].root is TypeRoot.DECIMAL:
        left, right = comparable_columns(left, right)
    both_null = pc.and_(pc.is_null(left), pc.is_null(right))
    return pc.or_(both_null, pc.coalesce(pc.equal(left, right), pa.scalar(False)))  # noqa: FBT003


def _is_same(left: Any, right: Any) -> bool:
    return left is right if left is None or right is None else bool(left == right)


functions.total(
    "IS DISTINCT FROM",
    "TRUE if the values differ; two NULLs do not.",
    lambda left, right: not _is_same(left, right),
    _SAMENESS,
    nulls=NullBehaviour.CALLED,
    kernel=_negated(_same),
    reads_leniently=True,
    syntax="value1 IS DISTINCT FROM value2",
    examples=[("1 IS DISTINCT FROM CAST(NULL AS INT)", "TRUE")],
)
functions.total(
    "IS NOT DISTINCT FROM",
    "TRUE if the values are equal or both NULL.",
    _is_same,
    _SAMENESS,
    nulls=NullBehaviour.CALLED,
    kernel=_same,
    reads_leniently=True,
    syntax="value1 IS NOT DISTINCT FROM value2",
    examples=[("CAST(NULL AS INT) IS NOT DISTINCT FROM CAST(NULL AS INT)", "TRUE")],
)


# -- BETWEEN and IN ---------------------------------------------------------------------------


def _between(info: CallInfo, value: Any, lower: Any, upper: Any) -> Any:
    if info.argument_types[0].root in _NESTED:
        return NotImplemented
    return pc.and_kleene(pc.greater_equal(value, lower), pc.less_equal(value, upper))


_BETWEEN: Final = signature(
    "any value1, any value2, any value3", result=BOOLEAN, unify=_all_comparable
)


def _and(left: bool | None, right: bool | None) -> bool | None:  # noqa: FBT001 - truth values
    if left is False or right is False:
        return False
    return None if left is None or right is None else True


@functions.scalar(
    "BETWEEN",
    _BETWEEN,
    nulls=NullBehaviour.CALLED,
    kernel=_between,
    can_fail=False,
    syntax="value1 BETWEEN value2 AND value3",
    examples=[("12 BETWEEN 15 AND 12", "FALSE"), ("12 BETWEEN 10 AND 12", "TRUE")],
)
def between(value: Any, lower: Any, upper: Any) -> bool | None:
    """TRUE if value1 is at least value2 and at most value3."""
    above = None if value is None or lower is None else bool(value >= lower)
    below = None if value is None or upper is None else bool(value <= upper)
    return _and(above, below)


_list_opposite(
    "NOT BETWEEN",
    "TRUE if value1 is less than value2 or greater than value3.",
    "value1 NOT BETWEEN value2 AND value3",
    ("12 NOT BETWEEN 15 AND 12", "TRUE"),
)


def _is_symmetric(info: CallInfo, value: Any, one: Any, other: Any) -> Any:
    if info.argument_types[0].root in _NESTED:
        return NotImplemented
    return pc.or_kleene(_between(info, value, one, other), _between(info, value, other, one))


@functions.scalar(
    "BETWEEN SYMMETRIC",
    _BETWEEN,
    nulls=NullBehaviour.CALLED,
    kernel=_is_symmetric,
    can_fail=False,
    syntax="value1 BETWEEN SYMMETRIC value2 AND value3",
    examples=[("12 BETWEEN SYMMETRIC 15 AND 12", "TRUE")],
)
def between_symmetric(value: Any, one: Any, other: Any) -> bool | None:
    """TRUE if value1 is between value2 and value3, whichever of them is the lower one."""
    first, second = between(value, one, other), between(value, other, one)
    if first or second:
        return True
    return None if first is None or second is None else False


def _is_in(info: CallInfo, value: Any, *items: Any) -> Any:
    if info.argument_types[0].root in _NESTED:
        return NotImplemented
    if not isinstance(value, pa.Array) or any(isinstance(item, pa.Array) for item in items):
        return _any_equal(value, items)
    known = info.state.get("items")
    if known is None:
        present = [item for item in items if item.is_valid]
        arrays = [pa.repeat(item, 1) for item in present]
        known = pa.concat_arrays(arrays) if arrays else pa.nulls(0, value.type)
        if pa.types.is_floating(known.type):
            known = known.filter(pc.invert(pc.is_nan(known)))
        info.state["items"] = known
        info.state["has_null"] = len(present) < len(items)
    found = pc.is_in(value, known)
    if pa.types.is_floating(value.type):
        # Arrow's sets take 0.0 and -0.0 for two values.
        zero = pc.and_(pc.equal(value, 0.0), pa.scalar(0.0 in known.to_pylist()))
        found = pc.or_(found, pc.fill_null(zero, False))  # noqa: FBT003
    unknown = pa.scalar(None, pa.bool_())
    if info.state["has_null"]:
        return pc.if_else(found, found, unknown)
    return pc.if_else(pc.is_null(value), unknown, found) if value.null_count else found


def _any_equal(value: Any, items: Sequence[Any]) -> Any:
    result = pc.equal(value, items[0])
    for item in items[1:]:
        result = pc.or_kleene(result, pc.equal(value, item))
    return result


_IN: Final = signature("any value1, any value2...", result=BOOLEAN, unify=_all_comparable)


@functions.scalar(
    "IN",
    _IN,
    nulls=NullBehaviour.CALLED,
    kernel=_is_in,
    reads_leniently=True,
    can_fail=False,
    syntax="value1 IN (value2 [, value3]*)",
    examples=[("4 IN (1, 2, 3)", "FALSE"), ("1 IN (1, 2, CAST(NULL AS INT))", "TRUE")],
)
def is_in(value: Any, *items: Any) -> bool | None:
    """TRUE if value1 is one of the list; UNKNOWN if it is not and there is a NULL among them."""
    if value is None:
        return None
    if any(item is not None and value == item for item in items):
        return True
    return None if None in items else False


_list_opposite(
    "NOT IN",
    "TRUE if value1 is none of the list; UNKNOWN if there is a NULL among them.",
    "value1 NOT IN (value2 [, value3]*)",
    ("4 NOT IN (1, 2, 3)", "TRUE"),
)


# -- patterns ---------------------------------------------------------------------------------

_PATTERN: Final = signature("string string1, string string2[, string escape]", result=BOOLEAN)


@functions.scalar(
    "LIKE",
    _PATTERN,
    kernel=like_column,
    costly=True,
    syntax="string1 LIKE string2 [ESCAPE char]",
    examples=[("'TechOnTheNet' LIKE 'Tech%'", "TRUE"), ("'10%' LIKE '10!%' ESCAPE '!'", "TRUE")],
)
def like(string: str, pattern: str, escape: str | None = None) -> object:
    """TRUE if string1 matches the pattern string2: % stands for any text, _ for one character."""
    return matches(compiled_like(pattern, escape), string)


_list_opposite(
    "NOT LIKE",
    "TRUE if string1 does not match the pattern string2.",
    "string1 NOT LIKE string2 [ESCAPE char]",
    ("'TechOnTheNet' NOT LIKE 'Tech%'", "FALSE"),
)


@functions.scalar(
    "SIMILAR TO",
    _PATTERN,
    costly=True,
    syntax="string1 SIMILAR TO string2 [ESCAPE char]",
    examples=[("'aabb' SIMILAR TO '(a|b)+'", "TRUE")],
)
def similar_to(string: str, pattern: str, escape: str | None = None) -> object:
    """TRUE if string1 matches the SQL regular expression string2: LIKE's signs and |*+?{}()[]."""
    return matches(compiled_similar(pattern, escape), string)


_list_opposite(
    "NOT SIMILAR TO",
    "TRUE if string1 does not match the SQL regular expression string2.",
    "string1 NOT SIMILAR TO string2 [ESCAPE char]",
    ("'aabb' NOT SIMILAR TO 'a+'", "TRUE"),
)


logical: Final = FunctionGroup("logical")

_JUNCTION: Final = signature("boolean boolean1, boolean boolean2...", result=BOOLEAN)
logical.special_form(
    "OR",
    _JUNCTION,
    syntax="boolean1 OR boolean2",
    documentation="TRUE if one of the two is TRUE; TRUE OR UNKNOWN is TRUE.",
    examples=(("1 = 2 OR 2 = 2", "TRUE"),),
)
logical.special_form(
    "AND",
    _JUNCTION,
    syntax="boolean1 AND boolean2",
    documentation="TRUE if both are TRUE; FALSE AND UNKNOWN is FALSE.",
    examples=(("1 = 2 AND 2 = 2", "FALSE"),),
)
logical.total(
    "NOT",
    "TRUE if the value is FALSE, FALSE if it is TRUE, UNKNOWN if it is UNKNOWN.",
    lambda value: not value,
    signature("boolean", result=BOOLEAN),
    kernel=on_columns(pc.invert),
    syntax="NOT boolean",
    examples=[("NOT 1 = 2", "TRUE")],
)


def _is(wanted: bool | None, *, negated: bool) -> Callable[[Any], object]:  # noqa: FBT001
    def reference(value: Any) -> object:
        return (value is wanted) is not negated

    return reference


def _is_kernel(wanted: bool | None, *, negated: bool) -> Callable[..., Any]:  # noqa: FBT001
    def kernel(_: CallInfo, value: Any) -> Any:
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
        logical.scalar(
            name,
            signature("boolean", result=BOOLEAN, nullability=Nullability.NEVER),
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
