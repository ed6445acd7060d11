"""``java.util.Formatter`` in the US locale, as PRINTF uses it.

A DATE is the number of its days, a TIMESTAMP prints as ``2024-01-02T03:04:05.123``, a DECIMAL only
goes with ``%s``, as Flink passes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from typing import TYPE_CHECKING, Final

from millstream.expressions.decimals import EXACT
from millstream.expressions.java.strings import from_units, to_units

if TYPE_CHECKING:
    from collections.abc import Sequence


_SPECIFIER: Final = re.compile(r"%(?:(\d+)\$)?([-#+ 0,(<]*)(\d+)?(?:\.(\d+))?([tT])?([a-zA-Z%])")
_FLAGS: Final = {
    "b": "-",
    "s": "-",
    "h": "-",
    "c": "-",
    "d": "-+ 0,(",
    "o": "-#0",
    "x": "-#0",
    "e": "-#+ 0(",
    "f": "-#+ 0,(",
    "g": "-+ 0,(",
    "a": "-#+ 0",
    "%": "-",
    "n": "",
}
_GENERAL_LEAST: Final = Decimal("0.0001")


class FormatError(ValueError):
    """A format that ``java.util.Formatter`` refuses; PRINTF gives NULL for it."""


@dataclass(frozen=True, slots=True)
class FormattedValue:
    """A value as Java has it.

    Args:
        value: bool, int, float, or None for anything else.
        text: what ``%s`` prints.
        bits: of an integer, for ``%x`` and ``%o`` of negative ones.
    """

    value: bool | int | float | None
    text: str
    bits: int = 32


@dataclass(frozen=True, slots=True)
class _Specifier:
    conversion: str
    flags: str
    width: int | None
    precision: int | None
    upper: bool


def format_text(pattern: str, values: Sequence[FormattedValue | None]) -> str:
    """The pattern with its specifiers replaced.

    Args:
        pattern: with specifiers as ``%5.2f``, ``%2$s``, ``%<s``.
        values: None is NULL.

    Raises:
        FormatError: Java would refuse pattern or values.
        ValueError: Java would not; this house does.
    """
    parts: list[str] = []
    at = ordinary = 0
    last = -1
    while (found := pattern.find("%", at)) >= 0:
        parts.append(pattern[at:found])
        match = _SPECIFIER.match(pattern, found)
        if match is None:
            raise FormatError(pattern[found : found + 2])
        at = match.end()
        specifier = _specifier(match)
        if specifier.conversion in "%n":
            parts.append(_fixed(specifier))
            continue
        if "<" in match[2]:
            position = last
        elif match[1]:
            position = int(match[1]) - 1
        else:
            position, ordinary = ordinary, ordinary + 1
        if not 0 <= position < len(values):
            raise FormatError(match[0])
        last = position
        parts.append(_formatted(specifier, values[position]))
    parts.append(pattern[at:])
    return "".join(parts)


def _specifier(match: re.Match[str]) -> _Specifier:
    flags, conversion = match[2].replace("<", ""), match[6]
    if match[5]:
        message = f"PRINTF: {match[0]} is not supported; use DATE_FORMAT"
        raise ValueError(message)
    kind = conversion.lower()
    if kind not in _FLAGS or (conversion.isupper() and kind not in "bhscxega"):
        raise FormatError(match[0])
    if set(flags) - set(_FLAGS[kind]) or len(set(flags)) < len(flags):
        raise FormatError(match[0])
    width = int(match[3]) if match[3] else None
    precision = int(match[4]) if match[4] else None
    _check(match[0], kind, flags, width, precision)
    return _Specifier(kind, flags, width, precision, conversion.isupper())


def _check(text: str, kind: str, flags: str, width: int | None, precision: int | None) -> None:
    if width is None and ("-" in flags or "0" in flags):
        raise FormatError(text)
    if ("-" in flags and "0" in flags) or ("+" in flags and " " in flags):
        raise FormatError(text)
    if precision is not None and kind in "cdox%n":
        raise FormatError(text)
    if kind == "n" and width is not None:
        raise FormatError(text)


def _fixed(specifier: _Specifier) -> str:
    return "\n" if specifier.conversion == "n" else _padded(specifier, "%")


def _padded(specifier: _Specifier, text: str) -> str:
    if specifier.upper:
        text = text.upper()
    width = (specifier.width or 0) - len(to_units(text))
    if width <= 0:
        return text
    return text + " " * width if "-" in specifier.flags else " " * width + text


def _formatted(specifier: _Specifier, given: FormattedValue | None) -> str:
    kind = specifier.conversion
    if kind == "b":
        truth = given is not None and (given.value if isinstance(given.value, bool) else True)
        return _padded(specifier, _cut(specifier, "true" if truth else "false"))
    if given is None:
        return _padded(specifier, _cut(specifier, "null"))
    if kind == "s":
        return _padded(specifier, _cut(specifier, given.text))
    value = given.value
    if kind == "h":
        if isinstance(value, bool) or not isinstance(value, int):
            message = "PRINTF: %h is only supported for integers"
            raise ValueError(message)
        folded = value ^ (value >> 32) if given.bits > 32 else value  # noqa: PLR2004 - a long
        return _padded(specifier, format(folded & 0xFFFFFFFF, "x"))
    if kind in "cdox":
        if isinstance(value, bool) or not isinstance(value, int):
            raise FormatError(kind)
        return _integer(specifier, value, given.bits)
    if not isinstance(value, float):
        raise FormatError(kind)
    return _floating(specifier, value)


def _cut(specifier: _Specifier, text: str) -> str:
    if specifier.precision is None:
        return text
    return from_units(to_units(text)[: specifier.precision])


def _integer(specifier: _Specifier, value: int, bits: int) -> str:
    kind = specifier.conversion
    if kind == "c":
        if bits > 32 or not 0 <= value <= 0x10FFFF:  # noqa: PLR2004 - Java: no long is a character
            raise FormatError(kind)
        return _padded(specifier, chr(value))
    if kind == "d":
        grouped = "," in specifier.flags
        return _signed(specifier, value < 0, format(abs(value), "," if grouped else "d"))
    digits = format(value & ((1 << bits) - 1), kind)
    prefix = {"x": "0x", "o": "0"}[kind] if "#" in specifier.flags else ""
    return _padded(specifier, _zero_filled(specifier, prefix, digits))


def _zero_filled(specifier: _Specifier, prefix: str, digits: str, suffix: str = "") -> str:
    if "0" in specifier.flags:
        digits = digits.rjust((specifier.width or 0) - len(prefix) - len(suffix), "0")
    return prefix + digits + suffix


def _signed(specifier: _Specifier, negative: bool, digits: str) -> str:  # noqa: FBT001
    prefix = suffix = ""
    if negative:
        prefix, suffix = ("(", ")") if "(" in specifier.flags else ("-", "")
    elif "+" in specifier.flags:
        prefix = "+"
    elif " " in specifier.flags:
        prefix = " "
    return _padded(specifier, _zero_filled(specifier, prefix, digits, suffix))


def _floating(specifier: _Specifier, value: float) -> str:
    if value != value:  # noqa: PLR0124 - NaN
        return _padded(specifier, "NaN")
    negative = str(value).startswith("-")
    if value in {float("inf"), float("-inf")}:
        plain = _Specifier(
            "d", specifier.flags.replace("0", ""), specifier.width, None, specifier.upper
        )
        return _signed(plain, negative, "Infinity")
    kind = specifier.conversion
    if kind == "a":
        return _signed(specifier, negative, _hexadecimal(specifier, abs(value)))
    # Java rounds the digits that it would print, not the binary value.
    exact = Decimal(repr(abs(value)))
    precision = 6 if specifier.precision is None else specifier.precision
    if kind == "g":
        kind, precision, exact = _general(exact, precision)
    digits = _fixed_point(exact, precision) if kind == "f" else _scientific(exact, precision)
    if "#" in specifier.flags and not precision:
        digits = digits.replace("e", ".e") if "e" in digits else digits + "."
    if "," in specifier.flags and kind == "f":
        whole, dot, fraction = digits.partition(".")
        digits = f"{int(whole):,}{dot}{fraction}"
    return _signed(specifier, negative, digits)


def _general(exact: Decimal, precision: int) -> tuple[str, int, Decimal]:
    precision = precision or 1
    if not exact:
        return "f", precision - 1, exact
    step = Decimal((0, (1,), exact.adjusted() - precision + 1))
    rounded = (
        exact.quantize(step, ROUND_HALF_UP, EXACT)
        if precision < len(exact.as_tuple().digits)
        else exact
    )
    if _GENERAL_LEAST <= rounded < Decimal(10) ** precision:
        return "f", precision - rounded.adjusted() - 1, rounded
    return "e", precision - 1, rounded


def _fixed_point(exact: Decimal, precision: int) -> str:
    shifted = exact.scaleb(precision, EXACT).to_integral_value(ROUND_HALF_UP)
    digits = format(shifted, "f").rjust(precision + 1, "0")
    return f"{digits[:-precision]}.{digits[-precision:]}" if precision else digits


def _scientific(exact: Decimal, precision: int) -> str:
    if not exact:
        digits, exponent = "0" * (precision + 1), 0
    else:
        exponent = exact.adjusted()
        shifted = exact.scaleb(precision - exponent, EXACT).to_integral_value(ROUND_HALF_UP)
        digits = format(shifted, "f")
        if len(digits) > precision + 1:
            digits, exponent = digits[:-1], exponent + 1
    mantissa = f"{digits[0]}.{digits[1:]}" if precision else digits
    return f"{mantissa}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"


def _hexadecimal(specifier: _Specifier, value: float) -> str:
    if specifier.precision is not None:
        message = "PRINTF: a precision with %a is not supported"
        raise ValueError(message)
    mantissa, exponent = value.hex().split("p")
    whole, _, fraction = mantissa.partition(".")
    return f"{whole}.{fraction.rstrip('0') or '0'}p{int(exponent)}"
