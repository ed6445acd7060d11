"""Servers that hang: a PostgreSQL server and a Kafka broker behind proxies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.coordination.patience import limit_kafka, limit_postgres
from tests.coordination.proxy import HangingProxy, moved_broker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.databases.server import PostgresServer
    from tests.kafka.broker import Broker


@pytest.fixture
def postgres_proxy(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> Iterator[HangingProxy]:
    with HangingProxy(server.port) as proxy:
        limit_postgres(proxy, monkeypatch)
        yield proxy


@pytest.fixture
def kafka_proxy(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> Iterator[HangingProxy]:
    port = int(broker.servers.rpartition(":")[2])
    with HangingProxy(port, moved_broker) as proxy:
        limit_kafka(proxy, monkeypatch)
        yield proxy
