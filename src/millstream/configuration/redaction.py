"""Mask passwords, keys and tokens in everything that is shown, logged or raised."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping


#: What stands in place of a secret, as in Flink's logs.
REDACTED: Final = "******"
#: Parts of the names of options whose values are secrets: Flink's list
#: (``GlobalConfiguration.isSensitive``), and those of Kafka's and PostgreSQL's clients.
_KEY: Final = re.compile(
    r"password|passwd|passphrase|secret|token|credential|jaas|oauthbearer\.config|"
    r"(api|access|account|private|service)[-_.]?key|keystore\.key|\.pem\b|auth-params|basic[-.]auth|"
    r"http-headers",
    re.IGNORECASE,
)
#: The user information of an address.  It ends at the last @: passwords with an @ or a / in them
#: are a mistake that is common, and an error is where they would be shown.  Its length is bounded,
#: so that a long line of addresses without blanks takes no quadratic time.
_USER_INFORMATION: Final = re.compile(r"(://[^:@/\s'\"]{0,256}):[^\s'\"]{0,4096}@")
#: A password among the parameters of an address or of libpq's key=value form.
_PARAMETER: Final = re.compile(
    r"\b((?:ssl)?password|passwd|secret|token)(\s*=\s*)('(?:[^'\\]|\\.)*'?|[^\s&;'\"]+)",
    re.IGNORECASE,
)
#: An entry of an option whose value is a map, such as ``pipeline.global-job-parameters``.
_ENTRY: Final = re.compile(r"([\w.\-]+)(\s*[:=]\s*)('(?:[^']|'')*'?|\"[^\"]*\"?|[^\s,;'\"{}]+)")
#: The name of an option, quoted or not, and the value after it.  An unquoted value counts after a
#: quoted name only: what follows the bare word ``token`` in a query is an expression.
_SPACE: Final = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?(?:\*/|$))*"
_ASSIGNED: Final = re.compile(
    r"(?:(?P<name>'[\w.\-]+'|\"[\w.\-]+\"|`[\w.\-]+`)" + _SPACE + r"(?P<sign>=>|=|:)?"
    r"|(?P<word>[\w.\-]+)" + _SPACE + r"(?:=>|=|:))" + _SPACE +
    # Prefixes of strings are not Flink's, but what they begin is a secret nevertheless.
    r"(?:(?:[a-zA-Z]&?|_\w+)?\s*'(?P<text>(?:[^']|'')*)(?:'|$)|\"(?P<quoted>[^\"]*)(?:\"|$)"
    r"|(?P<bare>[^\s,;()'\"]+))",
    re.DOTALL,
)
#: Quotes are missing: the value is the rest of the line.
_SET: Final = re.compile(r"\bSET\s+(?P<word>[\w.\-]+)\s*=(?P<bare>[^;\n]*)", re.IGNORECASE)


def is_secret(key: str, value: str = "") -> bool:
    """Return whether an option holds a secret: by its name, or as an address with a password."""
    return (
        _KEY.search(key) is not None
        or _USER_INFORMATION.search(value) is not None
        or _PARAMETER.search(value) is not None
    )


def redacted(key: str, value: object) -> str:
    """Return the value of an option as it may be shown."""
    if _KEY.search(key) is not None:
        return REDACTED
    return _ENTRY.sub(_redacted_entry, redacted_text(str(value)))


def _redacted_entry(found: re.Match[str]) -> str:
    return found[0] if _KEY.search(found[1]) is None else f"{found[1]}{found[2]}{REDACTED}"


def redacted_options(options: Mapping[str, object]) -> dict[str, str]:
    """Return options as they may be shown."""
    return {key: redacted(key, value) for key, value in options.items()}


def redacted_text(text: str) -> str:
    """Return a text with the passwords of its addresses and parameters masked."""
    text = _USER_INFORMATION.sub(rf"\1:{REDACTED}@", text)
    return _PARAMETER.sub(rf"\1\2{REDACTED}", text)


def masked_statement(text: str) -> str:
    """Return an SQL text in which each character of a secret is a ``*``.

    Positions stay as they are, so errors can point into the result.  The text need not parse: a
    string that is not closed is masked to its end.
    """
    made = list(text)
    for found in _ASSIGNED.finditer(text):
        name = found["name"] or found["word"]
        group = next(each for each in ("text", "quoted", "bare") if found[each] is not None)
        is_value = group != "bare" or (found["name"] is not None and found["sign"] is not None)
        if _KEY.search(name) is not None and is_value:
            _mask(made, *found.span(group))
    for found in _SET.finditer(text):
        if _KEY.search(found["word"]) is not None and not _within_string(text, found.start()):
            _mask(made, *found.span("bare"))
    for found in (*_USER_INFORMATION.finditer(text), *_PARAMETER.finditer(text)):
        start = found.end(1) + 1 if found.re is _USER_INFORMATION else found.start(3)
        stop = found.end() - 1 if found.re is _USER_INFORMATION else found.end()
        if found.re is _USER_INFORMATION or _within_string(text, found.start()):
            _mask(made, start, stop)
    return "".join(made)


def _within_string(text: str, position: int) -> bool:
    """Whether a position lies in a literal: ``WHERE token = x`` is no parameter of an address."""
    return text.count("'", 0, position) % 2 == 1


def _mask(characters: list[str], start: int, stop: int) -> None:
    for index in range(start, stop):
        if characters[index] != "\n":
            characters[index] = "*"
