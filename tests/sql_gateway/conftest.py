"""A gateway in this process, and a client that validates every response."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import jsonschema
import pytest
import yaml

from millstream.configuration.configuration import Configuration
from millstream.sql_gateway.gateway import SqlGateway

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SPECIFICATION: Final = yaml.safe_load(
    Path(__file__).with_name("flink_sql_gateway.yml").read_text(encoding="utf-8")
)
DEADLINE: Final = 60.0


class Refused(Exception):  # noqa: N818 - a response
    """The gateway has answered with an error."""

    def __init__(self, status: int, errors: list[str]) -> None:
        super().__init__(f"{status}: {errors}")
        self.status, self.errors = status, errors


def _validate(method: str, path: str, body: Any) -> None:
    """Compare a response with the schema of its path in Flink's specification."""
    parts = path.partition("?")[0].strip("/").split("/")[1:]
    for template, operations in _SPECIFICATION["paths"].items():
        names = template.strip("/").split("/")
        same = len(names) == len(parts) and all(
            name.startswith("{") or name == part for name, part in zip(names, parts, strict=True)
        )
        if same and method.lower() in operations:
            content = operations[method.lower()]["responses"]["200"].get("content")
            if content is not None:
                schema = content["application/json"]["schema"]
                jsonschema.validate(body, {**schema, "components": _SPECIFICATION["components"]})
            return
    message = f"Flink has no {method} {path}"
    raise AssertionError(message)


class Client:
    """Speaks the protocol, with nothing but Python's library."""

    def __init__(self, url: str, version: int = 2, headers: dict[str, str] | None = None) -> None:
        self.url, self.version, self.headers = url, version, headers or {}
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def call(self, method: str, path: str, body: Any = None) -> Any:
        if not path.startswith("/v"):
            path = f"/v{self.version}{path}"
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json", **self.headers}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=30) as response:
                found = json.loads(response.read())
        except urllib.error.HTTPError as error:
            raise Refused(error.code, json.loads(error.read())["errors"]) from None
        _validate(method, path, found)
        return found

    def open(self, **properties: str) -> str:
        body = {"sessionName": "test", "properties": properties}
        return str(self.call("POST", "/sessions", body)["sessionHandle"])

    def submit(self, session: str, statement: str, **more: Any) -> str:
        body = {"statement": statement, **more}
        return str(self.call("POST", f"/sessions/{session}/statements", body)["operationHandle"])

    def status(self, session: str, operation: str) -> str:
        return str(self.call("GET", f"/sessions/{session}/operations/{operation}/status")["status"])

    def page(self, session: str, operation: str, token: int, row_format: str = "JSON") -> Any:
        path = f"/sessions/{session}/operations/{operation}/result/{token}?rowFormat={row_format}"
        return self.call("GET", path)

    def first(self, session: str, operation: str, row_format: str = "JSON") -> Any:
        """The first page, once the statement is done."""
        return until(
            lambda: self.page(session, operation, 0, row_format),
            lambda page: page["resultType"] != "NOT_READY",
        )

    def rows(
        self, session: str, statement: str, row_format: str = "JSON", **more: Any
    ) -> list[Any]:
        """Kinds and fields of all rows of a statement."""
        operation = self.submit(session, statement, **more)
        page = self.first(session, operation, row_format)
        found: list[Any] = []
        while page["resultType"] != "EOS":
            found += [[each["kind"], *each["fields"]] for each in page["results"]["data"]]
            uri = page["nextResultUri"]
            page = self.call("GET", uri)
        return found

    def jobs(self, session: str) -> dict[str, str]:
        return {row[1]: row[3] for row in self.rows(session, "SHOW JOBS")}


def until(look: Callable[[], Any], is_right: Callable[[Any], bool]) -> Any:
    """Return what ``look`` finds once it is right."""
    end = time.monotonic() + DEADLINE
    while not is_right(found := look()):
        assert time.monotonic() < end, f"not in {DEADLINE} s; the last: {found!r:.500}"
        time.sleep(0.02)
    return found


@pytest.fixture
def start_gateway() -> Iterator[Callable[..., SqlGateway]]:
    started: list[SqlGateway] = []

    def start(**options: str) -> SqlGateway:
        given = {key.replace("__", "."): value for key, value in options.items()}
        defaults = {
            "sql-gateway.endpoint.rest.port": "0",
            "millstream.progress": "off",
            "parallelism.default": "1",
        }
        gateway = SqlGateway(Configuration({**defaults, **given}))
        started.append(gateway)
        gateway.start()
        return gateway

    yield start
    for each in started:
        each.close()


@pytest.fixture
def client(start_gateway: Callable[..., SqlGateway]) -> Client:
    return Client(start_gateway().url)
