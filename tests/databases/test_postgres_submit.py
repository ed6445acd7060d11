"""A job is refused when it is submitted, not when it runs, if the server is too small for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.databases.server import execute
from tests.databases.targets import RESULT, TARGETS, PostgresTarget

from millstream.common import Configuration, Row
from millstream.contracts.sink import Sink, SinkWriter, WriterContext
from millstream.datastream import StreamExecutionEnvironment
from millstream.engines.spark import engine
from millstream.errors import SinkError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.databases.server import PostgresServer


@pytest.fixture
def small(server: PostgresServer) -> Iterator[PostgresServer]:
    """Two prepared transactions and ten connections, three of them for superusers."""
    server.start(2, max_connections=10)
    yield server
    server.start(16)


class Asked(Sink):
    """Notes what the driver asks of a sink."""

    def __init__(self, inner: Sink) -> None:
        self.inner = inner
        self.asked: list[Any] = []

    def validate(self) -> None:
        self.asked.append("validate")
        self.inner.validate()

    def validate_configuration(self, configuration: Configuration) -> None:
        self.asked.append("configuration")
        self.inner.validate_configuration(configuration)

    def validate_parallelism(self, parallelism: int) -> None:
        self.asked.append(parallelism)
        self.inner.validate_parallelism(parallelism)

    def create_writer(self, context: WriterContext) -> SinkWriter:
        raise AssertionError


PREPARED = "max_prepared_transactions of the server is 2; a sink with parallelism 2 needs at least"
CONNECTIONS = (
    "max_connections of the server is 10, of which 3 are reserved; a sink with parallelism 6 needs"
    " 8: one for each subtask, and 2 for the driver and for one that a failed try left. Set"
    " max_connections to 11 or more"
)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize(
    ("kind", "parallelism", "message"),
    [
        ("postgres-two-phase", 2, PREPARED),
        ("postgres-commit-table", 6, CONNECTIONS),
        ("postgres-upsert", 6, CONNECTIONS),
    ],
    ids=["prepared transactions", "connections of a commit table", "connections of an upsert"],
)
def test_a_server_that_is_too_small(
    small: PostgresServer,
    kind: str,
    parallelism: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def no_session(_: object) -> None:
        pytest.fail("the job was not refused")

    monkeypatch.setattr(engine, "get_session", no_session)
    target = TARGETS[kind](small.new_schema())
    assert isinstance(target, PostgresTarget)
    target.create()
    asked = Asked(target.sink())
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.dir", str(tmp_path / "checkpoints"))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    rows = env.from_collection([Row(key="a", n=1, id=1)], RESULT)
    rows.sink_to(asked).uid("results").set_parallelism(parallelism)
    with pytest.raises(SinkError, match=message):
        env.execute("too large")
    assert asked.asked == ["validate", "configuration", parallelism]
    assert not (tmp_path / "checkpoints").exists()
    found = "SELECT count(*) FROM pg_prepared_xacts"
    assert execute(target.address, found) == [(0,)]


def test_epochs_that_overlap_need_a_transaction_each(small: PostgresServer) -> None:
    target = TARGETS["postgres-two-phase"](small.new_schema())
    target.create()
    sink = target.sink()
    configuration = Configuration()
    configuration.set_string("execution.checkpointing.max-concurrent-checkpoints", "2")
    sink.validate_configuration(configuration)
    sink.validate_parallelism(1)  # epochs do not overlap
    configuration.set_string("millstream.execution", "pipelined")
    sink.validate_configuration(configuration)
    with pytest.raises(
        SinkError, match="parallelism 1 needs at least 3, for those of 2 checkpoints"
    ):
        sink.validate_parallelism(1)
