"""Every response of a GET is what Flink's specification says, on both engines."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.rest.flink_specification import paths, problems
from tests.rest.reference import PAGE, page

from millstream.rest.running import ENDPOINTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rest.conftest import RunningJob

#: What Flink's specification has and the API does not, with the reason.
_WITHOUT_MEANING = {
    "/jobs/{jobid}/rescaling": "gone from Flink, too: it answers 404",
    "/jobs/{jobid}/rescaling/{triggerid}": "the same",
    "/jobs/{jobid}/execution-result": "",
    "/jobs/{jobid}/checkpoints/{triggerid}": "",
    "/jobs/{jobid}/vertices/{vertexid}/jm-operator-metrics": "",
}
#: Flink's own responses differ from its specification in these, as recorded from Flink 2.3.0.
_FLINKS_OWN = (
    "does not match '[0-9a-f]{32}'",  # the id of a task manager
    "'exactly_once' is not one of",  # is in lower case
)


def _tasks(running: RunningJob) -> dict[str, str]:
    vertex = running.vertices()[1]
    checkpoint = running.get("/checkpoints")["latest"]["completed"]["id"]
    return {
        "jobid": running.id,
        "vertexid": vertex,
        "checkpointid": str(checkpoint),
        "subtaskindex": "1",
        "attempt": "0",
        "taskmanagerid": "slot-1",
    }


@pytest.mark.parametrize("execution", ["pipelined", "epochs"])
def test_responses_are_those_of_the_specification(
    start: Callable[..., RunningJob],
    eventually: Callable[[Callable[[], bool], str], None],
    execution: str,
) -> None:
    running = start({"millstream.execution": execution})
    eventually(
        lambda: running.get("/checkpoints")["counts"]["completed"] > 1, "checkpoints complete"
    )
    parts = _tasks(running)
    seen = 0
    offered = {each.path for each in ENDPOINTS if each.method == "GET"}
    for path in [path for method, path in paths() if method == "GET" and path in offered]:
        if "{triggerid}" in path:
            continue
        body = running.client.get(path.format(**parts))
        found = [
            each
            for each in problems("GET", path, 200, body)
            if not any(own in each for own in _FLINKS_OWN)
        ]
        assert found == [], path
        seen += 1
    assert seen > 30


def test_the_reference_is_current() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.rest.reference"
