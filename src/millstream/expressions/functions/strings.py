"""String functions that search, measure, cut, pad, join and replace, and match patterns.

Most count characters; where Flink uses Java's strings, UTF-16 units are counted, as there (LPAD,
OVERLAY, REPLACE by an empty string).  An invalid regular expression gives NULL (FALSE for REGEXP),
as in Flink; one that Python cannot express is an error.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.functions.definition import (
    BOOLEAN,
    INT,
    STRING,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    Signature,
    common_of,
    on_column,
    on_columns,
    same_as,
    signature,
)
from millstream.expressions.java.regular_expressions import (
    InvalidPatternError,
    compile_pattern,
    split_text,
)
from millstream.expressions.java.strings import capitalise_words, from_units, to_units
from millstream.types.logical_types import (
    ArrayType,
    BinaryType,
    CharType,
    MapType,
    VarBinaryType,
    VarCharType,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Sequence

    from millstream.expressions.functions.definition import CallInfo, ResultRule
    from millstream.types.logical_types import LogicalType


functions = FunctionGroup("string")


functions.total(
    "CHAR_LENGTH",
    "How many characters a string has.",
    len,
    signature("string", result=INT),
    aliases=("CHARACTER_LENGTH",),
    kernel=on_columns(pc.utf8_length),
    examples=(("CHAR_LENGTH('hello')", "5"),),
)


def _find_kernel(info: CallInfo, text: Any, wanted: Any) -> Any:
    # The kernel gives positions of bytes.
    if not isinstance(text, pa.Array) or not isinstance(wanted, pa.Scalar):
        return NotImplemented
    if not pc.all(pc.string_is_ascii(text)).as_py():
        return NotImplemented
    if not wanted.is_valid:
        return pa.scalar(None, pa.int32())
    return pc.add(pc.find_substring(text, pattern=wanted.as_py()), pa.scalar(1, pa.int32()))


def _position_kernel(info: CallInfo, wanted: Any, text: Any, *start: Any) -> Any:
    return NotImplemented if start else _find_kernel(info, text, wanted)


@functions.scalar(
    "LOCATE",
    signature("string wanted, string[, integer start]", result=INT),
    kernel=_position_kernel,
    can_fail=False,
    examples=(("LOCATE('l', 'hello')", "3"), ("LOCATE('l', 'hello', 4)", "4")),
)
def locate(wanted: str, text: str, start: int = 1) -> int:
    """Where one string occurs in another at or after a start, from 1; 0 if it does not."""
    if not wanted:
        return 1
    return text.find(wanted, max(start - 1, 0)) + 1


functions.total(
    "POSITION",
    "Where one string occurs in another at or after a start, from 1; 0 if it does not.",
    lambda wanted, text, start=1: locate(wanted, text, start),
    signature("string wanted, string[, integer start]", result=INT),
    kernel=_position_kernel,
    syntax="POSITION(wanted IN string [FROM start])",
    examples=(("POSITION('b' IN 'abcb')", "2"), ("POSITION('b' IN 'abcb' FROM 3)", "4")),
)


def _instr_kernel(info: CallInfo, text: Any, wanted: Any, *rest: Any) -> Any:
    return NotImplemented if rest else _find_kernel(info, text, wanted)


@functions.scalar(
    "INSTR",
    signature("string, string wanted[, integer start, integer occurrence]", result=INT),
    kernel=_instr_kernel,
    syntax="INSTR(string, wanted[, start[, occurrence]])",
    examples=(
        ("INSTR('hello', 'l')", "3"),
        ("INSTR('hello', 'l', 1, 2)", "4"),
        ("INSTR('hello', 'l', -1)", "4"),
    ),
)
def instr(text: str, wanted: str, start: int = 1, occurrence: int = 1) -> int:
    """Where a string occurs in another, from 1; 0 if it does not.

    Arguments that may be left out: where to begin (a negative one counts from the end, and the
    search goes backwards) and which occurrence is wanted.
    """
    if occurrence <= 0:
        message = "INSTR: the occurrence must be positive"
        raise ValueError(message)
    if start == 0:
        return 0
    if start < 0:
        found = instr(text[::-1], wanted[::-1], -start, occurrence)
        return len(text) + 2 - found - len(wanted) if found else 0
    at = start - 1
    for _ in range(occurrence):
        # Flink finds the empty string at the beginning, wherever it starts.
        found = text.find(wanted, at) + 1 if wanted else 1
        if found == 0:
            return 0
        at = found
    return found


_EDGES = (
    signature("string, string edge", result=BOOLEAN),
    signature("bytes, bytes edge", result=BOOLEAN),
)
functions.total(
    "STARTSWITH",
    "Whether a string, or bytes, begins with another.",
    lambda text, edge: bool(text.startswith(edge)),
    *_EDGES,
    kernel=on_column(pc.starts_with, str | bytes),
    examples=(("STARTSWITH('hello', 'he')", "TRUE"), ("STARTSWITH('hello', '')", "TRUE")),
)
functions.total(
    "ENDSWITH",
    "Whether a string, or bytes, ends with another.",
    lambda text, edge: bool(text.endswith(edge)),
    *_EDGES,
    kernel=on_column(pc.ends_with, str | bytes),
    examples=(("ENDSWITH('hello', 'lo')", "TRUE"),),
)


@functions.scalar(
    "ASCII",
    signature("string", result=INT),
    can_fail=False,
    examples=(("ASCII('abc')", "97"), ("ASCII('')", "0")),
)
def ascii_code(text: str) -> int:
    """The first byte of a string in UTF-8, from -128 to 127; 0 for an empty string."""
    if not text:
        return 0
    first = text[0].encode()[0]
    return first - 256 if first > 127 else first  # noqa: PLR2004 - a signed byte


functions.total(
    "CHR",
    "The character with the code modulo 256; an empty string if the code is negative.",
    lambda code: "" if code < 0 else chr(code & 0xFF),
    signature("integer code", result=STRING, nullability=Nullability.ALWAYS),
    examples=(("CHR(97)", "a"), ("CHR(353)", "a"), ("CHR(-1)", "")),
)


# -- upper and lower case ---------------------------------------------------------------------


def _ascii_only(kernel: Any) -> Any:
    """Java's rules for other letters are in no kernel; for ASCII all agree."""

    def change(text: Any) -> Any:
        return kernel(text) if pc.all(pc.string_is_ascii(text)).as_py() else NotImplemented

    return on_columns(change)


