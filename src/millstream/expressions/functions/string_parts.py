"""String functions that cut, pad, join and replace.

Most count characters; where Flink uses Java's strings, UTF-16 units are counted, as there (LPAD,
OVERLAY, REPLACE by an empty string).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.functions.definition import (
    INT,
    STRING,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    binary,
    character,
    common_of,
    exactly,
    integer,
    signature,
    symbol,
)
from millstream.expressions.java.strings import from_units, to_units
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    CharType,
    MapType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import CallInfo, ResultRule
    from millstream.types.logical_types import LogicalType


STRINGS: Final = ArrayType(VarCharType())
STRING_MAP: Final = MapType(VarCharType(), VarCharType())
_STRING_TYPES_MOST: Final = VarCharType().length


def _length(type_: LogicalType) -> int:
    if isinstance(type_, CharType | VarCharType | BinaryType | VarBinaryType):
        return type_.length
    return _STRING_TYPES_MOST


def varying(*positions: int) -> ResultRule:
    """VARCHAR as long as the arguments at these positions are together."""

    def rule(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
        del constants
        return VarCharType(
            min(_STRING_TYPES_MOST, sum(_length(types[position]) for position in positions))
        )

    return rule


def concatenated(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    """The type of ``a || b``: fixed if both are, of both lengths together."""
    del constants
    length = min(_STRING_TYPES_MOST, sum(map(_length, types)))
    if all(isinstance(type_, BinaryType | VarBinaryType) for type_ in types):
        fixed = all(isinstance(type_, BinaryType) for type_ in types)
        return BinaryType(length) if fixed else VarBinaryType(length)
    fixed = all(isinstance(type_, CharType) for type_ in types)
    return CharType(length) if fixed and length else VarCharType(length)


functions = FunctionGroup("string")

_ALWAYS: Final = Nullability.ALWAYS
_MOST: Final = 2**31 - 1


# -- cutting ----------------------------------------------------------------------------------


def _cut(text: str, position: int, length: int = _MOST) -> str | None:
    if length < 0:
        return None
    if position > 0:
        start = position - 1
    elif position < 0:
        start = len(text) + position
        if start < 0:
            return ""
    else:
        start = 0
    return text[start : start + length]


def _cut_kernel(info: CallInfo, text: Any, *rest: Any) -> Any:
    position, *lengths = info.constants[1:]
    length = lengths[0] if lengths else _MOST
    if not isinstance(text, pa.Array) or not isinstance(position, int):
        return NotImplemented
    if not isinstance(length, int) or length < 0:
        return NotImplemented
    if position >= 0:
        start = max(position - 1, 0)
        return pc.utf8_slice_codeunits(text, start=start, stop=min(start + length, _MOST))
    stop = position + length
    cut = pc.utf8_slice_codeunits(text, start=position, stop=stop if stop < 0 else None)
    return pc.if_else(pc.less(pc.utf8_length(text), -position), "", cut)


@functions.scalar(
    "SUBSTRING",
    aliases=("SUBSTR",),
    signatures=(
        signature(character(), integer("position"), result=varying(0), nullability=_ALWAYS),
        signature(
            character(),
            integer("position"),
            integer("length"),
            result=varying(0),
            nullability=_ALWAYS,
        ),
    ),
    kernel=_cut_kernel,
    can_fail=False,
    syntax="SUBSTRING(string FROM position [FOR length]), SUBSTR(string, position[, length])",
    examples=(
        ("SUBSTRING('hello', 2, 3)", "ell"),
        ("SUBSTRING('hello', 0, 2)", "he"),
        ("SUBSTRING('hello', -3)", "llo"),
        ("SUBSTRING('hello', -9, 2)", ""),
        ("SUBSTRING('hello', 2, -1)", "NULL"),
    ),
)
def substring(text: str, position: int, length: int = _MOST) -> str | None:
    """The part of a string from a position on, at most ``length`` characters.

    Positions begin at 1; 0 is as 1, and negative ones count from the end.  NULL if the length is
    negative.
    """
    return _cut(text, position, length)


def _left_kernel(info: CallInfo, text: Any, length: Any) -> Any:
    count = info.constants[1]
    if not isinstance(text, pa.Array) or not isinstance(count, int):
        return NotImplemented
    return pc.utf8_slice_codeunits(text, start=0, stop=min(max(count, 0), _MOST))


@functions.scalar(
    "LEFT",
    signatures=(signature(character(), integer("length"), result=varying(0), nullability=_ALWAYS),),
    kernel=_left_kernel,
    can_fail=False,
    examples=(("LEFT('hello', 2)", "he"), ("LEFT('hello', -2)", "")),
)
def left(text: str, length: int) -> str:
    """The first characters of a string; an empty string if the length is not positive."""
    return text[: max(length, 0)]


def _right_kernel(info: CallInfo, text: Any, length: Any) -> Any:
    count = info.constants[1]
    if not isinstance(text, pa.Array) or not isinstance(count, int):
        return NotImplemented
    if count <= 0:
        return pc.utf8_slice_codeunits(text, start=0, stop=0)
    return pc.utf8_slice_codeunits(text, start=-count, stop=None)


@functions.scalar(
    "RIGHT",
    signatures=(signature(character(), integer("length"), result=varying(0), nullability=_ALWAYS),),
    kernel=_right_kernel,
    can_fail=False,
    examples=(("RIGHT('hello', 2)", "lo"), ("RIGHT('hello', 0)", "")),
)
def right(text: str, length: int) -> str:
    """The last characters of a string; an empty string if the length is not positive."""
    return text[-length:] if length > 0 else ""


# -- trimming ---------------------------------------------------------------------------------


def _trimmer(kernel: Any) -> Any:
    def trim(info: CallInfo, text: Any, *characters: Any) -> Any:
        wanted = info.constants[1] if characters else " "
        if not isinstance(text, pa.Array) or not isinstance(wanted, str) or not wanted:
            return NotImplemented
        return kernel(text, characters=wanted)

    return trim


@functions.scalar(
    "TRIM",
    signatures=(
        signature(character(), result=varying(0)),
        signature(symbol("side"), character("characters"), character(), result=varying(2)),
    ),
    can_fail=False,
    syntax="TRIM([BOTH | LEADING | TRAILING] [characters FROM] string)",
    examples=(("TRIM('  ab  ')", "ab"), ("TRIM(BOTH 'ab' FROM 'abxba')", "x")),
)
def trim(*arguments: str) -> str:
    """A string without certain characters at its ends; without blanks, if none are named."""
    side, characters, text = arguments if len(arguments) > 1 else ("BOTH", " ", arguments[0])
    if side != "TRAILING":
        text = text.lstrip(characters) if characters else text
    if side != "LEADING":
        text = text.rstrip(characters) if characters else text
    return text


@functions.scalar(
    "LTRIM",
    signatures=(signature(character(), character("characters"), result=varying(0), optional=1),),
    kernel=_trimmer(pc.utf8_ltrim),
    can_fail=False,
    examples=(("LTRIM('  ab ')", "ab "), ("LTRIM('abcd', 'ba')", "cd")),
)
def ltrim(text: str, characters: str = " ") -> str:
    """A string without the characters (blanks, if none are given) at its beginning."""
    return text.lstrip(characters) if characters else text


@functions.scalar(
    "RTRIM",
    signatures=(signature(character(), character("characters"), result=varying(0), optional=1),),
    kernel=_trimmer(pc.utf8_rtrim),
    can_fail=False,
    examples=(("RTRIM(' ab  ')", " ab"), ("RTRIM('abcd', 'dc')", "ab")),
)
def rtrim(text: str, characters: str = " ") -> str:
    """A string without the characters (blanks, if none are given) at its end."""
    return text.rstrip(characters) if characters else text


@functions.scalar(
    "BTRIM",
    signatures=(signature(character(), character("characters"), result=STRING, optional=1),),
    kernel=_trimmer(pc.utf8_trim),
    can_fail=False,
    examples=(("BTRIM('  ab  ')", "ab"), ("BTRIM('abcba', 'ab')", "c")),
)
def btrim(text: str, characters: str = " ") -> str:
    """A string without the characters (blanks, if none are given) at both ends."""
    return text.strip(characters) if characters else text


# -- padding and repeating --------------------------------------------------------------------


def _padding(length: int, pad: str) -> str:
    return (pad * (length // len(pad) + 1))[:length] if length > 0 else ""


@functions.scalar(
    "LPAD",
    signatures=(
        signature(
            character(), integer("length"), character("pad"), result=STRING, nullability=_ALWAYS
        ),
    ),
    can_fail=False,
    examples=(("LPAD('hi', 4, '??')", "??hi"), ("LPAD('hi', 1, '??')", "h")),
)
def lpad(text: str, length: int, pad: str) -> str | None:
    """A string made so long by a pad at its left, or cut to that length.

    NULL if the length is negative or the pad empty.
    """
    if length < 0 or not pad:
        return None
    units = to_units(text)
    return from_units(_padding(length - len(units), to_units(pad)) + units[:length])


@functions.scalar(
    "RPAD",
    signatures=(
        signature(
            character(), integer("length"), character("pad"), result=STRING, nullability=_ALWAYS
        ),
    ),
    can_fail=False,
    examples=(("RPAD('hi', 4, '??')", "hi??"), ("RPAD('hi', 1, '??')", "h")),
)
def rpad(text: str, length: int, pad: str) -> str | None:
    """A string made so long by a pad at its right, or cut to that length.

    NULL if the length is negative or the pad empty.
    """
    if length < 0 or not pad:
        return None
    units = to_units(text)
    return from_units(units[:length] + _padding(length - len(units), to_units(pad)))


@functions.scalar(
    "REPEAT",
    signatures=(signature(character(), integer("times"), result=STRING),),
    can_fail=False,
    examples=(("REPEAT('ab', 3)", "ababab"), ("REPEAT('ab', -1)", "")),
)
def repeat(text: str, times: int) -> str:
    """A string several times over; empty if the number is not positive."""
    return text * times


def _reverse_kernel(info: CallInfo, text: Any) -> Any:
    return pc.utf8_reverse(text)


@functions.scalar(
    "REVERSE",
    signatures=(signature(character(), result=STRING, nullability=_ALWAYS),),
    kernel=_reverse_kernel,
    can_fail=False,
    examples=(("REVERSE('abc')", "cba"),),
)
def reverse(text: str) -> str:
    """The characters of a string from the last to the first."""
    return text[::-1]


# -- joining ----------------------------------------------------------------------------------


def _join_kernel(info: CallInfo, *texts: Any) -> Any:
    empty = "" if pa.types.is_string(texts[0].type) else b""
    separator = pa.scalar(empty, texts[0].type)
    return pc.binary_join_element_wise(*texts, separator, null_handling="emit_null")


@functions.scalar(
    "||",
    signatures=(
        signature(character("string1"), character("string2"), result=concatenated),
        signature(binary("bytes1"), binary("bytes2"), result=concatenated),
    ),
    kernel=_join_kernel,
    can_fail=False,
    syntax="string1 || string2",
    examples=(("'mill' || 'stream'", "millstream"),),
)
def joined(first: Any, second: Any) -> Any:
    """The two strings concatenated."""
    return first + second


@functions.scalar(
    "CONCAT",
    signatures=(signature(character(), result=STRING, repeats=True),),
    kernel=_join_kernel,
    can_fail=False,
    syntax="CONCAT(string1, string2, ...)",
    examples=(
        ("CONCAT('AA', 'BB', 'CC')", "AABBCC"),
        ("CONCAT('AA', CAST(NULL AS STRING))", "NULL"),
    ),
)
def concat(*texts: str) -> str:
    """All strings concatenated; NULL if any is NULL."""
    return "".join(texts)


def _join_with_kernel(info: CallInfo, separator: Any, *texts: Any) -> Any:
    # The kernel wants columns; of constants alone, or with a NULL separator, it makes nothing good.
    if not isinstance(separator, pa.Scalar) or not separator.is_valid:
        return NotImplemented
    if not any(isinstance(text, pa.Array) for text in texts):
        return NotImplemented
    return pc.binary_join_element_wise(*texts, separator, null_handling="skip")


def _nullable_as_first(types: Any, constants: Any) -> Any:
    del constants
    return STRING.with_nullability(any(type_.is_nullable for type_ in types))


@functions.scalar(
    "CONCAT_WS",
    signatures=(
        signature(
            character("separator"),
            character(),
            result=_nullable_as_first,
            repeats=True,
            optional=1,
            nullability=Nullability.RULE,
        ),
    ),
    nulls=NullBehaviour.CALLED,
    kernel=_join_with_kernel,
    can_fail=False,
    syntax="CONCAT_WS(separator, string1, string2, ...)",
    examples=(("CONCAT_WS('~', 'AA', CAST(NULL AS STRING), 'BB', '', 'CC')", "AA~BB~~CC"),),
)
def concat_ws(separator: str | None, *texts: str | None) -> str | None:
    """All strings that are not NULL with a separator between them; NULL if that is NULL."""
    if separator is None:
        return None
    return separator.join(text for text in texts if text is not None)


@functions.scalar(
    "ELT",
    signatures=(
        signature(
            integer("index"), character(), result=common_of(1), repeats=True, nullability=_ALWAYS
        ),
        signature(
            integer("index"), binary(), result=common_of(1), repeats=True, nullability=_ALWAYS
        ),
    ),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    syntax="ELT(index, value1, value2, ...)",
    examples=(("ELT(2, 'a', 'b')", "b"), ("ELT(3, 'a', 'b')", "NULL")),
)
def elt(index: int | None, *values: Any) -> Any:
    """The value at an index, which begins at 1; NULL if there is none."""
    if index is None or not 1 <= index <= len(values):
        return None
    return values[index - 1]


# -- replacing --------------------------------------------------------------------------------


def _replace_kernel(info: CallInfo, text: Any, *others: Any) -> Any:
    wanted, replacement = info.constants[1:]
    if not isinstance(text, pa.Array) or not isinstance(wanted, str) or not wanted:
        return NotImplemented
    if not isinstance(replacement, str):
        return NotImplemented
    return pc.replace_substring(text, pattern=wanted, replacement=replacement)


@functions.scalar(
    "REPLACE",
    signatures=(
        signature(character(), character("wanted"), character("replacement"), result=STRING),
    ),
    kernel=_replace_kernel,
    can_fail=False,
    examples=(
        ("REPLACE('hello world', 'world', 'flink')", "hello flink"),
        ("REPLACE('ababab', 'abab', 'z')", "zab"),
    ),
)
def replace(text: str, wanted: str, replacement: str) -> str:
    """A string with each occurrence of another, which do not overlap, replaced."""
    if wanted:
        return text.replace(wanted, replacement)
    return from_units(to_units(text).replace("", replacement))


@functions.scalar(
    "OVERLAY",
    signatures=(
        signature(
            character(),
            character("replacement"),
            integer("position"),
            integer("length"),
            result=varying(0, 1),
            optional=1,
        ),
    ),
    can_fail=False,
    syntax="OVERLAY(string PLACING replacement FROM position [FOR length])",
    examples=(
        ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6)", "xxxxxxxxx"),
        ("OVERLAY('xxxxxtest' PLACING 'xxxx' FROM 6 FOR 2)", "xxxxxxxxxst"),
    ),
)
def overlay(text: str, replacement: str, position: int, length: int | None = None) -> str:
    """A string with a part, as long as the replacement if no length is given, replaced.

    As in Flink, what follows the part is lost if the length is not positive or the part reaches
    beyond the string.
    """
    units, new = to_units(text), to_units(replacement)
    if not 0 < position <= len(units):
        return text
    count = len(new) if length is None else length
    rest = units[position - 1 + count :] if count > 0 and position + count <= len(units) else ""
    return from_units(units[: position - 1] + new + rest)


@functions.scalar(
    "TRANSLATE",
    aliases=("TRANSLATE3",),
    signatures=(
        signature(
            character(),
            character("from"),
            character("to"),
            result=lambda types, _: STRING.with_nullability(types[0].is_nullable),
            nullability=Nullability.RULE,
        ),
    ),
    nulls=NullBehaviour.CALLED,
    can_fail=False,
    examples=(("TRANSLATE('hello', 'el', 'i')", "hio"),),
)
def translate(text: str | None, source: str | None, target: str | None) -> str | None:
    """A string in which each character of one list is replaced by that of another list.

    Characters without a partner in the other list are removed; of several equal ones in the first
    list the first counts.
    """
    if text is None or not source:
        return text
    partners = dict[int, str | None]()
    for at, character_ in enumerate(source):
        partners.setdefault(ord(character_), (target or "")[at : at + 1] or None)
    return text.translate(partners)


# -- splitting --------------------------------------------------------------------------------


def _split_index_kernel(info: CallInfo, text: Any, *others: Any) -> Any:
    separator, index = info.constants[1:]
    if not isinstance(text, pa.Array) or not isinstance(separator, str) or not separator:
        return NotImplemented
    if not isinstance(index, int) or index < 0:
        return NotImplemented
    parts = pc.split_pattern(text, pattern=separator)
    there = pc.and_(
        pc.greater(pc.list_value_length(parts), index), pc.greater(pc.binary_length(text), 0)
    )
    positions = pc.add(parts.offsets[:-1].cast(pa.int64()), index)
    return pc.take(parts.values, pc.if_else(there, positions, pa.scalar(None, pa.int64())))


@functions.scalar(
    "SPLIT_INDEX",
    signatures=(
        signature(
            character(),
            character("separator"),
            integer("index"),
            result=STRING,
            nullability=_ALWAYS,
        ),
        signature(
            character(),
            exactly("separator", INT),
            integer("index"),
            result=STRING,
            nullability=_ALWAYS,
        ),
    ),
    kernel=_split_index_kernel,
    can_fail=False,
    examples=(("SPLIT_INDEX('a,b,c', ',', 1)", "b"), ("SPLIT_INDEX('a,b', ',', 5)", "NULL")),
)
def split_index(text: str, separator: str | int, index: int) -> str | None:
    """The part of a string at an index, which begins at 0, between separators.

    A number stands for the character of that code; an empty separator for white space.  NULL if
    there is no such part.
    """
    if isinstance(separator, int):
        if not 1 <= separator <= 255:  # noqa: PLR2004 - as Flink
            return None
        separator = chr(separator)
    if index < 0 or not text:
        return None
    parts = text.split(separator) if separator else _split_at_spaces(text)
    return parts[index] if index < len(parts) else None


def _split_at_spaces(text: str) -> list[str]:
    parts = [""]
    for character_ in text:
        if character_.isspace() and character_ not in "\xa0\u2007\u202f\x85":
            parts.append("")
        else:
            parts[-1] += character_
    return parts
