"""Replace a job by its next version, which keeps the state and converts it as keys are used."""

import tempfile
from itertools import islice
from pathlib import Path

from millstream.common import Configuration, Duration, Row, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSource
from millstream.datastream.state import ValueStateDescriptor

ORDER = Types.ROW_NAMED(["customer", "amount"], [Types.STRING(), Types.LONG()])
SUMMARY = Types.ROW_NAMED(["orders", "spent"], [Types.LONG(), Types.LONG()])


class Version1(KeyedProcessFunction):
    def open(self, runtime_context):
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value, ctx):
        self.count.update((self.count.value() or 0) + 1)
        yield f"{value.customer}: {self.count.value()} orders"


class Version2(Version1):
    def open(self, runtime_context):
        super().open(runtime_context)  # the state of version 1, to read it
        self.summary = runtime_context.get_state(ValueStateDescriptor("summary", SUMMARY))

    def process_element(self, value, ctx):
        summary = self.summary.value() or Row(orders=self.count.value() or 0, spent=0)
        self.count.clear()
        self.summary.update(Row(orders=summary.orders + 1, spent=summary.spent + value.amount))
        yield f"{value.customer}: {summary.orders + 1} orders, {summary.spent + value.amount} spent"


def run(function, orders, checkpoints, results):
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", str(checkpoints))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.set_parallelism(1)
    source = FileSource.csv(
        str(orders), schema=ORDER, header=False, discovery_interval=Duration.of_millis(100)
    )
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "orders").uid("orders")
    totals = stream.key_by(lambda order: order.customer).process(function).uid("totals")
    # Results are part of a checkpoint when they arrive here. The end of the block cancels the job.
    with totals.execute_and_collect("orders per customer") as lines:
        print(type(function).__name__, *islice(lines, results), sep="\n  ")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        orders, checkpoints = Path(directory, "orders"), Path(directory, "checkpoints")
        orders.mkdir()
        (orders / "1.csv").write_text("ann,10\nbob,20\nann,5\n")
        run(Version1(), orders, checkpoints, results=3)
        (orders / "2.csv").write_text("ann,7\ncid,9\n")
        run(Version2(), orders, checkpoints, results=2)
