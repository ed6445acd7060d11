"""Probes: a driver lives as long as it answers, and is ready while its tasks run."""

from __future__ import annotations

import contextlib
import select
import socket
import threading
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest
from tests.execution.test_taken_over import Failing, program
from tests.rest.conftest import DEADLINE, Client, RunningJob

from millstream.checkpoint import lease as leases
from millstream.checkpoint.lease import Term
from millstream.checkpoint.local_storage import LocalStorage
from millstream.errors import JobError
from millstream.execution.driver import start_job
from millstream.rest import running, server
from millstream.rest.server import Budget

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOKEN = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("execution", ["pipelined", "epochs"])
def test_a_job_that_runs_is_ready_without_a_token(
    execution: str, start: Callable[..., RunningJob], eventually: Callable[..., None]
) -> None:
    job = start({"millstream.rest.token": TOKEN, "millstream.execution": execution})
    assert job.client.request("/jobs").status == 401
    assert job.client.request("/healthz").body == "ok\n"
    eventually(lambda: job.client.request("/readyz").status == 200, "the tasks run")
    assert job.client.request("/readyz").body == "ok\n"
    for path in ("/healthz", "/readyz"):
        assert job.client.request(path, "POST").status == 405


def test_a_job_is_not_ready_before_it_has_recovered(
    start: Callable[..., RunningJob],
    eventually: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    recovering, may_go_on = threading.Event(), threading.Event()
    recover = running_recover()

    def wait(self: object) -> object:
        recovering.set()
        assert may_go_on.wait(DEADLINE)
        return recover(self)

    monkeypatch.setattr("millstream.checkpoint.coordinator.Coordinator.recover", wait)
    job = start()
    assert recovering.wait(DEADLINE)
    answer = job.client.request("/readyz")
    assert (answer.status, answer.body) == (503, "not ready\n")
    assert job.client.request("/healthz").status == 200
    may_go_on.set()
    eventually(lambda: job.client.request("/readyz").status == 200, "the tasks run")


def running_recover() -> Callable[[object], object]:
    from millstream.checkpoint.coordinator import Coordinator

    return Coordinator.recover  # type: ignore[return-value]


def test_a_standby_lives_and_is_not_ready(tmp_path: Path, eventually: Callable[..., None]) -> None:
    storage = LocalStorage(tmp_path / "checkpoints", fsync=False)
    term = Term(0, "another:1", "", 3600.0)
    storage.write(leases._name(0), leases._encoded(term))
    graph = program(tmp_path, {"millstream.standby": "true", "rest.port": "0"})
    ended: list[BaseException] = []

    def wait() -> None:
        try:
            start_job(graph, Failing())
        except JobError as error:
            ended.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    eventually(lambda: len(running.servers()) == 1, "the standby has a server")
    client = Client(running.servers()[0].server.url)
    assert client.request("/healthz").status == 200
    assert client.request("/readyz").status == 503
    assert client.get("/jobs/overview") == {"jobs": []}
    end = Term(1, "another:1", "", 3600.0, ended="CANCELED")
    storage.write(leases._name(1), leases._encoded(end))
    waiting.join(DEADLINE)
    assert len(ended) == 1
    assert running.servers() == []


def test_probes_do_not_wait_for_other_requests(
    start: Callable[..., RunningJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    job = start()
    monkeypatch.setattr(Budget, "wait", lambda _: DEADLINE)
    assert job.client.request("/healthz").status == 200


def test_probes_are_answered_beside_too_many_requests(
    start: Callable[..., RunningJob], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise whoever opens connections has an orchestrator kill the driver."""
    monkeypatch.setattr(server, "_MOST_REQUESTS", 3)
    job = start()
    monkeypatch.setattr(Budget, "wait", lambda _: 1.0)
    address = urlsplit(job.client.url)
    with contextlib.ExitStack() as closing:
        opened = []
        for _ in range(4):
            connection = socket.create_connection((address.hostname, address.port))
            opened.append(closing.enter_context(connection))
            connection.sendall(b"GET /jobs/overview HTTP/1.1\r\nHost: localhost\r\n\r\n")
        refused, _, _ = select.select(opened, [], [], DEADLINE)
        assert [each.recv(12) for each in refused] == [b"HTTP/1.1 503"]
        assert job.client.request("/healthz").status == 200
