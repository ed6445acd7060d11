"""``millstream savepoint``: a running job is asked through its checkpoint directory."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.pipelined.test_stop import lines, read, start
from tests.support.environments import wait_until

from millstream.checkpoint.local_storage import LocalStorage
from millstream.checkpoint.requests import Request, new_requests
from millstream.cli import savepoint_command
from millstream.cli.main import main
from millstream.datastream import JobStatus

if TYPE_CHECKING:
    from collections.abc import Mapping

    from millstream.datastream import JobClient


def running(directory: Path, execution: str, settings: Mapping[str, str]) -> JobClient:
    client = start(directory, execution, dict(settings))
    wait_until(lambda: read(client) > 50, "records", 60)
    return client


@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_a_running_job_is_saved_and_stopped(
    tmp_path: Path, execution: str, capsys: pytest.CaptureFixture[str]
) -> None:
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_text("k" * 40)
    settings = {
        "millstream.checkpoint.hmac-key-file": str(key),
        "execution.checkpointing.savepoint-dir": str(tmp_path / "configured"),
    }
    client = running(tmp_path, execution, settings)
    command = ["savepoint", "--hmac-key-file", str(key)]
    checkpoints = str(tmp_path / "checkpoints")
    assert main([*command, checkpoints]) == 0
    saved = Path(capsys.readouterr().out.strip())
    assert saved.parent == tmp_path / "configured"
    assert client.get_job_status().result() is JobStatus.RUNNING
    assert main(["savepoint", checkpoints]) == 1
    assert "is signed" in capsys.readouterr().err
    assert main([*command, "--stop", checkpoints, str(tmp_path / "given")]) == 0
    saved = Path(capsys.readouterr().out.strip())
    assert saved.parent == tmp_path / "given"
    client.get_job_execution_result().result()
    assert len(lines(tmp_path)) == read(client)
    assert not list((tmp_path / "checkpoints" / "requests").iterdir())
    assert main(["checkpoints", "--hmac-key-file", str(key), str(saved), "verify"]) == 0
    path = {"execution.savepoint.path": str(saved)}
    fork = running(tmp_path / "fork", execution, {**settings, **path})
    fork.cancel().result()


def test_what_the_job_refuses_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    client = running(tmp_path, "epochs", {})
    assert main(["savepoint", str(tmp_path / "checkpoints")]) == 1
    assert "JobError: no directory for a savepoint" in capsys.readouterr().err
    assert main(["savepoint", "--drain", str(tmp_path / "checkpoints"), str(tmp_path)]) == 1
    assert "not drained" in capsys.readouterr().err
    client.cancel().result()


def test_a_job_that_does_not_run_does_not_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["savepoint", str(tmp_path / "nowhere")]) == 1
    assert "there is no directory" in capsys.readouterr().err
    (tmp_path / "other").mkdir()
    assert main(["savepoint", str(tmp_path / "other")]) == 1
    assert "is not the checkpoint directory of a job" in capsys.readouterr().err
    running(tmp_path, "epochs", {}).cancel().result()
    monkeypatch.setattr(savepoint_command, "_HEARD", 0.3)
    checkpoints = tmp_path / "checkpoints"
    assert main(["savepoint", str(checkpoints), str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert "no run of job 'numbers' has answered within 0.3 s" in said
    assert f"--from-savepoint {checkpoints}" in said
    assert list((checkpoints / "requests").iterdir()) == []


def test_requests_that_were_left_behind_are_deleted(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path)
    request = Request.post(storage, None, stop=True, drain=False)
    assert list(new_requests(storage)) == [request]
    file = tmp_path / "requests" / f"{request.request_id}.json"
    value = json.loads(file.read_text())
    file.write_text(json.dumps({**value, "created": value["created"] - 61_000}))
    (tmp_path / "requests" / "damaged.json").write_text("[")
    assert list(new_requests(storage)) == []
    assert list((tmp_path / "requests").iterdir()) == []
