"""The crash matrix on slots: a checkpoint of tasks that live on is disturbed at each of its steps.

What it is, first: each exactly-once sink x each crash point; driver and slots are killed together,
twice in a job, then the job runs to its end.  ``MILLSTREAM_MATRIX_CASES=file-barrier.send.after``
replays a case.

Second: sinks x crash points x faults x seeds, judged as those of ``test_matrix.py`` are; among the
faults are slots that are stopped and wake up as zombies, and connections that are cut.
``MILLSTREAM_MATRIX_CASES=file-notify.before-second_driver-1-slots`` replays one; with ``-2`` at its
end the job is two pipelines that are not connected.
"""

from __future__ import annotations

import os
import random
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from tests.forked import run_forked
from tests.matrix import pipelined_driver
from tests.matrix.matrix_case import Case, all_slot_cases, two_regions
from tests.matrix.matrix_driver import RECORDS, expected
from tests.matrix.matrix_targets import COMMITTED, KINDS
from tests.matrix.test_other_modes import read
from tests.support.faults import Fault

from millstream.crash_points import points_of
from millstream.testing.crash import run_once

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.matrix.conftest import Matrix
    from tests.matrix.matrix_targets import MatrixTarget

pytestmark = pytest.mark.extended

DEADLINE: Final = 90.0
SEED: Final = 1
#: Jobs without alignment, one of which at least has a barrier that is overtaken.
TRIES: Final = 5
#: Of which a case is run, beside the kills; the soak has all.
SAMPLED_FAULTS: Final = (
    Fault.STOPPED_SLOT,
    Fault.LINK_CUT,
    Fault.SECOND_DRIVER,
    Fault.STOPPED_DRIVER,
)
#: Each takes half a minute: the workers are of new interpreters.
SAMPLED_ON_S3: Final = (("file", "epochs"), ("kafka", "pipelined"))
#: Passed by a run that recovers, and not by each.
IN_RECOVERY: Final = {"kafka.abort.before", "kafka.abort.after"}
BARRIERS: Final = points_of("pipelined task")
STEPS: Final = [
    "sink.prepare.before",
    "sink.prepare.after",
    "state.upload.before",
    "state.upload.after",
    "task.ack.before",
    "epoch.acks.after",
    "manifest.publish.before",
    "manifest.publish.after",
    "sink.commit.before",
    "sink.commit.after",
    "cleanup.before",
    "epoch.end.before",
    "notify.before",
    "notify.after",
]


def cases() -> list[object]:
    """All, of which those that are not in the sample are for a soak."""
    chance = random.Random(SEED)
    named = os.environ.get("MILLSTREAM_MATRIX_CASES", "").split()
    found: list[object] = []
    for kind in COMMITTED:
        own = [p for p in points_of(*KINDS[kind].parts) if p not in IN_RECOVERY]
        points = [*BARRIERS, *STEPS, *own]
        sampled = chance.choice(points)
        for point in points:
            name = f"{kind}-{point}"
            chosen = name in named or (not named and point == sampled)
            marks = [] if chosen else [pytest.mark.soak]
            found.append(pytest.param(kind, point, id=name, marks=marks))
    return found


def run_to_the_end(
    target: MatrixTarget, directory: Path, crashes: Sequence[str], *more: str
) -> None:
    """Run the job, which dies at each of these points, once more."""
    arguments = [target.kind, target.address, str(directory / "checkpoints"), *more]
    for number, crash in enumerate([*crashes, ""]):
        run = run_forked(
            Path(pipelined_driver.__file__),
            arguments,
            directory=directory / f"run-{number}",
            crash=crash,
            deadline=DEADLINE,
        )
        if crash:
            assert run.killed, f"{crash} was not reached\n{run.output}"
        else:
            assert run.exit_code == 0, run.output


