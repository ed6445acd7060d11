"""Malformed lines of a CSV file go to a side output instead of failing the job."""

import tempfile
from pathlib import Path

from millstream.common import OutputTag, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource

directory = Path(tempfile.mkdtemp())
(directory / "readings.csv").write_text("sensor,value\na,1.5\nb,not a number\nc,3.0\n")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
schema = Types.ROW_NAMED(["sensor", "value"], [Types.STRING(), Types.DOUBLE()])
readings = env.from_source(
    FileSource.csv(str(directory), schema=schema, malformed="dead-letter"),
    WatermarkStrategy.no_watermarks(),
    "readings",
)
good = readings.map(lambda row: f"good: {row.sensor} {row.value}")
bad = readings.get_side_output(OutputTag("dead-letter")).map(lambda row: f"bad: {row.raw}")
with good.union(bad).execute_and_collect() as lines:
    print(*sorted(lines), sep="\n")
