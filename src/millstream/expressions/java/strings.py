"""Java's strings: UTF-16 units, charsets, Base64, capitalization.

Where Java counts, a text becomes its **units**: a str in which a character beyond U+FFFF is two
surrogates.
"""

from __future__ import annotations

import base64
import codecs
import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import quote_plus

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


_PROTOCOLS: Final = frozenset({"http", "https", "ftp", "file", "jar", "mailto"})
_PROTOCOL: Final = re.compile("([^/:]*):")
_PORT: Final = re.compile("[+-]?[0-9]+")
_ESCAPES: Final = re.compile("(?:%.{0,2})+", re.DOTALL)
_DIGITS: Final = re.compile(r"[0-9a-fA-F]{2}|\+[0-9a-fA-F]")
_LEAST_PORT: Final = -1
_MOST_PORT: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL; None where there is none."""

    protocol: str
    authority: str | None
    user_info: str | None
    host: str
    path: str
    query: str | None
    reference: str | None

    @property
    def file(self) -> str:
        """Path and query."""
        return self.path if self.query is None else f"{self.path}?{self.query}"


def parse_url(text: str) -> Url | None:
    """The parts of a URL; None for what Java takes for none."""
    text = text.strip("".join(map(chr, range(33))))
    if text[:4].lower() == "url:":
        text = text[4:]
    match = _PROTOCOL.match(text)
    protocol = match[1].lower() if match is not None else ""
    if protocol not in _PROTOCOLS:
        return None
    rest, _, reference = text[len(protocol) + 1 :].partition("#")
    given_reference = reference if "#" in text[len(protocol) + 1 :] else None
    if protocol == "jar":
        if "!/" not in rest:
            return None
        return Url(protocol, None, None, "", rest, None, given_reference)
    rest, mark, query = rest.partition("?")
    if protocol == "mailto":
        return Url(protocol, None, None, "", rest, query if mark else None, given_reference)
    return _hierarchical(protocol, rest, query if mark else None, given_reference)


def _hierarchical(protocol: str, rest: str, query: str | None, reference: str | None) -> Url | None:
    authority = user_info = None
    host = ""
    if rest.startswith("//") and not rest.startswith("////"):
        authority, slash, path = rest[2:].partition("/")
        rest = slash + path
        if authority.count("@") < 2:  # noqa: PLR2004 - Java gives up host and user at two
            user, at, host = authority.rpartition("@")
            user_info = user if at else None
        found = _host(host)
        if found is None:
            return None
        host = found
    path = rest
    if authority and path and not path.startswith("/"):
        path = "/" + path
    return Url(protocol, authority, user_info, host, path, query, reference)


def _host(text: str) -> str | None:
    if text.startswith("["):
        address, bracket, port = text[1:].partition("]")
        if not bracket or not _is_ipv6(address) or (port and not port.startswith(":")):
            return None
        return f"[{address}]" if _is_port(port[1:]) else None
    host, _, port = text.partition(":")
    return host if _is_port(port) else None


def _is_ipv6(address: str) -> bool:
    try:
        IPv6Address(address)
    except AddressValueError:
        return False
    return True


def _is_port(text: str) -> bool:
    if not text:
        return True
    return _PORT.fullmatch(text) is not None and _LEAST_PORT <= int(text) <= _MOST_PORT


def encode_form(text: str) -> str:
    """The text as ``application/x-www-form-urlencoded`` in UTF-8."""
    return quote_plus(text, safe="*").replace("~", "%7E")


def decode_form(text: str) -> str | None:
    """The text that a form's encoding stands for; None if an escape is none."""
    parts, at = [], 0
    for match in _ESCAPES.finditer(text):
        data = _escaped_bytes(match[0])
        if data is None:
            return None
        parts += [text[at : match.start()].replace("+", " "), decode_utf8(data)]
        at = match.end()
    return "".join([*parts, text[at:].replace("+", " ")])


def _escaped_bytes(text: str) -> bytes | None:
    digits = text[1:].split("%")
    if not all(map(_DIGITS.fullmatch, digits)):
        return None
    return bytes(int(pair, 16) for pair in digits)
