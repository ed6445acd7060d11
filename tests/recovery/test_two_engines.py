"""One job that is killed ten times and goes on each time on another engine.

What it is: kill -9 of the driver and all that it started, at points and at moments, on Spark and on
the local engine by turns; and with epochs and with tasks that live on by turns.  After each kill
what a reader sees is right, and in the end complete: it is what plain Python makes of the input.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import cloudpickle
import pytest
from tests.recovery import recovery_job
from tests.recovery.test_kill_driver import DECISIVE, FIRST, SEEDS, Chain

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.crash_points import points_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

KILLS = 10
MASTERS = ["local", "local[2]"]
#: Epochs in the driver, slots, epochs in workers, slots.
WITHOUT_SPARK = ["mini", "pipelined", "local", "pipelined"]
#: Passed once by a run of tasks that live on.
ONCE = ("recover.", "log.", "epoch.start.")
#: Where a kill leaves the logs of Spark and of the manifests at different epochs, and some others.
POINTS = [*DECISIVE, "state.upload.before", "sink.prepare.after", "cleanup.before"]


@pytest.fixture
def _job_goes_by_value() -> Iterator[None]:
    """Workers on Spark cannot import the tests."""
    cloudpickle.register_pickle_by_value(recovery_job)
    yield
    cloudpickle.unregister_pickle_by_value(recovery_job)


def epochs(chain: Chain) -> int:
    """How many epochs are published."""
    manifest = ManifestLog(LocalStorage(chain.directory / "checkpoints")).latest()
    return 0 if manifest is None else manifest.epoch + 1


@pytest.mark.timeout(3000)
@pytest.mark.usefixtures("spark", "_job_goes_by_value")
@pytest.mark.parametrize("kills", [4, pytest.param(KILLS, marks=pytest.mark.soak)])
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_kills_on_two_engines_by_turns(seed: int, kills: int, tmp_path: Path) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = Chain(tmp_path, seed, MASTERS[seed % 2])
    points = chance.sample(POINTS, len(POINTS))
    # The first run discovers the files; a point within it is passed by no other.
    points[0] = chance.choice(FIRST)
    reached = set()
    for number, point in enumerate(points[:kills]):
        chain.master = MASTERS[(seed + number) % 2]
        once = point in FIRST or point.startswith("recover.")
        # The third passing: some epochs run in between, which the other engine does not know of.
        run = chain.start(f"{point}:{1 if once else 3}")
        assert run.killed, f"{chain}: {point} was not reached on {chain.master}\n{run.output}"
        reached.add(epochs(chain))
    assert len(reached) >= kills // 2, f"the job hardly went on: {sorted(reached)}"
    # Nobody kills the last two: the one on Spark takes over from the other engine.
    chain.master = "local"
    run = chain.start(f"epoch.end.before:{3}")
    assert run.killed
    chain.master = "local[2]"
    recovery_job.main(chain.arguments(slow=False))
    chain.check(whole=True)


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("forks")
@pytest.mark.parametrize("seed", SEEDS[:1])
def test_ten_kills_with_epochs_and_with_barriers_by_turns(seed: int, tmp_path: Path) -> None:
    print(f"replay with MILLSTREAM_KILL_SEEDS={seed}")
    chance = random.Random(seed)
    chain = Chain(tmp_path, seed, WITHOUT_SPARK[seed % 4])
    points = [FIRST[seed % 2], *chance.sample(POINTS, KILLS - 1)]
    barriers = chance.sample(points_of("pipelined task"), len(points_of("pipelined task")))
    reached = set()
    for number, each in enumerate(points):
        chain.master = WITHOUT_SPARK[(seed + number) % 4]
        pipelined = chain.master == "pipelined"
        # Every other time it is a point that only tasks that live on pass.
        point = barriers.pop() if pipelined and barriers and number > 1 else each
        once = point in FIRST or point.startswith(ONCE if pipelined else "recover.")
        # Tasks pass theirs several times in a checkpoint.
        passing = 3 if point in points_of("driver") else 12
        run = chain.start(f"{point}:{1 if once else passing}")
        assert run.killed, f"{chain}: {point} was not reached on {chain.master}\n{run.output}"
        reached.add(epochs(chain))
    assert len(reached) > KILLS // 2, f"the job hardly went on: {sorted(reached)}"
    chain.master = "pipelined"
    assert chain.start(slow=False).exit_code == 0
    chain.check(whole=True)
