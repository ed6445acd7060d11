"""Savepoints of running jobs, in both execution modes, through the job client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelined.test_stop import lines, read, start, to_files
from tests.support.environments import environments

from millstream.checkpoint import LocalStorage
from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.common import Types
from millstream.datastream import JobStatus
from millstream.errors import DirectoryError, JobError, ProgramError

if TYPE_CHECKING:
    from collections.abc import Callable

    Eventually = Callable[[Callable[[], bool], str], None]

ENGINES = ["epochs", "pipelined"]
PATH = "execution.state-recovery.path"


def records_of(saved: str) -> int:
    """How many records the job had read."""
    manifest = inspect_checkpoint(LocalStorage(saved)).manifest
    return manifest.totals["numbers.numRecordsIn"]


@pytest.mark.parametrize("execution", ENGINES)
def test_a_running_job_is_saved_and_another_one_starts_there(
    tmp_path: Path, eventually: Eventually, execution: str
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    client = start(first, execution)
    eventually(lambda: read(client) > 50, "records")
    saved = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    assert client.get_job_status().result() is JobStatus.RUNNING
    count = records_of(saved)
    eventually(lambda: read(client) > count, "records")
    other = ENGINES[1 - ENGINES.index(execution)]
    fork = start(second, other, {PATH: saved})
    eventually(lambda: read(fork) > count, "records")
    last = fork.stop_with_savepoint(False, f"{tmp_path}/savepoints").result()
    assert records_of(last) == read(fork) > count
    # One result for each record after the savepoint, of this job; what came before is the other's.
    assert len(lines(second)) == read(fork) - count
    client.stop().result()
    assert len(lines(first)) == read(client)
    again = start(tmp_path / "third", execution, {PATH: last})
    eventually(lambda: read(again) > records_of(last), "records")
    again.cancel().result()


@pytest.mark.parametrize("execution", ENGINES)
def test_a_job_with_temporary_checkpoints_is_saved(
    tmp_path: Path, eventually: Eventually, execution: str
) -> None:
    directory = {
        "execution.checkpointing.dir": "",
        "state.savepoints.dir": str(tmp_path / "savepoints"),
    }
    client = start(tmp_path / "first", execution, directory)
    eventually(lambda: read(client) > 50, "records")
    saved = [
        client.trigger_savepoint().result(),
        client.stop_with_savepoint(advance_to_end_of_event_time=False).result(),
    ]
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert {Path(each).parent for each in saved} == {tmp_path / "savepoints"}
    for number, each in enumerate(saved):
        fork = start(tmp_path / str(number), execution, {PATH: each})
        eventually(lambda fork=fork, each=each: read(fork) > records_of(each), "records")  # type: ignore[misc]
        fork.cancel().result()


def test_nothing_is_in_flight_in_a_savepoint_though_barriers_overtake(
    tmp_path: Path, eventually: Eventually
) -> None:
    unaligned = {
        "execution.checkpointing.unaligned": "true",
        "execution.checkpointing.interval": "20",
    }
    client = start(tmp_path, "pipelined", unaligned)
    eventually(lambda: read(client) > 500, "records")
    for _ in range(3):
        saved = client.trigger_savepoint(str(tmp_path / "savepoints")).result()
        described = json.loads((Path(saved) / "savepoint.json").read_text())
        assert described["in_flight_size"] == 0
        assert inspect_checkpoint(LocalStorage(saved)).manifest.in_flight == []
    client.cancel().result()


def test_several_ask_at_once(tmp_path: Path, eventually: Eventually) -> None:
    client = start(tmp_path, "pipelined")
    eventually(lambda: read(client) > 50, "records")
    asked = [client.trigger_savepoint(str(tmp_path / "savepoints")) for _ in range(3)]
    assert len({each.result() for each in asked}) == 3
    client.cancel().result()


def test_what_cannot_be_saved_is_refused(tmp_path: Path, eventually: Eventually) -> None:
    client = start(tmp_path, "epochs")
    eventually(lambda: read(client) > 0, "records")
    with pytest.raises(ProgramError, match="no directory for a savepoint"):
        client.trigger_savepoint().result()
    (tmp_path / "file").write_text("")
    with pytest.raises(DirectoryError):
        client.trigger_savepoint(str(tmp_path / "file" / "below")).result()
    with pytest.raises(DirectoryError):
        client.stop_with_savepoint(False, str(tmp_path / "file" / "below")).result()
    assert client.get_job_status().result() is JobStatus.RUNNING
    client.cancel().result()
    with pytest.raises(JobError, match="there is no savepoint: job 'numbers' has ended"):
        client.trigger_savepoint(str(tmp_path / "savepoints")).result()


def test_a_job_whose_checkpoints_have_no_state_is_not_saved(tmp_path: Path) -> None:
    mode = {"execution.checkpointing.mode": "NONE"}
    client = start(tmp_path, "epochs", mode)
    with pytest.raises(ProgramError, match="no checkpoint has state"):
        client.trigger_savepoint(str(tmp_path / "savepoints")).result()
    client.cancel().result()


def test_a_finished_job_has_stopped_without_a_savepoint(tmp_path: Path) -> None:
    env = environments(tmp_path, {"execution.target": "local"})(1)
    to_files(env.from_collection([1, 2], Types.LONG()), tmp_path)
    client = env.execute_async("short")
    client.get_job_execution_result().result()
    with pytest.raises(JobError, match="there is no savepoint"):
        client.stop_with_savepoint(False, str(tmp_path / "savepoints")).result()
