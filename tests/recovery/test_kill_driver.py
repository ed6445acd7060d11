"""kill -9 of the driver's process group at every crash point and at random moments.

Each chain starts the job again and again; each start is killed at another crash point, then
the last is left to finish.  After every kill a reader must see no row twice and no row that is
not in the independent answer; at the end it sees all of them, and the order per key is kept.

On Spark the JVM is killed alone as well, as the system does when memory runs out: the driver must
end by itself, with an error that names it, and claim nothing that a healthy replacement may have.

Most chains run in one process without Spark (the same tasks, coordinator and sinks), forked from
one that has imported everything, but for the last start of each; the first seed is run on Spark as
well, each start that is killed with a JVM of its own, and ``make soak`` runs on Spark alone.

A chain is replayed with ``MILLSTREAM_KILL_SEEDS=<seed> pytest tests/recovery/test_kill_driver.py``;
``make soak`` goes on with new seeds for as long as it is told to.
"""

from __future__ import annotations

import json
import os
import random
import re
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import cloudpickle
import pytest
from tests.databases.server import PostgresServer, execute, prepared_in_schema
from tests.forked import run_forked
from tests.recovery import recovery_job
from tests.recovery.recovery_data import (
    expected_running,
    expected_windows,
    visible_running,
    visible_windows,
    write_input,
)

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.crash_points import JVM, points_of
from millstream.testing.crash import Run, run_once

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.kafka.broker import Broker

pytestmark = pytest.mark.slow

JOB: Final = Path(__file__).parent / "recovery_job.py"
SEEDS: Final = [int(seed) for seed in os.environ.get("MILLSTREAM_KILL_SEEDS", "1,2").split(",")]
RECORDS: Final = 2_400
#: Of each of the three files; some sixty epochs in all.
BYTES_PER_EPOCH: Final = 700
#: Those that a job with file sinks passes; other sinks have kill tests of their own.
POINTS: Final = points_of("driver", "task", "file sink")
#: Only a run that discovers the files logs them: the first.
FIRST: Final = ["splits.log.before", "splits.log.after"]
#: Between two steps of the protocol: what Spark replays then differs.
DECISIVE: Final = [
    "epoch.start.before",
    "task.ack.before",
    "manifest.publish.before",
    "manifest.publish.after",
    "sink.commit.after",
    "epoch.end.before",
    "recover.commit.after",
]
#: A start on Spark takes a quarter of a minute; the other points are left to ``make soak``.
SPARK_POINTS: Final = 4
LOCAL_POINTS: Final = 5
PIPELINED_POINTS: Final = 6
#: Not passed while tasks live on: there is no end of reading, and output is dropped when they end.
OF_EPOCHS: Final = ["source.read.after", "sink.abort.before", "sink.abort.after"]
RANDOM_KILLS: Final = 1
#: Of the JVM alone, and where.
JVM_POINTS: Final = [*DECISIVE, "log.open.before", "recover.abort.before", "sink.prepare.after"]
JVM_KILLS: Final = 1
DEADLINE: Final = 240.0

#: (key, id, n, total)
Running = tuple[str, int, int, int]


