"""A PostgreSQL server that takes connections and never answers: an error in time, nothing lost."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from tests.databases.database_job import cluster, expected
from tests.databases.kill_chain import check
from tests.databases.targets import TARGETS, PostgresTarget

from millstream.checkpoint.commit import CommitRetry
from millstream.connectors.postgres import source as postgres_source
from millstream.connectors.postgres.sink import PostgresSink
from millstream.errors import SinkError, SourceError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.coordination.proxy import HangingProxy

    from millstream.contracts.sink import Sink

    Disturb = Callable[[str, Callable[[], None]], None]

READ = "SELECT key, n, id FROM results"
#: Seconds that a run may take to end in spite of a server that hangs; libpq waits for ever.
LONGEST = 300.0


@pytest.fixture
def target(request: pytest.FixtureRequest, database: str) -> PostgresTarget:
    made = TARGETS[request.param](database)
    made.create()
    assert isinstance(made, PostgresTarget)
    return made


def through(target: PostgresTarget, proxy: HangingProxy) -> Sink:
    """The target's sink, which gets at the server through the proxy."""
    head, _, tail = target.address.partition("@")
    way = f"{head}@127.0.0.1:{proxy.port}/{tail.partition('/')[2]}"
    return type(target)(way).sink()


def finish(target: PostgresTarget, checkpoints: Path) -> None:
    """What a run without proxy makes of it."""
    cluster(target.sink(), checkpoints, seed=1).run()
    assert sorted(target.read(READ)) == expected()
    assert list(target.leftovers()) == []


def test_the_server_gives_up_as_well(database: str) -> None:
    """It neither works for a client that is gone nor keeps the locks of a machine that died."""
    sink = PostgresSink.two_phase(database, "results", timeout=7.0)
    names = ("statement_timeout", "tcp_keepalives_idle", "tcp_keepalives_count")
    with sink.table.session("here") as session:
        found = [session.execute(f"SHOW {name}").fetchone() for name in names]
    assert found == [("7s",), ("30",), ("6",)]


def test_a_source(
    database: str, postgres_proxy: HangingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver asks for the range of the key, and gets no answer."""
    head, _, tail = database.partition("@")
    way = f"{head}@127.0.0.1:{postgres_proxy.port}/{tail.partition('/')[2]}"
    query = "SELECT 1 AS n, pg_sleep(0)"
    source = postgres_source.PostgresSource(way, query, key="n")
    source.validate()
    connect = source._connect

    def hang(patience: float) -> object:
        session = connect(patience)
        postgres_proxy.hang()
        return session

    monkeypatch.setattr(source, "_connect", hang)
    with pytest.raises(SourceError, match=r"no answer from the server for \d"):
        source.discover(frozenset())


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize("target", ["postgres-two-phase", "postgres-upsert"], indirect=True)
def test_at_the_start(target: PostgresTarget, postgres_proxy: HangingProxy, tmp_path: Path) -> None:
    sink = through(target, postgres_proxy)
    sink.validate()
    cluster(sink, tmp_path / "checkpoints").run(2)
    postgres_proxy.hang()
    began = time.monotonic()
    with pytest.raises(SinkError, match=r"at submit: cannot connect to PostgreSQL .* timeout"):
        sink.validate()
    # Recovery commits and drops orphans; upserts have neither.
    if sink.create_committer() is not None:
        with pytest.raises(SinkError, match=r"sink results-sink.*not commit checkpoint 1 to"):
            cluster(sink, tmp_path / "checkpoints")
    assert time.monotonic() - began < LONGEST
    postgres_proxy.resume()
    finish(target, tmp_path / "checkpoints")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("target", "point", "visible"),
    [
        ("postgres-two-phase", "sink.prepare.before:5", 80),
        ("postgres-two-phase", "prepared.prepare.before:5", 80),
        ("postgres-commit-table", "sink.prepare.before:5", 80),
        ("postgres-upsert", "sink.prepare.before:5", 80),
        ("postgres-upsert", "upsert.commit.before:5", 80),
    ],
    indirect=["target"],
)
def test_in_a_task(
    target: PostgresTarget,
    point: str,
    visible: int,
    postgres_proxy: HangingProxy,
    disturb: Disturb,
    tmp_path: Path,
) -> None:
    """The epoch is rolled back: two epochs of 40 are visible and nothing of the third."""
    sink = through(target, postgres_proxy)
    sink.validate()
    job = cluster(sink, tmp_path / "checkpoints")
    disturb(point, postgres_proxy.hang)
    began = time.monotonic()
    with pytest.raises(
        SinkError,
        match=r"uid results-sink\) .*checkpoint 2, .*table 'results' .*no answer from the",
    ):
        job.run()
    assert time.monotonic() - began < LONGEST
    assert postgres_proxy.hangs == 1
    assert len(target.read(READ)) == visible
    check(target.read(READ), expected())
    postgres_proxy.resume()
    finish(target, tmp_path / "checkpoints")


COMMITS = [
    ("postgres-two-phase", "sink.commit.before:3"),
    ("postgres-two-phase", "prepared.commit.before:5"),
    ("postgres-two-phase", "prepared.commit.after:5"),
    ("postgres-commit-table", "table.transaction.before:3"),
    ("postgres-commit-table", "table.commit.before:3"),
]


@pytest.mark.sampled(every=2)
@pytest.mark.parametrize(("target", "point"), COMMITS[1::3], indirect=["target"])
def test_in_the_commit(
    target: PostgresTarget,
    point: str,
    postgres_proxy: HangingProxy,
    disturb: Disturb,
    tmp_path: Path,
) -> None:
    """Tried again, given up with what is pending, and committed by the next run."""
    sink = through(target, postgres_proxy)
    sink.validate()
    job = cluster(sink, tmp_path / "checkpoints")
    job.coordinator._commits._retry = CommitRetry((0.0,))
    disturb(point, postgres_proxy.hang)
    began = time.monotonic()
    with pytest.raises(
        SinkError,
        match=r"sink results-sink.*could not commit checkpoint 2 to table 'results' of PostgreSQL "
        r"127.0.0.1:\d+/postgres in 2 tries\)\. Pending: 2 of sink results-sink",
    ):
        job.run()
    assert time.monotonic() - began < LONGEST
    check(target.read(READ), expected())
    postgres_proxy.resume()
    finish(target, tmp_path / "checkpoints")


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(("target", "point"), COMMITS, indirect=["target"])
def test_in_the_commit_for_a_while(
    target: PostgresTarget,
    point: str,
    postgres_proxy: HangingProxy,
    disturb: Disturb,
    tmp_path: Path,
) -> None:
    """The second try goes through; what the first had sent arrives, too, and changes nothing."""
    sink = through(target, postgres_proxy)
    sink.validate()
    job = cluster(sink, tmp_path / "checkpoints")
    job.coordinator._commits._retry = CommitRetry((0.0,), lambda _: postgres_proxy.resume())
    disturb(point, postgres_proxy.hang)
    job.run()
    assert postgres_proxy.hangs == 1
    assert sorted(target.read(READ)) == expected()
    assert list(target.leftovers()) == []
