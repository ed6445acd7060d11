"""Whole jobs on Spark: the checkpointing modes at failures, and epochs handed to a Spark writer."""

from __future__ import annotations

import logging
import threading
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest
from tests.recovery import template_job
from tests.recovery.template_job import Files

from millstream.checkpoint.manifest_log import ManifestLog
from millstream.common import Row, Types, WatermarkStrategy
from millstream.datastream import CheckpointingMode, RestartStrategies
from millstream.errors import SinkError
from millstream.spark import DataFrameSink
from millstream.testing.sources import CRASH, EPOCH, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.datastream import StreamExecutionEnvironment

    Make = Callable[..., StreamExecutionEnvironment]

pytestmark = pytest.mark.spark

# The workers cannot import what is not in the package.
cloudpickle.register_pickle_by_value(template_job)

NUMBERS = list(range(1, 13))
#: Four epochs of three numbers; a task fails in the second one.
SCRIPT = [1, 2, 3, EPOCH, 4, 5, CRASH, 6, EPOCH, 7, 8, 9, EPOCH, 10, 11, 12]


def counted(env: StreamExecutionEnvironment, directory: Path) -> Any:
    """Each number of the script with how many there were so far."""

    def add(one: Any, other: Any) -> Any:
        return (other[0], one[1] + other[1])

    source = ScriptedSource(SCRIPT, Types.LONG(), directory)
    stream = env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").uid("numbers")
    return stream.map(lambda n: (n, 1)).key_by(lambda _: 0).reduce(add).uid("count")


def fail_publishing(monkeypatch: pytest.MonkeyPatch, epoch: int) -> list[int]:
    """The manifest of an epoch is not published at the first try; the epochs that were tried."""
    tried: list[int] = []
    publish = ManifestLog.publish

    def fail_once(self: ManifestLog, manifest: Manifest, oldest: int | None = 0) -> int:
        tried.append(manifest.epoch)
        if manifest.epoch == epoch and tried.count(epoch) == 1:
            message = "the storage is away"
            raise OSError(message)
        return publish(self, manifest, oldest)

    monkeypatch.setattr(ManifestLog, "publish", fail_once)
    return tried


EXACT = [(n, n) for n in NUMBERS]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        # A task fails in the second epoch, the publishing of the third.
        (CheckpointingMode.EXACTLY_ONCE, EXACT),
        # Behind the commit of the third: its output is written again.
        (CheckpointingMode.AT_LEAST_ONCE, sorted(EXACT + EXACT[6:9])),
        # The second epoch is lost, and so is the count.  The third was not begun.
        (CheckpointingMode.NONE, EXACT[:3] + [(n, n - 6) for n in NUMBERS[6:]]),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, CheckpointingMode) else "",
)
def test_modes_at_failures(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: CheckpointingMode,
    expected: list[tuple[int, int]],
) -> None:
    files = tmp_path / "files"
    files.mkdir()
    env = make(1, {"execution.checkpointing.dir": str(tmp_path / "checkpoints")})
    env.enable_checkpointing(1, mode)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    counted(env, tmp_path / "script").sink_to(Files(files)).uid("files")
    tried = fail_publishing(monkeypatch, 2)
    env.execute("modes")
    assert tried.count(2) == 2
    assert list((tmp_path / "script").iterdir())  # the task did fail
    visible = [each for each in files.iterdir() if not each.name.startswith(".")]
    lines = [line for each in visible for line in each.read_text().splitlines()]
    assert sorted(eval(line) for line in lines) == expected
    assert len(list(files.iterdir())) == len(visible)


class Hanging(Files):
    """Its commit of the third epoch never returns, once."""

    def commit(self, transaction: str) -> None:
        flag = self.directory / ".hung"
        if transaction.startswith("2-") and not flag.exists():
            flag.touch()
            threading.Event().wait()
        super().commit(transaction)


def test_a_task_and_a_commit_that_hang(
    make: Make, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Neither hangs the job: the epoch is rolled back, the commit is finished by the next run."""
    flag = tmp_path / "flag"

    def hang(pair: Any) -> Any:
        if pair[0] == 5 and not flag.exists():
            flag.touch()
            threading.Event().wait()
        return pair

    files = tmp_path / "files"
    files.mkdir()
    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "execution.checkpointing.timeout": "10 s",
        "millstream.commit.timeout": "1 s",
    }
    env = make(1, settings)
    # A machine that is busy with other work may need more than the two.
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(20, 10))
    counted(env, tmp_path / "script").map(hang).sink_to(Hanging(files)).uid("files")
    with caplog.at_level(logging.WARNING, "millstream"):
        env.execute("hanging")
    assert flag.exists()
    assert (files / ".hung").exists()
    assert (
        "checkpoint 1 was aborted: it took longer than execution.checkpointing.tim" in caplog.text
    )
    assert "(sink files could not commit checkpoint 2 to Hanging in 1 try)" in caplog.text
    visible = [each for each in files.iterdir() if not each.name.startswith(".")]
    lines = [line for each in visible for line in each.read_text().splitlines()]
    assert sorted(eval(line) for line in lines) == EXACT


def test_each_epoch_reaches_a_spark_writer_under_one_name(make: Make, tmp_path: Path) -> None:
    """A table that is idempotent by epoch is exactly-once.

    A task fails in the second epoch.  The writer fails three times in the third, behind its write:
    two tries are all that a run has, so the next run commits it.
    """
    table = tmp_path / "table"
    calls: list[tuple[int, str]] = []

    def write(frame: Any, epoch: Any) -> None:
        frame.write.mode("overwrite").parquet(f"file:{table}/epoch={int(epoch)}")
        calls.append((int(epoch), epoch.application_id))
        if epoch == 2 and [number for number, _ in calls].count(2) < 4:
            message = "the answer is lost"
            raise SinkError(message)

    settings = {
        "execution.checkpointing.dir": str(tmp_path / "checkpoints"),
        "millstream.commit-retry.attempts": "2",
        "millstream.commit-retry.initial-backoff": "1",
    }
    env = make(1, settings)
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(2, 10))
    row = Types.ROW_NAMED(["n", "count"], [Types.LONG(), Types.LONG()])
    rows = counted(env, tmp_path / "script").map(lambda p: Row(n=p[0], count=p[1]), row)
    rows.sink_to(DataFrameSink(write)).uid("table")
    result = env.execute("to a Spark writer")
    assert [number for number, _ in calls] == [0, 1, 2, 2, 2, 2, 3]
    assert {name for _, name in calls} == {f"{result.get_job_id()}/table"}
    import pyarrow.dataset as ds

    read = ds.dataset(table, partitioning="hive").to_table().to_pylist()
    found = sorted((each["epoch"], each["n"], each["count"]) for each in read)
    assert found == [((n - 1) // 3, n, n) for n in NUMBERS]
