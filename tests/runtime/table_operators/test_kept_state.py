"""State of operators of tables that older builds wrote goes on in today's operators."""

from __future__ import annotations

import pytest
from tests.runtime.table_operators.state_program import CASES, KEPT, halfway, read, results

_FILES = {path.name.partition(".")[0]: read(path) for path in sorted(KEPT.glob("*.json.gz"))}


def test_state_of_each_case_is_kept() -> None:
    assert {name for kept in _FILES.values() for name in kept} == set(CASES)


@pytest.mark.parametrize(
    ("build", "name"), [(build, name) for build, kept in _FILES.items() for name in kept]
)
def test_kept_state_goes_on(build: str, name: str) -> None:
    """What the rest of the input gives is what it gives on the state of today's build."""
    state, watermark = _FILES[build][name]
    case = CASES[name]
    today = results(case, *halfway(case))
    assert today
    assert results(case, state, watermark) == today
    assert results(case, {}, watermark) != today, "the state counts for nothing"
