"""Names, types and documentation of aggregate, grouping and row-numbering functions.

The operators of tables accumulate and retract.  Result types are those over the rows of one group;
the binder adds NULL where a group may be empty (no GROUP BY, or a FILTER).
"""

from __future__ import annotations

from typing import Any, Final

from millstream.expressions.functions.definition import (
    BIGINT,
    BOOLEAN,
    DOUBLE,
    INT,
    STRING,
    Argument,
    FunctionDefinition,
    FunctionGroup,
    FunctionKind,
    Nullability,
    NullBehaviour,
    Signature,
    exactly,
    of_first,
    same_as,
    signature,
)
from millstream.types.bitmaps import BitmapType
from millstream.types.logical_types import ArrayType, MultisetType, VarCharType
from millstream.types.type_derivation import average_type, sum_type
from millstream.types.type_roots import TypeRoot

functions: Final = FunctionGroup("aggregate")


def _list(
    name: str,
    documentation: str,
    *signatures: Signature,
    kind: FunctionKind = FunctionKind.AGGREGATE,
    **options: Any,
) -> None:
    functions.add(
        FunctionDefinition(
            name,
            functions.name,
            kind=kind,
            signatures=signatures,
            nulls=NullBehaviour.CALLED,
            documentation=documentation,
            **options,
        )
    )


# -- types ------------------------------------------------------------------------------------


_SUM: Final = of_first(sum_type)
_AVERAGE: Final = of_first(average_type)
_UNORDERED: Final = frozenset(
    {
        TypeRoot.ARRAY,
        TypeRoot.BITMAP,
        TypeRoot.MAP,
        TypeRoot.MULTISET,
        TypeRoot.NULL,
        TypeRoot.RAW,
        TypeRoot.ROW,
        TypeRoot.SYMBOL,
        TypeRoot.VARIANT,
    }
)
_ORDERED: Final = Argument(
    "value", lambda type_: None if type_.root in _UNORDERED else type_, "COMPARABLE"
)
_NEVER: Final = Nullability.NEVER
_ALWAYS: Final = Nullability.ALWAYS
_SPREAD: Final = signature("numeric", result=_AVERAGE)
_SPREAD_OF_SAMPLE: Final = signature("numeric", result=_AVERAGE, nullability=_ALWAYS)


# -- over values ------------------------------------------------------------------------------

_list(
    "COUNT",
    "The number of rows whose values are all not NULL; with * the number of rows; with DISTINCT "
    "that of different values.",
    signature(result=BIGINT, nullability=_NEVER),
    signature("any...", result=BIGINT, nullability=_NEVER),
    syntax="COUNT([ALL | DISTINCT] value1 [, value2]*), COUNT(*)",
)
_list(
    "AVG",
    "The average of the values that are not NULL, in the type of the argument: of integers it is "
    "cut towards zero; of DECIMAL(p, s) it is a DECIMAL(38, max(6, s)).",
    signature("numeric", result=_AVERAGE),
    syntax="AVG([ALL | DISTINCT] numeric)",
)
_list(
    "SUM",
    "The sum of the values that are not NULL, in the type of the argument; of DECIMAL(p, s) it is "
    "a DECIMAL(38, s).",
    signature("numeric", result=_SUM),
    syntax="SUM([ALL | DISTINCT] numeric)",
)
_list(
    "$SUM0",
    "As SUM, but 0 where there is no value.",
    signature("numeric", result=_SUM, nullability=_NEVER),
)
_list("MAX", "The greatest value.", signature(_ORDERED, result=same_as(0)))
_list("MIN", "The least value.", signature(_ORDERED, result=same_as(0)))
_list("STDDEV_POP", "The standard deviation of the population of all values.", _SPREAD)
_list(
    "STDDEV_SAMP",
    "The standard deviation of the values as a sample; NULL for a single one.",
    _SPREAD_OF_SAMPLE,
    aliases=("STDDEV",),
)
_list("VAR_POP", "The variance of the population of all values.", _SPREAD)
_list(
    "VAR_SAMP",
    "The variance of the values as a sample; NULL for a single one.",
    _SPREAD_OF_SAMPLE,
    aliases=("VARIANCE",),
)
_list("FIRST_VALUE", "The first value that is not NULL.", signature("any", result=same_as(0)))
_list("LAST_VALUE", "The last value that is not NULL.", signature("any", result=same_as(0)))
_list(
    "LISTAGG",
    "The values that are not NULL, one after the other, with the separator between them (a comma "
    "unless given).",
    signature("string[, string separator]", result=STRING, nullability=_ALWAYS),
    syntax="LISTAGG([DISTINCT] string [, separator])",
)
_list(
    "COLLECT",
    "The values that are not NULL, as a multiset.",
    signature("any", result=of_first(MultisetType), nullability=_NEVER),
)
_list(
    "ARRAY_AGG",
    "The values as an array, with those that are NULL.",
    signature("any", result=of_first(ArrayType), nullability=_ALWAYS),
    syntax="ARRAY_AGG([ALL | DISTINCT] value [RESPECT NULLS])",
)
_list(
    "SINGLE_VALUE",
    "The only value; fails if there are several.  Of sub-queries that stand for a value.",
    signature("any", result=same_as(0)),
)
_list(
    "APPROX_COUNT_DISTINCT",
    "The number of different values, roughly.",
    signature("any", result=BIGINT, nullability=_NEVER),
)
_list("BOOL_AND", "TRUE if no value is FALSE.", signature("boolean", result=BOOLEAN))
_list("BOOL_OR", "TRUE if a value is TRUE.", signature("boolean", result=BOOLEAN))
_list(
    "PERCENTILE",
    "The value below which that share of the values lies, with linear interpolation; for an array "
    "of shares an array.  With a frequency, values count that often.",
    signature("numeric expression, DOUBLE percentage[, integer frequency]", result=DOUBLE),
    signature(
        "numeric expression",
        exactly("percentages", ArrayType(DOUBLE)),
        "integer frequency",
        optional=1,
        result=ArrayType(DOUBLE),
    ),
)
_list(
    "JSON_OBJECTAGG",
    "A JSON object of all keys and values.",
    signature("symbol on_null, string key, any", result=VarCharType(2000), nullability=_NEVER),
    syntax="JSON_OBJECTAGG([KEY] key VALUE value [{NULL | ABSENT} ON NULL])",
)
_list(
    "JSON_ARRAYAGG",
    "A JSON array of all values.",
    signature("symbol on_null, any", result=VarCharType(2000), nullability=_NEVER),
    syntax="JSON_ARRAYAGG(value [{NULL | ABSENT} ON NULL])",
)


