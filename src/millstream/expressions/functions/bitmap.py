"""Bitmap functions of Flink's reference: sets of 32-bit integers in unsigned order."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.functions.definition import (
    BIGINT,
    BYTES,
    INT,
    STRING,
    FunctionGroup,
    exactly,
    signature,
)
from millstream.types.bitmaps import (
    BitmapType,
    bitmap_bytes,
    bitmap_of_bytes,
    bitmap_of_values,
    bitmap_text,
    checked_bitmap,
    signed,
)
from millstream.types.logical_types import ArrayType

if TYPE_CHECKING:
    from collections.abc import Callable


functions: Final = FunctionGroup("bitmap")

_BITMAP: Final = BitmapType()
_INTS: Final = ArrayType(INT)
_OF_ONE: Final = exactly("bitmap", _BITMAP)
_OF_TWO: Final = signature("BITMAP bitmap1, BITMAP bitmap2", result=_BITMAP)
_SET: Final = "BITMAP_BUILD(ARRAY[1, 2])"
_OTHER: Final = "BITMAP_BUILD(ARRAY[2, 3])"


# -- making -----------------------------------------------------------------------------------


functions.total(
    "BITMAP_BUILD",
    "The bitmap of the integers of an array; those that are NULL are left out.",
    lambda values: bitmap_bytes(bitmap_of_values(value for value in values if value is not None)),
    signature(exactly("array", _INTS), result=_BITMAP),
    examples=(
        ("BITMAP_BUILD(ARRAY[3, 1, 3])", "{1,3}"),
        ("BITMAP_BUILD(ARRAY[5, -1, NULL])", "{5,4294967295}"),
    ),
)


@functions.scalar(
    "BITMAP_FROM_BYTES",
    signature("bytes", result=_BITMAP),
    examples=(("BITMAP_FROM_BYTES(BITMAP_TO_BYTES(BITMAP_BUILD(ARRAY[1, 2])))", "{1,2}"),),
)
def bitmap_from_bytes(data: Any) -> object:
    """The bitmap of bytes in the portable format of Roaring bitmaps (32 bits)."""
    return bitmap_bytes(checked_bitmap(data))


# -- two bitmaps ------------------------------------------------------------------------------


def _list_operation(
    name: str, combine: Callable[[Any, Any], Any], result: str, documentation: str
) -> None:
    @functions.scalar(
        name,
        _OF_TWO,
        can_fail=False,
        documentation=documentation,
        examples=((f"{name}({_SET}, {_OTHER})", result),),
    )
    def operation(left: Any, right: Any) -> object:
        return bitmap_bytes(combine(bitmap_of_bytes(left), bitmap_of_bytes(right)))


_list_operation("BITMAP_AND", operator.and_, "{2}", "The integers that are in both bitmaps.")
_list_operation(
    "BITMAP_ANDNOT",
    operator.sub,
    "{1}",
    "The integers that are in the first bitmap and not in the second.",
)
_list_operation("BITMAP_OR", operator.or_, "{1,2,3}", "The integers that are in either bitmap.")
_list_operation(
    "BITMAP_XOR", operator.xor, "{1,3}", "The integers that are in just one of the two bitmaps."
)


# -- reading ----------------------------------------------------------------------------------


functions.total(
    "BITMAP_CARDINALITY",
    "How many integers are in a bitmap.",
    lambda bitmap: len(bitmap_of_bytes(bitmap)),
    signature("BITMAP bitmap", result=BIGINT),
    examples=(("BITMAP_CARDINALITY(BITMAP_BUILD(ARRAY[3, 1, 3]))", "2"),),
)
functions.total(
    "BITMAP_TO_ARRAY",
    "The integers of a bitmap, in the order of their values without a sign.",
    lambda bitmap: tuple(map(signed, bitmap_of_bytes(bitmap))),
    signature("BITMAP bitmap", result=_INTS),
    examples=(("BITMAP_TO_ARRAY(BITMAP_BUILD(ARRAY[5, -1, 3]))", "[3, 5, -1]"),),
)
functions.total(
    "BITMAP_TO_BYTES",
    "The bytes of a bitmap in the portable format of Roaring bitmaps (32 bits).",
    lambda bitmap: bitmap,
    signature("BITMAP bitmap", result=BYTES),
    examples=(
        (
            "BITMAP_TO_BYTES(BITMAP_BUILD(ARRAY[1])) = X'3A3000000100000000000000100000000100'",
            "TRUE",
        ),
    ),
)


@functions.scalar(
    "BITMAP_TO_STRING",
    signature("BITMAP bitmap", result=STRING),
    can_fail=False,
    examples=(
        ("BITMAP_TO_STRING(BITMAP_BUILD(ARRAY[5, -1, 3]))", "{3,5,4294967295}"),
        ("CAST(BITMAP_BUILD(ARRAY[2, 1]) AS STRING)", "{1,2}"),
    ),
)
def bitmap_to_string(bitmap: Any) -> object:
    """The integers of a bitmap without a sign, in order.

    A text that gets too long (half a million characters) ends with ``...``.
    """
    return bitmap_text(bitmap)
