"""A job that is cancelled, or asked to stop, at the moment in which something else happens."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest
from tests.execution.test_taken_over import program

from millstream.errors import JobError
from millstream.execution.driver import JobDriver
from millstream.execution.engine import Engine
from millstream.execution.job import Job
from millstream.execution.job_client import JobStatus
from millstream.execution.run import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.execution.run import Run

#: Seconds that a thread is given which waits for a lock if all is well.
MOMENT = 0.1


class Waiting(Engine):
    """Runs until it is cancelled; ``act`` is called in each run, with its number."""

    long_running_tasks = True

    def __init__(self, act: Callable[[int, Run], None] = lambda *_: None) -> None:
        self._act = act
        self.runs = 0
        self.at_work = threading.Event()

    def execute(self, run: Run, cancelled: threading.Event) -> bool:
        self.runs += 1
        self.at_work.set()
        self._act(self.runs, run)
        assert cancelled.wait(60)
        return False


def started(directory: Path, engine: Waiting) -> JobDriver:
    driver = JobDriver(Job(program(directory)), engine)
    driver.start()
    assert engine.at_work.wait(60)
    return driver


def test_the_end_of_a_job_is_not_overwritten_by_who_cancels_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job ends between the look whether it has, and the word that it is being cancelled."""
    driver = started(tmp_path, Waiting())
    is_terminal = JobStatus.is_terminal_state
    cancelling = threading.Event()

    def is_over(self: JobStatus) -> bool:
        found = is_terminal(self)
        if threading.current_thread().name == "cancels" and not cancelling.is_set():
            cancelling.set()
            driver._ended.wait(MOMENT)  # by which it has ended, or waits for this thread
        return found

    monkeypatch.setattr(JobStatus, "is_terminal_state", is_over)
    thread = threading.Thread(target=driver.cancel, name="cancels")
    thread.start()
    thread.join(60)
    assert cancelling.is_set()
    assert driver.get_job_status() is JobStatus.CANCELED
    with pytest.raises(JobError, match="was canceled before it had stopped"):
        driver.stop(drain=True)


def test_a_restart_does_not_hide_that_the_job_is_cancelled(tmp_path: Path) -> None:
    seen: list[JobStatus] = []
    waiting, drivers = threading.Event(), list[JobDriver]()

    def fail_first(number: int, run: Run) -> None:
        if number == 1:
            assert waiting.wait(60)
            # The tasks of a region run again while somebody cancels the job.
            drivers[0]._cancelled.set()
            drivers[0]._move(JobStatus.CANCELLING)
            run.on_resumed()
            seen.append(drivers[0].get_job_status())
            message = "then the run fails"
            raise RuntimeError(message)

    engine = Waiting(fail_first)
    drivers.append(started(tmp_path, engine))
    waiting.set()
    drivers[0].cancel()
    assert seen == [JobStatus.CANCELLING]
    assert engine.runs == 1
    assert drivers[0].get_job_status() is JobStatus.CANCELED


def test_who_stops_a_job_that_is_cancelled_is_told(tmp_path: Path) -> None:
    driver = started(tmp_path, Waiting())
    raised: list[BaseException] = []

    def stop() -> None:
        try:
            driver.stop()
        except JobError as error:
            raised.append(error)

    threads = [threading.Thread(target=each) for each in (stop, driver.cancel, stop)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert [str(each).count("was canceled before it had stopped") for each in raised] == [1, 1]


def test_of_two_who_stop_a_job_the_first_says_how() -> None:
    """The second asks between the first one's look and its word."""
    stop = StopRequest()
    others: list[threading.Thread] = []
    #: What a run may have seen that looked in between.
    seen: list[bool] = []

    class Asked(threading.Event):
        def is_set(self) -> bool:
            found = super().is_set()
            if not others:
                others.append(threading.Thread(target=lambda: stop.ask(drain=False)))
                others[0].start()
                others[0].join(MOMENT)  # by which it has asked, or waits for the first
                seen.extend([stop.drains] if super().is_set() else [])
            return found

    stop._asked = cast("threading.Event", Asked())
    stop.ask(drain=True)
    seen.append(stop.drains)
    others[0].join(60)
    assert stop.is_asked
    assert [*seen, stop.drains] == [True, True]
