"""Clients for the tests of this directory."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def no_clients(own_clients: None) -> None:
    """Each test has clients of its own."""
