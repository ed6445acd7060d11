"""The type of a Spark DataFrame's rows and its watermark, from the JSON form of its schema.

What it is: a table from Spark's type names to ``Types``, so that ``env.from_spark(df)`` needs no
import of pyspark.  What it is not: the conversion of rows (``spark/``).

Read next: ``types/types.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

import pyarrow as pa

from millstream.errors import ProgramError
from millstream.functions.watermark_strategy import TimeOrigin, WatermarkStrategy, field_timestamps
from millstream.types.types import from_arrow_schema

if TYPE_CHECKING:
    from millstream.types.types import TypeInformation

__all__ = ["arrow_schema_of_spark", "strategy_of_spark", "type_of_spark"]

#: Where Spark notes ``withWatermark`` in the metadata of the event-time column.
_WATERMARK_DELAY: Final = "spark.watermarkDelayMs"

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def type_of_spark(schema: dict[str, object]) -> TypeInformation:
    """The ROW type of ``df.schema.jsonValue()``."""
    return from_arrow_schema(arrow_schema_of_spark(schema))


def arrow_schema_of_spark(schema: dict[str, object]) -> pa.Schema:
    """The Arrow schema of ``df.schema.jsonValue()``; types without a match become strings."""
    return pa.schema(_fields(schema))


def strategy_of_spark(schema: dict[str, object], strategy: WatermarkStrategy) -> WatermarkStrategy:
    """The strategy with which a DataFrame is read.

    Args:
        schema: ``df.schema.jsonValue()``.
        strategy: the user's; one that preserves is turned into that of ``withWatermark``.

    Raises:
        ProgramError: the DataFrame has no watermark to preserve, or sources are to be aligned.
    """
    if strategy.alignment is not None:
        message = (
            "with_watermark_alignment() cannot be used with from_spark(): Spark reads its sources "
            "by itself and does not wait; limit what they read (maxFilesPerTrigger, "
            "maxOffsetsPerTrigger) instead"
        )
        raise ProgramError(message)
    if strategy.origin is not TimeOrigin.PRESERVED:
        return strategy
    for field in cast("list[dict[str, object]]", schema["fields"]):
        metadata = cast("dict[str, object]", field.get("metadata") or {})
        if _WATERMARK_DELAY in metadata:
            delay = cast("int", metadata[_WATERMARK_DELAY])
            made = WatermarkStrategy.for_bounded_out_of_orderness(delay)
            assigner = strategy.timestamp_assigner or field_timestamps(str(field["name"]))
            made = made.with_timestamp_assigner(assigner)
            if strategy.idle_timeout is not None:
                made = made.with_idleness(strategy.idle_timeout)
            return made
    message = (
        "WatermarkStrategy.preserve() needs a DataFrame with a watermark: call "
        'withWatermark("column", "delay") before from_spark()'
    )
    raise ProgramError(message)


def _fields(schema: dict[str, object]) -> list[pa.Field]:
    fields = cast("list[dict[str, object]]", schema["fields"])
    return [
        pa.field(str(field["name"]), _arrow(field["type"]), nullable=bool(field["nullable"]))
        for field in fields
    ]


def _arrow(described: object) -> pa.DataType:
    if isinstance(described, str):
        if described.startswith("decimal("):
            precision, scale = described[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _SIMPLE.get(described, pa.string())
    nested = cast("dict[str, object]", described)
    if nested["type"] == "array":
        return pa.list_(_arrow(nested["elementType"]))
    if nested["type"] == "map":
        return pa.map_(_arrow(nested["keyType"]), _arrow(nested["valueType"]))
    if nested["type"] == "struct":
        return pa.struct(_fields(nested))
    return pa.string()
