"""``millstream ui``: running jobs through their own API, finished ones from what they have left."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING, Any

import pytest
from tests.rest.conftest import Client, RunningJob
from tests.rest.flink_specification import problems

from millstream.checkpoint import lease as leases
from millstream.checkpoint.lease import Term
from millstream.checkpoint.manifest_log import ManifestLog
from millstream.checkpoint.storages import open_storage
from millstream.cli.ui_command import ui_server
from millstream.directories import run_directory
from millstream.errors import CheckpointError
from millstream.execution import announcements
from millstream.rest import archive, history_server

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from millstream.contracts.checkpoint_storage import CheckpointStorage

PATHS = ("", "/plan", "/checkpoints", "/checkpoints/config", "/exceptions", "/config", "/status")


@pytest.fixture(autouse=True)
def _jobs_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of tests that run beside are not listed."""
    monkeypatch.setattr(announcements, "live_run_directories", lambda _: [run_directory().path])


@pytest.fixture
def show() -> Iterator[Callable[..., Client]]:
    servers = []

    def serve(*directories: str) -> Client:
        server = ui_server(directories, "0")
        server.start()
        servers.append(server)
        return Client(server.url)

    yield serve
    for each in servers:
        each.close()


@pytest.fixture
def ended(
    start: Callable[..., RunningJob], eventually: Callable[..., None]
) -> Callable[[str], dict[str, Any]]:
    """Run a job until it has checkpoints, cancel it, and return what its API has shown."""

    def run(directory: str) -> dict[str, Any]:
        settings = {"execution.checkpointing.dir": directory}
        settings["execution.checkpointing.externalized-checkpoint-retention"] = (
            "RETAIN_ON_CANCELLATION"
        )
        job = start(settings)
        eventually(
            lambda: job.get("/checkpoints")["counts"]["completed"] > 2, "there are checkpoints"
        )
        shown = {path: job.get(path) for path in PATHS}
        job.job.job.cancel()
        return shown

    return run


def test_a_job_that_has_ended_is_shown_with_its_history(
    ended: Callable[[str], dict[str, Any]], show: Callable[..., Client], tmp_path: Path
) -> None:
    directory = str(tmp_path / "checkpoints")
    shown = ended(directory)
    client = show(directory)
    (job,) = client.get("/jobs/overview")["jobs"]
    assert (job["name"], job["state"]) == ("counting", "CANCELED")
    assert client.get("/overview")["jobs-cancelled"] == 1
    assert client.get("/config")["features"]["web-history"] is True
    found = {path: client.get(f"/jobs/{job['jid']}{path}") for path in PATHS}
    for path, each in found.items():
        if path != "/checkpoints/config":  # whose modes Flink writes otherwise than it specifies
            assert problems("GET", f"/jobs/{{jobid}}{path}", 200, each) == []
    assert found["/plan"] == shown["/plan"]
    assert found["/config"] == shown["/config"]
    assert found[""]["state"] == "CANCELED"
    last = found["/checkpoints"]["history"][0]["id"]
    details = client.get(f"/jobs/{job['jid']}/checkpoints/details/{last}")
    assert details["status"] == "COMPLETED"
    vertex = found[""]["vertices"][0]["id"]
    assert client.get(f"/jobs/{job['jid']}/vertices/{vertex}")["id"] == vertex
    assert client.get(f"/jobs/{job['jid']}/metrics?get=numRestarts") == []
    assert client.request(f"/jobs/{job['jid']}/nothing").status == 404
    assert client.request(f"/jobs/{job['jid']}", "PATCH").status in {403, 405}


def test_the_last_attempt_is_archived(
    start: Callable[..., RunningJob],
    show: Callable[..., Client],
    eventually: Callable[..., None],
    tmp_path: Path,
) -> None:
    directory = str(tmp_path / "checkpoints")
    settings = {
        "execution.checkpointing.dir": directory,
        "execution.checkpointing.externalized-checkpoint-retention": "RETAIN_ON_CANCELLATION",
        "restart-strategy.type": "fixed-delay",
        "restart-strategy.fixed-delay.delay": "1 ms",
    }
    job = start(settings)
    vertex = job.vertices()[0]
    subtask = f"/vertices/{vertex}/subtasks/1"
    eventually(lambda: job.get("/checkpoints")["counts"]["completed"] > 0, "a checkpoint")
    driver: Any = job.job.job
    os.kill(driver._engine._host.pids[1], signal.SIGKILL)
    eventually(lambda: job.get(subtask)["attempt"] == 1, "the job is restarted")
    eventually(lambda: job.get()["state"] == "RUNNING", "the job runs again")
    job.job.job.cancel()
    client = show(directory)
    (found,) = client.get("/jobs/overview")["jobs"]
    prefix = f"/jobs/{found['jid']}{subtask}"
    assert client.get(prefix)["attempt"] == 1
    assert client.get(f"{prefix}/attempts/1")["attempt"] == 1
    assert client.get(f"{prefix}/attempts/1/accumulators")["attempt"] == 1
    assert client.request(f"{prefix}/attempts/0").status == 404


