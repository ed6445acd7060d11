"""What programs import from ``millstream.common``: types, rows, time, watermarks, configuration.

What it is: a facade with the names of ``pyflink.common``.

What it is not: complete; streams and connectors are in ``millstream.datastream``.

Read next: ``common/types.py``, ``common/watermark_strategy.py``, ``common/options.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.common.configuration import Configuration
from millstream.common.functions import (
    AggregateFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    KeyedProcessFunction,
    KeySelector,
    MapFunction,
    Partitioner,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    RuntimeContext,
    WindowFunction,
)
from millstream.common.options import ConfigOption
from millstream.common.output_tag import OutputTag
from millstream.common.row import Row, RowKind
from millstream.common.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
)
from millstream.common.time import Duration, Instant, Time
from millstream.common.typeinfo import BasicTypeInfo, TypeInformation, Types
from millstream.common.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
    field_timestamps,
)

if TYPE_CHECKING:
    from millstream.datastream.job_client import JobClient, JobExecutionResult, JobStatus
    from millstream.datastream.restart_strategies import (
        RestartStrategies,
        RestartStrategyConfiguration,
    )

__all__ = [
    "AggregateFunction",
    "BasicTypeInfo",
    "ByteArraySchema",
    "ConfigOption",
    "Configuration",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobStatus",
    "KeySelector",
    "KeyedProcessFunction",
    "MapFunction",
    "OutputTag",
    "Partitioner",
    "ProcessFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "RestartStrategies",
    "RestartStrategyConfiguration",
    "Row",
    "RowKind",
    "RuntimeContext",
    "SerializationSchema",
    "SimpleStringSchema",
    "Time",
    "TimestampAssigner",
    "TypeInformation",
    "Types",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "WindowFunction",
    "field_timestamps",
]

#: PyFlink has these names here, Millstream keeps them in ``datastream``, above this package: they
#: are looked up when asked for, so that nothing here imports upwards.
_ELSEWHERE: Final = {
    "JobClient": "millstream.datastream.job_client",
    "JobExecutionResult": "millstream.datastream.job_client",
    "JobStatus": "millstream.datastream.job_client",
    "RestartStrategies": "millstream.datastream.restart_strategies",
    "RestartStrategyConfiguration": "millstream.datastream.restart_strategies",
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name not in _ELSEWHERE:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        from importlib import import_module

        return getattr(import_module(_ELSEWHERE[name]), name)
