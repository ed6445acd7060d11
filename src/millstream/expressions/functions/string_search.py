"""String functions that search and measure: length, position, case, codes, in characters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from millstream.expressions.functions.definition import (
    BOOLEAN,
    INT,
    STRING,
    FunctionGroup,
    Nullability,
    binary,
    character,
    integer,
    same_as,
    signature,
)
from millstream.expressions.java.strings import capitalise_words

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import CallInfo


functions = FunctionGroup("string")


def _length_kernel(info: CallInfo, text: Any) -> Any:
    return pc.utf8_length(text)


@functions.scalar(
    "CHAR_LENGTH",
    aliases=("CHARACTER_LENGTH",),
    signatures=(signature(character(), result=INT),),
    kernel=_length_kernel,
    can_fail=False,
    examples=(("CHAR_LENGTH('hello')", "5"),),
)
def char_length(text: str) -> int:
    """How many characters a string has."""
    return len(text)


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
    signatures=(
        signature(character("wanted"), character(), integer("start"), result=INT, optional=1),
    ),
    kernel=_position_kernel,
    can_fail=False,
    examples=(("LOCATE('l', 'hello')", "3"), ("LOCATE('l', 'hello', 4)", "4")),
)
def locate(wanted: str, text: str, start: int = 1) -> int:
    """Where one string occurs in another at or after a start, from 1; 0 if it does not."""
    if not wanted:
        return 1
    return text.find(wanted, max(start - 1, 0)) + 1


@functions.scalar(
    "POSITION",
    signatures=(
        signature(character("wanted"), character(), integer("start"), result=INT, optional=1),
    ),
    kernel=_position_kernel,
    can_fail=False,
    syntax="POSITION(wanted IN string [FROM start])",
    examples=(("POSITION('b' IN 'abcb')", "2"), ("POSITION('b' IN 'abcb' FROM 3)", "4")),
)
def position(wanted: str, text: str, start: int = 1) -> int:
    """Where one string occurs in another at or after a start, from 1; 0 if it does not."""
    return locate(wanted, text, start)


def _instr_kernel(info: CallInfo, text: Any, wanted: Any, *rest: Any) -> Any:
    return NotImplemented if rest else _find_kernel(info, text, wanted)


@functions.scalar(
    "INSTR",
    signatures=(
        signature(
            character(),
            character("wanted"),
            integer("start"),
            integer("occurrence"),
            result=INT,
            optional=2,
        ),
    ),
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


def _edge_kernel(kernel: Any) -> Any:
    def look(info: CallInfo, text: Any, edge: Any) -> Any:
        wanted = info.constants[1]
        if not isinstance(text, pa.Array) or not isinstance(wanted, str | bytes):
            return NotImplemented
        return kernel(text, pattern=wanted)

    return look


_EDGES = (
    signature(character(), character("edge"), result=BOOLEAN),
    signature(binary(), binary("edge"), result=BOOLEAN),
)


@functions.scalar(
    "STARTSWITH",
    signatures=_EDGES,
    kernel=_edge_kernel(pc.starts_with),
    can_fail=False,
    examples=(("STARTSWITH('hello', 'he')", "TRUE"), ("STARTSWITH('hello', '')", "TRUE")),
)
def startswith(text: Any, edge: Any) -> bool:
    """Whether a string, or bytes, begins with another."""
    return bool(text.startswith(edge))


@functions.scalar(
    "ENDSWITH",
    signatures=_EDGES,
    kernel=_edge_kernel(pc.ends_with),
    can_fail=False,
    examples=(("ENDSWITH('hello', 'lo')", "TRUE"),),
)
def endswith(text: Any, edge: Any) -> bool:
    """Whether a string, or bytes, ends with another."""
    return bool(text.endswith(edge))


@functions.scalar(
    "ASCII",
    signatures=(signature(character(), result=INT),),
    can_fail=False,
    examples=(("ASCII('abc')", "97"), ("ASCII('')", "0")),
)
def ascii_code(text: str) -> int:
    """The first byte of a string in UTF-8, from -128 to 127; 0 for an empty string."""
    if not text:
        return 0
    first = text[0].encode()[0]
    return first - 256 if first > 127 else first  # noqa: PLR2004 - a signed byte


@functions.scalar(
    "CHR",
    signatures=(signature(integer("code"), result=STRING, nullability=Nullability.ALWAYS),),
    can_fail=False,
    examples=(("CHR(97)", "a"), ("CHR(353)", "a"), ("CHR(-1)", "")),
)
def character_of(code: int) -> str:
    """The character with the code modulo 256; an empty string if the code is negative."""
    return "" if code < 0 else chr(code & 0xFF)


# -- upper and lower case ---------------------------------------------------------------------


def _ascii_only(kernel: Any) -> Any:
    """Java's rules for other letters are in no kernel; for ASCII all agree."""

    def change(info: CallInfo, text: Any) -> Any:
        if not pc.all(pc.string_is_ascii(text)).as_py():
            return NotImplemented
        return kernel(text)

    return change


@functions.scalar(
    "UPPER",
    signatures=(signature(character(), result=same_as(0)),),
    kernel=_ascii_only(pc.ascii_upper),
    can_fail=False,
    examples=(("UPPER('straße')", "STRASSE"),),
)
def upper(text: str) -> str:
    """A string in upper case."""
    return text.upper()


@functions.scalar(
    "LOWER",
    signatures=(signature(character(), result=same_as(0)),),
    kernel=_ascii_only(pc.ascii_lower),
    can_fail=False,
    examples=(("LOWER('ÀB')", "àb"),),
)
def lower(text: str) -> str:
    """A string in lower case."""
    return text.lower()


@functions.scalar(
    "INITCAP",
    signatures=(signature(character(), result=same_as(0)),),
    can_fail=False,
    examples=(("INITCAP('hello wORLD foo-bar')", "Hello World Foo-Bar"),),
)
def initcap(text: str) -> str:
    """A string with the first letter of each word in upper case, the others in lower case.

    A word is made of ASCII letters and digits; other characters stay as they are.
    """
    return capitalise_words(text)
