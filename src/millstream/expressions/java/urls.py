"""URLs as ``java.net.URL`` takes them apart, and forms as ``java.net.URLDecoder`` decodes them.

What it is: what PARSE_URL, URL_ENCODE and URL_DECODE stand on.  Java's rules are older than the
standard's: a URL needs a protocol that Java has a handler for, and keeps what it finds as it is.

What it is not: a check that a URL is sound.

Read next: ``expressions/functions/string.py``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv6Address
from typing import Final
from urllib.parse import quote_plus

from millstream.expressions.java.strings import decode_utf8

__all__ = ["Url", "decode_form", "encode_form", "parse_url"]

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
