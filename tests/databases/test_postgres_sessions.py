"""Sessions of older runs are ended, and no others; who holds a lock is named."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

import psycopg
import pytest
from tests.databases.server import USER, PostgresServer, execute
from tests.databases.targets import TARGETS, PostgresTarget
from tests.databases.test_postgres_sinks import ROWS, at, commit, prepare

from millstream.checkpoint.local_storage import LocalStorage
from millstream.connectors.output_names import OutputNames
from millstream.connectors.postgres.sessions import RunSessions, lock_holders
from millstream.contracts.sink import CommitRequest, CommitterContext
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from millstream.connectors.postgres.table import Session
    from millstream.contracts.sink import Committable, Committer, Sink

    Disturb = Callable[[str, Callable[[], None]], None]

#: Seconds; less than any test may wait for a lock that nobody lets go of.
SOON = 1.0


def table_of(kind: str, database: str, columns: str) -> PostgresTarget:
    made = TARGETS[kind](database)
    assert isinstance(made, PostgresTarget)
    execute(database, f"CREATE TABLE results ({columns})")
    made.sink(lock_timeout=SOON).validate()
    return made


@contextlib.contextmanager
def committer_of(sink: Sink, path: Path, generation: int) -> Iterator[Committer]:
    committer = sink.create_committer()
    assert committer is not None
    storage = LocalStorage(path, fsync=False)
    committer.open(CommitterContext("job", "sink", generation, storage))
    try:
        yield committer
    finally:
        committer.close()


def requests(made: Sequence[Committable]) -> list[CommitRequest]:
    return [CommitRequest(item, 1, retried=True) for item in made]


# -- what is held, mode by mode ------------------------------------------------------------------


def test_a_committer_in_its_commit(database: str, disturb: Disturb, tmp_path: Path) -> None:
    """The commit table: rows and notes are written, and the driver stands still."""
    target = table_of("postgres-commit-table", database, "key TEXT, n BIGINT, id BIGINT")
    sink = target.sink(lock_timeout=SOON)
    made = prepare(sink)

    def take_over() -> None:
        with committer_of(sink, tmp_path, 4) as newer:
            newer.commit(requests(made))

    disturb("table.commit.before", take_over)
    with (
        committer_of(sink, tmp_path, 3) as older,
        pytest.raises(SinkError, match=r"terminating connection.*A newer run of this job ends"),
    ):
        older.commit(requests(made))
    assert len(target.read()) == len(ROWS)
    with committer_of(sink, tmp_path, 3) as older:  # and changes nothing when it tries again
        older.commit(requests(made))
    assert len(target.read()) == len(ROWS)


def test_a_writer_with_rows_in_the_table(database: str, tmp_path: Path) -> None:
    """Two-phase: rows of a table with a key are written, and not prepared."""
    columns = "key TEXT PRIMARY KEY, n BIGINT, id BIGINT"
    sink = table_of("postgres-two-phase", database, columns).sink(lock_timeout=SOON)
    with writing(sink):
        with pytest.raises(SinkError, match=r"lock timeout.*Held by session \d+"):
            prepare(sink, where=at(generation=4))
        with committer_of(sink, tmp_path, 4) as newer:
            newer.abort_orphans("job", "sink", [], 4)
        commit(sink, prepare(sink, where=at(generation=4)))
    assert len(execute(database, "SELECT * FROM results")) == len(ROWS)


def test_a_writer_with_merged_rows(database: str, disturb: Disturb) -> None:
    """Upsert: the rows of an epoch are merged, and not committed; there is no committer."""
    columns = "key TEXT, n BIGINT, id BIGINT, epoch BIGINT, PRIMARY KEY (key, n)"
    target = table_of("postgres-upsert", database, columns)
    sink = target.sink(lock_timeout=SOON)
    disturb("upsert.commit.before", lambda: void(prepare(sink, where=at(generation=4))))
    with pytest.raises(SinkError, match="A newer run of this job ends"):
        prepare(sink)
    assert len(target.read()) == len(ROWS)


def void(_: object) -> None:
    """For what gives something that nobody wants."""


@contextlib.contextmanager
def writing(sink: Sink) -> Iterator[None]:
    """A writer of generation 3 that has written and not pre-committed."""
    from tests.databases.targets import RESULT

    from millstream.contracts.batch import Batch

    writer = sink.create_writer(at())
    try:
        writer.write(Batch(RESULT, values=list(ROWS)))
        yield
    finally:
        writer.close()


# -- whose session -------------------------------------------------------------------------------


def connected(server: PostgresServer, name: str, user: str = USER) -> psycopg.Connection:
    return psycopg.connect(server.conninfo(), application_name=name, autocommit=True, user=user)


def lives(connection: psycopg.Connection) -> bool:
    try:
        connection.execute("SELECT 1")
    except psycopg.OperationalError:
        return False
    return True


def session_name(job: str, sink: str, generation: int, role: str) -> str:
    return OutputNames(job, sink).of_session(generation, role)


def run_session(server: PostgresServer, user: str = USER) -> Session:
    """As the sinks have them."""
    return psycopg.connect(
        server.conninfo(), autocommit=True, cursor_factory=psycopg.RawCursor, user=user
    )


def test_only_older_runs_of_the_same_sink_are_ended(server: PostgresServer) -> None:
    older = [session_name("job", "sink", number, "s1") for number in (3, 9)]
    others = [
        session_name("job", "sink", 10, "s1"),
        session_name("job", "sink", 11, "commit"),
        session_name("job", "sink", 100, "commit"),
        session_name("another job", "sink", 3, "s1"),
        session_name("job", "another sink", 3, "s1"),
        session_name("job", "sink", 3, "s1").replace("-g3", "-h"),
        "millstream",
        "",
    ]
    with contextlib.ExitStack() as stack:
        ended = [stack.enter_context(connected(server, name)) for name in older]
        left = [stack.enter_context(connected(server, name)) for name in others]
        session = stack.enter_context(run_session(server))
        RunSessions("job", "sink", 10).end_older(session)
        assert [lives(each) for each in ended] == [False, False]
        assert all(lives(each) for each in left)
        assert lives(session)


def test_names_of_sessions_are_not_cut() -> None:
    longest = session_name("job", "sink", 9_999_999_999, "s32767")
    assert len(longest) <= 63
    assert session_name("job", "sink", 1, "commit") != session_name("jobs", "ink", 1, "commit")
    with pytest.raises(SinkError, match="63 bytes"):
        session_name("job", "sink", 10**11, "s32767")


def test_the_right_to_end_them(server: PostgresServer, caplog: pytest.LogCaptureFixture) -> None:
    """Of the same role, or as a member of pg_signal_backend; else the statement is said."""
    execute(server.conninfo(), "CREATE ROLE one LOGIN; CREATE ROLE other LOGIN;")
    name = session_name("job", "sink", 1, "commit")
    sessions = RunSessions("job", "sink", 2)
    try:
        with run_session(server, "other") as newer, connected(server, name, "one") as older:
            older.execute("BEGIN")
            older.execute("SELECT pg_advisory_xact_lock(7)")
            sessions.end_older(newer)
            assert lives(older)
            pid = older.info.backend_pid
            said = rf"session {pid} \({name}, user one.*SELECT pg_terminate_backend\({pid}\) ends"
            assert re.search(said, caplog.text)
            held = lock_holders(newer, [])
            assert f"Held by session {pid} (application_name {name!r}, user one" in held
            assert "the lock of a commit" in held
            execute(server.conninfo(), "GRANT pg_signal_backend TO other")
            sessions.end_older(newer)
            assert not lives(older)
        with run_session(server, "one") as newer, connected(server, name, "one") as older:
            sessions.end_older(newer)
            assert not lives(older)
    finally:
        execute(server.conninfo(), "DROP ROLE one; DROP ROLE other;")


def test_a_lock_names_session_and_view(database: str) -> None:
    """As the superuser sees it: since when, holding what."""
    target = table_of("postgres-two-phase", database, "key TEXT, n BIGINT, id BIGINT")
    with psycopg.connect(database, application_name="somebody") as theirs:
        theirs.execute("LOCK TABLE results IN EXCLUSIVE MODE")
        pid = theirs.info.backend_pid
        with pytest.raises(SinkError) as caught:
            prepare(target.sink(lock_timeout=0.1))
        said = str(caught.value)
        assert (
            f"Held by session {pid} (application_name 'somebody', user millstream, idle in" in said
        )
        assert "with ExclusiveLock on results" in said
        assert f"pg_stat_activity shows it, SELECT pg_terminate_backend({pid}) ends it" in said