def test_a_directory_is_read_once_for_start_and_first_request(
    ended: Callable[[str], dict[str, Any]],
    show: Callable[..., Client],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    ended(str(tmp_path / "checkpoints"))
    read: list[str] = []

    def note(storage: CheckpointStorage) -> archive.Archive | None:
        read.append(storage.location)
        return archive.read_archive(storage)

    monkeypatch.setattr(history_server, "read_archive", note)
    monkeypatch.setattr(history_server, "_FRESH", 3600.0)
    client = show(str(tmp_path / "checkpoints"))
    assert len(client.get("/jobs/overview")["jobs"]) == 1
    assert client.get("/overview")["jobs-cancelled"] == 1
    assert len(read) == 1


def test_a_directory_without_an_archive_shows_its_checkpoints(
    ended: Callable[[str], dict[str, Any]], show: Callable[..., Client], tmp_path: Path
) -> None:
    directory = str(tmp_path / "checkpoints")
    ended(directory)
    (tmp_path / "checkpoints" / archive.NAME).unlink()
    client = show(directory)
    (job,) = client.get("/jobs/overview")["jobs"]
    assert (job["name"], job["state"]) == ("counting", "CANCELED")
    found = client.get(f"/jobs/{job['jid']}/checkpoints")
    assert found["history"][0]["status"] == "COMPLETED"
    names = [each["name"] for each in client.get(f"/jobs/{job['jid']}")["vertices"]]
    assert any("counts" in each for each in names)


def test_the_archive_of_an_older_run_is_not_shown(
    ended: Callable[[str], dict[str, Any]], show: Callable[..., Client], tmp_path: Path
) -> None:
    """A driver without a REST API, or one that was killed, leaves none."""
    directory = str(tmp_path / "checkpoints")
    ended(directory)
    storage = open_storage(directory)
    ManifestLog(storage).open_generation()
    term = Term(1, "another:1", "", 10.0)
    storage.write(leases._name(1), leases._encoded(term))
    client = show(directory)
    (job,) = client.get("/jobs/overview")["jobs"]
    assert job["state"] == "SUSPENDED"
    assert client.get(f"/jobs/{job['jid']}/checkpoints")["history"][0]["status"] == "COMPLETED"


def test_an_archive_on_s3_is_shown(
    ended: Callable[[str], dict[str, Any]], show: Callable[..., Client], bucket: str
) -> None:
    ended(f"{bucket}/job")
    (job,) = show(f"{bucket}/job").get("/jobs/overview")["jobs"]
    assert job["state"] == "CANCELED"


def test_a_running_job_is_asked_through_its_own_api(
    start: Callable[..., RunningJob], show: Callable[..., Client]
) -> None:
    token = "0123456789abcdef0123456789abcdef"
    running = start({"millstream.rest.token": token})
    client = show()
    found = {each["jid"]: each for each in client.get("/jobs/overview")["jobs"]}
    assert found[running.id]["name"] == "counting"
    assert client.get(f"/jobs/{running.id}/plan")["plan"]["jid"] == running.id
    assert client.get(f"/jobs/{running.id}/metrics?get=numRestarts") != []
    assert client.request(f"/jobs/{running.id}", "PATCH").status in {403, 405}


@pytest.mark.parametrize(
    "path", ["yarn%252Dcancel", "yarn-cancel%3Fget=1", "yarn-cancel%23", "x/%2E%2E/yarn-cancel%3F"]
)
def test_nothing_can_be_canceled_through_an_encoded_path(
    path: str, start: Callable[..., RunningJob], show: Callable[..., Client]
) -> None:
    running = start({"millstream.rest.token": "0123456789abcdef0123456789abcdef"})
    answer = show().request(f"/jobs/{running.id}/{path}")
    assert answer.status >= 400
    assert running.job.get_job_status().result().name == "RUNNING"


def test_an_archive_is_bounded(
    ended: Callable[[str], dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """Those about the whole job are kept first."""
    monkeypatch.setattr(archive, "_LONGEST", 6_000)
    ended(str(tmp_path / "checkpoints"))
    content = (tmp_path / "checkpoints" / archive.NAME).read_text()
    assert len(content) < 2 * 6_000
    paths = [each["path"] for each in json.loads(content)["archive"]]
    assert "/jobs/overview" in paths
    assert not any("/subtasks/" in each for each in paths)


def test_a_directory_of_no_job_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="is not the checkpoint directory of a job"):
        ui_server([str(tmp_path)], "0")


def test_a_damaged_archive_is_named(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path))
    storage.write(archive.NAME, b"{")
    with pytest.raises(CheckpointError, match=r"archive/job\.json .* is damaged"):
        archive.read_archive(storage)
