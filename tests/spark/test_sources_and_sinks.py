"""Sources, sinks and the job client on Spark."""

from __future__ import annotations

import csv
import importlib
import json
import socket
import subprocess
import sys
import threading
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.common import Duration, Row, Types, WatermarkStrategy
from millstream.datastream import (
    JobStatus,
    KeyedProcessFunction,
    MapFunction,
    RuntimeContext,
    TumblingEventTimeWindows,
)
from millstream.datastream.connectors import (
    DataGeneratorSource,
    FileSink,
    FileSource,
    NumberSequenceSource,
    RateLimiterStrategy,
    SocketTextStreamSource,
    StreamFormat,
)
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pyspark.sql import SparkSession

    from millstream.datastream import JobClient, StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.spark

NO_TIME = WatermarkStrategy.no_watermarks()
SCHEMA = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


@dataclass
class Item:
    id: int
    name: str


def visible(directory: Path) -> list[Path]:
    """The files that a reader sees."""
    return sorted(path for path in directory.glob("[!._]*") if path.is_file())


def json_rows(directory: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for path in visible(directory) for line in path.read_text().split()]


def write_inputs(base: Path) -> list[tuple[int, str]]:
    rows = [(i, f"name-{i}") for i in range(30)]
    for kind in ("csv", "json", "parquet", "text"):
        (base / kind).mkdir(parents=True)
    for part in range(2):
        half = rows[part * 15 : part * 15 + 15]
        with (base / "csv" / f"{part}.csv").open("w", newline="") as file:
            csv.writer(file).writerows([("id", "name"), *half])
        lines = [json.dumps({"id": number, "name": name}) for number, name in half]
        (base / "json" / f"{part}.json").write_text("\n".join(lines) + "\n")
        table = pa.table({"id": [n for n, _ in half], "name": [name for _, name in half]})
        pq.write_table(table, base / "parquet" / f"{part}.parquet")
        (base / "text" / f"{part}.txt").write_text("".join(f"{n},{name}\n" for n, name in half))
    return rows


