"""A run that does not publish notices a newer one, and the newer one bears with the older."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.engines.spark import engine as spark_engine
from millstream.engines.spark.engine import SparkEngine
from millstream.errors import FencedError, JobError
from millstream.execution.run import EpochLoop, FenceWatch


class Coordinator:
    """Fenced from the n-th look on."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def is_fenced(self) -> bool:
        self.looks -= 1
        return self.looks < 0


def test_the_log_is_looked_at_every_two_seconds() -> None:
    now = 0.0
    coordinator: Any = Coordinator(2)
    watch = FenceWatch(coordinator, lambda: now)
    for _ in range(59):
        now += 0.1
        watch.check()
    assert coordinator.looks == 0
    now += 2
    with pytest.raises(FencedError, match="a newer run has taken the job over"):
        watch.check()


def test_an_idle_run_of_epochs_ends_when_it_is_fenced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millstream.execution.run._SECONDS", 0.0)
    position = {"epoch": 1, "final": False}
    configuration = SimpleNamespace(get=lambda option: option.default)
    run: Any = SimpleNamespace(
        coordinator=Coordinator(3),
        position=position,
        planner=SimpleNamespace(latest_offset=lambda start: start),
        stop=SimpleNamespace(is_asked=False),
        job=SimpleNamespace(interval=0, graph=SimpleNamespace(configuration=configuration)),
    )
    with pytest.raises(FencedError):
        EpochLoop(run, lambda plan: []).run(threading.Event())


class Disturbed(SparkEngine):
    """Its first queries meet those of another driver."""

    def __init__(self, times: int) -> None:
        self.times = times

    def _run_query(self, run: Any, cancelled: threading.Event) -> bool:
        self.times -= 1
        if self.times >= 0:
            failure = JobError(f"[{spark_engine._CONCURRENT}] Multiple jobs detected")
            raise spark_engine._DisturbedQueryError from failure
        return True


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(spark_engine, "_DISTURBED_SECONDS", 0.0)
    monkeypatch.setattr(spark_engine, "require_one_history", lambda *_, **__: None)
    monkeypatch.setattr(spark_engine, "has_spark_sources", lambda _: False)
    planned: list[int] = []
    return SimpleNamespace(
        coordinator=Coordinator(100),
        job=SimpleNamespace(storage=None, graph=None),
        last=None,
        planned=planned,
        plan_again=lambda: planned.append(1),
    )


def test_the_newer_of_two_drivers_on_spark_starts_its_query_again(run: Any) -> None:
    assert Disturbed(2).execute(run, threading.Event())
    assert len(run.planned) == 2


@pytest.mark.parametrize(("times", "looks"), [(1, 0), (99, 100)])
def test_the_older_one_does_not(times: int, looks: int, run: Any) -> None:
    run.coordinator = Coordinator(looks)
    with pytest.raises(JobError, match="CONCURRENT_STREAM_LOG_UPDATE"):
        Disturbed(times).execute(run, threading.Event())
