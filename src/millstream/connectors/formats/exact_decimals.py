"""Decimals that pyarrow reads out of text, exactly or not at all.

What it is: pyarrow brings what it has parsed to the scale of the column without a look at what does
not fit: 123456789012345678901234567890.5 becomes 46509284486016680346.336... in a column of
decimal128(38, 18).  So it is let parse columns of 76 digits, and what it makes of them is brought
to those declared, which refuses what does not fit.

What it is not: for ``Types.BIG_DEC()`` in CSV, whose column is text.

Read next: ``connectors/formats/json_columns.py``.
"""

from __future__ import annotations

import re
from decimal import MAX_EMAX, MAX_PREC, MIN_EMIN, Context, Decimal, InvalidOperation
from typing import TYPE_CHECKING, Final

import pyarrow as pa

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["canonical_text", "decimals_of_texts", "plain_text", "wide"]

_MOST_DIGITS: Final = 76
#: Texts of numbers with more digits than this are written with an exponent.
_MOST_PLAIN: Final = 100
_NUMBER: Final = re.compile(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?")
_EXACT: Final = Context(prec=MAX_PREC, Emin=MIN_EMIN, Emax=MAX_EMAX)


def wide(kind: pa.DataType) -> pa.DataType:
    """The type that pyarrow is to parse for a column of this type; its own if it is no decimal."""
    return pa.decimal256(_MOST_DIGITS, kind.scale) if pa.types.is_decimal128(kind) else kind


def canonical_text(text: str) -> str:
    """The text of the number that a text is; equal numbers have equal ones.

    Raises:
        ValueError: it is none.
    """
    return plain_text(_number(text))


def plain_text(number: Decimal) -> str:
    """The text of a number, without zeros at its end, and without an exponent if it is short."""
    if not number:
        return "0"
    number = number.normalize(_EXACT)
    exponent = int(number.as_tuple().exponent)
    is_short = number.adjusted() < _MOST_PLAIN and exponent > -_MOST_PLAIN
    return f"{number:f}" if is_short else str(number)


def _number(text: str) -> Decimal:
    try:
        # Python takes more than is a number elsewhere: underscores, blanks, other digits, NaN.
        number = Decimal(text) if _NUMBER.fullmatch(text) else None
    except InvalidOperation:  # an exponent beyond all bounds
        number = None
    if number is None:
        message = f"{text!r:.100} is not a number"
        raise ValueError(message)
    return number.normalize(_EXACT)


def decimals_of_texts(texts: Iterable[str | None], kind: pa.DataType) -> pa.Array:
    """A column of decimals.

    Raises:
        ValueError: a text is no number, or one that the type cannot hold as it is.
    """
    numbers = [None if text is None else _number(text) for text in texts]
    whole = kind.precision - kind.scale
    for number in numbers:
        if number and (number.adjusted() >= whole or int(number.as_tuple().exponent) < -kind.scale):
            message = f"{number} does not fit into {kind}"
            raise ValueError(message)
    return pa.array(numbers, kind)
