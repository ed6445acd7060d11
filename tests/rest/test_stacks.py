"""Thread dumps of slots and flame graphs: sampled on request, by vertex, as Flink shows them."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING, Any

from tests.rest.flink_specification import problems

from millstream.rest import stacks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest
    from tests.rest.conftest import RunningJob

    Start = Callable[..., RunningJob]
    Eventually = Callable[[Callable[[], bool], str], None]

FLAMEGRAPH = "/jobs/{jobid}/vertices/{vertexid}/flamegraph"
SETTINGS = {
    "rest.flamegraph.enabled": "true",
    "rest.flamegraph.num-samples": "100",
    "rest.flamegraph.delay-between-samples": "5 ms",
}


def graph(job: RunningJob, vertex: str, query: str = "") -> dict[str, Any]:
    found: dict[str, Any] = job.get(f"/vertices/{vertex}/flamegraph?{query}")
    assert problems("GET", FLAMEGRAPH, 200, found) == []
    return found


def names(node: dict[str, Any]) -> Iterator[str]:
    yield node["name"]
    for each in node["children"]:
        assert 0 < each["value"] <= node["value"]
        yield from names(each)


def test_a_flame_graph_has_the_functions_of_its_vertex(
    start: Start, eventually: Eventually
) -> None:
    job = start(SETTINGS)
    source, counts = job.vertices()[:2]
    eventually(lambda: graph(job, source)["endTimestamp"] > 0, "samples are taken")
    full = graph(job, source)["data"]
    assert full["name"] == "root"
    assert full["value"] > 0
    found = set(names(full))
    assert any(".<lambda>:" in each and "conftest" in each for each in found), found
    # The reduce function belongs to the other vertex, in the same slots.
    other = set(names(graph(job, counts)["data"]))
    assert any("PipelinedTask" in each for each in other), other
    parts = [graph(job, source, f"type={kind}")["data"]["value"] for kind in ("ON_CPU", "OFF_CPU")]
    assert sum(parts) == full["value"]
    of_subtasks = [graph(job, source, f"subtaskindex={i}")["data"]["value"] for i in range(2)]
    assert sum(of_subtasks) == full["value"]


def test_nothing_is_sampled_unless_it_is_enabled(
    start: Start, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []
    monkeypatch.setattr(stacks, "_take", taken.append)
    job = start()
    vertex = job.vertices()[0]
    assert graph(job, vertex) == {"endTimestamp": -2}
    assert taken == []


def test_samples_are_taken_once_for_all_who_ask(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[object] = []
    monkeypatch.setattr(stacks, "_take", taken.append)
    job = start(SETTINGS)
    for vertex in job.vertices():
        for kind in ("FULL", "ON_CPU", "OFF_CPU"):
            assert graph(job, vertex, f"type={kind}") == {"endTimestamp": -3}
    assert len(taken) == 1


def test_wrong_parameters_are_refused(start: Start) -> None:
    job = start(SETTINGS)
    path = f"/jobs/{job.id}/vertices/{job.vertices()[0]}/flamegraph"
    assert job.client.request(f"{path}?type=ICICLE").status == 400
    assert job.client.request(f"{path}?subtaskindex=2").status == 404


def test_a_thread_dump_of_a_slot(start: Start, eventually: Eventually) -> None:
    job = start()

    def dump() -> dict[str, str]:
        found = job.client.get("/taskmanagers/slot-1/thread-dump")
        assert problems("GET", "/taskmanagers/{taskmanagerid}/thread-dump", 200, found) == []
        return {each["threadName"]: each["stringifiedThreadInfo"] for each in found["threadInfos"]}

    eventually(lambda: "MainThread" in dump(), "the slot answers")
    assert "main_loop.py" in dump()["MainThread"]


def test_a_slot_that_does_not_answer(
    start: Start, eventually: Eventually, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stacks, "_PATIENCE", 0.5)
    job = start({"heartbeat.timeout": "60 s"})
    eventually(lambda: job.get("/checkpoints")["counts"]["completed"] > 0, "the job runs")
    driver: Any = job.job.job
    process = driver._engine._host.pids[0]
    os.kill(process, signal.SIGSTOP)
    try:
        (found,) = job.client.get("/taskmanagers/slot-0/thread-dump")["threadInfos"]
    finally:
        os.kill(process, signal.SIGCONT)
    assert "does not answer" in found["stringifiedThreadInfo"]
