"""kill -9 of a SQL job at crash points and at random moments; it goes on with another engine.

What it is: windows, a join, aggregates and Top-N over files, or over Kafka, into files, Kafka and
PostgreSQL.  Each start has another engine and another parallelism than the one before.  After each
kill nothing is there twice, nor is a row taken away that was not there; in the end what is there is
DuckDB's answer over the whole input.

A chain is replayed with ``MILLSTREAM_KILL_SEEDS=<seed> pytest tests/recovery/test_kill_sql.py``.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import random
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import duckdb
import pytest
from tests.connectors.tables.test_database_tables import url_of
from tests.databases.server import PostgresServer, execute, prepared_in_schema
from tests.recovery import sql_job
from tests.recovery.test_kill_driver import (
    BYTES_PER_EPOCH,
    DECISIVE,
    FIRST,
    OF_EPOCHS,
    POINTS,
    SEEDS,
    Chain,
)

from millstream.connectors.kafka.transactions import TransactionControl
from millstream.crash_points import points_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.kafka.broker import Broker

pytestmark = pytest.mark.slow

JOB: Final = Path(__file__).parent / "sql_job.py"
FILES: Final = 3
KEYS: Final = 4
RECORDS: Final = 900
#: Engine and parallelism by turns.
STARTS: Final = [("mini", 2), ("pipelined", 1), ("mini", 3), ("pipelined", 2)]
#: Passed once by a run.
ONCE: Final = ("recover.", "log.", "epoch.start.")
#: In `make test-all`, beside the first run's.
KILLS: Final = 2
_START: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone


def orders(seed: int) -> list[list[dict[str, Any]]]:
    """For each file: orders in which time is out of order by up to 1.5 s; keys live in all."""
    chance = random.Random(seed)
    found = []
    for file in range(FILES):
        rows = []
        for number in range(RECORDS // FILES):
            time_ = _START + dt.timedelta(milliseconds=40 * number + chance.randrange(1500))
            rows.append(
                {
                    "id": 1000 * file + number,
                    "k": f"k{chance.randrange(KEYS)}",
                    "v": chance.choice([None, *range(-20, 60)]),
                    "ts": time_.isoformat(sep=" ", timespec="milliseconds"),
                }
            )
        found.append(rows)
    return found


#: Two keys have one name, one has two, one has none.
PEOPLE: Final = [("k0", "ann"), ("k1", "bob"), ("k2", "ann"), ("k2", "cid"), ("k9", "dan")]


class SqlChain(Chain):
    """One SQL job that is started again and again, each time on another engine."""

    job = JOB

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.seed = seed
        self.starts = 0
        self.master, self.parallelism = STARTS[seed % len(STARTS)]
        self.orders = orders(seed)
        self._write(directory / "input" / "orders", self.orders)
        people = [{"k": key, "name": name} for key, name in PEOPLE]
        self._write(directory / "input" / "people", [people])
        self.wanted = answers(self.orders)
        self.of_names = set(self.wanted.pop("totals"))

    @staticmethod
    def _write(directory: Path, files: Sequence[Sequence[dict[str, Any]]]) -> None:
        directory.mkdir(parents=True)
        for number, rows in enumerate(files):
            lines = "".join(json.dumps(row) + "\n" for row in rows)
            (directory / f"{number}.json").write_text(lines)

    def turn(self) -> None:
        """The next engine and parallelism."""
        self.master, self.parallelism = STARTS[(self.seed + self.starts) % len(STARTS)]

    def arguments(self, *, slow: bool) -> list[str]:
        return [
            *(str(self.directory / name) for name in ("input", "output", "checkpoints")),
            str(BYTES_PER_EPOCH if slow else 0),
            self.master,
            str(self.parallelism),
            *self.more,
        ]

    def read(self, name: str) -> list[tuple[Any, ...]]:
        """What a reader sees of an output."""
        found = []
        for path in sorted((self.directory / "output" / name).glob("[!._]*.jsonl")):
            found += [tuple(json.loads(line).values()) for line in path.read_text().splitlines()]
        return found

    def check(self, *, whole: bool) -> None:
        for name, wanted in self.wanted.items():
            rows = self.read(name)
            if name in {"sums", "top"}:
                self._check_changes(name, rows, wanted, whole=whole)
                continue
            if name == "windows":
                rows = [(row[0].replace("T", " "), *row[1:]) for row in rows]
            seen = Counter(rows)
            assert not seen - wanted, f"{self}: {name}: twice or wrong: {seen - wanted}"
            assert not whole or seen == wanted, f"{self}: {name}: lost: {wanted - seen}"
        if whole:
            output = self.directory / "output"
            orphans = [path for path in output.rglob("*") if ".pending" in str(path)]
            assert not orphans, f"{self}: output that no manifest names is left"

    def _check_changes(
        self, name: str, changes: list[tuple[Any, ...]], wanted: Counter[Any], *, whole: bool
    ) -> None:
        there: Counter[Any] = Counter()
        for op, *row in changes:
            there[tuple(row)] += 1 if op in {"+I", "+U"} else -1
        # A checkpoint has all changes of what it has read: each row is there once, or is not.
        assert set(there.values()) <= {0, 1}, f"{self}: {name}: {there}"
        assert not whole or +there == wanted, f"{self}: {name}: {+there} is not {wanted}"


class SqlServerChain(SqlChain):
    """Reads from Kafka, and writes to Kafka and PostgreSQL as well."""

    def __init__(self, directory: Path, seed: int, server: PostgresServer, broker: Broker) -> None:
        super().__init__(directory, seed)
        self.database = server.new_schema()
        self.broker, self.topic = broker, broker.topic(partitions=FILES, name="orders")
        execute(self.database, "CREATE TABLE totals (name TEXT PRIMARY KEY, n BIGINT, total INT)")
        for partition, rows in enumerate(self.orders):
            broker.send(self.topic, [json.dumps(row).encode() for row in rows], partition)
        self.pairs = broker.topic(partitions=2, name="pairs")
        self.totals = broker.topic(partitions=2, name="totals")
        url = url_of(self.database)
        self.more = [url, broker.servers, self.topic, self.pairs, self.totals]

    def read(self, name: str) -> list[tuple[Any, ...]]:
        if name != "pairs":
            return super().read(name)
        records = self.broker.read(self.pairs)
        return [tuple(json.loads(record.value).values()) for record in records]

    def check(self, *, whole: bool) -> None:
        super().check(whole=whole)
        # A row per key, whose counts only grow.
        merged = {name: row for name, *row in execute(self.database, "SELECT * FROM totals")}
        by_key: dict[str, list[int]] = {}
        for record in self.broker.read(self.totals):
            name, *row = json.loads(record.value).values()
            assert name not in by_key or by_key[name][0] < row[0], f"{self}: {name} twice, or back"
            by_key[name] = row
        if whole:
            assert {(name, *row) for name, row in merged.items()} == self.of_names, str(self)
            assert by_key == merged, f"{self}: PostgreSQL and Kafka have not the same"
            assert prepared_in_schema(self.database) == []
            control = TransactionControl({"bootstrap.servers": self.broker.servers})
            for topic in (self.pairs, self.totals):
                assert control.open_transactions(topic) == []
            control.close()


def answers(files: list[list[dict[str, Any]]]) -> dict[str, Counter[tuple[Any, ...]]]:
    """DuckDB's, by output."""
    connection = duckdb.connect()
    connection.execute("CREATE TABLE given (id BIGINT, k VARCHAR, v INT, ts TIMESTAMP)")
    connection.execute("CREATE TABLE people (k VARCHAR, name VARCHAR)")
    rows = [tuple(row.values()) for file in files for row in file]
    connection.executemany("INSERT INTO given VALUES (?, ?, ?, ?)", rows)
    connection.executemany("INSERT INTO people VALUES (?, ?)", PEOPLE)
    window = (
        "SELECT strftime(date_trunc('second', ts), '%Y-%m-%d %H:%M:%S') AS w, k, COUNT(*), SUM(v) "
        "FROM given GROUP BY w, k"
    )
    top = sql_job.TOP.replace("total DESC", "total DESC NULLS LAST")
    queries = {
        "windows": window,
        "pairs": sql_job.INSERTS[1].removeprefix("INSERT INTO pairs "),
        "sums": sql_job.SUMS,
        "top": top,
        "totals": sql_job.SUM_BY_NAME,
    }
    return {name: Counter(connection.execute(each).fetchall()) for name, each in queries.items()}


