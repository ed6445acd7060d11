"""Hourly means from Parquet files into Parquet files, exactly once.

millstream run --checkpoint-dir DIR examples/hourly.py EVENTS MEANS
"""

import sys

from millstream.common import Duration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import Avg, Count
from millstream.datastream.connectors.file_system import FileSink, FileSource
from millstream.datastream.window import TumblingEventTimeWindows

source_directory, target_directory = sys.argv[1:]
env = StreamExecutionEnvironment.get_execution_environment()
env.enable_checkpointing(1000)
strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_minutes(5))
(
    env.from_source(
        FileSource.parquet(source_directory),
        strategy.with_timestamp_assigner(lambda event, _: event.time),
        "events",
    )
    .uid("events")
    .key_by(lambda event: event.sensor)
    .window(TumblingEventTimeWindows.of(Duration.of_hours(1)))
    .aggregate(Count(), Avg("value"))
    .uid("hourly")
    .sink_to(FileSink.parquet(target_directory))
    .uid("files")
)
env.execute("hourly means")
