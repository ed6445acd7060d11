"""A checkpoint that fails while the tasks go on: its output and metrics come with the next one."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from tests.pipelined.conftest import DEADLINE
from tests.pipelined.test_failures import NUMBERS, check, job, seen
from tests.support.environments import wait_until

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.datastream import RestartStrategies
from millstream.engines.pipelined import run_loop
from millstream.engines.pipelined.checkpoints import Checkpoints, PendingCheckpoint
from millstream.execution.split_enumerator import SplitEnumerator
from millstream.runtime.pipelined.messages import Acknowledged

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.pipelined.test_failures import Make

    from millstream.checkpoint.model import TaskAck
    from millstream.runtime.pipelined.messages import TakeCheckpoint

#: The checkpoint of which one task is never heard.
LOST = 1


def test_output_of_a_checkpoint_that_expires_is_not_lost(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    heard = Checkpoints.acknowledge

    def acknowledge(self: Checkpoints, ack: TaskAck) -> PendingCheckpoint | None:
        if ack.epoch != LOST or (ack.stage, ack.subtask) != (1, 0):
            return heard(self, ack)
        (lost,) = self._pending
        lost.expires = 0.0  # as if it had been waited for
        return None

    monkeypatch.setattr(Checkpoints, "acknowledge", acknowledge)
    settings = {
        "execution.checkpointing.tolerable-failed-checkpoints": "1",
        "execution.checkpointing.num-retained": "1000",
    }
    job(make, tmp_path, **settings).execute("expires")
    assert f"checkpoint {LOST} was given up" in caplog.text
    check(tmp_path)
    assert len(seen(tmp_path)[0]) == 1, "the job was not run again"
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    epochs = [manifest.epoch for manifest in ManifestLog(storage).manifests()]
    assert LOST not in epochs
    assert epochs[:2] == [0, LOST + 1]
    last = ManifestLog(storage).latest()
    assert last is not None
    assert last.totals["files.numRecordsIn"] == NUMBERS


def test_what_is_acknowledged_while_a_source_is_asked_does_not_expire(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    came: list[Acknowledged] = []
    under_way: list[PendingCheckpoint] = []
    trigger, look = Checkpoints.trigger, SplitEnumerator.look

    class Events(queue.SimpleQueue[Any]):
        def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:
            super().put(item, block, timeout)
            if isinstance(item, Acknowledged):
                came.append(item)

    def triggered(self: Checkpoints, *args: Any, **settings: Any) -> TakeCheckpoint:
        message = trigger(self, *args, **settings)
        if message.epoch == 0:
            under_way.extend(self._pending)
        return message

    def look_long(self: SplitEnumerator, now: int) -> Any:
        if under_way:
            wait_until(lambda: len(came) == 4, "acknowledgements of all tasks", DEADLINE)
            under_way.pop().expires = time.monotonic()  # as if the source had taken so long
        return look(self, now)

    monkeypatch.setattr(Checkpoints, "trigger", triggered)
    monkeypatch.setattr(SplitEnumerator, "look", look_long)
    names = SimpleNamespace(SimpleQueue=Events, Empty=queue.Empty)
    monkeypatch.setattr(run_loop, "queue", names)
    env = job(make, tmp_path)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.execute("asked")
    check(tmp_path)
    assert not under_way
    assert len(came) > 4
