"""Flink's own dashboard in Chromium, served with this REST API, shows a running job.

Its files are in the package ``apache-flink`` on PyPI: ``FLINK_DASHBOARD`` is the directory
``web`` of ``pyflink/lib/flink-dist-*.jar``, or that archive; else ``build/flink-dashboard`` is it.
"""

from __future__ import annotations

import logging
import os
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.rest.conftest import eventually, start
from tests.support.environments import wait_until

from millstream.rest import running
from millstream.rest.app import make_app
from millstream.rest.security import secured
from millstream.rest.server import RestServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.rest.conftest import RunningJob
    from tests.ui.browser import Browser

__all__ = ["eventually", "start"]

_FILES = Path(os.environ.get("FLINK_DASHBOARD", "build/flink-dashboard"))
pytestmark = [
    pytest.mark.extended,
    pytest.mark.skipif(not _FILES.exists(), reason="FLINK_DASHBOARD is not set"),
]
#: Its page has styles and a handler in the HTML.
_POLICY = (
    "default-src 'self'; script-src 'self' 'unsafe-inline' 'unsafe-eval'; worker-src 'self' blob:;"
    " style-src 'self' 'unsafe-inline'; img-src 'self' data:; font-src 'self' data:"
)
_NOTICES = "return [...document.querySelectorAll('.ant-notification-notice')].map(e => e.innerText)"


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the directory of the dashboard."""
    if _FILES.is_dir():
        return _FILES
    directory = tmp_path_factory.mktemp("dashboard")
    with zipfile.ZipFile(_FILES) as archive:
        archive.extractall(
            directory, [each for each in archive.namelist() if each.startswith("web/")]
        )
    return directory / "web"


@pytest.fixture
def dashboard(files: Path, start: Callable[..., RunningJob]) -> Iterator[tuple[RunningJob, str]]:
    """Start a job, and Flink's dashboard with its REST API; yields its address."""
    job = start()
    shown = next(each for each in running.servers() if each.server.url == job.client.url)
    app = make_app(running.ENDPOINTS, shown.jobs, shown.settings, shown.operations, static=files)
    server = RestServer(secured(app, shown.settings, policy=_POLICY), shown.settings)
    server.start()
    try:
        yield job, server.url
    finally:
        server.close()


def _pages(job: RunningJob) -> dict[str, list[str]]:
    """Return addresses, and texts that are on the pages."""
    source, counts = job.vertices()
    of_job, of_slot = f"/job/running/{job.id}", "/task-manager/slot-0"
    return {
        "/overview": ["Available Task Slots", "counting", "RUNNING"],
        "/job/running": ["counting", "RUNNING"],
        f"{of_job}/overview": ["counting", "Source: numbers", "Parallelism: 2", "Backpressured"],
        **{
            f"{of_job}/overview/{counts}/{tab}": texts
            for tab, texts in {
                "detail": ["counts", "Records Received"],
                "subtasks": ["Records Received", "RUNNING"],
                "taskmanagers": ["Records Received", "RUNNING"],
                "watermarks": ["Watermark"],
                "accumulators": ["Name", "Value"],
                "backpressure": ["Back Pressure Status", "OK"],
                "metrics": ["Select Metric Name"],
            }.items()
        },
        # The dashboard itself fails where a vertex follows another one without a page between.
        f"{of_job}/timeline": ["Vertex TimeLine"],
        f"{of_job}/overview/{source}/subtasks": ["RUNNING"],
        f"{of_job}/exceptions": ["Root Exception"],
        f"{of_job}/checkpoints": ["Latest Completed Checkpoint", "Completion Time"],
        f"{of_job}/configuration": ["Job parallelism", "Object reuse mode"],
        "/job-manager/metrics": ["Heap"],
        "/job-manager/config": ["execution.checkpointing.interval"],
        "/job-manager/logs": ["seen by the program"],
        "/job-manager/stdout": ["Stdout"],
        "/job-manager/log": ["driver.log"],
        "/job-manager/thread-dump": ["Id="],
        "/task-manager": ["slot-0", "slot-1"],
        f"{of_slot}/metrics": ["Memory"],
        f"{of_slot}/logs": [],
        f"{of_slot}/stdout": ["slot-0 has no file"],
        f"{of_slot}/log-list": ["Log Name"],
        f"{of_slot}/thread-dump": ["Id="],
        "/job/completed": ["Completed"],
    }


def _wait_for(browser: Browser, page: str, text: str) -> None:
    # The editor in which logs are shown has other spaces.
    browser.until(
        lambda: text in browser.text().replace("\xa0", " "), f"{page} does not have {text!r}"
    )


def test_pages_have_no_errors(browser: Browser, dashboard: tuple[RunningJob, str]) -> None:
    job, url = dashboard
    wait_until(
        lambda: job.get("/checkpoints")["counts"]["completed"] > 1, "checkpoints complete", 60
    )
    logging.getLogger("program").warning("seen by the program")
    browser.open(f"{url}/#/overview")
    failures = []
    for page, texts in _pages(job).items():
        if "-manager/" in page:
            browser.open(f"{url}/#{page}")  # the editor of logs is empty on the way between pages
        else:
            browser.run("location.hash = arguments[0]", page)
        for text in texts:
            _wait_for(browser, page, text)
        failures += [(page, each) for each in browser.problems() + browser.run(_NOTICES)]
    assert failures == []
