"""A checkpoint that fails while the tasks go on: its output and metrics come with the next one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipelined.test_failures import NUMBERS, check, job, seen

from millstream.checkpoint import LocalStorage, ManifestLog
from millstream.engines.pipelined.checkpoints import Checkpoints, PendingCheckpoint

if TYPE_CHECKING:
    from pathlib import Path

    import pytest
    from tests.pipelined.test_failures import Make

    from millstream.checkpoint.model import TaskAck

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
