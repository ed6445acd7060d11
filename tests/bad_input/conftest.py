"""A broker and a database server for the tests of this directory."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# So that ``tests.bad_input`` is found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.databases.server import PostgresServer
from tests.kafka.broker import Broker, running_broker

from millstream.connectors.kafka import producers, reader

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_broker(tmp_path_factory.mktemp("kafka")) as running:
        yield running


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    started = PostgresServer()
    yield started
    started.stop()


@pytest.fixture(autouse=True)
def no_clients() -> Iterator[None]:
    """Each test has clients of its own, as a new worker process would."""
    yield
    producers.discard_producers()
    reader.close_consumers()
