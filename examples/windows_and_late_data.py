"""Average sensor readings per ten seconds; late and malformed readings go to side outputs."""

import tempfile
from pathlib import Path

from millstream.common import Duration, OutputTag, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.aggregates import Avg, Count
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.window import TumblingEventTimeWindows

READINGS = """sensor,second,celsius
attic,1,18.0
cellar,2,11.0
attic,4,20.0
cellar,7,eleven
attic,12,25.0
cellar,26,12.0
attic,8,19.0
"""
READING = Types.ROW_NAMED(
    ["sensor", "second", "celsius"], [Types.STRING(), Types.LONG(), Types.DOUBLE()]
)
LATE = OutputTag("late", READING)
MALFORMED = OutputTag("dead-letter")

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(1)
with tempfile.TemporaryDirectory() as directory:
    path = Path(directory, "readings.csv")
    path.write_text(READINGS)
    readings = env.from_source(
        FileSource.csv(str(path), schema=READING, malformed="dead-letter"),
        # The watermark is five seconds below the greatest timestamp; it advances with each reading.
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(5))
        .with_timestamp_assigner(lambda reading, _: reading.second * 1000)
        .with_periodic_emit(every=1),
        "readings",
    )
    means = (
        readings.key_by(lambda reading: reading.sensor)
        .window(TumblingEventTimeWindows.of(Duration.of_seconds(10)))
        .side_output_late_data(LATE)
        .aggregate(Count(), Avg("celsius"))
    )
    late = means.get_side_output(LATE)
    malformed = readings.get_side_output(MALFORMED)
    lines = means.map(
        lambda mean: (
            f"{mean.key} from {mean.window_start} ms: {mean.count} readings,"
            f" {mean.avg_celsius} degrees"
        )
    ).union(
        late.map(lambda reading: f"late: {reading}"),
        malformed.map(lambda record: f"malformed: {record.raw}"),
    )
    with lines.execute_and_collect() as results:
        print(*sorted(results), sep="\n")
