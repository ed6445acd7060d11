"""Jobs on the local engine with a REST API, and a client."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments, wait_until

from millstream.common import Types, WatermarkStrategy
from millstream.datastream.connectors import NumberSequenceSource
from millstream.rest import running

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from millstream.execution.job_client import JobClient

#: Seconds.  Only a test that hangs waits so long.
DEADLINE = 60.0


@dataclass
class Answer:
    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


class Client:
    """Sends requests to one server."""

    def __init__(self, url: str, headers: Mapping[str, str] | None = None) -> None:
        self.url = url
        self.headers = dict(headers or {})

    def request(
        self,
        path: str,
        method: str = "GET",
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        content = None if body is None else json.dumps(body).encode()
        sent = {**self.headers, **(headers or {})}
        if content is not None:
            sent.setdefault("Content-Type", "application/json")
        request = urllib.request.Request(self.url + path, content, sent, method=method)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE) as response:
                return _answer(response.status, response)
        except urllib.error.HTTPError as error:
            return _answer(error.code, error)

    def get(self, path: str) -> Any:
        """Return the JSON of a response that must be 200."""
        answer = self.request(path)
        assert answer.status == 200, (path, answer)
        return answer.body


def _answer(status: int, response: Any) -> Answer:
    content = response.read()
    kind = response.headers.get("Content-Type", "")
    body = json.loads(content) if kind.startswith("application/json") else content.decode()
    return Answer(status, body, dict(response.headers))


@dataclass
class RunningJob:
    job: JobClient
    client: Client
    id: str

    def get(self, path: str = "") -> Any:
        return self.client.get(f"/jobs/{self.id}{path}")

    def vertices(self) -> list[str]:
        return [each["id"] for each in self.get()["vertices"]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., RunningJob]]:
    """Start a job that counts numbers by key, with a REST API; canceled at the end."""
    started: list[JobClient] = []

    def run(settings: Mapping[str, str] | None = None, name: str = "counting") -> RunningJob:
        options = {
            "execution.target": "local",
            "millstream.execution": "pipelined",
            "execution.checkpointing.interval": "100ms",
            "rest.port": "0",
            **(settings or {}),
        }
        env = environments(tmp_path / name, {})(2, options)
        source = NumberSequenceSource(0, 10**12)
        env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").map(
            lambda number: (number % 10, 1), Types.TUPLE([Types.LONG(), Types.LONG()])
        ).name("pairs").key_by(lambda pair: pair[0], Types.LONG()).reduce(
            lambda one, other: (one[0], one[1] + other[1])
        ).name("counts").filter(lambda pair: pair[1] < 0).print()
        job = env.execute_async(name)
        started.append(job)
        job_id = job.job.get_job_id()
        server = next(
            server
            for server in running.servers()
            if any(view.job_id == job_id for view in server.jobs.all())
        )
        return RunningJob(job, Client(server.server.url), job_id)

    yield run
    for each in started:
        each.job.cancel()
    assert running.servers() == []


@pytest.fixture
def eventually() -> Callable[[Callable[[], bool], str], None]:
    """Wait for a condition, with a deadline that only a failure reaches."""
    return lambda condition, what: wait_until(condition, what, seconds=DEADLINE)