functions.total(
    "UPPER",
    "A string in upper case.",
    lambda text: text.upper(),
    signature("string", result=same_as(0)),
    kernel=_ascii_only(pc.ascii_upper),
    examples=(("UPPER('straße')", "STRASSE"),),
)
functions.total(
    "LOWER",
    "A string in lower case.",
    lambda text: text.lower(),
    signature("string", result=same_as(0)),
    kernel=_ascii_only(pc.ascii_lower),
    examples=(("LOWER('ÀB')", "àb"),),
)


@functions.scalar(
    "INITCAP",
    signature("string", result=same_as(0)),
    can_fail=False,
    examples=(("INITCAP('hello wORLD foo-bar')", "Hello World Foo-Bar"),),
)
def initcap(text: str) -> str:
    """A string with the first letter of each word in upper case, the others in lower case.

    A word is made of ASCII letters and digits; other characters stay as they are.
    """
    return capitalise_words(text)


STRINGS: Final = ArrayType(VarCharType())
STRING_MAP: Final = MapType(VarCharType(), VarCharType())
_STRING_TYPES_MOST: Final = VarCharType().length


def _length(type_: LogicalType) -> int:
    if isinstance(type_, CharType | VarCharType | BinaryType | VarBinaryType):
        return type_.length
    return _STRING_TYPES_MOST


