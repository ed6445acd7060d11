"""A running job is shown, and its server ends with it."""

from __future__ import annotations

import urllib.error
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.rest.flink_specification import problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rest.conftest import RunningJob

    Start = Callable[..., RunningJob]
    Eventually = Callable[[Callable[[], bool], str], None]

_PATHS = (
    "/overview",
    "/config",
    "/jobs",
    "/jobs/overview",
    "/jobs/{jobid}",
    "/jobs/{jobid}/status",
    "/jobs/{jobid}/plan",
)


@pytest.mark.parametrize("execution", ["pipelined", "epochs"])
def test_a_job_is_shown_as_flink_shows_it(
    start: Start, eventually: Eventually, execution: str
) -> None:
    running = start({"millstream.execution": execution})
    eventually(
        lambda: running.get()["vertices"][1]["metrics"]["read-records"] > 0, "records are counted"
    )
    for path in _PATHS:
        body = running.client.get(path.format(jobid=running.id))
        assert problems("GET", path, 200, body) == [], path
        assert running.client.get("/v1" + path.format(jobid=running.id)).keys() == body.keys()
    source, counts = running.get("/plan")["plan"]["nodes"]
    assert counts["inputs"][0]["id"] == source["id"]
    assert counts["inputs"][0]["ship_strategy"] == "HASH"
    assert source["operators"][0]["location"].startswith("conftest.py:")
    assert running.client.get("/overview")["slots-total"] == 2
    running.job.job.cancel()
    with pytest.raises(urllib.error.URLError):
        running.client.request("/jobs")


def test_what_is_not_there_is_not_found(start: Start) -> None:
    running = start()
    for path in ("/jobs/" + "0" * 32, "/jobs/x", "/nothing", "/v2/jobs", "/../jobs/x"):
        answer = running.client.request(path)
        assert answer.status == 404, path
        assert list(answer.body) == ["errors"]
    assert running.client.request("/jobs", "DELETE").status == 405


def test_checkpoints_are_shown_with_vertices_and_subtasks(
    start: Start, eventually: Eventually
) -> None:
    running = start()
    eventually(
        lambda: running.get("/checkpoints")["counts"]["completed"] > 1, "checkpoints complete"
    )
    path = "/jobs/{jobid}/checkpoints"
    body = running.get("/checkpoints")
    assert problems("GET", path, 200, body) == []
    newest = body["latest"]["completed"]
    assert newest["status"] == "COMPLETED"
    assert 0 <= body["summary"]["end_to_end_duration"]["min"] <= newest["end_to_end_duration"]
    details = running.get(f"/checkpoints/details/{newest['id']}")
    assert problems("GET", f"{path}/details/{{checkpointid}}", 200, details) == []
    _, counts = running.vertices()
    assert details["tasks"][counts]["state_size"] > 0
    assert sum(each["state_size"] for each in details["tasks"].values()) == newest["state_size"]
    subtasks = running.get(f"/checkpoints/details/{newest['id']}/subtasks/{counts}")
    where = f"{path}/details/{{checkpointid}}/subtasks/{{vertexid}}"
    assert problems("GET", where, 200, subtasks) == []
    assert [each["index"] for each in subtasks["subtasks"]] == [0, 1]
    assert (
        running.client.request(f"/jobs/{running.id}/checkpoints/details/1000000000").status == 404
    )


def test_a_savepoint_is_taken_and_the_job_stopped(
    start: Start, eventually: Eventually, tmp_path: Path
) -> None:
    running = start()
    job, place = f"/jobs/{running.id}", str(tmp_path / "savepoints")
    key = "0123456789abcdef" * 2
    body = {"target-directory": place, "triggerId": key}
    for _ in range(2):  # sent again, it starts nothing else
        answer = running.client.request(f"{job}/savepoints", "POST", body)
        assert (answer.status, answer.body) == (202, {"request-id": key})
    assert problems("POST", "/jobs/{jobid}/savepoints", 202, answer.body) == []

    def ended(trigger: str) -> bool:
        found = running.get(f"/savepoints/{trigger}")
        # Of a result there are several forms, and the specification lets two of them fit.
        assert found["operation"] is None or list(found["operation"]) == ["location"]
        return bool(found["status"]["id"] == "COMPLETED")

    eventually(lambda: ended(key), "the savepoint is taken")
    taken = running.get(f"/savepoints/{key}")["operation"]["location"]
    assert taken.removeprefix("file://").startswith(place)
    assert len(list(Path(place).iterdir())) == 1
    eventually(
        lambda: running.get("/checkpoints")["latest"]["savepoint"] is not None, "it is shown"
    )
    answer = running.client.request(f"{job}/stop", "POST", {"targetDirectory": place})
    eventually(lambda: ended(answer.body["request-id"]), "the job is stopped")
    assert running.job.job.get_job_status().name == "FINISHED"
    assert len(list(Path(place).iterdir())) == 2


def test_failures_are_shown_and_a_job_is_canceled(start: Start, eventually: Eventually) -> None:
    running = start()
    body = running.get("/exceptions")
    assert problems("GET", "/jobs/{jobid}/exceptions", 200, body) == []
    assert body["exceptionHistory"]["entries"] == []
    job = f"/jobs/{running.id}"
    assert running.client.request(f"{job}?mode=stop", "PATCH").status == 400
    assert running.client.request(job, "PATCH").status == 202
    eventually(lambda: running.job.job.get_job_status().name == "CANCELED", "it is canceled")


def test_a_server_that_is_read_only_changes_nothing(start: Start) -> None:
    running = start({"millstream.rest.read-only": "true"})
    job = f"/jobs/{running.id}"
    for path, method in ((job, "PATCH"), (f"{job}/savepoints", "POST"), (f"{job}/stop", "POST")):
        assert running.client.request(path, method, {}).status == 403
    assert running.get()["state"] == "RUNNING"
