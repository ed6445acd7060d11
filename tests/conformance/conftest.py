"""Clients for the tests of this directory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.connectors.kafka import producers

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module", autouse=True)
def no_producers() -> Iterator[None]:
    """Producers are kept by the process until it ends; these tests make many."""
    yield
    producers.discard_producers()
