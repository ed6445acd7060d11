"""A writer's session is that of the epoch before: connecting takes longer than a small epoch."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest
from tests.databases.server import execute
from tests.databases.targets import RESULT, TARGETS, PostgresTarget
from tests.databases.test_postgres_sinks import ROWS, at, commit, prepare
from tests.support.environments import wait_until

from millstream.contracts.batch import Batch
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.connectors.postgres.table_sink import TableSink

KINDS = ["postgres-two-phase", "postgres-commit-table", "postgres-upsert"]
SESSIONS = (
    "SELECT pid FROM pg_stat_activity WHERE application_name LIKE '%s0' OR"
    " application_name LIKE '%s1' ORDER BY pid"
)


@pytest.fixture(params=KINDS)
def target(request: pytest.FixtureRequest, database: str) -> PostgresTarget:
    made = TARGETS[request.param](database)
    made.create()
    assert isinstance(made, PostgresTarget)
    return made


@pytest.fixture
def sink(target: PostgresTarget) -> Iterator[TableSink]:
    made = target.sink()
    made.validate()
    yield made  # type: ignore[misc]
    made.close()


def pids(target: PostgresTarget) -> list[int]:
    return [pid for (pid,) in target.read(SESSIONS)]


def wait_until_closed(target: PostgresTarget) -> None:
    """The server ends a session after the client has left it."""
    wait_until(lambda: pids(target) == [], "no session of the sink is left", 10)


def write(target: PostgresTarget, sink: TableSink, epoch: int) -> None:
    made = prepare(sink, [ROWS[0]], at(epoch=epoch, attempt=f"a{epoch}"))
    if sink.create_committer() is not None:
        commit(sink, made, epoch)


def test_the_next_epoch_has_the_session(target: PostgresTarget, sink: TableSink) -> None:
    write(target, sink, 1)
    first = pids(target)
    assert len(first) == 1
    for epoch in range(2, 9):
        write(target, sink, epoch)
    assert pids(target) == first
    assert len(target.read()) >= 1
    sink.close()
    wait_until_closed(target)


def test_one_that_was_cut_meanwhile_is_made_anew(target: PostgresTarget, sink: TableSink) -> None:
    write(target, sink, 1)
    before = len(target.read())
    (first,) = pids(target)
    target.read(f"SELECT pg_terminate_backend({first}, 10000)")
    write(target, sink, 2)
    (second,) = pids(target)
    assert second != first
    assert len(target.read()) >= before


def test_one_in_which_something_was_left_is_closed(target: PostgresTarget, sink: TableSink) -> None:
    write(target, sink, 1)
    before = len(target.read())
    writer = sink.create_writer(at(epoch=2, attempt="b"))
    writer.write(Batch(RESULT, values=list(ROWS)))
    writer.abort()
    writer.close()
    wait_until_closed(target)
    refused = sink.create_writer(at(epoch=2, attempt="c"))
    execute(target.address, "ALTER TABLE results RENAME TO elsewhere")
    with pytest.raises(SinkError):
        refused.write(Batch(RESULT, values=list(ROWS)))
    refused.close()
    wait_until_closed(target)
    execute(target.address, "ALTER TABLE elsewhere RENAME TO results")
    write(target, sink, 2)
    assert len(target.read()) <= before + 1


def test_subtasks_and_runs_have_their_own(target: PostgresTarget, sink: TableSink) -> None:
    prepare(sink, [ROWS[0]], at(subtask=0))
    prepare(sink, [ROWS[1]], at(subtask=1, attempt="b"))
    assert len(pids(target)) == 2
    assert pickle.loads(pickle.dumps(sink))._idle == {}
