"""Report sensors that have been silent for a minute of event time, with state and timers."""

from millstream.common import Duration, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ListStateDescriptor

MINUTE = 60_000


class Silence(KeyedProcessFunction):
    def open(self, runtime_context):
        self.times = runtime_context.get_list_state(ListStateDescriptor("times"))

    def process_element(self, value, ctx):
        self.times.add(ctx.timestamp())
        ctx.timer_service().register_event_time_timer(ctx.timestamp() + MINUTE)

    def on_timer(self, timestamp, ctx):
        since = timestamp - MINUTE
        later = [time for time in self.times.get() if time > since]
        self.times.update(later)
        if not any(time <= timestamp for time in later):
            yield f"{ctx.get_current_key()} silent since {since}"


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    beats = [("a", 0), ("b", 10_000), ("a", 30_000), ("a", 200_000), ("b", 220_000)]
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_seconds(10))
    warnings = (
        env.from_collection(beats)
        .assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(lambda beat, _: beat[1]))
        .key_by(lambda beat: beat[0])
        .process(Silence())
    )
    with warnings.execute_and_collect() as results:
        print(*sorted(results), sep="\n")