# -- of bitmaps -------------------------------------------------------------------------------


def _list_bitmaps(operation: str, documentation: str, argument: Argument) -> None:
    """List an aggregate that gives a bitmap, and the one that gives its cardinality."""
    for name, result, text in (
        (f"BITMAP_{operation}_AGG", BitmapType(), documentation),
        (
            f"BITMAP_{operation}_CARDINALITY_AGG",
            BIGINT,
            f"How many integers are in what ``BITMAP_{operation}_AGG`` gives; NULL if that is.",
        ),
    ):
        _list(name, text, signature(argument, result=result, nullability=_ALWAYS))


_BITMAPS: Final = exactly("bitmap", BitmapType())
_list_bitmaps(
    "BUILD",
    "The bitmap of the integers that are not NULL; NULL if there is none.",
    exactly("value", INT),
)
_list_bitmaps(
    "AND",
    "The integers that are in all bitmaps that are not NULL; NULL if there is no bitmap.",
    _BITMAPS,
)
_list_bitmaps(
    "OR",
    "The integers that are in one of the bitmaps; NULL if there is no bitmap that is not NULL.",
    _BITMAPS,
)
_list_bitmaps(
    "XOR",
    "The integers that are in an odd number of the bitmaps; NULL if there is no bitmap that is "
    "not NULL.",
    _BITMAPS,
)


# -- over the rows of a window ----------------------------------------------------------------

_RANKING: Final = signature(result=BIGINT, nullability=_NEVER)
_SHARE: Final = signature(result=DOUBLE, nullability=_NEVER)


def _list_over(name: str, documentation: str, *signatures: Signature, **options: Any) -> None:
    _list(name, documentation, *signatures, kind=FunctionKind.OVER, **options)


_list_over("ROW_NUMBER", "The number of the row in its partition, from 1.", _RANKING)
_list_over(
    "RANK",
    "The number of the row in its partition, from 1; equal rows have that of the first of them, "
    "and numbers are left out after them.",
    _RANKING,
)
_list_over("DENSE_RANK", "As RANK, but no number is left out.", _RANKING)
_list_over(
    "CUME_DIST",
    "The share of the rows of the partition that come up to this one or are equal to it; in batch "
    "mode.",
    _SHARE,
)
_list_over(
    "PERCENT_RANK",
    "(RANK - 1) by (number of rows of the partition - 1); 0 for a single row; in batch mode.",
    _SHARE,
)
_list_over(
    "NTILE",
    "The number of the bucket of the row, if the partition is divided into n buckets that are as "
    "equal as can be; in batch mode.",
    signature("BIGINT n", result=BIGINT, nullability=_NEVER),
)

_OTHER_ROW: Final = (
    signature("any[, INT offset]", result=same_as(0), nullability=Nullability.ALWAYS),
    signature(
        "any, INT offset, any default",
        common=(0, 2),
        result=same_as(0),
        nullability=Nullability.ALWAYS,
    ),
)
_list_over(
    "LEAD",
    "The value in the row that comes so many rows (1 unless given) after this one; the default "
    "(NULL unless given) if there is none; in batch mode.",
    *_OTHER_ROW,
)
_list_over(
    "LAG",
    "The value in the row that comes so many rows (1 unless given) before this one; the default "
    "(NULL unless given) if there is none.",
    *_OTHER_ROW,
)


grouping: Final = FunctionGroup("grouping")

grouping.add(
    FunctionDefinition(
        "GROUPING",
        "grouping",
        FunctionKind.AGGREGATE,
        aliases=("GROUPING_ID",),
        signatures=(signature("any expression...", result=BIGINT, nullability=Nullability.NEVER),),
        nulls=NullBehaviour.CALLED,
        documentation="Bits that show which of the expressions are not grouped by in the grouping "
        "set of the row, the first expression's being the highest.",
        syntax="GROUPING(expression1, ...), GROUPING_ID(expression1, ...)",
    )
)
grouping.add(
    FunctionDefinition(
        "GROUP_ID",
        "grouping",
        FunctionKind.AGGREGATE,
        signatures=(signature(result=BIGINT, nullability=Nullability.NEVER),),
        nulls=NullBehaviour.CALLED,
        documentation="A number that distinguishes grouping sets of the same expressions.",
    )
)
