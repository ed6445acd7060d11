"""A job into a real Delta table: each record once, whatever fails or is killed.

Each kill costs a start of Spark, so ``make test-all`` has three, around the step that the sink
cannot make atomic by itself: the table is written, and that is not noted.  ``make soak`` has all.
"""

from __future__ import annotations

import importlib
import os
import random
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import cloudpickle
import pytest
from tests.docs.sinks_page import write_modules
from tests.spark import counting_job, delta_job

from millstream.contracts.sink import DeliveryGuarantee
from millstream.crash_points import points_of
from millstream.datastream import RestartStrategies
from millstream.spark import DataFrameSink
from millstream.testing.crash import Run, run_once

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.datastream import StreamExecutionEnvironment

ROOT: Final = Path(__file__).parents[2]
JOB: Final = Path(__file__).parent / "delta_job.py"
#: Seconds; what a start takes on a machine that is busy with other work.
LONGEST: Final = 400.0
POINTS: Final = points_of("staged values", "write-ahead sink")
AROUND: Final = ["manifest.publish.after", "sink.commit.after", "recover.commit.after"]


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    """Where ``docs_delta`` is."""
    return write_modules(tmp_path)


@pytest.fixture
def delta(modules: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """``docs_delta``; it and the job's functions go to the workers by value."""
    monkeypatch.syspath_prepend(modules)
    module = importlib.import_module("docs_delta")
    by_value = [module, counting_job, delta_job]
    for each in by_value:
        cloudpickle.register_pickle_by_value(each)
    yield module
    for each in by_value:
        cloudpickle.unregister_pickle_by_value(each)
    del sys.modules["docs_delta"]


def start(directory: Path, modules: Path, number: int, crash: str = "") -> Run:
    """Start the job; it is killed at the crash point, or ends."""
    path = [str(ROOT), str(ROOT / "src"), str(modules), os.environ.get("PYTHONPATH", "")]
    run = run_once(
        [sys.executable, str(JOB), str(directory)],
        directory=directory / "runs" / str(number),
        crash=crash,
        deadline=LONGEST,
        environment={"PYTHONPATH": os.pathsep.join(filter(None, path))},
    )
    assert run.killed == bool(crash), f"{crash}: exit code {run.exit_code}\n{run.output}"
    assert crash or run.exit_code == 0, run.output
    return run


def test_commits_that_fail_before_and_after_the_table_is_written(
    make: Callable[..., StreamExecutionEnvironment], delta: Any, tmp_path: Path
) -> None:
    table = delta_job.new_table(tmp_path)
    write_table = delta.DeltaTableWriter(table)
    # A run gives up after two tries, so epoch 1 is left to the next run.
    plan = {0: ["before"], 1: ["after", "after", "before"], 2: ["after"]}
    calls: list[tuple[int, str]] = []

    def write(frame: Any, epoch: Any) -> None:
        calls.append((int(epoch), epoch.application_id))
        step = plan[epoch].pop(0) if plan[epoch] else ""
        if step != "before":
            write_table(frame, epoch)
        if step:
            message = f"failed {step} the write"
            raise OSError(message)

    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "millstream.commit-retry.attempts": "2",
        "millstream.commit-retry.initial-backoff": "1",
    }
    env = make(2, settings)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 10))
    delta_job.add_job(env, DataFrameSink(write, DeliveryGuarantee.EXACTLY_ONCE))
    result = env.execute("to a Delta table")
    assert [number for number, _ in calls] == [0, 0, 1, 1, 1, 1, 2, 2]
    assert {name for _, name in calls} == {f"{result.get_job_id()}/table"}
    delta_job.check(table, epochs=delta_job.EPOCHS)


@pytest.mark.timeout(2000)
def test_killed_around_the_write(
    make: Callable[..., StreamExecutionEnvironment], delta: Any, modules: Path, tmp_path: Path
) -> None:
    table = delta_job.new_table(tmp_path)
    # The second start dies in its recovery, when epoch 1 is written and not noted; the third
    # finds it written, notes that, and dies behind the note of epoch 2.
    kills = [("wal.send.before:2", 1), ("wal.send.after:1", 2), ("wal.marker.after:2", 3)]
    for number, (crash, epochs) in enumerate(kills):
        start(tmp_path, modules, number, crash)
        delta_job.check(table, epochs=epochs)
    # Nobody kills the last driver, so it may be this process, which has a session already.
    env = make(2, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    delta_job.add_job(env, delta.delta_sink(table))
    env.execute("to a Delta table")
    delta_job.check(table, epochs=delta_job.EPOCHS)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_soak(modules: Path, tmp_path: Path) -> None:
    """Each chain is killed twice, at any of the sink's points, then it ends."""
    deadline = time.monotonic() + float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed = int(os.environ.get("MILLSTREAM_KILL_SEEDS", str(int(time.time()))).split(",")[0])
    chains = 0
    while time.monotonic() < deadline:
        seed, chains = seed + (chains > 0), chains + 1
        chance = random.Random(seed)
        points = chance.sample([f"{each}:1" for each in POINTS + AROUND[:2]], 1)
        points.append(chance.choice([f"{each}:1" for each in POINTS + AROUND]))
        print(f"killed at {points}; replay with MILLSTREAM_KILL_SEEDS={seed}")
        directory = tmp_path / str(seed)
        directory.mkdir()
        table = delta_job.new_table(directory)
        for number, crash in enumerate(points):
            start(directory, modules, number, crash)
        start(directory, modules, len(points))
        delta_job.check(table, epochs=delta_job.EPOCHS)
    print(f"{2 * chains} kills without a failure: below {3 / max(2 * chains, 1):.4f} at 95 %")
