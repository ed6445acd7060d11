"""Endpoints of Flink's SQL Gateway REST protocol, versions 1 to 4."""

from __future__ import annotations

import asyncio
import json
import time
import traceback
from typing import TYPE_CHECKING, Any, Final

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from millstream import __version__
from millstream.errors import MillstreamError, SqlParserError
from millstream.rest.app import failure, json_body
from millstream.rest.security import Refused
from millstream.sql_gateway.operations import OperationStatus
from millstream.sql_gateway.serialization import ROW_FORMATS

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.requests import Request

    from millstream.sql_gateway.operations import Operation
    from millstream.sql_gateway.sessions import GatewaySession, SessionManager

VERSIONS: Final = ("V1", "V2", "V3", "V4")
#: What clients choose from. Flink's SQL client fails if there is a version that it does not know,
#: and what came after V2 (materialized tables, scripts) is refused here.
_ANNOUNCED: Final = ("V1", "V2")
#: Seconds that a request for rows waits for some; then the page is empty.
_LONGEST_WAIT: Final = 0.2
_POLL: Final = 0.01
#: Bytes of a request: a statement may have the rows of a table in VALUES.
LONGEST_BODY: Final = 16 << 20


class GatewayApi:
    """The endpoints over the sessions of a gateway."""

    def __init__(self, sessions: SessionManager) -> None:
        self._sessions = sessions

    def routes(self) -> list[Route]:
        """Return the routes of all versions; a path without a version is of the first one."""
        found = []
        for number in range(len(VERSIONS) + 1):
            prefix = f"/v{number}" if number else ""
            for first, method, path, endpoint in self._table():
                if max(number, 1) >= first:
                    handler = _handler(endpoint)
                    found.append(Route(prefix + path, handler, methods=[method]))
        return found

    def _table(self) -> list[tuple[int, str, str, Callable[[Request], Awaitable[Response]]]]:
        """Return first version, method, path and handler of each endpoint."""
        session = "/sessions/{session_handle}"
        operation = session + "/operations/{operation_handle}"
        scheduler = "/workflow/embedded-scheduler"
        return [
            (1, "GET", "/info", self._info),
            (1, "GET", "/api_versions", self._api_versions),
            (1, "POST", "/sessions", self._open_session),
            (1, "GET", session, self._session_config),
            (1, "DELETE", session, self._close_session),
            (1, "POST", session + "/heartbeat", self._heartbeat),
            (1, "POST", session + "/statements", self._execute),
            (1, "GET", operation + "/status", self._status),
            (1, "POST", operation + "/cancel", self._cancel),
            (1, "DELETE", operation + "/close", self._close_operation),
            (1, "GET", operation + "/result/{token}", self._fetch),
            (2, "POST", session + "/configure-session", self._configure),
            (2, "GET", session + "/complete-statement", self._complete),
            (
                3,
                "POST",
                session + "/materialized-tables/{identifier}/refresh",
                self._materialized_table,
            ),
            *(
                (3, "POST", f"{scheduler}/{action}", self._materialized_table)
                for action in ("create", "suspend", "resume", "modify", "delete")
            ),
            (4, "POST", session + "/scripts", self._script),
        ]

    # -- the gateway -----------------------------------------------------------------------------

    async def _info(self, request: Request) -> Response:
        del request
        return JSONResponse({"productName": "Millstream", "version": __version__})

    async def _api_versions(self, request: Request) -> Response:
        del request
        return JSONResponse({"versions": list(_ANNOUNCED)})

    # -- sessions --------------------------------------------------------------------------------

    async def _open_session(self, request: Request) -> Response:
        body = await _body(request)
        name, properties = body.get("sessionName"), _strings(body, "properties")
        session = await run_in_threadpool(self._sessions.open, name, properties)
        return JSONResponse({"sessionHandle": session.handle})

    async def _session_config(self, request: Request) -> Response:
        return JSONResponse({"properties": self._session(request).properties()})

    async def _close_session(self, request: Request) -> Response:
        handle = request.path_params["session_handle"]
        await run_in_threadpool(self._sessions.close_session, handle)
        return JSONResponse({"status": "CLOSED"})

    async def _heartbeat(self, request: Request) -> Response:
        self._session(request)
        return JSONResponse({})

    async def _configure(self, request: Request) -> Response:
        body = await _body(request)
        _refuse_timeout(body)
        await run_in_threadpool(self._session(request).configure, _statement(body))
        return JSONResponse({})

    async def _complete(self, request: Request) -> Response:
        body = await _body(request)
        statement = _statement(body)
        position = body.get("position", len(statement))
        if not isinstance(position, int):
            raise Refused(400, "'position' has to be a whole number.")
        session = self._session(request)
        found = await run_in_threadpool(session.complete, statement, position)
        return JSONResponse({"candidates": found})

    # -- statements ------------------------------------------------------------------------------

    async def _execute(self, request: Request) -> Response:
        body = await _body(request)
        _refuse_timeout(body)
        overrides = _strings(body, "executionConfig")
        session, statement = self._session(request), _statement(body)
        operation = await run_in_threadpool(session.submit, statement, overrides)
        return JSONResponse({"operationHandle": operation.handle})

    async def _status(self, request: Request) -> Response:
        return JSONResponse({"status": self._operation(request).status.value})

    async def _cancel(self, request: Request) -> Response:
        operation = self._operation(request)
        await run_in_threadpool(operation.end, OperationStatus.CANCELED)
        return JSONResponse({"status": operation.status.value})

    async def _close_operation(self, request: Request) -> Response:
        session, handle = self._session(request), request.path_params["operation_handle"]
        await run_in_threadpool(session.close_operation, handle)
        return JSONResponse({"status": OperationStatus.CLOSED.value})

    async def _fetch(self, request: Request) -> Response:
        operation, row_format = self._operation(request), _row_format(request)
        token = _token(request)
        end = time.monotonic() + _LONGEST_WAIT
        result = operation.result()
        while (result is None or not result.is_ready(token)) and time.monotonic() < end:
            await asyncio.sleep(_POLL)
            result = operation.result()
        if result is None:
            uri = _result_uri(request, token, row_format)
            return JSONResponse({"resultType": "NOT_READY", "nextResultUri": uri})
        page = await run_in_threadpool(result.fetch, token, row_format)
        kind = "EOS" if page.next_token is None else "PAYLOAD"
        node = {"resultType": kind, **result.description.as_json(row_format)}
        if page.next_token is not None:
            node["nextResultUri"] = _result_uri(request, page.next_token, row_format)
        # The rows are JSON already.
        results = json.dumps(node.pop("results"), ensure_ascii=False)
        data = f'{results[:-1]},"data":[{",".join(page.changes)}]}}'
        text = f'{json.dumps(node, ensure_ascii=False)[:-1]},"results":{data}}}'
        return Response(text, media_type="application/json")

    # -- refused ---------------------------------------------------------------------------------

    async def _materialized_table(self, request: Request) -> Response:
        del request
        message = (
            "Materialized tables are not in this release. An INSERT job keeps a table up to date: "
            "execute INSERT INTO ... SELECT as a statement."
        )
        raise Refused(501, message)

    async def _script(self, request: Request) -> Response:
        self._session(request)
        message = (
            "Scripts are not deployed in application mode: the gateway has no cluster to start. "
            "Run the script by 'millstream sql -f SCRIPT', or execute its statements in this "
            "session."
        )
        raise Refused(501, message)

    def _session(self, request: Request) -> GatewaySession:
        return self._sessions.get(request.path_params["session_handle"])

    def _operation(self, request: Request) -> Operation:
        return self._session(request).operation(request.path_params["operation_handle"])