class Chain:
    """One job that is started again and again."""

    job = JOB
    #: Further arguments of the job.
    more: Sequence[str] = ()
    #: Whether starts that are killed may be forked from a process that has imported everything.
    forked = True

    def __init__(self, directory: Path, seed: int, master: str, records: int = RECORDS) -> None:
        self.directory = directory
        self.seed = seed
        self.master = master
        events = write_input(directory / "input", seed, records)
        self.running, self.windows = expected_running(events), expected_windows(events)
        self.starts = 0

    def arguments(self, *, slow: bool) -> list[str]:
        """What the job is started with."""
        return [
            str(self.directory / "input"),
            str(self.directory / "output"),
            str(self.directory / "checkpoints"),
            str(BYTES_PER_EPOCH if slow else 0),
            self.master,
            *self.more,
        ]

    def start(
        self,
        crash: str = "",
        kill_after: float | None = None,
        *,
        slow: bool = True,
        victim: str = "",
    ) -> Run:
        """Start the job; it is killed, loses its JVM (``victim``), or reaches its end."""
        self.starts += 1
        arguments = self.arguments(slow=slow)
        directory = self.directory / "runs" / f"{self.starts}-{crash.replace(':', '-')}"
        if self.forked and self.master in {"mini", "pipelined"} and crash:
            run = run_forked(
                self.job, arguments, directory=directory, crash=crash, deadline=DEADLINE
            )
        else:
            run = run_once(
                [sys.executable, str(self.job), *arguments],
                directory=directory,
                crash=crash,
                kill_after=kill_after,
                deadline=DEADLINE,
                victim=victim,
            )
        done = run.exit_code == 0
        expected = run.exit_code == 1 if victim else run.killed or done
        assert expected, f"{self}, start {self.starts}:\n{run.output}"
        self.check(whole=done)
        return run

    def generation(self) -> int:
        """How often a run took the job over."""
        log = ManifestLog(LocalStorage(self.directory / "checkpoints"))
        return max(entry.generation for entry in log.entries())

    def check(self, *, whole: bool) -> None:
        """What a reader sees now is right, and at the end complete."""
        output = self.directory / "output"
        self.check_running(visible_running(output), whole=whole)
        windows = visible_windows(output)
        assert len(windows) == len(set(windows)), f"{self}: a window is visible twice"
        assert set(windows) <= set(self.windows), f"{self}: a wrong window is visible"
        if whole:
            assert sorted(windows) == self.windows, f"{self}: windows are lost"
            orphans = [path for path in output.rglob("*") if ".pending" in str(path)]
            assert not orphans, f"{self}: output that no manifest names is left"

    def check_running(self, seen: list[Running], *, whole: bool) -> None:
        """What a reader sees of the running totals, in the order of reading, is right."""
        assert len(seen) == len(set(seen)), f"{self}: a row is visible twice"
        assert set(seen) <= set(self.running), f"{self}: a row no clean run makes is visible"
        last: dict[str, int] = {}
        for key, _, number, _ in seen:
            if number > 0:
                assert number == last.get(key, 0) + 1, f"{self}: the order of {key} is lost"
                last[key] = number
        if whole:
            assert sorted(seen) == self.running, f"{self}: rows are lost"

    def __str__(self) -> str:
        return f"seed {self.seed} in {self.directory}"


class ServerChain(Chain):
    """Writes the running totals to PostgreSQL and Kafka as well."""

    def __init__(
        self, directory: Path, seed: int, master: str, server: PostgresServer, broker: Broker
    ) -> None:
        super().__init__(directory, seed, master)
        self.database = server.new_schema()
        self.broker, self.topic = broker, broker.topic(partitions=2, name="running")
        execute(self.database, "CREATE TABLE running (key TEXT, id BIGINT, n BIGINT, total BIGINT)")
        self.more = [self.database, broker.servers, self.topic]

    def check(self, *, whole: bool) -> None:
        """The files, the table and the topic, each for itself."""
        super().check(whole=whole)
        # A table has no order but that of its counts.
        query = "SELECT key, id, n, total FROM running ORDER BY key, n"
        self.check_running(execute(self.database, query), whole=whole)
        rows = [json.loads(record.value) for record in self.broker.read(self.topic)]
        seen = [(row["key"], row["id"], row["n"], row["total"]) for row in rows]
        self.check_running(seen, whole=whole)
        if whole:
            assert prepared_in_schema(self.database) == []
            control = TransactionControl({"bootstrap.servers": self.broker.servers})
            assert control.open_transactions(self.topic) == []
            control.close()


def _kill_at(chain: Chain, points: list[str], chance: random.Random) -> None:
    # Tasks that live on are started once.
    once_a_run = ("recover.", "log.", *(["epoch.start."] if chain.master == "pipelined" else []))
    for point in points:
        once = point in FIRST or point.startswith(once_a_run)
        passing = 1 if once else chance.choice([1, 1, 2])
        run = chain.start(f"{point}:{passing}")
        assert run.killed, f"{chain}: crash point {point} was not reached\n{run.output}"


def _kill_jvm_at(chain: Chain, points: Sequence[str], chance: random.Random) -> None:
    """The driver ends by itself, and no run of it but the first takes the job over."""
    for point in points:
        before = chain.generation()
        passing = 1 if point.startswith(("recover.", "log.")) else chance.choice([1, 1, 2])
        run = chain.start(f"{point}:{passing}", victim=JVM)
        assert re.search(r"EngineError: Spark's JVM \(process \d+\) was killed", run.output), (
            f"{chain}: {point}\n{run.output}"
        )
        # On a busy machine Spark may give up a worker, and the run starts again before the kill.
        restarts = re.findall(r"restarting in .* after: (.*)", run.output)
        assert not [reason for reason in restarts if "refused" in reason or "Java" in reason]
        claimed = chain.generation() - before
        assert claimed <= 1 + len(restarts), f"{chain}: {point}\n{run.output}"


