"""A server that gives the example answers, can die, and can ask for a token."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any, Self
from urllib.parse import parse_qs, urlsplit

from tests.ui.example_answers import JOB, answer

STATIC = files("millstream.rest") / "static"
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}


class ExampleServer:
    """Serves the UI with the example answers; a context manager."""

    def __init__(self, port: int = 0, token: str = "") -> None:
        self.token = token
        #: Requests other than GET, with their JSON.
        self.sent: list[tuple[str, str, Any]] = []
        server = self

        class Handler(_Handler):
            example = server

        self._server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    @property
    def port(self) -> int:
        return self._server.server_address[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    example: ExampleServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def _send(self, status: int, content: bytes, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", POLICY)
        self.end_headers()
        self.wfile.write(content)

    def _json(self, found: Any, status: int = 200) -> None:
        if isinstance(found, str):
            self._send(status, found.encode(), "text/plain")
        else:
            self._send(status, json.dumps(found).encode(), "application/json")

    def _is_allowed(self) -> bool:
        token = self.example.token
        if token and self.headers.get("Authorization") != f"Bearer {token}":
            self._json({"errors": ["A token is needed."]}, 401)
            return False
        return True

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        name = "index.html" if parts.path == "/" else parts.path.removeprefix("/static/")
        if parts.path == "/" or parts.path.startswith("/static/"):
            self._send(200, (STATIC / name).read_bytes(), _TYPES[name.rpartition(".")[2]])
            return
        if not self._is_allowed():
            return
        if "/savepoints/" in parts.path:
            place = {"location": "/savepoints/savepoint-5c1bf3-9a"}
            self._json({"status": {"id": "COMPLETED"}, "operation": place})
            return
        found = answer(parts.path, {k: v[0] for k, v in parse_qs(parts.query).items()})
        if found is None:
            self._json({"errors": [f"There is nothing at {parts.path}."]}, 404)
        else:
            self._json(found)

    def _change(self) -> None:
        if not self._is_allowed():
            return
        content = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.example.sent.append((self.command, self.path, json.loads(content or b"null")))
        self._json({"request-id": "r1"} if self.command == "POST" else {}, 202)

    do_POST = do_PATCH = _change  # noqa: N815 - the base class's


JOB_PAGE = f"#/jobs/{JOB}"
