"""Every test of an operator runs for both kinds of engines: in epochs, and restored only once."""

from __future__ import annotations

from typing import Final
from zlib import crc32

import pytest

from millstream.state import keyed
from millstream.testing import OperatorHarness

#: Where tasks live on: bytes of state that may stay in memory, and how many changed entries wait
#: for a snapshot.  Each test has always the same.
_BOUNDS: Final = [(0, 0), (5_000, 3), (64 << 20, 0), (64 << 20, 2_000)]


@pytest.fixture(autouse=True, params=["epochs", "long-lived"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What drives the operators: the harness's default for tests that do not say it."""
    kind: str = request.param
    monkeypatch.setattr(OperatorHarness, "long_lived_by_default", kind == "long-lived")
    most_bytes, most_unwritten = _BOUNDS[crc32(request.node.name.encode()) % len(_BOUNDS)]
    monkeypatch.setattr(OperatorHarness, "managed_memory", most_bytes)
    monkeypatch.setattr(keyed, "MOST_UNWRITTEN", most_unwritten)
    return kind