def varying(*positions: int) -> ResultRule:
    """VARCHAR as long as the arguments at these positions are together."""

    def rule(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
        return VarCharType(
            min(_STRING_TYPES_MOST, sum(_length(types[position]) for position in positions))
        )

    return rule


def concatenated(types: Sequence[LogicalType], _: Sequence[object]) -> LogicalType:
    """The type of ``a || b``: fixed if both are, of both lengths together."""
    length = min(_STRING_TYPES_MOST, sum(map(_length, types)))
    if all(isinstance(type_, BinaryType | VarBinaryType) for type_ in types):
        fixed = all(isinstance(type_, BinaryType) for type_ in types)
        return BinaryType(length) if fixed else VarBinaryType(length)
    fixed = all(isinstance(type_, CharType) for type_ in types)
    return CharType(length) if fixed and length else VarCharType(length)


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


def _cut_column(text: pa.Array, position: int, length: int = _MOST) -> Any:
    if length < 0:
        return NotImplemented
    if position >= 0:
        start = max(position - 1, 0)
        return pc.utf8_slice_codeunits(text, start=start, stop=min(start + length, _MOST))
    stop = position + length
    cut = pc.utf8_slice_codeunits(text, start=position, stop=stop if stop < 0 else None)
    return pc.if_else(pc.less(pc.utf8_length(text), -position), "", cut)


@functions.scalar(
    "SUBSTRING",
    signature("string, integer position", result=varying(0), nullability=_ALWAYS),
    signature("string, integer position, integer length", result=varying(0), nullability=_ALWAYS),
    aliases=("SUBSTR",),
    kernel=on_column(_cut_column, int, int),
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


def _left_column(text: pa.Array, count: int) -> Any:
    return pc.utf8_slice_codeunits(text, start=0, stop=min(max(count, 0), _MOST))


functions.total(
    "LEFT",
    "The first characters of a string; an empty string if the length is not positive.",
    lambda text, length: text[: max(length, 0)],
    signature("string, integer length", result=varying(0), nullability=_ALWAYS),
    kernel=on_column(_left_column, int),
    examples=(("LEFT('hello', 2)", "he"), ("LEFT('hello', -2)", "")),
)


def _right_column(text: pa.Array, count: int) -> Any:
    if count <= 0:
        return pc.utf8_slice_codeunits(text, start=0, stop=0)
    return pc.utf8_slice_codeunits(text, start=-count, stop=None)


functions.total(
    "RIGHT",
    "The last characters of a string; an empty string if the length is not positive.",
    lambda text, length: text[-length:] if length > 0 else "",
    signature("string, integer length", result=varying(0), nullability=_ALWAYS),
    kernel=on_column(_right_column, int),
    examples=(("RIGHT('hello', 2)", "lo"), ("RIGHT('hello', 0)", "")),
)


# -- trimming ---------------------------------------------------------------------------------


def _trimmer(kernel: Any) -> Any:
    def trim(text: pa.Array, characters: str = " ") -> Any:
        return kernel(text, characters=characters) if characters else NotImplemented

    return on_column(trim, str)


@functions.scalar(
    "TRIM",
    signature("string", result=varying(0)),
    signature("symbol side, string characters, string", result=varying(2)),
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


functions.total(
    "LTRIM",
    "A string without the characters (blanks, if none are given) at its beginning.",
    lambda text, characters=" ": text.lstrip(characters) if characters else text,
    signature("string[, string characters]", result=varying(0)),
    kernel=_trimmer(pc.utf8_ltrim),
    examples=(("LTRIM('  ab ')", "ab "), ("LTRIM('abcd', 'ba')", "cd")),
)
functions.total(
    "RTRIM",
    "A string without the characters (blanks, if none are given) at its end.",
    lambda text, characters=" ": text.rstrip(characters) if characters else text,
    signature("string[, string characters]", result=varying(0)),
    kernel=_trimmer(pc.utf8_rtrim),
    examples=(("RTRIM(' ab  ')", " ab"), ("RTRIM('abcd', 'dc')", "ab")),
)
functions.total(
    "BTRIM",
    "A string without the characters (blanks, if none are given) at both ends.",
    lambda text, characters=" ": text.strip(characters) if characters else text,
    signature("string[, string characters]", result=STRING),
    kernel=_trimmer(pc.utf8_trim),
    examples=(("BTRIM('  ab  ')", "ab"), ("BTRIM('abcba', 'ab')", "c")),
)


# -- padding and repeating --------------------------------------------------------------------


def _padding(length: int, pad: str) -> str:
    return (pad * (length // len(pad) + 1))[:length] if length > 0 else ""


@functions.scalar(
    "LPAD",
    signature("string, integer length, string pad", result=STRING, nullability=_ALWAYS),
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
    signature("string, integer length, string pad", result=STRING, nullability=_ALWAYS),
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


functions.total(
    "REPEAT",
    "A string several times over; empty if the number is not positive.",
    lambda text, times: text * times,
    signature("string, integer times", result=STRING),
    examples=(("REPEAT('ab', 3)", "ababab"), ("REPEAT('ab', -1)", "")),
)
functions.total(
    "REVERSE",
    "The characters of a string from the last to the first.",
    lambda text: text[::-1],
    signature("string", result=STRING, nullability=_ALWAYS),
    kernel=on_columns(pc.utf8_reverse),
    examples=(("REVERSE('abc')", "cba"),),
)


# -- joining ----------------------------------------------------------------------------------


def _join_kernel(info: CallInfo, *texts: Any) -> Any:
    empty = "" if pa.types.is_string(texts[0].type) else b""
    separator = pa.scalar(empty, texts[0].type)
    return pc.binary_join_element_wise(*texts, separator, null_handling="emit_null")


functions.total(
    "||",
    "The two strings concatenated.",
    lambda first, second: first + second,
    signature("string string1, string string2", result=concatenated),
    signature("bytes bytes1, bytes bytes2", result=concatenated),
    kernel=_join_kernel,
    syntax="string1 || string2",
    examples=(("'mill' || 'stream'", "millstream"),),
)
functions.total(
    "CONCAT",
    "All strings concatenated; NULL if any is NULL.",
    lambda *texts: "".join(texts),
    signature("string...", result=STRING),
    kernel=_join_kernel,
    syntax="CONCAT(string1, string2, ...)",
    examples=(
        ("CONCAT('AA', 'BB', 'CC')", "AABBCC"),
        ("CONCAT('AA', CAST(NULL AS STRING))", "NULL"),
    ),
)


def _join_with_kernel(info: CallInfo, separator: Any, *texts: Any) -> Any:
    # The kernel wants columns; of constants alone, or with a NULL separator, it makes nothing good.
    if not isinstance(separator, pa.Scalar) or not separator.is_valid:
        return NotImplemented
    if not any(isinstance(text, pa.Array) for text in texts):
        return NotImplemented
    return pc.binary_join_element_wise(*texts, separator, null_handling="skip")


def _nullable_as_first(types: Any, _: Any) -> Any:
    return STRING.with_nullability(any(type_.is_nullable for type_ in types))


@functions.scalar(
    "CONCAT_WS",
    signature(
        "string separator[, string...]", result=_nullable_as_first, nullability=Nullability.RULE
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
    signature("integer index, string...", result=common_of(1), nullability=_ALWAYS),
    signature("integer index, bytes...", result=common_of(1), nullability=_ALWAYS),
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


def _replace_column(text: pa.Array, wanted: str, replacement: str) -> Any:
    if not wanted:
        return NotImplemented
    return pc.replace_substring(text, pattern=wanted, replacement=replacement)


@functions.scalar(
    "REPLACE",
    signature("string, string wanted, string replacement", result=STRING),
    kernel=on_column(_replace_column, str, str),
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
    signature(
        "string, string replacement, integer position[, integer length]", result=varying(0, 1)
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
    signature(
        "string, string from, string to",
        result=lambda types, _: STRING.with_nullability(types[0].is_nullable),
        nullability=Nullability.RULE,
    ),
    aliases=("TRANSLATE3",),
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


def _split_index_column(text: pa.Array, separator: str, index: int) -> Any:
    if not separator or index < 0:
        return NotImplemented
    parts = pc.split_pattern(text, pattern=separator)
    there = pc.and_(
        pc.greater(pc.list_value_length(parts), index), pc.greater(pc.binary_length(text), 0)
    )
    positions = pc.add(parts.offsets[:-1].cast(pa.int64()), index)
    return pc.take(parts.values, pc.if_else(there, positions, pa.scalar(None, pa.int64())))


@functions.scalar(
    "SPLIT_INDEX",
    signature("string, string separator, integer index", result=STRING, nullability=_ALWAYS),
    signature("string, INT separator, integer index", result=STRING, nullability=_ALWAYS),
    kernel=on_column(_split_index_column, str, int),
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


def _text_and_pattern(result: LogicalType, more: str = "") -> Signature:
    return signature(f"string, string pattern{more}", result=result, nullability=_ALWAYS)


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return compile_pattern(pattern)
    except InvalidPatternError:
        return None


@functions.scalar(
    "REGEXP",
    signature("string, string pattern", result=BOOLEAN),
    costly=True,
    examples=(("REGEXP('foobar', 'o+')", "TRUE"), ("REGEXP('foobar', '')", "FALSE")),
)
def regexp(text: str, pattern: str) -> bool:
    """Test if a part of a string matches a regular expression; FALSE for an empty one."""
    compiled = _compiled(pattern) if pattern else None
    return compiled is not None and compiled.search(text) is not None


@functions.scalar(
    "REGEXP_REPLACE",
    signature("string, string pattern, string replacement", result=STRING, nullability=_ALWAYS),
    costly=True,
    examples=(
        ("REGEXP_REPLACE('foobar', 'oo|ar', '')", "fb"),
        ("REGEXP_REPLACE('abc', '(a)(b)', '$2')", "$2c"),
    ),
)
def regexp_replace(text: str, pattern: str, replacement: str) -> str | None:
    """A string with all that matches a regular expression replaced.

    The replacement is taken as it is: ``$1`` does not stand for a group.
    """
    compiled = _compiled(pattern)
    return None if compiled is None else compiled.sub(lambda _: replacement, text)


@functions.scalar(
    "REGEXP_EXTRACT",
    _text_and_pattern(STRING, "[, integer group]"),
    costly=True,
    syntax="REGEXP_EXTRACT(string, pattern[, group])",
    examples=(
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 3)", "NULL"),
    ),
)
def regexp_extract(text: str, pattern: str, group: int = 0) -> str | None:
    """The first match of a group of a regular expression in a string.

    Group 0 is all of it.
    """
    compiled = _compiled(pattern)
    if compiled is None or not 0 <= group <= compiled.groups:
        return None
    match = compiled.search(text)
    return None if match is None else match[group]


@functions.scalar(
    "REGEXP_EXTRACT_ALL",
    _text_and_pattern(STRINGS, "[, integer group]"),
    costly=True,
    syntax="REGEXP_EXTRACT_ALL(string, pattern[, group])",
    examples=(
        (r"REGEXP_EXTRACT_ALL('100-200, 300-400', '(\d+)-(\d+)', 2)", "[200, 400]"),
        (r"REGEXP_EXTRACT_ALL('100-200', '\d+')", "NULL"),
    ),
)
def regexp_extract_all(text: str, pattern: str, group: int = 1) -> tuple[str | None, ...] | None:
    """What a group of a regular expression, the first if none is named, matches: every time."""
    compiled = _compiled(pattern)
    if compiled is None or not 0 <= group <= compiled.groups:
        return None
    return tuple(match[group] for match in compiled.finditer(text))


@functions.scalar(
    "REGEXP_COUNT",
    _text_and_pattern(INT),
    costly=True,
    examples=(("REGEXP_COUNT('foobarfoo', 'foo')", "2"),),
)
def regexp_count(text: str, pattern: str) -> int | None:
    """How many times a regular expression matches in a string."""
    compiled = _compiled(pattern)
    return None if compiled is None else sum(1 for _ in compiled.finditer(text))


@functions.scalar(
    "REGEXP_INSTR",
    _text_and_pattern(INT),
    costly=True,
    examples=(("REGEXP_INSTR('hello world', 'wor')", "7"), ("REGEXP_INSTR('abc', 'x')", "0")),
)
def regexp_instr(text: str, pattern: str) -> int | None:
    """Where a regular expression first matches, from 1, in UTF-16 units; 0 if it does not."""
    compiled = _compiled(pattern)
    if compiled is None:
        return None
    match = compiled.search(text)
    return 0 if match is None else len(to_units(text[: match.start()])) + 1


@functions.scalar(
    "REGEXP_SUBSTR",
    _text_and_pattern(STRING),
    costly=True,
    examples=(("REGEXP_SUBSTR('hello', 'l+')", "ll"), ("REGEXP_SUBSTR('hello', 'x')", "NULL")),
)
def regexp_substr(text: str, pattern: str) -> str | None:
    """The first part of a string that matches a regular expression."""
    compiled = _compiled(pattern)
    match = None if compiled is None else compiled.search(text)
    return None if match is None else match[0]


@functions.scalar(
    "STR_TO_MAP",
    signature("string", result=STRING_MAP, nullability=_ALWAYS),
    signature(
        "string, string pair_delimiter, string value_delimiter",
        result=STRING_MAP,
        nullability=_ALWAYS,
    ),
    syntax="STR_TO_MAP(string[, pair_delimiter, value_delimiter])",
    examples=(
        ("STR_TO_MAP('k1=v1,k2=v2')['k2']", "v2"),
        ("STR_TO_MAP('k1:v1;k2:v2', ';', ':')['k1']", "v1"),
    ),
)
def str_to_map(
    text: str, pair_delimiter: str = ",", value_delimiter: str = "="
) -> dict[str, str | None]:
    """A map of the pairs in a string.

    Delimiters are regular expressions, ``,`` and ``=`` if none are given.  A key without a value
    gets NULL; of equal keys the last one counts.
    """
    if not text:
        return {}
    pairs, values = _compiled(pair_delimiter), _compiled(value_delimiter)
    if pairs is None or values is None:
        message = f"STR_TO_MAP: no pattern: {pair_delimiter!r} or {value_delimiter!r}"
        raise ValueError(message)
    found = dict[str, str | None]()
    for part in split_text(text, pairs):
        key, *value = split_text(part, values, limit=2)
        found[key if value else part] = value[0] if value else None
    return found