def gateway_app(sessions: SessionManager) -> Starlette:
    """Return the ASGI application of a gateway."""
    handlers: dict[Any, Any] = {HTTPException: _http_error}
    return Starlette(routes=GatewayApi(sessions).routes(), exception_handlers=handlers)


def _handler(
    endpoint: Callable[[Request], Awaitable[Response]],
) -> Callable[[Request], Awaitable[Response]]:
    """Return an endpoint whose errors are responses as Flink's."""

    async def handle(request: Request) -> Response:
        try:
            return await endpoint(request)
        except Refused as refusal:
            return failure(refusal.status, str(refusal))
        except LookupError as error:
            return failure(404, str(error))
        except ValueError as error:
            return failure(400, str(error))
        except MillstreamError as error:
            return failure(500, "Internal server error.", _server_side(error))

    return handle


def _server_side(error: BaseException) -> str:
    """Return an error in the form in which Flink's clients look for the cause.

    By the words of Flink's parser its SQL client knows that a statement continues after the
    semicolon, as ``EXECUTE STATEMENT SET BEGIN`` does.
    """
    lines = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SqlParserError) and "found the end of the text" in lines:
        lines += '\nEncountered "<EOF>"'
    return f"<Exception on server side:\n{lines}\nEnd of exception on server side>"


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for these alone
    detail = error.detail
    if error.status_code == 404:  # noqa: PLR2004 - not found
        detail = f"Not found: {request.url.path}"
    return failure(error.status_code, detail)


async def _body(request: Request) -> dict[str, Any]:
    # As Flink's gateway, whose documentation has curl send statements without a type.
    return await json_body(request, of_any_type=True)


def _statement(body: dict[str, Any]) -> str:
    statement = body.get("statement")
    if not isinstance(statement, str):
        raise Refused(400, "'statement' has to be text.")
    return statement


def _strings(body: dict[str, Any], key: str) -> dict[str, str]:
    found = body.get(key) or {}
    if not isinstance(found, dict) or not all(isinstance(each, str) for each in found.values()):
        raise Refused(400, f"'{key}' has to be an object of texts.")
    return found


def _refuse_timeout(body: dict[str, Any]) -> None:
    if (body.get("executionTimeout") or 0) > 0:
        message = "'executionTimeout' is not in this release, nor in Flink's; cancel the operation."
        raise Refused(400, message)


def _version(request: Request) -> int:
    first = request.url.path.split("/")[1]
    return int(first[1:]) if first in {f"v{n + 1}" for n in range(len(VERSIONS))} else 1


def _row_format(request: Request) -> str:
    given = request.query_params.get("rowFormat", "JSON").upper()
    if given not in ROW_FORMATS:
        raise Refused(400, f"rowFormat is one of {', '.join(ROW_FORMATS)}, not '{given}'.")
    return given


def _token(request: Request) -> int:
    try:
        return int(request.path_params["token"])
    except ValueError as error:
        raise Refused(400, "The token of a page is a whole number.") from error


def _result_uri(request: Request, token: int, row_format: str) -> str:
    version, parameters = _version(request), request.path_params
    path = (
        f"/v{version}/sessions/{parameters['session_handle']}"
        f"/operations/{parameters['operation_handle']}/result/{token}"
    )
    return path if version == 1 else f"{path}?rowFormat={row_format}"
