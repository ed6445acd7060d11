"""A checkpoint that fails while the tasks go on: its output and metrics come with the next one."""

from __future__ import annotations

import queue
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from tests.pipelined.conftest import DEADLINE
from tests.pipelined.storages import RefusingSome
from tests.pipelined.test_failures import NUMBERS, check, job, seen
from tests.support.environments import wait_until

from millstream.checkpoint import LocalStorage, ManifestLog, storages
from millstream.checkpoint.model import OperatorAck, TaskAck
from millstream.contracts.key_value_store import StateFile
from millstream.contracts.operator import OperatorStateHandle, OperatorStateKind
from millstream.datastream import RestartStrategies
from millstream.engines.pipelined import run_loop
from millstream.engines.pipelined.checkpoints import Checkpoints, PendingCheckpoint
from millstream.errors import JobError
from millstream.execution.split_enumerator import SplitEnumerator
from millstream.runtime.pipelined.control import Acknowledged
from millstream.runtime.pipelined.uploader import PendingAck
from millstream.state.operator_state import PendingStates

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelined.test_failures import Make

    from millstream.runtime.pipelined.control import TakeCheckpoint

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
    assert f"checkpoint {LOST} was aborted" in caplog.text
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
    trigger, look = Checkpoints.trigger, SplitEnumerator.poll

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
    monkeypatch.setattr(SplitEnumerator, "poll", look_long)
    names = SimpleNamespace(SimpleQueue=Events, Empty=queue.Empty)
    monkeypatch.setattr(run_loop, "queue", names)
    env = job(make, tmp_path)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.execute("asked")
    check(tmp_path)
    assert not under_way
    assert len(came) > 4


def refusing(monkeypatch: pytest.MonkeyPatch, directory: Path, uploads: int) -> Path:
    """Have the storage refuse so many uploads of state, behind the first that have gone well."""
    monkeypatch.setattr(storages, "LocalStorage", RefusingSome)
    (directory / "refuses").write_text(str(uploads))
    return directory / "refused"


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
def test_an_upload_that_fails_is_tolerated(
    make: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    backend: str,
) -> None:
    refused = refusing(monkeypatch, tmp_path, 3)
    settings = {
        "execution.checkpointing.tolerable-failed-checkpoints": "3",
        "execution.checkpointing.num-retained": "1000",
        "state.backend.type": backend,
    }
    env = job(make, tmp_path, **settings)
    env.set_restart_strategy(RestartStrategies.no_restart())
    env.execute("refused")
    check(tmp_path)
    assert len(list(refused.iterdir())) == 3
    assert "could not make state durable" in caplog.text
    assert "the storage is away" in caplog.text
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    epochs = [manifest.epoch for manifest in ManifestLog(storage).manifests()]
    assert epochs != list(range(len(epochs))), "numbers are left out"
    last = ManifestLog(storage).latest()
    assert last is not None
    assert last.totals["files.numRecordsIn"] == NUMBERS
    for manifest in ManifestLog(storage).manifests():
        for each in (ack for acks in manifest.operators.values() for ack in acks):
            files = [] if each.state is None else each.state["files"]
            assert all(storage.exists(file["remote"]) for file in files)


def test_one_upload_too_many_fails_the_job(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing(monkeypatch, tmp_path, 100)
    settings = {"execution.checkpointing.tolerable-failed-checkpoints": "1"}
    env = job(make, tmp_path, **settings)
    env.set_restart_strategy(RestartStrategies.no_restart())
    with pytest.raises(JobError, match="the storage is away"):
        env.execute("refused")


def test_files_of_operator_state_that_could_not_be_written_are_written_with_the_next(
    tmp_path: Path,
) -> None:
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    away = Away(tmp_path / "checkpoints", fsync=False)
    owed: list[PendingStates] = []
    first = PendingStates({}, {"state/op/one": b"1", "state/op/two": b"2"})
    with pytest.raises(ConnectionError):
        pending(away, [first], owed, "one", "two").finish()
    assert not storage.exists("state/op/two")
    third = PendingStates({}, {"state/op/three": b"3"})
    pending(storage, [third], owed, "one", "two", "three").finish()
    for name, content in {"one": b"1", "two": b"2", "three": b"3"}.items():
        assert storage.read(f"state/op/{name}") == content
    assert not owed


def test_states_that_change_do_not_pile_up_while_the_storage_is_away(tmp_path: Path) -> None:
    away = Away(tmp_path / "checkpoints", fsync=False)
    owed: list[PendingStates] = []
    for number in range(20):
        changed = f"{number}-two"
        states = [PendingStates({}, {f"state/op/{changed}": b"x" * 1000})]
        if number == 0:
            states.append(PendingStates({}, {"state/op/same-two": b"y"}))
        with pytest.raises(ConnectionError):
            pending(away, states, owed, changed, "same-two").finish()
        # Also what could be acknowledged no more, and was given up without a try.
        pending(away, [], owed, changed, "same-two").give_up()
        assert {name for each in owed for name in each.files} == {
            f"state/op/{changed}",
            "state/op/same-two",
        }


class Away(LocalStorage):
    """Takes one file."""

    def write(self, name: str, content: bytes) -> None:
        if name.endswith("two"):
            raise ConnectionError
        super().write(name, content)


def handle(name: str) -> OperatorStateHandle:
    file = StateFile(local="", remote=name, size=0, digest="")
    return OperatorStateHandle(OperatorStateKind.UNION, 1, (), file)


def pending(
    storage: LocalStorage, states: list[PendingStates], owed: list[PendingStates], *named: str
) -> PendingAck:
    """A snapshot that names these files."""
    operator = OperatorAck("op", 0, 0)
    operator.operator_states = {name: handle(f"state/op/{name}") for name in named}
    ack = TaskAck(0, 0, 0, "a", operators=[operator])
    return PendingAck(ack, [], states, storage, lambda whole: whole, owed)
