"""A vertex is shown with its subtasks, and what they count and spend their time with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.rest.conftest import RunningJob

    Start = Callable[..., RunningJob]
    Eventually = Callable[[Callable[[], bool], str], None]


@pytest.mark.parametrize("execution", ["pipelined", "epochs"])
def test_subtasks_add_up_to_their_vertex(
    start: Start, eventually: Eventually, execution: str
) -> None:
    running = start({"millstream.execution": execution})
    source, counts = running.vertices()
    path = f"/vertices/{counts}"

    def spent() -> int:
        found = running.get(path)["aggregated"]["metrics"]["accumulated-busy-time"]["sum"]
        return int(found)

    eventually(lambda: spent() > 0, "time at work is counted")
    vertex = running.get(path)
    assert [each["subtask"] for each in vertex["subtasks"]] == [0, 1]
    assert {each["status"] for each in vertex["subtasks"]} == {"RUNNING"}
    records = [each["metrics"]["read-records"] for each in vertex["subtasks"]]
    of_all = vertex["aggregated"]["metrics"]["read-records"]
    assert min(records) > 0
    assert (of_all["min"], of_all["max"], of_all["sum"]) == (
        min(records),
        max(records),
        sum(records),
    )
    for each in vertex["subtasks"]:
        metrics, lasted = each["metrics"], each["status-duration"]["RUNNING"]
        times = [metrics[f"accumulated-{name}-time"] for name in ("busy", "idle", "backpressured")]
        # What is measured once a second, or with a checkpoint, is somewhat older.
        assert 0 < sum(times) <= lasted + 2000
        assert running.get(f"{path}/subtasks/{each['subtask']}")["subtask"] == each["subtask"]
    slots = running.get(f"{path}/taskmanagers")["taskmanagers"]
    assert [each["taskmanager-id"] for each in slots] == ["slot-0", "slot-1"]
    pressure = running.get(f"{path}/backpressure")
    assert pressure["status"] == "ok"
    for each in pressure["subtasks"]:
        assert each["ratio"] + each["idleRatio"] + each["busyRatio"] == pytest.approx(1)
    assert [each["id"] for each in running.get(f"{path}/watermarks")] == [
        "0.currentInputWatermark",
        "1.currentInputWatermark",
    ]
    assert running.get(f"/vertices/{source}/watermarks")[0]["id"] == "0.currentOutputWatermark"


def test_other_subtasks_attempts_and_slots_are_not_found(start: Start) -> None:
    running = start()
    vertex = f"/jobs/{running.id}/vertices/{running.vertices()[0]}"
    for path in (
        f"/jobs/{running.id}/vertices/{'0' * 32}",
        f"{vertex}/subtasks/2",
        f"{vertex}/subtasks/-1",
        f"{vertex}/subtasks/0/attempts/1",
        "/taskmanagers/slot-2",
        "/taskmanagers/slot-x",
    ):
        assert running.client.request(path).status == 404, path


def test_accumulators_are_those_of_the_job(start: Start, eventually: Eventually) -> None:
    running = start()

    def counted() -> bool:
        found = running.get("/accumulators")["user-task-accumulators"]
        return any(each["name"] == "counts.numRecordsIn" for each in found)

    eventually(counted, "the job has counted")
    # No function of this job has metrics of its own.
    vertex = running.vertices()[0]
    assert running.get(f"/vertices/{vertex}/accumulators")["user-accumulators"] == []
