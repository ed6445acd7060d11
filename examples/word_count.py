"""Count words; each word updates its count."""

from millstream.datastream import StreamExecutionEnvironment

env = StreamExecutionEnvironment.get_execution_environment()
env.set_parallelism(2)
lines = env.from_collection(["to be or not", "to be"])
counts = (
    lines.flat_map(lambda line: [(word, 1) for word in line.split()])
    .key_by(lambda pair: pair[0])
    .reduce(lambda a, b: (a[0], a[1] + b[1]))
)
with counts.execute_and_collect() as results:
    print(*sorted(results))
