"""String functions between strings, bytes, numbers and URLs, PRINTF, and hash functions."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.expressions.functions.definition import (
    BIGINT,
    BYTES,
    STRING,
    Argument,
    FunctionGroup,
    Nullability,
    NullBehaviour,
    signature,
)
from millstream.expressions.functions.strings import STRINGS
from millstream.expressions.java import strings
from millstream.expressions.java.formatter import FormatError, FormattedValue, format_text
from millstream.types.logical_types import CharType, IntType, VarCharType
from millstream.types.text_values import double_text, float_text, iso_timestamp_text
from millstream.types.type_roots import INTEGER_BITS, TypeFamily, TypeRoot

if TYPE_CHECKING:
    from millstream.expressions.functions.definition import CallInfo
    from millstream.types.logical_types import LogicalType


functions = FunctionGroup("string")

_ALWAYS: Final = Nullability.ALWAYS
_PER_MILLISECOND: Final = 1_000_000


# -- bytes ------------------------------------------------------------------------------------


@functions.scalar(
    "ENCODE",
    signature("string, string charset", result=BYTES),
    examples=(("HEX(CAST(ENCODE('A', 'UTF-8') AS STRING))", "41"),),
)
def encode(text: str, charset: str) -> bytes:
    """The bytes of a string in a charset, such as ``UTF-8``, ``ISO-8859-1``, ``UTF-16BE``."""
    return strings.encode(text, charset)


@functions.scalar(
    "DECODE",
    signature("bytes, string charset", result=STRING),
    examples=(("DECODE(x'C3A4', 'UTF-8')", "ä"), ("DECODE(x'E4', 'ISO-8859-1')", "ä")),
)
def decode(data: bytes, charset: str) -> str:
    """The string of bytes in a charset; what is none there becomes U+FFFD."""
    return strings.decode(data, charset)


@functions.scalar(
    "TO_BASE64",
    signature("string", result=STRING),
    signature("bytes", result=STRING),
    can_fail=False,
    examples=(("TO_BASE64('hello world')", "aGVsbG8gd29ybGQ="),),
)
def to_base64(data: str | bytes) -> str:
    """A string (as UTF-8) or bytes in Base64."""
    raw = data.encode() if isinstance(data, str) else data
    return base64.b64encode(raw).decode()


@functions.scalar(
    "FROM_BASE64",
    signature("string", result=STRING),
    signature("bytes", result=STRING),
    examples=(("FROM_BASE64('aGVsbG8gd29ybGQ=')", "hello world"),),
)
def from_base64(data: str | bytes) -> str:
    """The string that Base64 stands for; what is no Base64 fails."""
    raw = data.encode() if isinstance(data, str) else data
    return strings.decode_utf8(strings.decode_base64(raw))


_HEXADECIMAL: Final = re.compile("[0-9a-fA-F]*")


@functions.scalar(
    "UNHEX",
    signature("string", result=BYTES, nullability=_ALWAYS),
    can_fail=False,
    examples=(("DECODE(UNHEX('4142'), 'UTF-8')", "AB"), ("UNHEX('4G')", "NULL")),
)
def unhex(text: str) -> bytes | None:
    """The bytes that hexadecimal digits stand for; NULL if there is anything else."""
    if _HEXADECIMAL.fullmatch(text) is None:
        return None
    if len(text) % 2:
        # Flink 2.3 takes a single first digit for 0, whatever it is.
        text = "00" + text[1:]
    return bytes.fromhex(text)


# -- internet ---------------------------------------------------------------------------------


functions.total(
    "URL_ENCODE",
    "A string as ``application/x-www-form-urlencoded``, in UTF-8.",
    strings.encode_form,
    signature("string", result=STRING, nullability=_ALWAYS),
    examples=(("URL_ENCODE('a b/c')", "a+b%2Fc"),),
)
functions.total(
    "URL_DECODE",
    "The string encoded as ``application/x-www-form-urlencoded``; NULL if an escape is wrong.",
    strings.decode_form,
    signature("string", result=STRING, nullability=_ALWAYS),
    examples=(("URL_DECODE('a+b%2Fc')", "a b/c"), ("URL_DECODE('%zz')", "NULL")),
)


_URL_PARTS: Final = {
    "HOST": "host",
    "PATH": "path",
    "QUERY": "query",
    "REF": "reference",
    "PROTOCOL": "protocol",
    "FILE": "file",
    "AUTHORITY": "authority",
    "USERINFO": "user_info",
}


@functions.scalar(
    "PARSE_URL",
    signature("string url, string part[, string key]", result=STRING, nullability=_ALWAYS),
    can_fail=False,
    costly=True,
    syntax="PARSE_URL(url, part[, key])",
    examples=(
        ("PARSE_URL('http://example.org/p.php?k1=v1&k2=v2#r', 'HOST')", "example.org"),
        ("PARSE_URL('http://example.org/p.php?k1=v1&k2=v2#r', 'QUERY', 'k2')", "v2"),
    ),
)
def parse_url(url: str, part: str, key: str | None = None) -> str | None:
    """A part of a URL: HOST, PATH, QUERY, REF, PROTOCOL, FILE, AUTHORITY or USERINFO.

    With a key, its value in the query.  NULL if the URL has no such part, or none that Java knows.
    """
    attribute = _URL_PARTS.get(part)
    if attribute is None or (key is not None and part != "QUERY"):
        return None
    parsed = strings.parse_url(url)
    found: str | None = None if parsed is None else getattr(parsed, attribute)
    if key is None or found is None:
        return found
    match = re.search(f"(?:&|^){re.escape(key)}=([^&]*)", found)
    return None if match is None else match[1]


_DECIMAL_DIGITS: Final = re.compile("[0-9]+")


@functions.scalar(
    "INET_ATON",
    signature("string address", result=BIGINT, nullability=_ALWAYS),
    can_fail=False,
    examples=(("INET_ATON('127.0.0.1')", "2130706433"), ("INET_ATON('1.2.3.256')", "NULL")),
)
def inet_aton(address: str) -> int | None:
    """The number of an IPv4 address; NULL if it is none.

    Parts may be left out before the last one: ``127.1`` is ``127.0.0.1``.
    """
    parts = address.split(".")
    if not 1 <= len(parts) <= 4 or not all(map(_DECIMAL_DIGITS.fullmatch, parts)):  # noqa: PLR2004
        return None
    numbers = [int(part) for part in parts]
    if max(numbers) > 255:  # noqa: PLR2004 - a byte
        return None
    *leading, last = numbers
    return sum(number << (24 - 8 * at) for at, number in enumerate(leading)) + last


@functions.scalar(
    "INET_NTOA",
    signature("integer number", result=STRING, nullability=_ALWAYS),
    can_fail=False,
    examples=(("INET_NTOA(2130706433)", "127.0.0.1"), ("INET_NTOA(-1)", "NULL")),
)
def inet_ntoa(number: int) -> str | None:
    """The IPv4 address of a number; NULL if there is none."""
    if not 0 <= number < 2**32:
        return None
    return ".".join(str(number >> shift & 255) for shift in (24, 16, 8, 0))


# -- splitting and formatting -----------------------------------------------------------------


@functions.scalar(
    "SPLIT",
    signature("string, string delimiter", result=STRINGS),
    can_fail=False,
    examples=(("SPLIT('a,b,c', ',')", "[a, b, c]"), ("SPLIT('ab', '')", "[a, b]")),
)
def split(text: str, delimiter: str) -> tuple[str, ...]:
    """The parts of a string between delimiters; all its UTF-16 units if the delimiter is empty."""
    if not text:
        return ()
    if not delimiter:
        return tuple(map(strings.from_units, strings.to_units(text)))
    return tuple(text.split(delimiter))


def _java_value(  # noqa: PLR0911 - a table
    value: Any, type_: LogicalType
) -> FormattedValue | None:
    if value is None:
        return None
    root = type_.root
    if root is TypeRoot.BOOLEAN:
        return FormattedValue(value, "true" if value else "false")
    if root is TypeRoot.TIME_WITHOUT_TIME_ZONE:
        value //= _PER_MILLISECOND
    if type_.is_a(TypeFamily.TIMESTAMP):
        return FormattedValue(None, iso_timestamp_text(value))
    if isinstance(value, int):
        bits = 64 if root is TypeRoot.INTERVAL_DAY_TIME else INTEGER_BITS.get(root, 32)
        return FormattedValue(value, str(value), bits)
    if isinstance(value, float):
        text = float_text(value) if root is TypeRoot.FLOAT else double_text(value)
        return FormattedValue(value, text)
    if root is TypeRoot.DECIMAL:
        return FormattedValue(None, format(value, "f"))
    return FormattedValue(None, value)


_UNPRINTABLE: Final = frozenset(
    {TypeRoot.ARRAY, TypeRoot.MAP, TypeRoot.MULTISET, TypeRoot.ROW, TypeRoot.RAW}
    | {TypeRoot.BINARY, TypeRoot.VARBINARY, TypeRoot.BITMAP, TypeRoot.VARIANT}
)
_PRINTABLE: Final = Argument(
    "value", lambda type_: None if type_.root in _UNPRINTABLE else type_, "SCALAR"
)


@functions.scalar(
    "PRINTF",
    signature(
        "string format", _PRINTABLE, result=STRING, repeats=True, optional=1, nullability=_ALWAYS
    ),
    nulls=NullBehaviour.CALLED,
    contextual=True,
    syntax="PRINTF(format, value1, value2, ...)",
    examples=(
        ("PRINTF('%s: %05.1f', 'a', CAST(2.25 AS DOUBLE))", "a: 002.3"),
        ("PRINTF('%d', 'x')", "NULL"),
    ),
)
def printf(info: CallInfo, pattern: str | None, *values: Any) -> str | None:
    """Values put into a format as ``java.util.Formatter`` does; NULL if the format is wrong.

    A NULL prints as ``null``.  Arrays, maps, rows and bytes are refused: what Flink prints for
    them changes from run to run.
    """
    if pattern is None:
        return None
    given = [
        _java_value(value, type_)
        for value, type_ in zip(values, info.argument_types[1:], strict=True)
    ]
    try:
        return format_text(pattern, given)
    except FormatError:
        return None


hashes: Final = FunctionGroup("hash")

_SHA2: Final = (1, 224, 256, 384, 512)


def _hashed(name: str, data: str | bytes) -> str:
    raw = data.encode() if isinstance(data, str) else data
    return hashlib.new(name, raw, usedforsecurity=False).hexdigest()


def _register(name: str, algorithm: str, length: int, example: str) -> None:
    def hashed(data: str | bytes) -> str:
        return _hashed(algorithm, data)

    hashes.scalar(
        name,
        signature("string", result=CharType(length)),
        signature("bytes", result=CharType(length)),
        can_fail=False,
        documentation=f"The {algorithm.upper()} hash of a string, in UTF-8, or of bytes.",
        examples=((f"SUBSTRING({name}('abc'), 1, 8)", example),),
    )(hashed)


_register("MD5", "md5", 32, "90015098")
_register("SHA1", "sha1", 40, "a9993e36")
_register("SHA224", "sha224", 56, "23097d22")
_register("SHA256", "sha256", 64, "ba7816bf")
_register("SHA384", "sha384", 96, "cb00753f")
_register("SHA512", "sha512", 128, "ddaf35a1")


@hashes.scalar(
    "SHA2",
    signature("string, integer bits", result=VarCharType(128)),
    signature("bytes, integer bits", result=VarCharType(128)),
    examples=(("SUBSTRING(SHA2('abc', 256), 1, 8)", "ba7816bf"),),
)
def sha2(data: str | bytes, bits: int) -> str:
    """The SHA-2 hash of a string, in UTF-8, or of bytes: 224, 256, 384 or 512 bits of it.

    As in Flink, 1 stands for SHA-1 where it is no constant.
    """
    if bits not in _SHA2:
        message = f"SHA2: there are 224, 256, 384 and 512 bits, not {bits}"
        raise ValueError(message)
    return _hashed(f"sha{bits}", data)


#: Knuth's multiplier for numbers of 64 bits, whose upper half tells them apart.
_FACTOR: Final = 6364136223846793005
_MASK: Final = 2**64 - 1
_UPPER: Final = 33


def _hash_code_kernel(_: CallInfo, value: Any) -> Any:
    if not isinstance(value, pa.Array):
        return NotImplemented
    if not pa.types.is_integer(value.type):
        coded = value.dictionary_encode()
        codes = [None if each is None else hash_code(each) for each in coded.dictionary.to_pylist()]
        return pa.array(codes, pa.int32()).take(coded.indices)
    numbers = value.fill_null(0).cast(pa.int64()).to_numpy().view(np.uint64)
    codes = ((numbers * np.uint64(_FACTOR)) >> np.uint64(_UPPER)).astype(np.int32)
    return pa.array(codes, mask=np.asarray(value.is_null()))


@hashes.scalar(
    "HASH_CODE",
    signature("integer", result=IntType()),
    signature("string", result=IntType()),
    kernel=_hash_code_kernel,
    can_fail=False,
    examples=(("HASH_CODE('abc')", "891568578"), ("HASH_CODE(7)", "891213470")),
)
def hash_code(value: int | str) -> int:
    """A whole number, not negative, of what a value is; the same in every run and release.

    The planner writes it where it spreads the values of DISTINCT
    (``table.optimizer.distinct-agg.split.enabled``).  It is not the number that Flink has.
    """
    if isinstance(value, str):
        return zlib.crc32(value.encode()) & 0x7FFFFFFF
    return (value * _FACTOR & _MASK) >> _UPPER
