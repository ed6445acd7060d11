"""Functions that change their input: what is in flight is in the checkpoint as it was sent.

What is left of a long batch is Python objects, which the task goes on with while the checkpoint is
written.  Here all of it is processed in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.test_unaligned import Timed, finish, results

from millstream.common import Configuration, Types
from millstream.connectors.basic.collect import CollectSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.runtime.pipelined import task
from millstream.runtime.pipelined.batch_sizing import BatchSizer
from millstream.runtime.pipelined.task import PipelinedTask
from millstream.runtime.pipelined.unaligned_checkpoints import Recording
from millstream.testing.mini_cluster import MiniCluster
from millstream.testing.sources import EPOCH, ScriptedSource

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.checkpoint.model import FramesInFlight
    from millstream.contracts.checkpoint_storage import CheckpointStorage
    from millstream.graph.model import JobGraph

RECORDS = 40
#: Records of a piece: fewer than a reader has in its first batch.
PIECE = 4
ADDED = 1000
SCRIPT = [*[Timed((n % 2, n), n) for n in range(RECORDS)], EPOCH, Timed((0, RECORDS), RECORDS)]


def change(record: dict[str, int]) -> dict[str, int]:
    """Change a record in place, as user functions do."""
    record["n"] += ADDED
    return record


def changing_job(directory: Path) -> JobGraph:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration())
    env.set_parallelism(1)
    source = ScriptedSource(SCRIPT, None, directory / "script")
    stream = env.from_source(source, source.watermark_strategy(), "numbers").uid("numbers")
    dicts = stream.map(lambda record: {"n": record[1]}).uid("dicts")
    changed = dicts.key_by(lambda _: 0, Types.LONG()).map(change).uid("changed")
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    pairs = changed.map(lambda record: (record["n"], 0), pair).uid("pairs")
    pairs.sink_to(CollectSink(directory / "out", fsync=False)).uid("out")
    return env.get_job_graph("changed")


class ShortPieces(BatchSizer):
    """Few records, however quick they are."""

    #: How many pieces were processed; those that are a whole batch or its end do not count.
    count = 0

    def __init__(self, most: int, seconds: float, least: int = 1) -> None:
        super().__init__(most, seconds, least)
        self.limit = PIECE

    def processed(self, records: int, seconds: float) -> None:
        del seconds
        ShortPieces.count += records == PIECE


class Pieces:
    """Lets the task behind the exchange process pieces of long batches, or all, when told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.allowed = 0
        self.behind: PipelinedTask | None = None
        self._process_next = process_next = PipelinedTask._process_next

        def limited(task: PipelinedTask) -> bool:
            if task.splits is not None:
                return process_next(task)
            self.behind = task
            before = ShortPieces.count
            worked = self.allowed > 0 and process_next(task)
            self.allowed -= ShortPieces.count - before
            return worked

        monkeypatch.setattr(PipelinedTask, "_process_next", limited)

    def process_all(self) -> None:
        assert self.behind is not None
        while self._process_next(self.behind):
            pass


def take_while_the_task_goes_on(
    directory: Path, monkeypatch: pytest.MonkeyPatch, pieces: Pieces
) -> None:
    """Take a checkpoint whose file is written when all that is in it was processed."""
    written = []
    write = Recording.write

    def write_late(self: Recording, storage: CheckpointStorage) -> FramesInFlight | None:
        pieces.process_all()
        written.append(write(self, storage))
        return written[-1]

    with monkeypatch.context() as patch:
        patch.setattr(Recording, "write", write_late)
        cluster = MiniCluster(changing_job(directory), directory / "checkpoints", pipelined=True)
        assert cluster.run_epoch()
        cluster.close_instances()
        cluster.coordinator.close()
    assert [each is not None for each in written] == [True]


def changed_once() -> list[Any]:
    return [(n + ADDED, 0) for n in range(RECORDS + 1)]


def require_a_part(directory: Path) -> None:
    """Some of the records are processed in the checkpoint, the others are in flight."""
    found = results(directory, "out")
    assert PIECE <= len(found) < RECORDS
    assert found == changed_once()[: len(found)]


@pytest.fixture
def pieces(monkeypatch: pytest.MonkeyPatch, overtaking: Callable[[int | None], None]) -> Pieces:
    monkeypatch.setattr(task, "BatchSizer", ShortPieces)
    overtaking(0)
    return Pieces(monkeypatch)


def test_what_is_left_of_a_batch_is_in_flight_as_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: Pieces
) -> None:
    pieces.allowed = 1
    take_while_the_task_goes_on(tmp_path, monkeypatch, pieces)
    require_a_part(tmp_path)
    pieces.allowed = 1 << 20
    finish(changing_job(tmp_path), tmp_path, pipelined=True)
    assert results(tmp_path, "out") == changed_once()


def test_what_is_left_of_a_restored_batch_is_in_flight_as_it_was_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pieces: Pieces
) -> None:
    take_while_the_task_goes_on(tmp_path, monkeypatch, pieces)
    assert results(tmp_path, "out") == []
    pieces.allowed = 1
    take_while_the_task_goes_on(tmp_path, monkeypatch, pieces)
    require_a_part(tmp_path)
    pieces.allowed = 1 << 20
    finish(changing_job(tmp_path), tmp_path, pipelined=True)
    assert results(tmp_path, "out") == changed_once()
