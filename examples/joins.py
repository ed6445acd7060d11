"""Match each order with the payments of the following minute, and report unpaid orders."""

from millstream.common import Duration, Types, WatermarkStrategy
from millstream.datastream import ProcessJoinFunction, StreamExecutionEnvironment
from millstream.datastream.window import TumblingEventTimeWindows

ORDER = Types.ROW_NAMED(["id", "amount", "time"], [Types.STRING(), Types.LONG(), Types.LONG()])
PAYMENT = Types.ROW_NAMED(
    ["order", "method", "time"], [Types.STRING(), Types.STRING(), Types.LONG()]
)


class Paid(ProcessJoinFunction):
    def process_element(self, left, right, ctx):
        seconds = (ctx.get_right_timestamp() - ctx.get_left_timestamp()) // 1000
        yield f"{left.id}: {left.amount} paid by {right.method} after {seconds} s"


env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(
    lambda record, _: record.time
)
orders = env.from_collection(
    [("a", 10, 1_000), ("b", 20, 2_000), ("c", 30, 3_000), ("d", 40, 61_000)], ORDER
).assign_timestamps_and_watermarks(strategy)
payments = env.from_collection(
    [("b", "card", 12_000), ("a", "cash", 40_000), ("d", "card", 63_000)], PAYMENT
).assign_timestamps_and_watermarks(strategy)

paid = (
    orders.key_by(lambda order: order.id)
    .interval_join(payments.key_by(lambda payment: payment.order))
    .between(Duration.of_seconds(0), Duration.of_minutes(1))
    .process(Paid(), Types.STRING())
)
# An interval join emits matches only. A co-group also sees the keys of one side alone.
unpaid = (
    orders.co_group(payments)
    .where(lambda order: order.id)
    .equal_to(lambda payment: payment.order)
    .window(TumblingEventTimeWindows.of(Duration.of_minutes(1)))
    .apply(
        lambda orders, payments: [f"{order.id}: unpaid" for order in orders if not payments],
        Types.STRING(),
    )
)
with paid.union(unpaid).execute_and_collect() as results:
    print(*sorted(results), sep="\n")
