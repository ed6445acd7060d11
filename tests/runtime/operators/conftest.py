"""Every test of an operator runs for both kinds of engines: in epochs, and restored only once."""

from __future__ import annotations

import pytest

from millstream.testing import OperatorHarness


@pytest.fixture(autouse=True, params=["epochs", "long-lived"])
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What drives the operators: the harness's default for tests that do not say it."""
    kind: str = request.param
    monkeypatch.setattr(OperatorHarness, "long_lived_by_default", kind == "long-lived")
    return kind