@pytest.mark.parametrize(("kind", "point"), cases())
def test_killed_twice(kind: str, point: str, matrix: Matrix) -> None:
    target, directory = matrix.new_target(kind)
    # Tasks pass theirs several times in a checkpoint.
    passings = (7, 3) if point in points_of("task", "pipelined task") else (2, 1)
    run_to_the_end(target, directory, [f"{point}:{passing}" for passing in passings])
    for seen in read(target, RECORDS):
        assert sorted(seen) == expected()
    assert target.leftovers() == []


def cases_on_s3() -> list[object]:
    """One of some sinks, in micro-batches and on slots by turns; the others are for a soak."""
    chance = random.Random(SEED)
    named = os.environ.get("MILLSTREAM_MATRIX_CASES", "").split()
    found: list[object] = []
    for kind in COMMITTED:
        own = [p for p in points_of(*KINDS[kind].parts) if p not in IN_RECOVERY]
        points = [*(each for each in STEPS if not each.startswith("notify.")), *own]
        sampled = chance.choice(points)
        for execution in ("epochs", "pipelined"):
            is_sampled = (kind, execution) in SAMPLED_ON_S3
            for point in points:
                name = f"{kind}-{point}-{execution}-s3"
                chosen = name in named or (not named and is_sampled and point == sampled)
                marks = [] if chosen else [pytest.mark.soak]
                found.append(pytest.param(kind, point, execution, id=name, marks=marks))
    return found


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(("kind", "point", "execution"), cases_on_s3())
def test_killed_twice_with_checkpoints_on_s3(
    kind: str, point: str, execution: str, matrix: Matrix, bucket: str
) -> None:
    """Workers of a driver that has used the library of stores are of new interpreters."""
    target, directory = matrix.new_target(kind)
    job = [sys.executable, pipelined_driver.__file__, target.kind, target.address]
    for number, crash in enumerate([f"{point}:2", f"{point}:1", ""]):
        run = run_once(
            [*job, f"{bucket}/checkpoints", "aligned", execution],
            directory=directory / f"run-{number}",
            crash=crash,
            deadline=DEADLINE,
        )
        assert run.killed if crash else run.exit_code == 0, f"{crash}\n{run.output}"
    for seen in read(target, RECORDS):
        assert sorted(seen) == expected()
    assert target.leftovers() == []


def test_without_alignment_records_count_twice(matrix: Matrix) -> None:
    """The matrix has teeth: what came behind a barrier is in the snapshot, and comes again."""
    crashes = [f"manifest.publish.after:{passing}" for passing in (3, 2, 2)]
    for _ in range(TRIES):
        target, directory = matrix.new_target("file")
        run_to_the_end(target, directory, crashes, "unaligned")
        (seen,) = read(target, 0)
        assert {id_ for _, _, id_ in seen} == set(range(RECORDS)), "none is lost"
        last = {key: max(n for of, n, _ in seen if of == key) for key, _, _ in seen}
        if sum(last.values()) > RECORDS:
            return
    pytest.fail("nobody noticed that nothing is aligned")


def sample() -> list[Case]:
    """Cases of some faults, with any sink at any point."""
    named = os.environ.get("MILLSTREAM_MATRIX_CASES", "").split()
    chance = random.Random(SEED)
    cases = all_slot_cases(SEED)
    chosen = [
        chance.choice([case for case in cases if case.fault is fault]) for fault in SAMPLED_FAULTS
    ]
    # A task that raises there goes back with its pipeline alone.
    chosen += [
        chance.choice([case for case in two_regions(SEED) if _is_restarted_alone(case, kind)])
        for kind in ("file", "postgres-two-phase")
    ]
    return [Case.parse(name) for name in named if "-slots" in name] or chosen


def _is_restarted_alone(case: Case, kind: str) -> bool:
    of_tasks = case.point in points_of("task", "pipelined task")
    return case.kind == kind and case.fault is Fault.DISK_FULL and of_tasks


@pytest.mark.parametrize("case", sample(), ids=str)
def test_case(case: Case, matrix: Matrix) -> None:
    print(f"replay with MILLSTREAM_MATRIX_CASES={case}")
    matrix.run(case)
