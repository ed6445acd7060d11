"""A running job is shown, and its server ends with it."""

from __future__ import annotations

import urllib.error
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
