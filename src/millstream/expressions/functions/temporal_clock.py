"""Current time: CURRENT_DATE etc., PROCTIME, CURRENT_WATERMARK, from the evaluation context.

In a stream that is the processing time of the batch; in batch mode the start of the query.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.expressions.functions.definition import (
    FunctionGroup,
    Nullability,
    NullBehaviour,
    signature,
    timestamp,
)
from millstream.expressions.java.calendars import zone_of
from millstream.types.logical_types import (
    DateType,
    LocalZonedTimestampType,
    TimestampKind,
    TimestampType,
    TimeType,
)
from millstream.types.values import scalar_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from millstream.expressions.functions.definition import CallInfo
    from millstream.types.logical_types import LogicalType


functions = FunctionGroup("temporal")

_MILLIS: Final = 1_000_000
_NANOS: Final = 1_000_000_000
_DAY: Final = 86_400 * _NANOS


def _local_now(info: CallInfo) -> int:
    return zone_of(info.context.time_zone).to_local(info.context.now * _MILLIS)


def _for_all_rows(value: Callable[[CallInfo], int | None]) -> Callable[..., Any]:
    """The kernel of a function without arguments: one value that stands for all rows."""

    def kernel(info: CallInfo, *arguments: Any) -> pa.Scalar:
        del arguments
        return scalar_of(value(info), info.result_type)

    return kernel


def _register(
    name: str,
    value: Callable[[CallInfo], int],
    result: LogicalType,
    documentation: str,
    **options: Any,
) -> None:
    functions.scalar(
        name,
        signatures=(signature(result=result, nullability=Nullability.NEVER),),
        kernel=_for_all_rows(value),
        contextual=True,
        dynamic=True,
        can_fail=False,
        documentation=documentation,
        **options,
    )(value)


_EACH: Final = "In a stream it is that of each record, in batch mode that of the query's start."

_register(
    "CURRENT_DATE",
    lambda info: _local_now(info) // _DAY,
    DateType(),
    f"The date on the session's clocks. {_EACH}",
    syntax="CURRENT_DATE",
    examples=(("CURRENT_DATE >= DATE '1970-01-01'", "TRUE"),),
)
_register(
    "LOCALTIME",
    lambda info: _local_now(info) % _DAY // _NANOS * _NANOS,
    TimeType(0),
    f"The time of day on the session's clocks. {_EACH}",
    aliases=("CURRENT_TIME",),
    syntax="LOCALTIME, CURRENT_TIME",
    examples=(("LOCALTIME >= TIME '00:00:00'", "TRUE"),),
)
_register(
    "LOCALTIMESTAMP",
    _local_now,
    TimestampType(3),
    f"Date and time on the session's clocks. {_EACH}",
    syntax="LOCALTIMESTAMP",
    examples=(("LOCALTIMESTAMP >= TIMESTAMP '1970-01-01 00:00:00'", "TRUE"),),
)
_register(
    "CURRENT_TIMESTAMP",
    lambda info: info.context.now * _MILLIS,
    LocalZonedTimestampType(3),
    f"The instant. {_EACH}",
    aliases=("NOW",),
    syntax="CURRENT_TIMESTAMP, NOW()",
    examples=(("CURRENT_TIMESTAMP >= TO_TIMESTAMP_LTZ(0, 3)", "TRUE"),),
)
_register(
    "CURRENT_ROW_TIMESTAMP",
    lambda info: info.context.processing_time * _MILLIS,
    LocalZonedTimestampType(3),
    "The instant at which a record is processed, in batch mode too.",
    examples=(("CURRENT_ROW_TIMESTAMP() >= TO_TIMESTAMP_LTZ(0, 3)", "TRUE"),),
)
_register(
    "PROCTIME",
    lambda info: info.context.processing_time * _MILLIS,
    LocalZonedTimestampType(3, kind=TimestampKind.PROCTIME),
    "The processing time as a time attribute, for windows and joins over processing time.",
    examples=(("CAST(PROCTIME() AS TIMESTAMP_LTZ(3)) >= TO_TIMESTAMP_LTZ(0, 3)", "TRUE"),),
)


def _watermark_type(types: Sequence[LogicalType], constants: Sequence[object]) -> LogicalType:
    del constants
    if isinstance(types[0], LocalZonedTimestampType):
        return LocalZonedTimestampType(3)
    return TimestampType(3)


def _watermark(info: CallInfo, *rowtime: int | None) -> int | None:
    """The current watermark of the operator, as a TIMESTAMP or TIMESTAMP_LTZ like the time given.

    NULL as long as there is none.  ``WHERE CURRENT_WATERMARK(ts) IS NULL OR ts >
    CURRENT_WATERMARK(ts)`` keeps what is not late.
    """
    del rowtime
    current = info.context.current_watermark
    return None if current is None else current * _MILLIS


functions.scalar(
    "CURRENT_WATERMARK",
    signatures=(
        signature(timestamp("rowtime"), result=_watermark_type, nullability=Nullability.ALWAYS),
    ),
    nulls=NullBehaviour.CALLED,
    kernel=_for_all_rows(_watermark),
    contextual=True,
    dynamic=True,
    deterministic=False,
    can_fail=False,
    examples=(("CURRENT_WATERMARK(TO_TIMESTAMP('2024-03-01')) IS NULL", "TRUE"),),
)(_watermark)
