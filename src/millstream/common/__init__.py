"""Types, rows, time, watermarks and configuration with the names of ``pyflink.common``.

Read next: ``types/types.py``, ``functions/watermark_strategy.py``, ``configuration/options.py``.
"""

from typing import TYPE_CHECKING

from millstream import facade
from millstream.checkpoint.savepoint import SavepointFormatType as SavepointFormatType
from millstream.configuration.configuration import Configuration as Configuration
from millstream.configuration.execution_config import ExecutionConfig as ExecutionConfig
from millstream.configuration.option import ConfigOption as ConfigOption
from millstream.configuration.option import ConfigOptions as ConfigOptions
from millstream.configuration.restart_strategies import RestartStrategies as RestartStrategies
from millstream.configuration.restart_strategies import (
    RestartStrategyConfiguration as RestartStrategyConfiguration,
)
from millstream.contracts.serialization import ByteArraySchema as ByteArraySchema
from millstream.contracts.serialization import DeserializationSchema as DeserializationSchema
from millstream.contracts.serialization import Encoder as Encoder
from millstream.contracts.serialization import SerializationSchema as SerializationSchema
from millstream.contracts.serialization import SimpleStringSchema as SimpleStringSchema
from millstream.contracts.serialization import TypeSerializer as TypeSerializer
from millstream.execution.job_client import CompletableFuture as CompletableFuture
from millstream.execution.job_client import JobClient as JobClient
from millstream.execution.job_client import JobExecutionResult as JobExecutionResult
from millstream.execution.job_client import JobID as JobID
from millstream.execution.job_client import JobStatus as JobStatus
from millstream.functions.functions import AggregateFunction as AggregateFunction
from millstream.functions.functions import FilterFunction as FilterFunction
from millstream.functions.functions import FlatMapFunction as FlatMapFunction
from millstream.functions.functions import Function as Function
from millstream.functions.functions import KeyedProcessFunction as KeyedProcessFunction
from millstream.functions.functions import KeySelector as KeySelector
from millstream.functions.functions import MapFunction as MapFunction
from millstream.functions.functions import Partitioner as Partitioner
from millstream.functions.functions import ProcessFunction as ProcessFunction
from millstream.functions.functions import ProcessWindowFunction as ProcessWindowFunction
from millstream.functions.functions import ReduceFunction as ReduceFunction
from millstream.functions.functions import RuntimeContext as RuntimeContext
from millstream.functions.functions import WindowFunction as WindowFunction
from millstream.functions.watermark_strategy import TimestampAssigner as TimestampAssigner
from millstream.functions.watermark_strategy import WatermarkGenerator as WatermarkGenerator
from millstream.functions.watermark_strategy import WatermarkOutput as WatermarkOutput
from millstream.functions.watermark_strategy import WatermarkStrategy as WatermarkStrategy
from millstream.functions.watermark_strategy import field_timestamps as field_timestamps
from millstream.types.output_tag import OutputTag as OutputTag
from millstream.types.row import Row as Row
from millstream.types.row import RowKind as RowKind
from millstream.types.time import Duration as Duration
from millstream.types.time import Instant as Instant
from millstream.types.time import Time as Time
from millstream.types.types import BasicTypeInfo as BasicTypeInfo
from millstream.types.types import StateSerializer as StateSerializer
from millstream.types.types import TypeInformation as TypeInformation
from millstream.types.types import Types as Types

if TYPE_CHECKING:
    from millstream.connectors.formats.avro_messages import (
        AvroRowDeserializationSchema as AvroRowDeserializationSchema,
    )
    from millstream.connectors.formats.avro_messages import (
        AvroRowSerializationSchema as AvroRowSerializationSchema,
    )
    from millstream.connectors.formats.csv_messages import (
        CsvRowDeserializationSchema as CsvRowDeserializationSchema,
    )
    from millstream.connectors.formats.csv_messages import (
        CsvRowSerializationSchema as CsvRowSerializationSchema,
    )
    from millstream.connectors.formats.json_messages import (
        JsonRowDeserializationSchema as JsonRowDeserializationSchema,
    )
    from millstream.connectors.formats.json_messages import (
        JsonRowSerializationSchema as JsonRowSerializationSchema,
    )


facade.complete(
    __name__,
    late={
        "millstream.connectors.formats.avro_messages": (
            "AvroRowDeserializationSchema AvroRowSerializationSchema"
        ),
        "millstream.connectors.formats.csv_messages": (
            "CsvRowDeserializationSchema CsvRowSerializationSchema"
        ),
        "millstream.connectors.formats.json_messages": (
            "JsonRowDeserializationSchema JsonRowSerializationSchema"
        ),
    },
)
