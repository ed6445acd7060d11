"""Run long-running tasks instead of micro-batches: records pass the job within milliseconds."""

import statistics
import time

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors import DataGeneratorSource
from millstream.datastream.state import ValueStateDescriptor

REQUEST = Types.TUPLE([Types.LONG(), Types.DOUBLE()])


class Count(KeyedProcessFunction):
    """Count requests per user, and measure how long each was on its way."""

    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        user, sent = value
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        yield user, count, (time.time() - sent) * 1000


configuration = Configuration()
configuration.set_string("millstream.execution", "pipelined")
env = StreamExecutionEnvironment.get_execution_environment(configuration)
env.set_parallelism(2)
env.enable_checkpointing(500)
requests = env.from_source(
    DataGeneratorSource(lambda n: (n % 7, time.time()), 400, 200.0, REQUEST, splits=2),
    WatermarkStrategy.no_watermarks(),
    "requests",
)
counts = requests.key_by(lambda request: request[0]).process(Count())
with counts.execute_and_collect() as results:
    _, numbers, milliseconds = zip(*results, strict=True)
print(f"{len(numbers)} requests, at most {max(numbers)} of one user")
# The first ones also waited for the tasks to start.
print(f"median latency of the last 200: {statistics.median(milliseconds[200:]):.1f} ms")
