"""Process a streaming DataFrame of Spark with state, and write the result as a DataFrame."""

import tempfile
import time
from pathlib import Path

from pyspark.sql import SparkSession

from millstream.common import Row, Types
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor
from millstream.spark import DataFrameSink

CHANGE = Types.ROW_NAMED(["sensor", "change"], [Types.STRING(), Types.DOUBLE()])


class Change(KeyedProcessFunction):
    """Emit by how much a sensor's value differs from the one before."""

    def open(self, runtime_context):
        self.last = runtime_context.get_state(ValueStateDescriptor("last", Types.DOUBLE()))

    def process_element(self, value, ctx):
        last = self.last.value()
        self.last.update(value.celsius)
        if last is not None:
            yield Row(sensor=value.sensor, change=value.celsius - last)


class AppendTo:
    """Write the rows of a checkpoint; any batch writer of Spark will do."""

    def __init__(self, path):
        self.path = path

    def __call__(self, frame, checkpoint):
        frame.write.mode("append").parquet(self.path)


if __name__ == "__main__":
    spark = SparkSession.builder.master("local[2]").getOrCreate()
    with tempfile.TemporaryDirectory() as directory:
        readings, changes = f"{directory}/readings", f"{directory}/changes"
        rows = [("attic", 18.0), ("cellar", 11.0), ("attic", 20.5), ("attic", 19.0)]
        frame = spark.createDataFrame(rows, "sensor string, celsius double")
        frame.coalesce(1).write.parquet(readings)

        env = StreamExecutionEnvironment.get_execution_environment()
        env.set_parallelism(1)
        stream = env.from_spark(spark.readStream.schema(frame.schema).parquet(readings))
        changed = stream.key_by(lambda reading: reading.sensor).process(Change(), CHANGE)
        changed.sink_to(DataFrameSink(AppendTo(changes)))
        job = env.execute_async("changes")
        end = job.get_job_execution_result()
        while not Path(changes, "_SUCCESS").exists():  # Spark writes it last
            if end.done():
                end.result()  # raises the reason
            time.sleep(0.1)
        job.cancel().result()
        spark.read.parquet(changes).orderBy("change").show()
