"""State of operators of tables that each release wrote is restored by today's operators."""

from __future__ import annotations

import pytest
from tests.runtime.table_operators.state_program import CASES, KEPT, halfway, read, results

_FILES = {path.name.removesuffix(".json.gz"): read(path) for path in sorted(KEPT.glob("*.json.gz"))}


def test_state_of_each_case_is_kept() -> None:
    assert "0.1.0" in _FILES
    assert {name for kept in _FILES.values() for name in kept} == set(CASES)


@pytest.mark.parametrize(
    ("release", "name"), [(release, name) for release, kept in _FILES.items() for name in kept]
)
def test_kept_state_goes_on(release: str, name: str) -> None:
    """What the rest of the input gives is what it gives on the state of today's build."""
    state, watermark = _FILES[release][name]
    case = CASES[name]
    today = results(case, *halfway(case))
    assert today
    assert results(case, state, watermark) == today
    assert results(case, {}, watermark) != today, "the state counts for nothing"
