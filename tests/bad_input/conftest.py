"""Clients for the tests of this directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.connectors.kafka import producers, reader

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def no_clients() -> Iterator[None]:
    """Each test has clients of its own, as a new worker process would."""
    yield
    producers.discard_producers()
    reader.close_consumers()
