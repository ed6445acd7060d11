"""String functions with Java's regular expressions.

An invalid pattern gives NULL (FALSE for REGEXP), as in Flink; one that Python cannot express is an
error (``expressions/java/regular_expressions.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.expressions.functions.definition import (
    BOOLEAN,
    INT,
    STRING,
    FunctionGroup,
    Nullability,
    Signature,
    character,
    integer,
    signature,
)
from millstream.expressions.functions.string_parts import STRING_MAP, STRINGS
from millstream.expressions.java.regular_expressions import (
    InvalidPatternError,
    compile_pattern,
    split_text,
)
from millstream.expressions.java.strings import to_units

if TYPE_CHECKING:
    import re

    from millstream.types.logical_types import LogicalType


functions = FunctionGroup("string")

_ALWAYS: Final = Nullability.ALWAYS


def _text_and_pattern(result: LogicalType, *, grouped: bool = False) -> tuple[Signature, ...]:
    arguments = [character(), character("pattern")]
    if grouped:
        arguments.append(integer("group"))
    optional = int(grouped)
    return (signature(*arguments, result=result, optional=optional, nullability=_ALWAYS),)


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return compile_pattern(pattern)
    except InvalidPatternError:
        return None


@functions.scalar(
    "REGEXP",
    signatures=(signature(character(), character("pattern"), result=BOOLEAN),),
    costly=True,
    examples=(("REGEXP('foobar', 'o+')", "TRUE"), ("REGEXP('foobar', '')", "FALSE")),
)
def regexp(text: str, pattern: str) -> bool:
    """Whether a part of a string matches a regular expression; FALSE for an empty one."""
    compiled = _compiled(pattern) if pattern else None
    return compiled is not None and compiled.search(text) is not None


@functions.scalar(
    "REGEXP_REPLACE",
    signatures=(
        signature(
            character(),
            character("pattern"),
            character("replacement"),
            result=STRING,
            nullability=_ALWAYS,
        ),
    ),
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
    signatures=_text_and_pattern(STRING, grouped=True),
    costly=True,
    syntax="REGEXP_EXTRACT(string, pattern[, group])",
    examples=(
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 2)", "bar"),
        ("REGEXP_EXTRACT('foothebar', 'foo(.*?)(bar)', 3)", "NULL"),
    ),
)
def regexp_extract(text: str, pattern: str, group: int = 0) -> str | None:
    """What a group of a regular expression matches first in a string; group 0 is all of it."""
    compiled = _compiled(pattern)
    if compiled is None or not 0 <= group <= compiled.groups:
        return None
    match = compiled.search(text)
    return None if match is None else match[group]


@functions.scalar(
    "REGEXP_EXTRACT_ALL",
    signatures=_text_and_pattern(STRINGS, grouped=True),
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
    signatures=_text_and_pattern(INT),
    costly=True,
    examples=(("REGEXP_COUNT('foobarfoo', 'foo')", "2"),),
)
def regexp_count(text: str, pattern: str) -> int | None:
    """How many times a regular expression matches in a string."""
    compiled = _compiled(pattern)
    return None if compiled is None else sum(1 for _ in compiled.finditer(text))


@functions.scalar(
    "REGEXP_INSTR",
    signatures=_text_and_pattern(INT),
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
    signatures=_text_and_pattern(STRING),
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
    signatures=(
        signature(character(), result=STRING_MAP, nullability=_ALWAYS),
        signature(
            character(),
            character("pair_delimiter"),
            character("value_delimiter"),
            result=STRING_MAP,
            nullability=_ALWAYS,
        ),
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
