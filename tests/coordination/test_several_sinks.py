"""One job, four sinks (files, SQLite, PostgreSQL, Kafka): they commit together or not at all.

The crash points are used to disturb: six epochs of 40 records; in each, four sinks of two subtasks
pre-commit (eight passings of ``sink.prepare.*``) and four commit (of ``sink.commit.*``).
"""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest
from tests.coordination.test_hanging_kafka import read as read_topic
from tests.coordination.test_hanging_kafka import sink as kafka_sink
from tests.databases.database_job import EVENT, PER_EPOCH, Count, events, expected
from tests.databases.kill_chain import check
from tests.databases.targets import RESULT, SqliteTarget, Target, TwoPhaseTarget

from millstream.checkpoint.commit import CommitRetry
from millstream.connectors.files.sink import FileSink
from millstream.connectors.kafka.producers import discard_producers
from millstream.connectors.kafka.transactions import TransactionControl
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import SinkError
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sinks import FailingSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.coordination.proxy import HangingProxy
    from tests.kafka.broker import Broker

    from millstream.contracts.sink import Sink

    Disturb = Callable[[str, Callable[[], None]], None]
    Rows = list[tuple[str, int, int]]

pytestmark = pytest.mark.both_engines(every=4)

SINKS = ("files", "sqlite", "postgres", "kafka")
READ = "SELECT key, n, id FROM results"


class Four:
    """The four targets and a job that writes to all of them."""

    def __init__(self, path: Path, database: str, broker: Broker) -> None:
        self.path = path
        self.broker = broker
        self.topic = broker.topic(2)
        sqlite = path / "sqlite"
        sqlite.mkdir()
        self.tables: dict[str, Target] = {
            "sqlite": SqliteTarget(str(sqlite / "results.db")),
            "postgres": TwoPhaseTarget(database),
        }
        for target in self.tables.values():
            target.create()
        self.sinks: dict[str, Sink] = {
            "files": FileSink.json_lines(str(path / "files")),
            **{name: target.sink() for name, target in self.tables.items()},
            "kafka": kafka_sink(broker.servers, self.topic),
        }
        for sink in self.sinks.values():
            sink.validate()

    def cluster(self, **replaced: Sink) -> MiniCluster:
        """A run, up to recovery."""
        env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
        stream = env.from_collection(events(), EVENT).uid("events")
        counts = stream.key_by(lambda row: row.key).process(Count(), RESULT).uid("counts")
        for name in SINKS:
            counts.sink_to(replaced.get(name, self.sinks[name])).uid(name)
        graph = env.get_job_graph("several sinks")
        limits = itertools.repeat(PER_EPOCH)
        return MiniCluster(graph, self.path / "checkpoints", limits=limits)

    def visible(self) -> dict[str, Rows]:
        """What readers see in each; it is checked to be right as far as it goes."""
        files = [p for p in (self.path / "files").rglob("*") if not _is_hidden(p) and p.is_file()]
        lines = [json.loads(line) for each in files for line in each.read_text().splitlines()]
        seen = {
            "files": [(line["key"], line["n"], line["id"]) for line in lines],
            **{name: table.read(READ) for name, table in self.tables.items()},
            "kafka": read_topic(self.broker, self.topic),
        }
        for rows in seen.values():
            check(rows, expected())
        return seen

    def counts(self) -> list[int]:
        """How many rows readers see in each, in the order of ``SINKS``."""
        seen = self.visible()
        return [len(seen[name]) for name in SINKS]

    def left(self) -> list[object]:
        """What is pre-committed in any of them."""
        control = TransactionControl({"bootstrap.servers": self.broker.servers})
        found: list[object] = list(control.open_transactions(self.topic))
        control.close()
        found += [each for target in self.tables.values() for each in target.leftovers()]
        found += [each for each in (self.path / "files").rglob("*.pending") if each.is_file()]
        return found

    def finish(self) -> None:
        """Run to the end: every row is everywhere once, and nothing is left."""
        self.cluster().run()
        seen = self.visible()
        assert all(sorted(rows) == expected() for rows in seen.values())
        assert self.left() == []


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


