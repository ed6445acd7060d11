"""Java's strings: UTF-16 units, charsets, Base64, capital letters of words.

What it is: what SQL functions of Flink do by way of ``java.lang.String``.  Where it counts, a text
becomes its **units**: a str in which a character beyond U+FFFF is two surrogates.

What it is not: the functions themselves (``expressions/functions/string.py``).

Read next: ``expressions/java/regular_expressions.py``.
"""

from __future__ import annotations

import base64
import codecs
import re
from typing import Final

__all__ = [
    "capitalise_words",
    "decode",
    "decode_base64",
    "decode_utf8",
    "encode",
    "from_units",
    "to_units",
]

_BEYOND_ONE_UNIT: Final = re.compile("[\U00010000-\U0010ffff]")
_LONE_SURROGATE: Final = re.compile("[\ud800-\udfff]")
_WORD: Final = re.compile("[0-9A-Za-z]+")
_BASE64: Final = re.compile(b"[A-Za-z0-9+/]*")
_SURROGATE_BYTES: Final = re.compile(rb"\xed[\xa0-\xbf][\x80-\xbf]")

#: Java's charset names, in lower case, and Python's.
_CHARSETS: Final = {
    "us-ascii": "ascii",
    "ascii": "ascii",
    "iso-8859-1": "latin-1",
    "iso8859_1": "latin-1",
    "latin1": "latin-1",
    "utf-8": "utf-8",
    "utf8": "utf-8",
    "utf-16be": "utf-16-be",
    "utf-16le": "utf-16-le",
    "utf-16": "utf-16",
    "utf-32": "utf-32-be",
    "iso-8859-15": "iso-8859-15",
    "windows-1252": "cp1252",
    "cp1252": "cp1252",
    "gbk": "gbk",
    "gb2312": "gb2312",
    "gb18030": "gb18030",
    "big5": "big5",
    "shift_jis": "shift_jis",
    "euc-jp": "euc_jp",
    "euc-kr": "euc_kr",
    "koi8-r": "koi8-r",
}


def to_units(text: str) -> str:
    """The UTF-16 units of a text, each as one character."""
    if text.isascii() or not _BEYOND_ONE_UNIT.search(text):
        return text
    raw = text.encode("utf-16-le", "surrogatepass")
    return "".join(chr(raw[at] | raw[at + 1] << 8) for at in range(0, len(raw), 2))


def from_units(units: str) -> str:
    """The text of UTF-16 units; half of a pair becomes ``?``, as when Java writes UTF-8."""
    if units.isascii() or not _LONE_SURROGATE.search(units):
        return units
    joined = units.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _LONE_SURROGATE.sub("?", joined)


def capitalise_words(text: str) -> str:
    """The text with words of ASCII letters and digits in lower case but for their first letter."""
    return _WORD.sub(lambda word: word[0][0].upper() + word[0][1:].lower(), text)


def _codec(charset: str) -> str:
    codec = _CHARSETS.get(charset.lower())
    if codec is None:
        message = f"unknown charset {charset!r}; known are {', '.join(sorted(_CHARSETS))}"
        raise ValueError(message)
    return codec


def encode(text: str, charset: str) -> bytes:
    """The bytes of a text; what the charset has not becomes ``?``.

    Raises:
        ValueError: the charset is not known.
    """
    codec = _codec(charset)
    if codec == "utf-16":
        return codecs.BOM_UTF16_BE + text.encode("utf-16-be")
    return text.encode(codec, "replace")


def decode(data: bytes, charset: str) -> str:
    """The text of bytes; what the charset has not becomes U+FFFD.

    Raises:
        ValueError: the charset is not known.
    """
    codec = _codec(charset)
    if codec == "utf-8":
        return decode_utf8(data)
    if codec == "utf-16" and not data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        codec = "utf-16-be"
    return data.decode(codec, "replace")


def decode_utf8(data: bytes) -> str:
    """The text of UTF-8 bytes; what is wrong is U+FFFD, once for a surrogate's three bytes."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return _SURROGATE_BYTES.sub(b"\xef\xbf\xbd", data).decode("utf-8", "replace")


def decode_base64(data: bytes) -> bytes:
    """The bytes that Base64 stands for; padding may be left out, nothing else.

    Raises:
        ValueError: the data is no Base64.
    """
    match = _BASE64.match(data)
    body = match[0] if match is not None else b""
    padding = data[len(body) :]
    needed = -len(body) % 4
    if needed == 3 or padding not in {b"", b"=" * needed}:  # noqa: PLR2004 - one digit alone
        message = f"no Base64: {decode_utf8(data)!r}"
        raise ValueError(message)
    return base64.b64decode(body + b"=" * needed)
