"""Credit follows the throughput of its consumer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Configuration, Encoder, Types, WatermarkStrategy
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.datastream.connectors import FileSink
from millstream.runtime.exchange import DATA_PICKLE, Destination
from millstream.runtime.pipelined.links import (
    CreditLimits,
    Debloater,
    Frame,
    InLink,
    Link,
    LinkOutbox,
    OutLink,
    TaskId,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]

pytestmark = pytest.mark.extended

LIMITS = CreditLimits(first=4096, most=2 << 20)
RECORD = 20


class Consumer:
    """A task that processes records of its links in simulated time.

    Args:
        links: into it.
        limits: of their credit.
    """

    def __init__(self, links: int = 2, limits: CreditLimits = LIMITS) -> None:
        target = TaskId(1, 0)
        self.links = [InLink(Link(TaskId(0, n), target), limits.first) for n in range(links)]
        self.now = 0.0
        self.debloater = Debloater(self.links, limits, self.now)
        self.batch = 0

    def work(self, seconds: float, each: float, records: int = 5) -> None:
        """Process records for some time; there are always more."""
        end = self.now + seconds
        while self.now < end:
            for link in self.links:
                self.debloater.adjust(self.now, has_input=True, batch=self.batch)
                self.now += each * records
                self.debloater.processed(link, RECORD * records, records)

    @property
    def limit(self) -> int:
        (limit,) = {link.limit for link in self.links}
        return limit


@pytest.mark.parametrize("each", [0.00001, 0.0005, 0.002, 0.1])
@pytest.mark.parametrize("links", [1, 2, 7])
def test_links_carry_what_is_processed_in_the_target_time(each: float, links: int) -> None:
    consumer = Consumer(links)
    consumer.work(20, each)
    wanted = min(LIMITS.most, max(256, RECORD / each / links))
    assert 0.7 * wanted <= consumer.limit <= 1.4 * wanted


def test_credit_grows_at_once_and_shrinks_within_some_seconds() -> None:
    consumer = Consumer()
    consumer.work(0.05, 0.00001)
    fast = consumer.limit
    assert fast > 500_000
    consumer.work(0.3, 0.002)
    assert consumer.limit > fast / 3, "one slow measurement says little"
    consumer.work(15, 0.002)
    assert consumer.limit <= 7_000


def test_time_in_which_nothing_came_does_not_count() -> None:
    consumer = Consumer()
    consumer.work(3, 0.0005)
    usual = consumer.limit
    for _ in range(100):
        consumer.debloater.adjust(consumer.now, has_input=False, batch=0)
        consumer.now += 10
        consumer.work(0.02, 0.0005)
    assert consumer.limit == pytest.approx(usual, rel=0.3)


def test_there_is_credit_for_whole_batches_of_a_costly_function() -> None:
    consumer = Consumer()
    consumer.batch = 10_000
    consumer.work(10, 0.01)
    assert consumer.limit >= 2 * 10_000 * RECORD


def test_options() -> None:
    configuration = Configuration()
    prefix = "taskmanager.network.memory.buffer-debloat."
    configuration.set_string(prefix + "target", "3 s")
    found = CreditLimits.of(configuration, 100, 1000)
    assert found == CreditLimits(100, 1000, target=3.0, period=0.2, samples=20, threshold=0.25)
    configuration.set_string(prefix + "enabled", "false")
    assert CreditLimits.of(configuration, 100, 1000) is None


class Producer:
    """The outbox of a task with two consumers, one of which has little credit."""

    def __init__(self, limit: int) -> None:
        self.sent: list[Frame] = []
        self.ends = {
            TaskId(1, n): OutLink(Link(TaskId(0, 0), TaskId(1, n)), limit * (n + 1))
            for n in range(2)
        }
        self.outbox = LinkOutbox(self.ends, lambda _: False, lambda _, frame: self.note(frame))

    def note(self, frame: Frame) -> None:
        self.sent.append(frame)

    def send(self, size: int) -> None:
        self.outbox.add(Destination(1, 0, 0), DATA_PICKLE, b"x" * (size - 64))


def test_a_task_takes_as_many_records_as_there_is_credit_for() -> None:
    producer = Producer(10_000)
    outbox = producer.outbox
    assert outbox.allowed(10) == 10
    for _ in range(200):
        outbox.processed(10)
        producer.send(1000)
        producer.ends[TaskId(1, 0)].in_flight = 0
    assert outbox.allowed(1_000) == pytest.approx(100, rel=0.05)
    outbox.processed(60)
    assert outbox.allowed(1_000) == pytest.approx(40, rel=0.1), "what is gathered counts"
    found = [outbox.is_used_up]
    outbox.processed(60)
    found.append(outbox.is_used_up)
    assert found == [False, True]
    assert outbox.allowed(1_000) == pytest.approx(25, rel=0.05), "a quarter of the credit"


def test_records_of_which_nothing_is_sent_take_no_credit() -> None:
    producer = Producer(10_000)
    for _ in range(100):
        producer.outbox.processed(1_000)
        producer.outbox.flushed()
    assert producer.outbox.allowed(100_000) == 100_000


def test_an_aligned_checkpoint_does_not_wait_long_behind_a_slow_function(
    make: Make, eventually: Eventually, tmp_path: Path
) -> None:
    """With 2 MiB on each link, a quarter of a million records would be read ahead of a barrier."""

    def slowly(n: int) -> str:
        time.sleep(0.002)
        return str(n)

    env = make(2, {"execution.checkpointing.interval": "100"})
    source = NumberSequenceSource(0, 10**9, splits=2)
    numbers = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    sink = FileSink.for_row_format(str(tmp_path / "out"), Encoder.simple_string_encoder())
    slow = numbers.rebalance().map(slowly, Types.STRING()).uid("slow")
    slow.sink_to(sink.build()).uid("files")
    client = env.execute_async("slow")

    def counts(name: str) -> int:
        found: dict[str, Any] = client.get_accumulators().result()
        return int(found.get(name, 0))

    eventually(lambda: counts("slow.numRecordsIn") > 100, "checkpoints are committed")
    read, processed = counts("numbers.numRecordsIn"), counts("slow.numRecordsIn")
    client.cancel().result()
    assert processed <= read <= 20_000, sorted(client.get_accumulators().result())
