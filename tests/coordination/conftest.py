"""Servers that hang: a PostgreSQL server and a Kafka broker behind proxies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# So that ``tests.kafka`` and ``tests.databases`` are found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.coordination.proxy import HangingProxy, moved_broker
from tests.databases.server import PostgresServer
from tests.kafka.broker import Broker, running_broker

from millstream import crash_points

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    yield started
    started.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """How to connect to a new schema."""
    yield server.new_schema()
    server.forget_prepared()


@pytest.fixture
def postgres_proxy(server: PostgresServer) -> Iterator[HangingProxy]:
    with HangingProxy(server.port) as proxy:
        yield proxy


@pytest.fixture
def kafka_proxy(broker: Broker) -> Iterator[HangingProxy]:
    port = int(broker.servers.rpartition(":")[2])
    with HangingProxy(port, moved_broker) as proxy:
        yield proxy


@pytest.fixture
def disturb(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[str, Callable[[], None]], None]:
    """At a passing of a crash point ("name:3", say) run something once, in place of the kill."""

    def arm(point: str, action: Callable[[], None]) -> None:
        counts = tmp_path / "passings"
        counts.mkdir()
        monkeypatch.setenv(crash_points.COUNT_VARIABLE, str(counts))

        def act() -> None:
            crash_points.arm("")
            action()

        monkeypatch.setattr(crash_points, "kill_driver_group", act)
        crash_points.arm(point)

    return arm
