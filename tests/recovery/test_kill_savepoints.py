"""kill -9 of a job and its workers while it writes savepoints, stops with one, or starts from one.

In both execution modes: a savepoint is complete or refused, the job that was killed loses and
repeats nothing, and neither does one that starts from a complete savepoint, in the other mode.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest
from tests.forked import run_forked
from tests.recovery import savepoint_job
from tests.recovery.savepoint_job import COUNT, KEYS

from millstream.checkpoint.inspect import inspect_checkpoint, verify_checkpoints
from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.savepoint import SavepointSettings, StartingPoint
from millstream.crash_points import points_of
from millstream.errors import CheckpointError

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("forks")]

JOB = Path(savepoint_job.__file__)
MODES = ["epochs", "pipelined"]
#: The first savepoint is of the running job, the second of its stop.
WRITING = [f"{point}:1" for point in points_of("savepoint")]
STOPPING = [f"savepoint.{place}:2" for place in ("write.before", "publish.before", "publish.after")]


def run(
    tmp_path: Path, name: str, mode: str, *savepoint: str, crash: str = "", number: int = 0
) -> int:
    done = run_forked(
        JOB,
        [str(tmp_path / name), mode, str(tmp_path / "savepoints"), *savepoint],
        directory=tmp_path / "runs" / f"{name}-{number}",
        crash=crash,
        deadline=120,
    )
    assert done.killed == bool(crash), done.output
    return done.exit_code


def lines(directory: Path) -> Counter[str]:
    files = [each for each in (directory / "out").glob("*") if not each.name.startswith(".")]
    return Counter(line for each in files for line in each.read_text().splitlines())


def counted(checkpoints: Path) -> int:
    """How many records were read up to the newest checkpoint, or up to a savepoint."""
    try:
        manifest = inspect_checkpoint(LocalStorage(checkpoints)).manifest
    except CheckpointError:
        return 0
    return manifest.totals["numbers.numRecordsIn"]


def whole() -> Counter[str]:
    each = COUNT // KEYS
    return Counter(f"{key} {number}" for key in range(KEYS) for number in range(1, each + 1))


def complete(tmp_path: Path) -> list[Path]:
    """The savepoints that can be started from; the others are refused."""
    found = []
    for each in sorted((tmp_path / "savepoints").glob("savepoint-*")):
        try:
            start = StartingPoint.open(str(each), SavepointSettings())
        except CheckpointError:
            continue
        start.verify()
        assert start.is_savepoint
        found.append(each)
    return found


def check_fork(tmp_path: Path, saved: Path, mode: str, crash: str = "") -> None:
    """A job from a savepoint writes all that comes after it, once, whenever it is killed."""
    count = counted(saved)
    name = f"fork-{saved.name}-{crash.partition(':')[0]}"
    if crash:
        run(tmp_path, name, mode, str(saved), crash=crash)
    run(tmp_path, name, mode, str(saved), number=1)
    found = lines(tmp_path / name)
    assert found.total() == COUNT - count
    # The counts of each key go on from those in the savepoint to the end.
    for key in range(KEYS):
        numbers = sorted(int(line.split()[1]) for line in found if line.startswith(f"{key} "))
        assert numbers == list(range(COUNT // KEYS - len(numbers) + 1, COUNT // KEYS + 1))
    # It was claimed; one of the end of the input need not be followed by a checkpoint.
    assert count == COUNT or not saved.exists()
    assert verify_checkpoints(LocalStorage(tmp_path / name / "checkpoints")).problems == []


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("point", [*WRITING, *STOPPING])
def test_killed_while_a_savepoint_is_written(tmp_path: Path, mode: str, point: str) -> None:
    run(tmp_path, "first", mode, crash=point)
    done = complete(tmp_path)
    assert len(done) == ("publish.after" in point) + point.endswith(":2")
    read = counted(tmp_path / "first" / "checkpoints")
    run(tmp_path, "first", mode, number=1)
    found = lines(tmp_path / "first")
    assert found == found & whole(), "twice, or never"
    assert found.total() == counted(tmp_path / "first" / "checkpoints") >= read
    after = complete(tmp_path)
    assert len(after) >= len(done)
    other = MODES[1 - MODES.index(mode)]
    for each in after[:2]:
        check_fork(tmp_path, each, other)


@pytest.mark.parametrize("mode", MODES)
def test_killed_while_it_starts(tmp_path: Path, mode: str) -> None:
    run(tmp_path, "first", mode)
    for number, point in enumerate(points_of("start", "claim")):
        saved = complete(tmp_path)[0]
        copy = tmp_path / "copies" / str(number)
        copy.parent.mkdir(exist_ok=True)

        shutil.copytree(saved, copy)
        check_fork(tmp_path, copy, mode, crash=f"{point}:1")
