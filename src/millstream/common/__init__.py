"""Types, rows, time, watermarks and configuration with the names of ``pyflink.common``.

Read next: ``types/types.py``, ``functions/watermark_strategy.py``, ``configuration/options.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.configuration import Configuration
from millstream.configuration.execution_config import ExecutionConfig
from millstream.configuration.option import ConfigOption, ConfigOptions
from millstream.configuration.restart_strategies import (
    RestartStrategies,
    RestartStrategyConfiguration,
)
from millstream.contracts.serialization import (
    ByteArraySchema,
    DeserializationSchema,
    Encoder,
    SerializationSchema,
    SimpleStringSchema,
    TypeSerializer,
)
from millstream.execution.job_client import (
    CompletableFuture,
    JobClient,
    JobExecutionResult,
    JobID,
    JobStatus,
)
from millstream.functions.functions import (
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
from millstream.functions.watermark_strategy import (
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
    WatermarkStrategy,
    field_timestamps,
)
from millstream.types.output_tag import OutputTag
from millstream.types.row import Row, RowKind
from millstream.types.time import Duration, Instant, Time
from millstream.types.types import BasicTypeInfo, TypeInformation, Types

if TYPE_CHECKING:
    from millstream.connectors.formats.message_formats import (
        AvroRowDeserializationSchema,
        AvroRowSerializationSchema,
        CsvRowDeserializationSchema,
        CsvRowSerializationSchema,
        JsonRowDeserializationSchema,
        JsonRowSerializationSchema,
    )

__all__ = [
    "AggregateFunction",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "BasicTypeInfo",
    "ByteArraySchema",
    "CompletableFuture",
    "ConfigOption",
    "ConfigOptions",
    "Configuration",
    "CsvRowDeserializationSchema",
    "CsvRowSerializationSchema",
    "DeserializationSchema",
    "Duration",
    "Encoder",
    "ExecutionConfig",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "Instant",
    "JobClient",
    "JobExecutionResult",
    "JobID",
    "JobStatus",
    "JsonRowDeserializationSchema",
    "JsonRowSerializationSchema",
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
    "TypeSerializer",
    "Types",
    "WatermarkGenerator",
    "WatermarkOutput",
    "WatermarkStrategy",
    "WindowFunction",
    "field_timestamps",
]

#: Imported when they are asked for: most programs need no formats of messages.
_SCHEMAS: Final = frozenset(name for name in __all__ if "Row" in name and name.endswith("Schema"))


if not TYPE_CHECKING:  # a type checker knows them from above

    def __getattr__(name: str) -> Any:
        """The row schemas, which PyFlink offers here as well."""
        if name in _SCHEMAS:
            from millstream.connectors.formats import message_formats
            from millstream.connectors.formats import message_formats as csv_messages

            return getattr(csv_messages if name.startswith("Csv") else message_formats, name)
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