def _kill_at_random(chain: Chain, kills: int, chance: random.Random) -> None:
    """Kill at moments spread over a run's life: the first run tells how long that is."""
    alive = 8.0
    for _ in range(kills):
        started = time.monotonic()
        run = chain.start(kill_after=chance.uniform(0.4 * alive, 1.6 * alive))
        if not run.killed:
            return
        alive = max(alive, 0.7 * (time.monotonic() - started))


@pytest.mark.timeout(3000)
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("seed", [pytest.param(SEEDS[0], marks=pytest.mark.smoke), *SEEDS[1:]])
def test_every_crash_point(seed: int, tmp_path: Path) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = Chain(tmp_path, seed, "mini")
    points = sorted(set(POINTS) - set(FIRST))
    chance.shuffle(points)
    _kill_at(chain, FIRST + points, chance)
    assert chain.start(slow=False).exit_code == 0


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_points_and_moments_on_the_local_engine(seed: int, tmp_path: Path) -> None:
    """Driver and workers are processes of their own; the same points, some of them."""
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = Chain(tmp_path, seed, "local")
    points = sorted(set(POINTS) - set(FIRST))
    _kill_at(chain, FIRST[:1] + chance.sample(points, LOCAL_POINTS), chance)
    _kill_at_random(chain, 3 * RANDOM_KILLS, chance)
    assert chain.start(slow=False).exit_code == 0


@pytest.mark.timeout(3000)
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_points_and_moments_on_the_pipelined_engine(seed: int, tmp_path: Path) -> None:
    """Driver and slots are processes of their own; some points, those of barriers among them."""
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = Chain(tmp_path, seed, "pipelined")
    points = sorted({*POINTS, *points_of("pipelined task")} - set(FIRST) - set(OF_EPOCHS))
    _kill_at(chain, FIRST[:1] + chance.sample(points, PIPELINED_POINTS), chance)
    assert chain.start(slow=False).exit_code == 0


@pytest.fixture
def _job_goes_by_value() -> Iterator[None]:
    """Workers cannot import the tests."""
    cloudpickle.register_pickle_by_value(recovery_job)
    yield
    cloudpickle.unregister_pickle_by_value(recovery_job)


@pytest.mark.timeout(3000)
@pytest.mark.usefixtures("spark", "_job_goes_by_value")
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_every_crash_point_and_random_moments_on_spark(
    seed: int, tmp_path: Path, server: PostgresServer, broker: Broker
) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = ServerChain(tmp_path, seed, "local[2]", server, broker)
    points = sorted(set(POINTS) - set(FIRST) - set(DECISIVE))
    chance.shuffle(points)
    chosen = (chance.sample(DECISIVE, len(DECISIVE)) + points)[: SPARK_POINTS - len(FIRST)]
    _kill_at(chain, FIRST + chosen, chance)
    _kill_jvm_at(chain, chance.sample(JVM_POINTS, JVM_KILLS), chance)
    _kill_at_random(chain, RANDOM_KILLS, chance)
    # Nobody kills the last driver, so it may be this process, which has a session already.
    recovery_job.main(chain.arguments(slow=False))
    chain.check(whole=True)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_soak(tmp_path: Path, server: PostgresServer, broker: Broker) -> None:
    seconds = float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    deadline = time.monotonic() + seconds
    seed = int(time.time())
    kills = 0
    while time.monotonic() < deadline:
        seed += 1
        chance = random.Random(seed)
        chain = ServerChain(tmp_path / str(seed), seed, "local[2]", server, broker)
        points = sorted(set(POINTS) - set(FIRST))
        chance.shuffle(points)
        _kill_at(chain, points[: chance.randrange(1, 8)], chance)
        _kill_jvm_at(chain, chance.sample(JVM_POINTS, chance.randrange(1, 4)), chance)
        _kill_at_random(chain, 3, chance)
        chain.start(slow=False)
        kills += chain.starts - 1
        print(f"seed {seed}: {chain.starts - 1} kills, nothing lost, nothing twice")
    print(f"{kills} kills without a failure: below {3 / max(kills, 1):.4f} a kill at 95 %")