def kill_at(chain: SqlChain, points: Sequence[str], chance: random.Random) -> None:
    """Kill at points, each time on the next engine; those that an engine does not pass are left.

    A start that comes to the end of the input ends the chain, once it has had its share of kills.
    """
    for number, point in enumerate(points):
        chain.turn()
        of_slots = point in points_of("pipelined task")
        if of_slots != (chain.master == "pipelined") and (of_slots or point in OF_EPOCHS):
            chain.master = "pipelined" if of_slots else "mini"
        once = point in FIRST or point.startswith(ONCE)
        run = chain.start(f"{point}:{1 if once else chance.choice([1, 2, 3])}")
        if run.exit_code == 0 and number > KILLS:
            return
        assert run.killed, f"{chain}: {point} was not reached on {chain.master}\n{run.output}"


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_a_sql_job_is_killed_and_goes_on_with_another_engine(seed: int, tmp_path: Path) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = SqlChain(tmp_path, seed)
    chosen = chance.sample([*DECISIVE, "state.upload.before", "sink.prepare.after"], KILLS)
    kill_at(chain, [FIRST[seed % 2], *chosen], chance)
    chain.turn()
    assert chain.start(slow=False).exit_code == 0
    chain.check(whole=True)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.usefixtures("forks")
def test_soak_of_sql(tmp_path: Path, server: PostgresServer, broker: Broker) -> None:
    """Crash points of every kind, and random moments on the local engine."""
    end = time.monotonic() + float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed = int(os.environ.get("MILLSTREAM_KILL_SEEDS", str(int(time.time()))).split(",")[0])
    kills = 0
    while time.monotonic() < end:
        chance = random.Random(seed)
        chain = SqlServerChain(tmp_path / str(seed), seed, server, broker)
        points = sorted({*POINTS, *points_of("pipelined task")} - set(FIRST))
        kill_at(chain, [chance.choice(FIRST), *chance.sample(points, 6)], chance)
        for _ in range(3):
            chain.master = chance.choice(("local", "pipelined"))
            if not chain.start(kill_after=chance.uniform(1.0, 5.0)).killed:
                break
        chain.turn()
        assert chain.start(slow=False).exit_code == 0
        kills += chain.starts - 1
        print(f"seed {seed}: {chain.starts - 1} kills, nothing lost, nothing twice")
        seed += 1
    print(f"{kills} kills of SQL jobs")
