"""What comes in between in the middle of a step: a connection that is cut, a second driver.

The crash points are used to get there: instead of killing the process they run the disturbance,
once, and the job goes on.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
from tests.databases.database_job import cluster, expected
from tests.databases.kill_chain import check
from tests.databases.targets import TARGETS, PostgresTarget, Target

from millstream.errors import MillstreamError
from millstream.testing.sinks import FailingSink

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Disturb = Callable[[str, Callable[[], None]], None]

pytestmark = pytest.mark.extended

READ = "SELECT key, n, id FROM results"
#: One before the manifest is published and those after it, up to the commit.
TWO_PHASE = [
    "prepared.prepare.before",
    "prepared.prepare.after",
    "manifest.publish.after",
    "prepared.commit.before",
    "prepared.commit.after",
]
COMMIT_TABLE = [
    "sink.prepare.after",
    "table.transaction.before",
    "table.commit.after",
]
CASES = [
    *[("postgres-two-phase", point) for point in TWO_PHASE],
    *[("postgres-commit-table", point) for point in COMMIT_TABLE],
]


@pytest.fixture
def target(request: pytest.FixtureRequest, tmp_path: Path) -> Target:
    kind = request.param
    if kind.startswith("postgres"):
        address: str = request.getfixturevalue("database")
    else:
        address = str(tmp_path / "results.db")
    made = TARGETS[kind](address)
    made.create()
    made.sink().validate()
    return made


def finish(target: Target, checkpoints: Path) -> None:
    """Start the job until it comes to its end; every row is there once."""
    for seed in itertools.count(1):
        assert seed < 5, "the job does not come to its end"
        try:
            cluster(target.sink(), checkpoints, seed).run()
        except MillstreamError:
            check(target.read(READ), expected())
        else:
            break
    assert sorted(target.read(READ)) == expected()
    assert list(target.leftovers()) == []


@pytest.mark.parametrize(
    ("target", "point"),
    [
        *CASES,
        ("postgres-commit-table", "table.commit.before"),
        ("postgres-upsert", "upsert.commit.before"),
        ("postgres-upsert", "upsert.commit.after"),
    ],
    indirect=["target"],
)
def test_connections_cut(
    target: PostgresTarget, point: str, disturb: Disturb, tmp_path: Path
) -> None:
    cut: list[object] = []

    def cut_all() -> None:
        query = (
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        cut.extend(target.read(query))

    disturb(f"{point}:3", cut_all)
    job = cluster(target.sink(), tmp_path / "checkpoints")
    in_commit = "commit" in point and "upsert" not in point
    try:
        job.run()
    except MillstreamError:
        assert not in_commit, "a commit is tried again"
    assert cut, f"no connection was open at {point}"
    check(target.read(READ), expected())
    finish(target, tmp_path / "checkpoints")


@pytest.mark.parametrize(
    ("target", "point"),
    [*CASES, *[("sqlite", point) for point in COMMIT_TABLE]],
    indirect=["target"],
)
def test_a_second_driver_in_between(
    target: Target, point: str, disturb: Disturb, tmp_path: Path
) -> None:
    """The second one starts in the middle of a step of the first, which then goes on."""
    started: list[bool] = []

    def second() -> None:
        started.append(True)
        cluster(target.sink(), tmp_path / "checkpoints", seed=1).run(1)

    first = cluster(target.sink(), tmp_path / "checkpoints")
    disturb(f"{point}:3", second)
    with pytest.raises(MillstreamError):  # fenced, or overtaken in the commit
        first.run()
    assert started
    check(target.read(READ), expected())
    finish(target, tmp_path / "checkpoints")


@pytest.mark.parametrize("step", ["prepare.after", "commit.half", "commit.after"])
@pytest.mark.parametrize(
    "target", ["postgres-two-phase", "postgres-commit-table", "sqlite"], indirect=True
)
def test_a_step_that_is_done_but_reported_as_failed(
    target: Target, step: str, tmp_path: Path
) -> None:
    sink = FailingSink(target.sink(), step, times=2)
    runs = 0
    while True:
        runs += 1
        try:
            cluster(sink, tmp_path / "checkpoints", seed=runs).run()
        except MillstreamError:
            check(target.read(READ), expected())
        else:
            break
    assert sink.failures == 2
    assert runs == (3 if step == "prepare.after" else 1)
    assert sorted(target.read(READ)) == expected()
    assert list(target.leftovers()) == []
