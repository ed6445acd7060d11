"""Sinks and sources of databases: see ``targets.py`` and ``server.py``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

# So that ``tests.databases`` is found whatever starts pytest.
sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.databases.server import PostgresServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A server for all tests; each takes a schema of its own."""
    started = PostgresServer()
    yield started
    started.stop()


@pytest.fixture
def database(server: PostgresServer) -> Iterator[str]:
    """How to connect to a new schema."""
    yield server.new_schema()
    server.forget_prepared()
