"""Standbys and the end of a job: what a driver notes in the lease, and what a standby does then."""

from __future__ import annotations

import os
import shutil
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from tests.execution.test_taken_over import Failing, program
from tests.support.environments import environments, wait_until

from millstream.checkpoint import lease as leases
from millstream.checkpoint.coordinator import Coordinator
from millstream.checkpoint.lease import LEFT, Lease, Term, newest_term
from millstream.checkpoint.local_storage import LocalStorage
from millstream.configuration import options
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.errors import ConfigurationError, EngineError, FencedError, JobError
from millstream.execution import standby, supervision
from millstream.execution.driver import JobDriver, check_job
from millstream.execution.engine import Engine
from millstream.execution.job import Job
from millstream.execution.standby import DISCARDED, STOPPED, wait_as_standby
from millstream.execution.supervision import STARTS_AGAIN, exit_code_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.checkpoint.model import Manifest
    from millstream.execution.run import Run


DELETED = "NO_EXTERNALIZED_CHECKPOINTS"


class Ends(Engine):
    """Runs nothing and ends as wanted."""

    def __init__(self, end: Callable[[Run], bool]) -> None:
        self._end = end

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        del cancelled
        return self._end(run)


def retained(tmp_path: Path, settings: dict[str, str] | None = None) -> Job:
    graph = program(tmp_path, {"restart-strategy.type": "none", **(settings or {})})
    graph.configuration.set_string(options.CHECKPOINT_RETENTION.key, "RETAIN_ON_CANCELLATION")
    return Job(graph)


def ended(tmp_path: Path) -> str:
    term = newest_term(LocalStorage(tmp_path / "checkpoints"))
    assert term is not None
    return term.ended


def fail(error: Exception) -> Callable[[Run], bool]:
    def run(_: Run) -> bool:
        raise error

    return run


def lost_engine() -> EngineError:
    error = EngineError("the JVM was killed")
    error.has_ended = True
    return error


@pytest.mark.parametrize(
    ("end", "state"),
    [
        (lambda _: True, STOPPED),  # no checkpoint is the last one of the input
        (lambda _: False, "CANCELED"),
        (fail(EngineError("no workers")), "FAILED"),
        (fail(lost_engine()), LEFT),
        (fail(FencedError("a newer run has the job")), ""),
    ],
)
def test_a_driver_notes_its_end(end: Callable[[Run], bool], state: str, tmp_path: Path) -> None:
    driver = JobDriver(retained(tmp_path), Ends(end))
    driver.start()
    driver._ended.wait(60)
    assert ended(tmp_path) == state


def test_a_driver_that_has_lost_its_engine_keeps_the_checkpoints(tmp_path: Path) -> None:
    """Also where the options have them deleted however the job ends: it has not ended."""
    job = Job(program(tmp_path))
    assert job.graph.configuration.get(options.CHECKPOINT_RETENTION) == DELETED
    driver = JobDriver(job, Ends(fail(lost_engine())))
    driver.start()
    driver._ended.wait(60)
    assert ended(tmp_path) == LEFT
    assert (tmp_path / "checkpoints" / "job.json").exists()


def test_a_standby_does_not_run_a_finished_job_whose_checkpoints_are_being_deleted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would run the job from the beginning, and repeat all output."""
    noted: list[str] = []
    clean_up = Job.clean_up

    def note(self: Job, *, finished: bool, **more: bool) -> None:
        noted.append(ended(tmp_path))
        clean_up(self, finished=finished, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Job, "clean_up", note)
    env = environments(tmp_path, {"execution.target": "local"})(1)
    config = env.get_checkpoint_config()
    config.set_checkpoint_storage_dir(str(tmp_path / "checkpoints"))
    env.get_configuration().set_string(options.CHECKPOINT_RETENTION.key, DELETED)
    env.from_sequence(1, 10).sink_to(BlackholeSink())
    env.execute("finishes")
    assert noted == [DISCARDED]
    assert not (tmp_path / "checkpoints").exists()


def test_a_driver_that_cannot_start_does_not_take_the_lease(tmp_path: Path) -> None:
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    term = Term(4, "another:1", "", 3600.0)
    storage.write(leases._name(4), leases._encoded(term))

    def refuse(_: int) -> None:
        message = "no Java"
        raise EngineError(message)

    driver = JobDriver(retained(tmp_path), Failing(refuse))
    driver.start()
    with pytest.raises(EngineError):
        driver.get_job_execution_result()
    assert newest_term(storage) == term


def test_a_driver_has_the_lease_before_it_reads_what_an_older_run_has_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a standby takes over while the new driver recovers, whose older one is fenced."""
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    storage.write(leases._name(4), leases._encoded(Term(4, "another:1", "", 3600.0)))
    seen: list[Term | None] = []
    recover = Coordinator.recover

    def note(self: Coordinator) -> Manifest | None:
        seen.append(newest_term(storage))
        return recover(self)

    monkeypatch.setattr(Coordinator, "recover", note)
    driver = JobDriver(retained(tmp_path), Ends(lambda _: True))
    driver.start()
    driver._ended.wait(60)
    (term,) = seen
    assert term is not None
    assert (term.number, term.owner.rpartition(":")[2]) == (5, str(os.getpid()))


