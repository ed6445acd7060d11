"""The matrix has teeth: take a protection away and cases fail that pass with it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest
from tests.matrix.matrix_case import Case, CaseFailedError
from tests.support.faults import Fault
from tests.support.unprotected import Protection

if TYPE_CHECKING:
    from tests.matrix.conftest import Matrix

pytestmark = pytest.mark.extended

#: Failures of the matrix itself, which show nothing.
NO_ANSWER: Final = re.compile(r"was not reached|did not end in|the reader failed")
#: Protection -> kinds of sinks, point and fault.
TEETH: Final = [
    (Protection.FENCING, "kafka", "manifest.publish.before", Fault.SECOND_DRIVER),
    (Protection.PUT_IF_ABSENT, "postgres-two-phase", "epoch.acks.after", Fault.SECOND_DRIVER),
    (Protection.COMMIT_MARKER, "sqlite", "table.commit.after", Fault.KILL_DRIVER),
    (Protection.COMMIT_MARKER, "write-ahead", "wal.send.after", Fault.KILL_DRIVER),
    (
        Protection.COMMIT_MARKER,
        "postgres-commit-table",
        "table.commit.after",
        Fault.KILL_DRIVER,
    ),
    (Protection.COMMIT_MARKER, "postgres-two-phase", "prepared.commit.after", Fault.KILL_DRIVER),
    (Protection.COMMIT_MARKER, "kafka", "kafka.commit.after", Fault.KILL_DRIVER),
    (Protection.ORPHAN_ABORT, "file", "task.ack.before", Fault.KILL_DRIVER),
    (Protection.ORPHAN_ABORT, "postgres-two-phase", "epoch.acks.after", Fault.KILL_DRIVER),
    (Protection.ORPHAN_ABORT, "kafka", "epoch.acks.after", Fault.KILL_DRIVER),
    (Protection.PRE_COMMIT_FLUSH, "file", "manifest.publish.after", Fault.KILL_DRIVER),
    (Protection.PRE_COMMIT_FLUSH, "kafka", "manifest.publish.after", Fault.KILL_DRIVER),
    (
        Protection.SESSION_END,
        "postgres-commit-table",
        "table.commit.before",
        Fault.STOPPED_DRIVER,
    ),
    (Protection.SESSION_END, "postgres-upsert", "upsert.commit.before", Fault.STOPPED_DRIVER),
    (Protection.LOCAL_CHECK, "sqlite", "task.ack.before", Fault.LOCAL_COPY_DAMAGED),
    (Protection.FENCING_ABORT, "kafka", "sink.prepare.before", Fault.SLOW_PRODUCE),
]
#: Those of protections that are not the sink's, of which another sink is above; for a soak.
AGAIN: Final = [
    (Protection.FENCING, "postgres-two-phase", "manifest.publish.before", Fault.SECOND_DRIVER),
    (Protection.FENCING, "postgres-commit-table", "epoch.acks.after", Fault.SECOND_DRIVER),
    (Protection.PUT_IF_ABSENT, "kafka", "manifest.publish.before", Fault.SECOND_DRIVER),
    (Protection.LOCAL_CHECK, "file", "epoch.start.before", Fault.LOCAL_COPY_DAMAGED),
]
#: The same where tasks live on.
SLOT_TEETH: Final = [
    (Protection.FENCING, "file", "manifest.publish.before", Fault.STOPPED_DRIVER),
    (Protection.ABORT_BOUND, "file", "notify.before", Fault.KILL_WORKER),
    (Protection.ORPHAN_ABORT, "file", "task.ack.before", Fault.STOPPED_SLOT),
]
#: Of these a test that costs little; the soak runs the others.
FIRST_OF_SLOTS: Final = 2
SEEDS: Final = (1, 2, 3)


def named(tooth: tuple[Protection, str, str, Fault]) -> str:
    return f"{tooth[0].name.lower()}-{tooth[1]}-{tooth[2]}"


@pytest.mark.parametrize(
    "tooth",
    [*TEETH, *(pytest.param(each, marks=pytest.mark.soak) for each in AGAIN)],
    ids=named,
)
def test_without_protection_the_matrix_fails(
    tooth: tuple[Protection, str, str, Fault], matrix: Matrix
) -> None:
    bite(tooth, matrix, on_slots=False)


@pytest.mark.parametrize(
    "tooth",
    [
        pytest.param(each, marks=[pytest.mark.soak] if number >= FIRST_OF_SLOTS else [])
        for number, each in enumerate(SLOT_TEETH)
    ],
    ids=named,
)
def test_without_protection_the_matrix_of_slots_fails(
    tooth: tuple[Protection, str, str, Fault], matrix: Matrix
) -> None:
    bite(tooth, matrix, on_slots=True)


def bite(tooth: tuple[Protection, str, str, Fault], matrix: Matrix, *, on_slots: bool) -> None:
    """A case passes, and fails without the protection."""
    protection, kind, point, fault = tooth
    found = []
    for seed in SEEDS:
        case = Case(kind, point, fault, seed, on_slots=on_slots)
        matrix.run(case)
        try:
            matrix.run(case, (protection,))
        except CaseFailedError as error:
            found.append(str(error))
            if not NO_ANSWER.search(found[-1]):
                print(found[-1])
                return
    pytest.fail(f"nobody noticed that {protection.value} is missing: {found}")
