"""What is read from the checkpoint storage behind a failure: state of slots that are lost, only.

"Lost" is a slot whose local copies are: on the same machine a new process finds them.
"""

from __future__ import annotations

import os
import shutil
import signal
from typing import TYPE_CHECKING

import pytest
from tests.pipelined.storages import Noting, RefusingSubtask
from tests.pipelined.test_failures import Paced, at_work, check, finish, job

from millstream.checkpoint import LocalStorage, ManifestLog, storages
from millstream.engines.pipelined.engine import LocalSlots

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.pipelined.test_failures import Eventually, Make

    from millstream.datastream import RuntimeContext
    from millstream.engines.pipelined.failover import SlotHost
    from millstream.runtime.pipelined.control import SlotSettings

pytestmark = pytest.mark.extended

BACKENDS = ["hashmap", "rocksdb"]


@pytest.fixture
def downloads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file with the name of each file of state that any process has read from the storage."""
    monkeypatch.setattr(storages, "LocalStorage", Noting)
    noted = tmp_path / "downloads"
    noted.touch()
    return noted


def lose_the_disk_of_slot_1(
    monkeypatch: pytest.MonkeyPatch, host: type[SlotHost], directory: Path
) -> None:
    """Have slots start again, the second time, without what slot 1 has kept of ``count``."""
    start, starts = host.start, list[int]()

    def lose(self: SlotHost, settings: Sequence[SlotSettings]) -> None:
        starts.append(len(settings))
        if len(starts) == 2:
            for each in (directory / "local").rglob("count/1"):
                shutil.rmtree(each)
        start(self, settings)

    monkeypatch.setattr(host, "start", lose)


def require_what_slot_1_lost(directory: Path, downloads: Path) -> None:
    """State of slot 1 was read from the storage, and nothing of slot 0."""
    read = set(downloads.read_text().split())
    assert read
    assert read <= state_of(directory, "count", 1)
    assert not read & state_of(directory, "count", 0)


def state_of(directory: Path, uid: str, subtask: int) -> set[str]:
    """The files of state of a subtask, in all checkpoints that are kept."""
    log = ManifestLog(LocalStorage(directory / "checkpoints", fsync=False))
    states = [manifest.operators[uid][subtask].state for manifest in log.manifests()]
    return {file["remote"] for state in states if state is not None for file in state["files"]}


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_new_process_finds_the_copies_of_this_machine(
    make: Make, tmp_path: Path, eventually: Eventually, downloads: Path, backend: str
) -> None:
    client = job(make, tmp_path, **{"state.backend.type": backend}).execute_async("killed")
    pids = at_work(tmp_path, eventually)
    os.kill(pids[1], signal.SIGKILL)
    finish(client, tmp_path, pids)
    assert not downloads.read_text()


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_was_lost_with_a_slot_is_read_and_nothing_else(
    make: Make,
    tmp_path: Path,
    eventually: Eventually,
    downloads: Path,
    monkeypatch: pytest.MonkeyPatch,
    backend: str,
) -> None:
    lose_the_disk_of_slot_1(monkeypatch, LocalSlots, tmp_path)
    settings = {"state.backend.type": backend, "execution.checkpointing.num-retained": "1000"}
    client = job(make, tmp_path, **settings).execute_async("killed")
    pids = at_work(tmp_path, eventually)
    os.kill(pids[1], signal.SIGKILL)
    finish(client, tmp_path, pids)
    require_what_slot_1_lost(tmp_path, downloads)


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_exception_of_the_users_reads_nothing(
    make: Make,
    tmp_path: Path,
    downloads: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    backend: str,
) -> None:
    """Also where snapshots were taken since that are in no checkpoint: their number is bounded."""
    failed, tried = tmp_path / "failed", tmp_path / "tried"

    class Raising(Paced):
        def open(self, runtime_context: RuntimeContext) -> None:
            super().open(runtime_context)
            self.seen = 0

        def map(self, value: object) -> object:
            if not failed.exists() and tried.exists() and len(list(tried.iterdir())) > 4:
                failed.touch()
                message = "once"
                raise ValueError(message)
            return super().map(value)

    monkeypatch.setattr(storages, "LocalStorage", RefusingSubtask)
    monkeypatch.setattr("tests.pipelined.test_failures.Paced", Raising)
    settings = {
        "state.backend.type": backend,
        "execution.checkpointing.interval": "50",
        "execution.checkpointing.tolerable-failed-checkpoints": "1000",
    }
    job(make, tmp_path, **settings).execute("raises")
    check(tmp_path)
    assert failed.exists()
    assert caplog.text.count("was aborted") > 3
    assert "once" in caplog.text
    assert not downloads.read_text()
