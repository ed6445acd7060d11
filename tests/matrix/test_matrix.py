"""The crash matrix: sinks x crash points x faults x seeds, with readers during and after each run.

Replay a case with ``MILLSTREAM_MATRIX_CASES=<name> pytest tests/matrix/test_matrix.py``, the name
as in the brackets of the test (several are joined by blanks).
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Final

import pytest
from tests.matrix.matrix_case import Case, all_cases

if TYPE_CHECKING:
    from tests.matrix.conftest import Matrix

SEED: Final = 1
#: Of each sink and fault.
SAMPLE: Final = 5


def sample() -> list[Case]:
    """Cases of every sink with every fault, the sinks' own points before the protocol's."""
    chosen: list[Case] = []
    chance = random.Random(SEED)
    groups: dict[tuple[str, str], list[Case]] = {}
    for case in all_cases(SEED):
        groups.setdefault((case.kind, case.fault.name), []).append(case)
    for cases in groups.values():
        chosen += chance.sample(cases, min(SAMPLE, len(cases)))
    return chosen


def wanted() -> list[Case]:
    named = os.environ.get("MILLSTREAM_MATRIX_CASES", "").split()
    return [Case.parse(name) for name in named] or sample()


@pytest.mark.parametrize("case", wanted(), ids=str)
def test_case(case: Case, matrix: Matrix) -> None:
    print(f"replay with MILLSTREAM_MATRIX_CASES={case}")
    matrix.run(case)