def test_oracle_files_numbers_and_generator(make: Make, tmp_path: Path) -> None:
    rows = write_inputs(tmp_path / "in")
    env = make(2)

    def read(kind: str) -> str:
        return str(tmp_path / "in" / kind)

    text = StreamFormat.text_line_format()
    sources = {
        "csv": FileSource.csv(read("csv")),  # its schema is inferred
        "json": FileSource.json_lines(read("json"), schema=SCHEMA),
        "parquet": FileSource.parquet(read("parquet"), schema=Item),
        "text": FileSource.for_record_stream_format(text, read("text")).build(),
        "numbers": NumberSequenceSource(5, 24),
        "generator": DataGeneratorSource(lambda i: f"g{i}", 50, type_info=Types.STRING()),
        "untyped": DataGeneratorSource(lambda i: {"i": i}, 10),
    }
    streams = {name: env.from_source(s, NO_TIME, name) for name, s in sources.items()}
    streams["sequence"] = env.from_sequence(1, 9)
    out = tmp_path / "out"
    streams["csv"].sink_to(FileSink.csv(str(out / "csv")))
    streams["json"].sink_to(FileSink.json_lines(str(out / "json")))
    streams["parquet"].sink_to(FileSink.parquet(str(out / "parquet"))).set_parallelism(1)
    united = []
    for name, stream in streams.items():
        united.append(stream.map(lambda value, name=name: (name, value)))
    found = defaultdict(list)
    with united[0].union(*united[1:]).execute_and_collect() as records:  # type: ignore[union-attr]
        for name, value in cast("Iterator[tuple[str, Any]]", records):
            found[name].append(value)
    assert sorted((r.id, r.name) for r in found["csv"]) == rows
    assert sorted((r.id, r.name) for r in found["json"]) == rows
    assert sorted((r.id, r.name) for r in found["parquet"]) == rows
    assert sorted(found["text"]) == sorted(f"{number},{name}" for number, name in rows)
    assert sorted(found["numbers"]) == list(range(5, 25))
    assert sorted(found["generator"]) == sorted(f"g{i}" for i in range(50))
    assert sorted(value["i"] for value in found["untyped"]) == list(range(10))
    assert sorted(found["sequence"]) == list(range(1, 10))
    written: list[list[str]] = []
    for path in visible(out / "csv"):
        with path.open(newline="") as file:
            written += [row for row in csv.reader(file) if row != ["id", "name"]]
    assert sorted((int(number), name) for number, name in written) == rows
    assert sorted((row["id"], row["name"]) for row in json_rows(out / "json")) == rows
    parquet = [row for path in visible(out / "parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted((row["id"], row["name"]) for row in parquet) == rows


class Ticker(KeyedProcessFunction):
    """A processing-time timer a little later than the first element of a key; notes its firing."""

    def __init__(self, fired: Path) -> None:
        self.fired = fired

    def process_element(self, value: int, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        service = ctx.timer_service()
        if value < 5:
            service.register_processing_time_timer(service.current_processing_time() + 100)
        yield "element", value

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[Any]:
        (self.fired / str(ctx.get_current_key())).touch()
        yield "timer", ctx.get_current_key()


class HalfTime:
    """A clock, in seconds, that stops at 1 until all timers have fired, then at 10."""

    def __init__(self, fired: Path) -> None:
        self.fired = fired
        self.started = False

    def __call__(self) -> float:
        if not self.started:
            self.started = True
            return 0.0
        return 10.0 if len(list(self.fired.iterdir())) == 5 else 1.0


def test_generator_at_a_rate_and_processing_time_timers(make: Make, tmp_path: Path) -> None:
    # The end of the input would drop timers: half of the records come when none waits any more.
    fired = tmp_path / "fired"
    fired.mkdir()
    rate = RateLimiterStrategy.per_second(30)
    source = DataGeneratorSource(lambda i: i, 60, rate, clock=HalfTime(fired))
    stream = make(2).from_source(source, NO_TIME, "slow").key_by(lambda i: i % 5)
    with stream.process(Ticker(fired)).execute_and_collect() as records:  # type: ignore[union-attr]
        found = list(records)
    assert sorted(value for kind, value in found if kind == "element") == list(range(60))
    assert sorted(value for kind, value in found if kind == "timer") == list(range(5))


def test_oracle_from_spark(make: Make, spark: SparkSession, tmp_path: Path) -> None:
    rows = write_inputs(tmp_path / "in")
    frame = spark.readStream.schema("id long, name string").json(str(tmp_path / "in" / "json"))
    more = frame.selectExpr("id + 100 as id", "upper(name) as name").where("id % 2 = 0")
    env = make(2)
    stream = env.from_spark(frame).union(env.from_spark(more, name="more"))
    assert str(stream.get_type()) == str(SCHEMA)
    parity = stream.key_by(lambda row: row.id % 2, Types.LONG()).map(tuple)
    wanted = [*rows, *((n + 100, name.upper()) for n, name in rows if n % 2 == 0)]
    found = parity.execute_and_collect(limit=len(wanted))
    assert sorted(found) == sorted(wanted)  # type: ignore[type-var]


def test_watermark_of_a_spark_dataframe(make: Make, spark: SparkSession, tmp_path: Path) -> None:
    seconds = [1, 4, 12, 3, 31, 9, 33]
    lines = [f'{{"id": {n}, "at": "1970-01-01T00:00:{n:02}Z"}}\n' for n in seconds]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text("".join(lines))
    frame = spark.readStream.schema("id long, at timestamp").json(str(tmp_path / "in"))
    env = make(1)
    stream = env.from_spark(frame.withWatermark("at", "5 seconds"), WatermarkStrategy.preserve())
    windows = stream.map(lambda row: row.id).key_by(lambda _: 0)
    sums = windows.window(TumblingEventTimeWindows.of(10_000)).reduce(lambda one, two: one + two)
    # The watermark is 27.999: the window of the thirties stays open.
    assert sorted(sums.execute_and_collect(limit=2)) == [12, 1 + 4 + 3 + 9]  # type: ignore[type-var]


def test_socket(make: Make) -> None:
    lines = [f"line {i}" for i in range(20)]
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.sendall("".join(f"{line}\n" for line in lines).encode())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        source = SocketTextStreamSource("127.0.0.1", server.getsockname()[1])
        stream = make(2).from_source(source, NO_TIME, "socket").map(str.upper)
        found = stream.execute_and_collect(limit=len(lines))
        thread.join(180)
    assert sorted(found) == sorted(line.upper() for line in lines)  # type: ignore[type-var]


def test_continuous_monitoring_and_job_client(
    make: Make, tmp_path: Path, eventually: Eventually
) -> None:
    source_directory, out = tmp_path / "in", tmp_path / "out"
    source_directory.mkdir()

    def put(name: str, numbers: range) -> None:
        hidden = source_directory / f".{name}"
        hidden.write_text("".join(json.dumps({"id": n, "name": "x"}) + "\n" for n in numbers))
        hidden.rename(source_directory / name)

    def seen() -> list[int]:
        return sorted(row["id"] for row in json_rows(out))

    put("a.json", range(10))
    env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    source = FileSource.json_lines(
        str(source_directory), schema=SCHEMA, discovery_interval=Duration.of_millis(100)
    )
    env.from_source(source, NO_TIME, "files").sink_to(FileSink.json_lines(str(out)))
    client = env.execute_async("monitor")
    try:
        eventually(lambda: seen() == list(range(10)), "the first file")
        assert client.get_job_status().result() is JobStatus.RUNNING
        put("b.json", range(10, 25))
        eventually(lambda: seen() == list(range(25)), "the second file")
    finally:
        client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert client.get_job_execution_result().result().job_id == client.get_job_id()
    totals = client.get_accumulators().result()
    assert sum(int(str(n)) for name, n in totals.items() if "In" in name) > 0


def test_a_source_that_has_nothing_yet(make: Make, tmp_path: Path, eventually: Eventually) -> None:
    """Spark runs its first micro-batch nevertheless, and runs it again in the next run."""
    (tmp_path / "in").mkdir()
    out = tmp_path / "out"

    def start() -> JobClient:
        env = make(1, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
        source = FileSource.json_lines(
            str(tmp_path / "in"), schema=SCHEMA, discovery_interval=Duration.of_millis(100)
        )
        env.from_source(source, NO_TIME, "files").sink_to(FileSink.json_lines(str(out)))
        return env.execute_async("late")

    for log in ("offsets", "commits"):
        client = start()
        try:
            eventually(lambda: any(tmp_path.rglob(f"spark/{log}/0")), "a micro-batch of nothing")  # noqa: B023 - called here
        finally:
            client.cancel().result()
        assert client.get_job_status().result() is JobStatus.CANCELED
    (tmp_path / "in" / "a.json").write_text(json.dumps({"id": 7, "name": "x"}) + "\n")
    client = start()
    try:
        eventually(lambda: json_rows(out) == [{"id": 7, "name": "x"}], "what came late")
    finally:
        client.cancel().result()


def test_result_of_execute_async(make: Make) -> None:
    env = make(1)
    env.from_collection([1, 2, 3], Types.LONG()).map(lambda n: n, Types.LONG()).print("out")
    assert "Map" in env.get_execution_plan()
    client = env.execute_async("numbers")
    result = client.get_job_execution_result().result()
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert result.job_name == "numbers"
    assert result.get_net_runtime() > 0


def test_print(make: Make, capsys: pytest.CaptureFixture[str]) -> None:
    env = make(2)
    env.from_collection([Row(1, "hi"), Row(2, "ho")], SCHEMA).print("rows").set_parallelism(1)
    # Mapped: a collection is one stream, which is printed as one.
    env.from_collection([(i, "t") for i in range(4)]).map(lambda pair: pair).print()
    env.execute("print")
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("rows")] == [
        "rows> +I[1, hi]",
        "rows> +I[2, ho]",
    ]
    others = [line.partition("> ") for line in lines if not line.startswith("rows")]
    assert {prefix for prefix, _, _ in others} <= {"1", "2"}
    assert sorted(text for _, _, text in others) == [f"({i}, 't')" for i in range(4)]


@pytest.mark.parametrize("directory", [False, True])
def test_python_files(make: Make, tmp_path: Path, directory: bool) -> None:
    name = f"shipped_{directory}".lower()
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / f"{name}.py").write_text("def treble(value):\n    return 3 * value\n")

    def use(value: int) -> object:
        return importlib.import_module(name).treble(value)

    env = make(1)
    env.add_python_file(str(tmp_path / "code" / ("" if directory else f"{name}.py")))
    with env.from_collection([1, 2]).map(use).execute_and_collect() as found:  # type: ignore[union-attr]
        assert list(found) == [3, 6]

    env = make(1).add_python_file(str(tmp_path / "missing.py"))
    env.from_collection([1]).print()
    with pytest.raises(ConfigurationError, match=r"python\.files: there is no file.*missing"):
        env.execute()


def test_archives_and_cached_files(make: Make, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("mill")
    (tmp_path / "more.txt").write_text("stream")

    class Read(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            more = runtime_context.get_distributed_cache().get_file("more")
            self.text = Path("data/words.txt").read_text() + more.read_text()

        def map(self, value: int) -> str:
            return self.text * value

    env = make(1)
    env.add_python_archive(str(tmp_path / "data"))
    env.register_cached_file(str(tmp_path / "more.txt"), "more")
    with env.from_collection([1, 2]).map(Read()).execute_and_collect() as found:  # type: ignore[union-attr]
        assert list(found) == ["millstream", "millstreammillstream"]


PROGRAM = """
from dataclasses import dataclass
from enum import Enum

from millstream.common import Types
from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment
from millstream.datastream.state import ValueStateDescriptor


class Colour(Enum):
    RED = 1
    BLUE = 2


@dataclass
class Item:
    colour: str
    price: int


@dataclass
class Total:
    count: int
    price: int


def discount(item: Item) -> Item:
    return Item(item.colour, item.price - OFF)


class Sum(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))

    def process_element(self, value, ctx):
        total = self.total.value() or Total(0, 0)
        self.total.update(Total(total.count + 1, total.price + value.price))
        yield Colour[value.colour], self.total.value()


OFF = 1
if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    items = env.from_collection([Item("RED", 10), Item("BLUE", 20), Item("RED", 30)])
    typed = items.map(discount)
    assert typed.get_type() == Types.DATACLASS(Item), typed.get_type()
    totals = typed.key_by(lambda item: Colour[item.colour]).process(Sum())
    totals = totals.map(lambda pair: pair).rebalance().filter(lambda _: True)
    with totals.execute_and_collect() as found:
        for colour, total in sorted(found, key=lambda pair: (pair[0].name, pair[1].count)):
            assert type(total) is Total, type(total)
            print(colour, total)
"""


@pytest.mark.usefixtures("spark")  # which sets PYTHONPATH
def test_everything_in_main(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    result = subprocess.run(
        [sys.executable, str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines() == [
        "Colour.BLUE Total(count=1, price=19)",
        "Colour.RED Total(count=1, price=9)",
        "Colour.RED Total(count=2, price=38)",
    ]
