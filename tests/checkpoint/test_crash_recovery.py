"""The protocol under crashes: whatever dies where, the output is that of an undisturbed run."""

from __future__ import annotations

import json
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.checkpoint.toy_checkpoint_job import (
    RECORDS,
    FileCommitter,
    Killed,
    ToyJob,
    expected_output,
    handles,
    visible_output,
)
from tests.support.examples import examples

from millstream.checkpoint.commit import state_names
from millstream.checkpoint.inspect import verify_checkpoints
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.crash_points import points_of
from millstream.errors import SinkError
from millstream.testing.crash import record_everything, run_until_done

if TYPE_CHECKING:
    from collections.abc import Callable

#: Points that lie in parts which the toy job does not have.
ELSEWHERE = {"splits.log.before", "splits.log.after"}
POINTS = sorted(set(points_of("driver", "task", "file sink")) - ELSEWHERE)


def run_to_end(directory: Path, seed: int = 0) -> ToyJob:
    job = ToyJob(directory, seed)
    job.run()
    return job


def assert_right(directory: Path, job: ToyJob) -> None:
    """Output, state, totals and the content of the checkpoint directory are as they should be."""
    assert visible_output(directory) == expected_output()
    assert list((directory / "pending").iterdir()) == []
    last = job.coordinator.last
    assert last is not None
    assert last.final
    assert last.totals == {"numbers.numRecordsIn": RECORDS, "sums.numRecordsOut": RECORDS}
    verification = verify_checkpoints(job.storage)
    assert verification.problems == []
    assert verification.checkpoints == 2
    # One more run finds nothing to do and leaves exactly what the kept manifests name.
    again = run_to_end(directory)
    named = set().union(*map(state_names, ManifestLog(again.storage).manifests()))
    assert set(again.storage.list_names("state")) == named
    assert list(again.storage.list_names("temporary")) == []
    assert visible_output(directory) == expected_output()


def test_oracle_undisturbed(tmp_path: Path) -> None:
    assert_right(tmp_path, run_to_end(tmp_path))


@pytest.mark.parametrize("passing", [1, 2, 5])
@pytest.mark.parametrize("point", POINTS)
def test_oracle_killed_at_every_point(
    point: str, passing: int, tmp_path: Path, crash_at: Callable[[str], None]
) -> None:
    once_per_run = point.startswith(("log.", "recover."))
    crash_at(f"{point}:{1 if once_per_run else passing}")
    directory = tmp_path / "job"
    if once_per_run and passing > 1:
        crash_at("sink.commit.before:2")  # so that there is something to recover
        with pytest.raises(Killed):
            run_to_end(directory)
        crash_at(point)
    with pytest.raises(Killed):
        run_to_end(directory)
    crash_at("")
    assert_right(directory, run_to_end(directory))


@examples(60)
@given(
    seed=st.integers(0, 20),
    crashes=st.lists(st.tuples(st.sampled_from(POINTS), st.integers(1, 6)), max_size=8),
)
def test_oracle_random_crashes(
    seed: int,
    crashes: list[tuple[str, int]],
    tmp_path: Path,
    crash_at: Callable[[str], None],
) -> None:
    directory = tmp_path / uuid.uuid4().hex
    position = 0
    for point, passing in crashes:
        crash_at(f"{point}:{passing}")
        job = None
        try:
            job = ToyJob(directory, seed)
            job.run()
        except Killed:
            pass
        position = check_in_between(directory, position)
    crash_at("")
    assert_right(directory, run_to_end(directory, seed))


def check_in_between(directory: Path, position: int) -> int:
    """After any crash readers see part of what is published, none twice; nothing moves back."""
    storage = ToyJob(directory).storage
    last = ManifestLog(storage).latest()
    published = int(str(last.offsets["position"])) if last else 0
    assert published >= position
    seen = visible_output(directory)
    assert len(set(seen)) == len(seen)
    assert set(seen) <= {line for line in expected_output() if line[1] < published}
    for handle in handles(last):
        for file in handle["files"]:
            assert storage.exists(file["remote"])
    return published


def test_commit_that_fails_is_tried_again_and_told_so(tmp_path: Path) -> None:
    job = ToyJob(tmp_path, failures=2)
    job.run()
    assert True in job.committer.retries
    assert visible_output(tmp_path) == expected_output()


def test_commit_that_keeps_failing_fails_the_run_and_is_done_by_the_next(tmp_path: Path) -> None:
    job = ToyJob(tmp_path, failures=100)
    job.start()
    with pytest.raises(SinkError):
        job.step()
    published = job.coordinator.last
    assert published is not None
    next_job = ToyJob(tmp_path)
    next_job.start()
    assert next_job.coordinator.last == published
    assert set(next_job.committer.retries) == {True}
    assert list((tmp_path / "pending").iterdir()) == []
    while next_job.step():
        pass
    assert_right(tmp_path, next_job)


def test_same_coordinator_finishes_its_commit_at_the_replay(tmp_path: Path) -> None:
    job = ToyJob(tmp_path, failures=4)
    job.start()
    with pytest.raises(SinkError):
        job.step()
    while job.step():
        pass
    assert visible_output(tmp_path) == expected_output()


def test_close_closes_committers(tmp_path: Path) -> None:
    job = run_to_end(tmp_path)
    assert isinstance(job.committer, FileCommitter)
    assert job.committer.closed


SCRIPT = str(Path(__file__).parent / "toy_checkpoint_job.py")


@pytest.mark.parametrize(
    "crash", ["manifest.publish.after:2", "sink.commit.before:3", "state.upload.after:4"]
)
def test_oracle_killed_process(crash: str, tmp_path: Path) -> None:
    directory = tmp_path / "job"
    report = run_until_done(
        [sys.executable, SCRIPT, str(directory)],
        crash=crash,
        directory=tmp_path / "runs",
        deadline=300,
    )
    point, _, count = crash.partition(":")
    assert report.killed
    assert [run.killed for run in report.runs] == [True, False]
    assert report.passed == {point: int(count)}
    assert report.exit_code == 0
    assert report.output == "done\n"
    assert_right(directory, ToyJobAtEnd(directory))


def ToyJobAtEnd(directory: Path) -> ToyJob:  # noqa: N802 - reads as a constructor
    job = ToyJob(directory)
    job.start()
    return job


def test_every_point_is_passed(tmp_path: Path) -> None:
    directory = tmp_path / "job"
    report = run_until_done(
        [sys.executable, SCRIPT, str(directory)],
        crash=record_everything(),
        directory=tmp_path / "runs",
        deadline=300,
    )
    assert not report.killed
    assert sorted(report.passed) == POINTS
    assert report.passed["manifest.publish.before"] == report.passed["cleanup.after"]
    assert json.loads((directory / "checkpoint" / "job.json").read_text())["job_name"] == "toy"
