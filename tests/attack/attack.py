"""An attack on a job: servers, relays, feeder, readers, drivers, one fault after the other.

What it is: everything the faults act on, the measurement of how long the job takes to make new
output visible in all three sinks after each, and the comparison at the end.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import subprocess
import time
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from tests.attack.attack_job import Settings
from tests.attack.drivers import Driver
from tests.attack.faults import FAULTS, ON_SLOTS
from tests.attack.orders import PARTITIONS, Feeder
from tests.attack.readers import FileReader, TableReader, TopicReader
from tests.attack.relay import Relay
from tests.databases.server import PostgresServer, execute
from tests.kafka.broker import running_broker

from kafka import KafkaConsumer, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.attack.readers import Reader
    from tests.kafka.broker import Broker

__all__ = ["Attack", "Recovery", "attacked"]

#: Seconds in which every fault must be overcome; only failures reach it.
_PATIENCE: Final = 240.0
#: Bytes of the file system that holds the checkpoints.
_ROOM: Final = "96m"
_TABLE: Final = (
    "CREATE TABLE results (number BIGSERIAL, kind TEXT NOT NULL, customer TEXT NOT NULL,"
    " id BIGINT NOT NULL, n BIGINT NOT NULL, total BIGINT NOT NULL)"
)


@dataclass
class Recovery:
    """How long it took from a fault to new output in all sinks, in seconds."""

    fault: str
    seconds: float
    #: Name of a part of it -> seconds; only of faults behind which a driver was started.
    parts: dict[str, float] = field(default_factory=dict)


class Attack:
    """One job under attack."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        server: PostgresServer,
        broker: Broker,
        *,
        on_slots: bool,
    ) -> None:
        self.directory = directory
        self.on_slots = on_slots
        self.seed = seed
        self.chance = random.Random(seed)
        self.server, self.broker = server, broker
        self.broker_pid = broker.pid
        self.recoveries: list[Recovery] = []
        self.checkpoints = directory / "checkpoints"
        self.local = directory / "local"
        broker_port = int(broker.servers.rpartition(":")[2])
        self.kafka_relay = Relay(broker_port, kafka=True)
        self.database_relay = Relay(server.port)
        self.database = server.new_schema()
        execute(self.database, _TABLE)
        self.settings = Settings(
            brokers=f"127.0.0.1:{self.kafka_relay.port}",
            orders=broker.topic(PARTITIONS, "orders"),
            results=broker.topic(PARTITIONS, "results"),
            database=self.database.replace(f":{server.port}/", f":{self.database_relay.port}/"),
            output=str(directory / "output"),
            checkpoints=str(self.checkpoints / "job"),
            local=str(self.local),
            marks=str(directory / "marks"),
            on_slots=on_slots,
        )
        (directory / "settings.json").write_text(json.dumps(asdict(self.settings)))
        (directory / "output").mkdir()
        self.feeder = Feeder(broker.servers, self.settings.orders, seed)
        answer = self.feeder.answer
        self.readers: list[Reader] = [
            TopicReader(broker.servers, self.settings.results, PARTITIONS, answer),
            TableReader(self.database, answer),
            FileReader(self.settings.output, answer),
        ]
        self._drivers: list[Driver] = []

    @property
    def driver(self) -> Driver:
        """The newest."""
        return self._drivers[-1]

    def start_driver(self) -> None:
        """Start another driver of the job."""
        number = len(self._drivers) + 1
        self._drivers.append(Driver(self.directory / "settings.json", self.directory, number))

    def rest(self, seconds: float) -> None:
        """Let a fault last."""
        time.sleep(seconds)

    def crash_database(self, seconds: float) -> None:
        """Crash PostgreSQL and start it again so much later."""
        self.server.crash()
        self.rest(seconds)
        self.server.start(64)

    def wait_for_output(self, what: str) -> float:
        """Wait for new output in all sinks, starting drivers that are needed; when it was there."""
        counts = [reader.settle() for reader in self.readers]
        deadline = time.time() + _PATIENCE
        latest = 0.0
        for reader, count in zip(self.readers, counts, strict=True):
            seen = None
            while seen is None:
                assert time.time() < deadline, self._why(f"no output in {reader.name}: {what}")
                if not self.driver.alive:
                    self.start_driver()
                seen = reader.wait_beyond(count, time.time() + 0.5)
            latest = max(latest, seen)
        self.check_readers(what)
        return latest

    def run_fault(self, name: str) -> Recovery:
        """Do it, and wait until the job is well again."""
        drivers = len(self._drivers)
        begun = time.time()
        print(f"  {name} ...", end="", flush=True)
        (ON_SLOTS if self.on_slots else FAULTS)[name](self)
        over = self.wait_for_output(name)
        recovery = Recovery(name, over - begun)
        if len(self._drivers) > drivers and self.driver.alive:
            recovery.parts = self._parts(begun, over)
        self.recoveries.append(recovery)
        parts = ", ".join(f"{part} {spent:.1f}" for part, spent in recovery.parts.items())
        print(f" {recovery.seconds:.1f} s {parts}", flush=True)
        return recovery

    def _parts(self, begun: float, over: float) -> dict[str, float]:
        """Of the newest driver's start, from its marks and from the log of its manifests."""
        driver = self.driver
        marks = {}
        with contextlib.suppress(FileNotFoundError):
            for line in (self.directory / "marks").read_text().splitlines():
                pid, name, moment = line.split()
                if int(pid) == driver.pid:
                    marks[name] = float(moment)
        if len(marks) < 2:
            return {}
        opened, published = self._log_times(marks["session"])
        return {
            "until its start": driver.began - begun,
            "imports": marks["imported"] - driver.began,
            "Spark's session": marks["session"] - marks["imported"],
            "until it has the job": opened - marks["session"],
            "first epoch": published - opened,
            "until all is visible": over - published,
        }

    def _log_times(self, after: float) -> tuple[float, float]:
        """When the newest run has opened the log, and published its first manifest."""
        opened = published = after
        for path in sorted((self.checkpoints / "job" / "log").glob("*.json")):
            with contextlib.suppress(FileNotFoundError):
                moment = path.stat().st_mtime
                if moment < after:
                    continue
                if re.search(rb'"kind":\s*"open"', path.read_bytes()):
                    opened, published = moment, after
                elif published == after:
                    published = moment
        return opened, max(published, opened)

    def check_readers(self, what: str) -> None:
        """No reader has seen anything wrong so far."""
        wrong = [line for reader in self.readers for line in reader.wrong]
        assert not wrong, self._why(f"{what}: " + "\n".join(wrong[:10]))

    def finish(self) -> None:
        """Feed no more; when all is visible compare it, and look for what is left over."""
        until = self.feeder.finish()
        expected = self.feeder.answer.whole(until)
        deadline = time.time() + _PATIENCE
        for reader in self.readers:
            while len(reader.rows) < len(expected) and time.time() < deadline:
                if not self.driver.alive:
                    self.start_driver()
                reader.wait_beyond(len(expected) - 1, time.time() + 0.5)
        self.driver.interrupt()
        self.driver.wait_for_end(60)
        for reader in self.readers:
            reader.settle()
            reader.stop()
            missing = set(expected) - reader.rows
            surplus = reader.rows - set(expected)
            assert not missing, self._why(f"{reader.name}: lost {len(missing)}: {min(missing)}")
            assert not surplus, self._why(f"{reader.name}: {len(surplus)} wrong: {min(surplus)}")
        self.check_readers("at the end")
        assert execute(self.server.conninfo(), "SELECT gid FROM pg_prepared_xacts") == []
        assert self.open_partitions() == {}, self._why("transactions hang")

    def open_partitions(self) -> dict[int, tuple[int, int]]:
        """Partitions of results whose readers stand before their end: (they stand at, end)."""
        places = [TopicPartition(self.settings.results, number) for number in range(PARTITIONS)]
        ends = []
        for level in ("read_committed", "read_uncommitted"):
            consumer = KafkaConsumer(bootstrap_servers=self.broker.servers, isolation_level=level)
            ends.append(consumer.end_offsets(places))
            consumer.close()
        return {
            place.partition: (ends[0][place], ends[1][place])
            for place in places
            if ends[0][place] != ends[1][place]
        }

    def close(self) -> None:
        """End everything, whatever state it is in."""
        for driver in self._drivers:
            driver.wake()
            driver.kill_all()
        for reader in self.readers:
            reader.stop()
        self.feeder.abandon()
        self.kafka_relay.close()
        self.database_relay.close()

    def _why(self, what: str) -> str:
        tails = "\n".join(
            f"--- driver {driver.number} ({driver.exit_code})\n{driver.tail()}"
            for driver in self._drivers[-2:]
        )
        return f"{what}\nseed {self.seed}, files in {self.directory}\n{tails}"


@contextlib.contextmanager
def attacked(directory: Path, seed: int, *, on_slots: bool = False) -> Iterator[Attack]:
    """A job that runs and has made its first output, with servers of its own.

    Args:
        directory: for everything.
        seed: of what is done to it.
        on_slots: its tasks live on, in processes of this machine; else on Spark.
    """
    checkpoints = directory / "checkpoints"
    checkpoints.mkdir()
    with contextlib.ExitStack() as stack:
        if _mount(checkpoints):
            stack.callback(subprocess.run, ["umount", "-l", str(checkpoints)], check=True)
        server = PostgresServer(64)
        stack.callback(server.stop)
        (directory / "kafka").mkdir()
        broker = stack.enter_context(running_broker(directory / "kafka"))
        attack = Attack(directory, seed, server, broker, on_slots=on_slots)
        stack.callback(attack.close)
        attack.feeder.start()
        attack.start_driver()
        attack.wait_for_output("the first start")
        yield attack


def _mount(directory: Path) -> bool:
    """Give a directory a small file system of its own, so that it can be full; needs root."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={_ROOM},mode=700", "tmpfs", str(directory)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0
