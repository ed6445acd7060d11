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
from tests.matrix.matrix_targets import KINDS
from tests.support.faults import Fault

from millstream.crash_points import points_of

if TYPE_CHECKING:
    from tests.matrix.conftest import Matrix

SEED: Final = 1
#: Cases.
LEAST: Final = 80
#: Of each sink and fault: so many at points of the sink's own, so many at all others.
SAMPLE: Final = (1, 1)
#: Of those in which a second driver runs the job to its end beside the first.
STOPPED_SAMPLE: Final = (0, 1)
#: Of those in which the disk is full: they differ little from sink to sink.
FULL_SAMPLE: Final = (0, 1)
#: Of those a sink has one case, by turns at a point of its own and at another.
BY_TURNS: Final = (
    Fault.KILL_DRIVER_ALONE,
    Fault.KILL_WORKER,
    Fault.CONNECTION_CUT,
    Fault.APPLIED_BUT_FAILED,
    Fault.SECOND_DRIVER,
)


def sample() -> list[Case]:
    """Cases of every sink with every fault."""
    chosen: list[Case] = []
    chance = random.Random(SEED)
    groups: dict[tuple[str, str, bool], list[Case]] = {}
    for case in all_cases(SEED):
        own = case.point in points_of(*KINDS[case.kind].parts)
        groups.setdefault((case.kind, case.fault.name, own), []).append(case)
    for (kind, fault, own), cases in groups.items():
        if (kind, fault, not own) in groups and own is not _turn(kind, fault, own):
            continue
        fewer = {Fault.STOPPED_DRIVER.name: STOPPED_SAMPLE, Fault.DISK_FULL.name: FULL_SAMPLE}
        numbers = fewer.get(fault, SAMPLE)
        chosen += chance.sample(cases, min(numbers[0 if own else 1], len(cases)))
    assert len(chosen) >= LEAST
    return chosen


def _turn(kind: str, fault: str, own: bool) -> bool:
    """Whether it is the turn of points of the sink's own."""
    turns = [each.name for each in BY_TURNS]
    return own if fault not in turns else (list(KINDS).index(kind) + turns.index(fault)) % 2 == 0


def wanted() -> list[Case]:
    named = os.environ.get("MILLSTREAM_MATRIX_CASES", "").split()
    return [Case.parse(name) for name in named if not name.endswith("-slots")] or sample()


def _marked(case: Case) -> object:
    """Kills of everything are for ``make test``, as each sink has to stand them."""
    marks = [] if case.fault is Fault.KILL_DRIVER else [pytest.mark.extended]
    return pytest.param(case, id=str(case), marks=marks)


@pytest.mark.sampled(every=4)
@pytest.mark.parametrize("case", [_marked(case) for case in wanted()])
def test_case(case: Case, matrix: Matrix) -> None:
    print(f"replay with MILLSTREAM_MATRIX_CASES={case}")
    matrix.run(case)
