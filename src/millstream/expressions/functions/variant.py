"""PARSE_JSON and TRY_PARSE_JSON.

A number without a point is an integer, one with a point a decimal, one with an exponent or too many
digits a double.
"""

from __future__ import annotations

import re
from decimal import Decimal
from json import JSONDecoder
from typing import Any, Final

from millstream.expressions.functions.definition import (
    FunctionGroup,
    Nullability,
    boolean,
    character,
    signature,
)
from millstream.expressions.json import parse, refuse_constant
from millstream.types.bitmaps import VariantType
from millstream.types.variants import encode_variant

functions: Final = FunctionGroup("variant")

_PLAIN: Final = re.compile(r"-?[0-9.]+")
_MOST_DIGITS: Final = 40
_ARGUMENTS: Final = (character("json"), boolean("allow_duplicate_keys"))


def _integer(text: str) -> int | float:
    return int(text) if len(text) <= _MOST_DIGITS else float(text)


def _fraction(text: str) -> Decimal | float:
    return Decimal(text) if _PLAIN.fullmatch(text) else float(text)


def _last_ones(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        found.pop(name, None)
        found[name] = value
    return found


def _only_ones(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        message = f"the key {twice!r} comes twice"
        raise ValueError(message)
    return found


def _decoder(pairs: Any) -> JSONDecoder:
    return JSONDecoder(
        parse_int=_integer,
        parse_float=_fraction,
        parse_constant=refuse_constant,
        object_pairs_hook=pairs,
    )


_STRICT: Final = _decoder(_only_ones)
_LENIENT: Final = _decoder(_last_ones)


@functions.scalar(
    "PARSE_JSON",
    signatures=(signature(*_ARGUMENTS, optional=1, result=VariantType()),),
    examples=(
        (
            'JSON_STRING(PARSE_JSON(\'{"b": 1.50, "a": [null, 1e2]}\'))',
            '{"a":[null,100.0],"b":1.5}',
        ),
        ("JSON_STRING(PARSE_JSON('{\"a\": {\"b\": [5, 6]}}')['a']['b'][2])", "6"),
        ('JSON_STRING(PARSE_JSON(\'{"a": 1, "a": 2}\', TRUE))', '{"a":2}'),
    ),
)
def parse_json(text: Any, duplicates: Any = False) -> object:  # noqa: FBT002 - SQL's
    """The variant of a JSON text; what follows its first value is ignored.

    It fails where the text is no JSON, or where a key comes twice, unless the second argument is
    TRUE: then the last one counts.  ``variant['field']`` is a field of an object, ``variant[1]``
    the first element of an array, NULL if there is none; ``JSON_STRING`` writes a variant as JSON.
    """
    try:
        return encode_variant(parse(text, _LENIENT if duplicates else _STRICT))
    except (ValueError, RecursionError) as error:
        message = f"no JSON in {text!r:.100}: {error}"
        raise ValueError(message) from error


@functions.scalar(
    "TRY_PARSE_JSON",
    signatures=(
        signature(*_ARGUMENTS, optional=1, result=VariantType(), nullability=Nullability.ALWAYS),
    ),
    can_fail=False,
    examples=(("TRY_PARSE_JSON('{') IS NULL", "TRUE"),),
)
def try_parse_json(text: Any, duplicates: Any = False) -> object:  # noqa: FBT002 - SQL's
    """As PARSE_JSON, but NULL where that fails."""
    try:
        return parse_json(text, duplicates)
    except ValueError:
        return None
