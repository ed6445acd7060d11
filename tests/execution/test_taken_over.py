"""Two drivers on one checkpoint directory: the older one leaves the job to the newer."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Configuration
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    ExternalizedCheckpointRetention,
    RestartStrategies,
    StreamExecutionEnvironment,
)
from millstream.errors import CorruptCheckpointError, FencedError
from millstream.execution.driver import JobDriver
from millstream.execution.engine import Engine
from millstream.execution.job import Job
from millstream.execution.job_client import JobStatus
from millstream.execution.restart import NoRestart
from millstream.execution.run import Run

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from millstream.graph.model import JobGraph


def program(tmp_path: Path, settings: Mapping[str, str] | None = None) -> JobGraph:
    entries = {
        "millstream.local-directory": str(tmp_path / "local"),
        "millstream.checkpoint.fsync": "false",
        "millstream.progress": "off",
        **(settings or {}),
    }
    configuration = Configuration()
    for key, value in entries.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(1)
    config = env.get_checkpoint_config().set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    config.set_externalized_checkpoint_retention(
        ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
    )
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(3, 1))
    env.from_sequence(1, 10).sink_to(BlackholeSink())
    return env.get_job_graph("two drivers")


class Failing(Engine):
    """Fails whatever it is to run.

    Args:
        before: called before the job is taken over, with how often that was begun.
    """

    def __init__(self, before: Callable[[int], object] = lambda _: None) -> None:
        self._before = before
        self._starts = 0
        self.generations: list[int] = []

    def require(self) -> None:
        self._starts += 1
        self._before(self._starts)

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        del cancelled
        self.generations.append(run.coordinator.generation)
        message = "a task has failed"
        raise RuntimeError(message)


def test_a_driver_that_waits_to_restart_leaves_the_job_to_a_newer_one(tmp_path: Path) -> None:
    newer = Job(program(tmp_path)).new_coordinator()
    engine = Failing(lambda starts: newer.open() if starts == 3 else None)
    driver = JobDriver(Job(program(tmp_path)), engine)
    driver.start()
    with pytest.raises(FencedError, match=r"generation 3 .* after generation 2"):
        driver.get_job_execution_result()
    assert driver.get_job_status() is JobStatus.FAILED
    assert engine.generations == [1, 2]
    # Nor does it delete at its end what is the newer one's, as its options would have it.
    assert not newer.is_fenced()
    assert (tmp_path / "checkpoints" / "job.json").exists()
    assert newer.recover() is None
    newer.close()


def test_a_driver_restarts_after_a_take_over_that_may_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is its own generation that it finds then."""
    engine = Failing()
    driver = JobDriver(Job(program(tmp_path)), engine)
    put = LocalStorage.put_if_absent

    def put_and_fail(self: LocalStorage, name: str, content: bytes) -> bool:
        assert put(self, name, content)
        message = "not flushed"
        raise OSError(message)

    with pytest.raises(RuntimeError, match="a task has failed"):
        driver.execute_once(NoRestart())
    with monkeypatch.context() as broken:
        broken.setattr(LocalStorage, "put_if_absent", put_and_fail)
        with pytest.raises(OSError, match="not flushed"):
            driver.execute_once(NoRestart())
    with pytest.raises(RuntimeError, match="a task has failed"):
        driver.execute_once(NoRestart())
    assert engine.generations == [1, 3]
    driver._end_lease(JobStatus.FAILED)


def test_a_driver_does_not_begin_anew_where_its_log_was_deleted(tmp_path: Path) -> None:
    driver = JobDriver(Job(program(tmp_path)), Failing())
    with pytest.raises(RuntimeError, match="a task has failed"):
        driver.execute_once(NoRestart())
    for path in (tmp_path / "checkpoints" / "log").iterdir():
        path.unlink()
    with pytest.raises(CorruptCheckpointError, match="has begun generation 1: somebody has"):
        driver.execute_once(NoRestart())
    driver._end_lease(JobStatus.FAILED)


def test_a_run_sends_again_what_an_older_one_has_dropped(tmp_path: Path) -> None:
    (tmp_path / "shipped.py").write_text("n = 1\n")
    settings = {"python.files": str(tmp_path / "shipped.py")}
    job = Job(program(tmp_path, settings))
    (sent,) = (tmp_path / "checkpoints" / "files").iterdir()
    content = sent.read_bytes()
    sent.unlink()
    run = Run(job)
    run.open()
    run.close()
    assert sent.read_bytes() == content


def test_a_run_that_is_taken_over_drops_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newer = Job(program(tmp_path)).new_coordinator()
    run = Run(Job(program(tmp_path)))
    blob = tmp_path / "checkpoints" / "files" / "of-the-newer-one"
    blob.parent.mkdir()
    blob.write_text("needed")
    monkeypatch.setattr(Job, "ship_missing", lambda _: newer.open())
    with pytest.raises(FencedError):
        run.open()
    run.close()
    newer.close()
    assert blob.exists()
