"""The ASGI application: routes, their JSON, and the files of the web UI.

A response is computed in a thread, since it may read a disk or an object store, and given out again
for a second: a hundred open dashboards cost as much as one.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from millstream.configuration.redaction import redacted_text
from millstream.errors import MillstreamError
from millstream.rest.security import Refused, changes_by_get

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from starlette.requests import Request
    from starlette.routing import BaseRoute

    from millstream.rest.operations import Operations
    from millstream.rest.server import Budget
    from millstream.rest.settings import RestSettings
    from millstream.rest.view import Jobs, JobView

_LOG: Final = logging.getLogger("millstream")
STATIC: Final = Path(__file__).parent / "static"
#: Seconds for which a response is given out again, and how many are kept.
_FRESH: Final = 1.0
_MOST_KEPT: Final = 256
_VERSION: Final = "/v1"


@dataclass(frozen=True, slots=True)
class Text:
    """A response that is no JSON: a log."""

    content: str


@dataclass(frozen=True, slots=True)
class Call:
    """A request, as handlers get it."""

    jobs: Jobs
    settings: RestSettings
    operations: Operations
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def job(self) -> JobView:
        """Return the job that the path names."""
        return self.jobs.get(self.path["jobid"])

    def with_path(self, path: Mapping[str, str]) -> Call:
        """Return the same request with other parts of the path."""
        return replace(self, path=path)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route of the API.

    Contract:
      1. ``respond`` returns what ``json.dumps`` takes, or ``Text``, and raises ``Refused``; it may
         be called from several threads at a time.  (endpoint)
      2. That of a GET changes nothing, and depends on path and query only: it is given out to
         others for a second.  ``security.changes_by_get`` has the exceptions.  (endpoint)
    """

    method: str
    #: As in Flink's specification: ``/jobs/{jobid}``.
    path: str
    respond: Callable[[Call], Any]
    #: For the reference.
    summary: str
    status: int = 200
    #: Whether Flink has it.
    is_flinks: bool = True


@dataclass(slots=True)
class _Kept:
    """Responses of the last second, and those that are being computed."""

    responses: dict[str, tuple[float, asyncio.Future[Response]]] = field(default_factory=dict)

    def find(self, key: str) -> asyncio.Future[Response] | None:
        found = self.responses.get(key)
        return None if found is None or found[0] < time.monotonic() else found[1]

    def keep(self, key: str, response: asyncio.Future[Response]) -> None:
        now = time.monotonic()
        # Old ones go at once: a log may have megabytes.
        self.responses = {k: v for k, v in self.responses.items() if v[0] >= now}
        if len(self.responses) < _MOST_KEPT:
            self.responses[key] = (now + _FRESH, response)


def make_app(
    endpoints: Iterable[Endpoint],
    jobs: Jobs,
    settings: RestSettings,
    operations: Operations,
    *,
    more: Sequence[BaseRoute] = (),
    budget: Budget | None = None,
    static: Path = STATIC,
) -> Starlette:
    """Make the application of a server; it is served only within ``secured``.

    Args:
        endpoints: the routes of the API.
        jobs: that it shows.
        settings: of the server.
        operations: those that clients have started.
        more: further routes, which come after those of the API and before the files.
        budget: is charged with the work of threads; None: nothing is.
        static: the directory of the files at ``/`` and ``/static``.
    """
    kept = _Kept()
    routes: list[BaseRoute] = []
    for each in sorted(endpoints, key=lambda each: _order(each.path)):
        respond = _route(each, jobs, settings, operations, kept, budget)
        routes += [
            Route(prefix + each.path, respond, methods=[each.method]) for prefix in ("", _VERSION)
        ]
    routes += more
    routes.append(Mount("/static", StaticFiles(directory=STATIC, check_dir=False)))
    routes.append(Mount("/", StaticFiles(directory=static, html=True, check_dir=False)))
    handlers: dict[Any, Any] = {HTTPException: _not_found}
    return Starlette(routes=routes, exception_handlers=handlers)


def _order(path: str) -> tuple[tuple[bool, str], ...]:
    """Fixed names come before parameters, as ``/jobs/overview`` before ``/jobs/{jobid}``."""
    return tuple((part.startswith("{"), part) for part in path.split("/"))


async def _not_found(_: Request, error: HTTPException) -> Response:
    return failure(error.status_code, error.detail)


def failure(status: int, *messages: str) -> Response:
    """Return the response of a failure, as Flink has it."""
    return JSONResponse({"errors": list(messages)}, status)


def _route(
    endpoint: Endpoint,
    jobs: Jobs,
    settings: RestSettings,
    operations: Operations,
    kept: _Kept,
    budget: Budget | None,
) -> Callable[[Request], Any]:
    """Make the handler of an endpoint."""

    async def respond(request: Request) -> Response:
        try:
            body = {} if endpoint.method == "GET" else await json_body(request)
        except Refused as refusal:
            return failure(refusal.status, str(refusal))
        path = {name: str(value) for name, value in request.path_params.items()}
        call = Call(jobs, settings, operations, path, dict(request.query_params), body)
        if endpoint.method != "GET" or changes_by_get(endpoint.path):
            return await asyncio.to_thread(_computed, endpoint, call, budget)
        key = f"{request.url.path}?{request.url.query}"
        computing = kept.find(key)
        if computing is None:
            computing = asyncio.ensure_future(asyncio.to_thread(_computed, endpoint, call, budget))
            kept.keep(key, computing)
        # A client that goes away does not take the response from the others.
        return await asyncio.shield(computing)

    return respond


async def json_body(request: Request, *, of_any_type: bool = False) -> dict[str, Any]:
    """Return the JSON object of a request; an empty one if it has no body.

    Args:
        request: the request.
        of_any_type: the body need not be declared as JSON, which keeps out forms of other pages.

    Raises:
        Refused: it is none.
    """
    content = await request.body()
    if not content.strip():
        return {}
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not of_any_type:
        raise Refused(415, f"the body must be application/json, not {kind[:100]!r}")
    try:
        found = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise Refused(400, f"the body is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise Refused(400, "the body must be a JSON object")
    return found


def _computed(endpoint: Endpoint, call: Call, budget: Budget | None) -> Response:
    started = time.thread_time()
    try:
        return _response(endpoint, call)
    finally:
        if budget is not None:
            budget.spend(time.thread_time() - started)


def _response(endpoint: Endpoint, call: Call) -> Response:
    try:
        found = endpoint.respond(call)
    except Refused as refusal:
        return failure(refusal.status, str(refusal))
    except MillstreamError as error:
        return failure(400, redacted_text(str(error)))
    except Exception as error:  # noqa: BLE001 - the driver must not end with it
        _LOG.exception("%s %s of the REST API failed", endpoint.method, endpoint.path)
        return failure(500, f"{type(error).__name__}; the log of the driver has more")
    if isinstance(found, Text):
        return Response(found.content, endpoint.status, media_type="text/plain; charset=utf-8")
    content = json.dumps(finite(found), separators=(",", ":"), allow_nan=False)
    return Response(content, endpoint.status, media_type="application/json")


def finite(value: Any) -> Any:
    """Return the value without numbers that JSON has not."""
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, dict):
        return {str(name): finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [finite(each) for each in value]
    return value