@pytest.fixture
def four(tmp_path: Path, database: str, broker: Broker) -> Iterator[Four]:
    yield Four(tmp_path, database, broker)
    discard_producers()


def no() -> None:
    message = "no"
    raise SinkError(message)


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(
    "passing",
    ["sink.prepare.before:20", "sink.prepare.after:24"],
    ids=["in the middle", "last"],
)
def test_one_vote_of_no_rolls_back_everywhere(four: Four, passing: str, disturb: Disturb) -> None:
    """In the third epoch: when half is pre-committed, and when all is."""
    disturb(passing, no)
    with pytest.raises(SinkError, match="no"):
        four.cluster().run()
    assert four.counts() == [80] * 4
    assert four.left() != []
    second = four.cluster()  # recovers
    assert four.counts() == [80] * 4
    assert four.left() == []
    second.run(1)
    assert four.counts() == [120] * 4
    assert four.left() == []
    four.finish()


def test_a_participant_that_does_not_answer_rolls_back_everywhere(
    four: Four, postgres_proxy: HangingProxy, disturb: Disturb
) -> None:
    address = four.tables["postgres"].address
    head, _, tail = address.partition("@")
    way = f"{head}@127.0.0.1:{postgres_proxy.port}/{tail.partition('/')[2]}"
    hanging = TwoPhaseTarget(way).sink()
    disturb("prepared.prepare.before:6", postgres_proxy.hang)  # the last subtask of the third
    with pytest.raises(
        SinkError, match=r"uid postgres\) .* checkpoint 2, .*no answer from the server"
    ):
        four.cluster(postgres=hanging).run()
    assert four.counts() == [80] * 4
    four.cluster()
    assert [each for each in four.left() if "millstream" not in str(each)] == []
    postgres_proxy.resume()  # PREPARE TRANSACTION arrives, of a run that is over
    four.finish()


@pytest.mark.parametrize("number", [2, 4])
def test_a_partial_commit_is_resumed_by_the_next_run(
    four: Four, number: int, disturb: Disturb
) -> None:
    """The run ends when some sinks have committed the third epoch, and the next one has not."""

    def die() -> None:
        message = "died"
        raise RuntimeError(message)

    disturb(f"sink.commit.before:{2 * len(SINKS) + number}", die)
    with pytest.raises(RuntimeError, match="died"):
        four.cluster().run()
    assert sorted(four.counts()) == [80] * (len(SINKS) - number + 1) + [120] * (number - 1)
    assert four.left() != []
    four.cluster()
    assert four.counts() == [120] * 4
    assert four.left() == []
    four.finish()


@pytest.mark.parametrize(
    ("name", "step"), [("files", "commit.before"), ("postgres", "commit.half")]
)
def test_a_sink_that_cannot_commit_does_not_keep_the_others_from_it(
    four: Four, name: str, step: str, tmp_path: Path
) -> None:
    """It fails in the first epoch until it is given up; the next run commits it."""
    inner = four.sinks[name]
    failing = FailingSink(inner, step, times=2, directory=tmp_path / "failures")
    first = four.cluster(**{name: failing})
    first.coordinator._commits._retry = CommitRetry((0.0,))
    with pytest.raises(
        SinkError, match=rf"sink {name} could not commit checkpoint 0 to .* in 2 tries"
    ):
        first.run()
    assert first.coordinator.pending_commits.sinks.keys() == {name}
    counts = dict(zip(SINKS, four.counts(), strict=True))
    assert (0 if step == "commit.before" else 1) <= counts.pop(name) < 40
    assert set(counts.values()) == {40}
    # The same run would go on with that sink alone.
    assert first.coordinator.handle_replay(0)
    assert four.counts() == [40] * 4
    four.finish()
