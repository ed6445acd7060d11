"""What a program ships, the checkpoints of a cancelled job, and tolerated epochs, whole."""

from __future__ import annotations

import importlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    ExternalizedCheckpointRetention,
    JobStatus,
    MapFunction,
    RuntimeContext,
    StreamExecutionEnvironment,
)
from millstream.errors import CheckpointExpiredError

if TYPE_CHECKING:
    from collections.abc import Callable

    Make = Callable[..., StreamExecutionEnvironment]
    Eventually = Callable[[Callable[[], bool], str], None]


def test_files_are_there_in_every_worker(make: Make, tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "local_shipped.py").write_text(
        "def treble(value):\n    return 3 * value\n"
    )
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "words.txt").write_text("mill")
    (tmp_path / "more.txt").write_text("stream")

    class Read(MapFunction):
        def open(self, runtime_context: RuntimeContext) -> None:
            more = runtime_context.get_distributed_cache().get_file("more")
            self.text = Path("data/words.txt").read_text() + more.read_text()

        def map(self, value: int) -> tuple[str, int]:
            return self.text, importlib.import_module("local_shipped").treble(value)

    env = make(2).add_python_file(str(tmp_path / "code"))
    env.add_python_archive(str(tmp_path / "data"))
    env.register_cached_file(str(tmp_path / "more.txt"), "more")
    with env.from_sequence(1, 4).map(Read()).execute_and_collect() as found:  # type: ignore[union-attr]
        assert sorted(found) == [("millstream", 3 * n) for n in range(1, 5)]


@pytest.mark.parametrize(
    ("retention", "kept"),
    [
        (ExternalizedCheckpointRetention.RETAIN_ON_CANCELLATION, True),
        (ExternalizedCheckpointRetention.DELETE_ON_CANCELLATION, False),
    ],
)
def test_checkpoints_of_a_cancelled_job(
    make: Make,
    eventually: Eventually,
    tmp_path: Path,
    retention: ExternalizedCheckpointRetention,
    kept: bool,
) -> None:
    env = make(1)
    config = env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    config.set_externalized_checkpoint_retention(retention)
    env.from_sequence(1, 10**12).sink_to(BlackholeSink())
    client = env.execute_async("endless")
    eventually(lambda: bool(client.get_accumulators().result()), "a checkpoint")
    assert (tmp_path / "checkpoints" / "log").exists()
    client.cancel().result()
    assert client.get_job_status().result() is JobStatus.CANCELED
    assert (tmp_path / "checkpoints").exists() == kept


class SlowAtFirst(MapFunction):
    """Takes longer than any epoch may, until its file is gone."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def map(self, value: int) -> int:
        if self._path.exists():
            self._path.unlink()
            time.sleep(600)  # given up long before
        return value


@pytest.mark.parametrize("tolerated", [0, 1])
def test_an_epoch_that_takes_too_long_is_tolerated(
    make: Make, tmp_path: Path, tolerated: int
) -> None:
    (tmp_path / "slow").touch()
    # No restart strategy: nothing but the tolerance lets the job run again.
    env = make(1, {"execution.checkpointing.timeout": "4 s"})
    env.get_checkpoint_config().set_tolerable_checkpoint_failure_number(tolerated)
    stream = env.from_collection([1, 2]).map(SlowAtFirst(tmp_path / "slow"))
    if tolerated:
        assert stream.execute_and_collect(limit=10) == [1, 2]
        return
    with pytest.raises(CheckpointExpiredError, match="took longer than"):
        stream.execute_and_collect(limit=10)