def test_a_standby_whose_directory_is_gone_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """And runs nothing from the beginning if it does not come back."""
    monkeypatch.setattr(standby, "_POLL", 0.01)
    graph = program(tmp_path, {options.STANDBY.key: "true"})
    directory = tmp_path / "checkpoints"
    storage = LocalStorage(directory, fsync=False)
    storage.write(leases._name(0), leases._encoded(Term(0, "another:1", "", 1.0)))
    found: list[Lease | JobError | None] = []

    def wait() -> None:
        try:
            found.append(wait_as_standby(graph))
        except JobError as error:
            found.append(error)

    waiting = threading.Thread(target=wait)
    with caplog.at_level("INFO", "millstream"):
        waiting.start()
        wait_until(lambda: "standby of job" in caplog.text, "the standby has seen the lease", 30)
        shutil.rmtree(directory)
        waiting.join(30)
    assert "the lease of job" in caplog.text
    assert "was deleted or is not mounted here" in str(found[0])
    assert not directory.exists()


def test_a_standby_needs_a_checkpoint_directory(tmp_path: Path) -> None:
    graph = program(tmp_path, {options.STANDBY.key: "true"})
    graph.configuration.set_string(options.CHECKPOINTS_DIRECTORY.key, "")
    with pytest.raises(ConfigurationError, match=r"with --standby, set execution\.checkpointing"):
        check_job(graph)


@pytest.mark.parametrize("state", ["FINISHED", STOPPED, DISCARDED, "CANCELED", "FAILED"])
def test_a_standby_ends_with_the_job(
    state: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standby, "_POLL", 0.01)
    graph = program(tmp_path, {options.STANDBY.key: "true"})
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    term = Term(0, "another:1", "", 3600.0)
    storage.write(leases._name(0), leases._encoded(term))
    found: list[Lease | JobError | None] = []

    def wait() -> None:
        try:
            found.append(wait_as_standby(graph))
        except JobError as error:
            found.append(error)

    looks: list[str] = []
    read = LocalStorage.read

    def note(self: LocalStorage, name: str) -> bytes:
        looks.append(name)
        return read(self, name)

    monkeypatch.setattr(LocalStorage, "read", note)
    waiting = threading.Thread(target=wait)
    waiting.start()
    wait_until(lambda: len(looks) > 2, "the standby reads the lease", 30)
    storage.write(leases._name(0), leases._encoded(replace(term, ended=state)))
    waiting.join(30)
    (result,) = found
    if state == "FINISHED":
        assert result is None  # running the job finds that it has finished
    elif state == DISCARDED:
        assert "has ended, and its checkpoints are deleted while" in str(result)
    else:
        assert f"has ended ({state}) while this driver was its standby" in str(result)
    assert newest_term(storage) == replace(term, ended=state)


def test_a_supervised_standby_that_was_fenced_waits_again(monkeypatch: pytest.MonkeyPatch) -> None:
    fenced = FencedError("a newer run has the job")
    monkeypatch.setattr(supervision, "_current", supervision.Supervision(0))
    assert exit_code_of(fenced) == 1
    assert exit_code_of(fenced, is_standby=True) == STARTS_AGAIN
    monkeypatch.setattr(supervision, "_current", None)
    assert exit_code_of(fenced, is_standby=True) == 1
