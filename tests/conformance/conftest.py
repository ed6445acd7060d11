"""Makes ``tests.conformance`` importable whatever starts pytest, and starts servers."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.databases.server import PostgresServer
from tests.kafka.broker import Broker, running_broker

from millstream.connectors.kafka import producers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running
    producers.discard_producers()


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    yield started
    started.stop()
