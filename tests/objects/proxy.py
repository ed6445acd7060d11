"""A proxy in front of the S3 server: it delays, refuses, cuts connections, and lists what was.

What it does to a request is drawn from a seed and the number of the request, so a run is replayed
as far as the order of requests is the same.
"""

from __future__ import annotations

import http.client
import random
import socket
import threading
import time
from collections import Counter
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

_SLOW_DOWN: Final = (
    b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
)


@dataclass(frozen=True)
class Faults:
    """How likely each fault is, of 1."""

    delay: float = 0.0
    #: Refused with 503 before the server sees it.
    slow_down: float = 0.0
    #: The connection is cut before the server sees the request.
    cut_before: float = 0.0
    #: The server has done what was asked, and the answer is lost.
    cut_after: float = 0.0
    #: A listing shows what the last one for the same prefix has shown.
    stale: float = 0.0
    #: Conditions of writes are left out, as by a store that does not know them.
    ignores_conditions: bool = False


class Proxy:
    """Forwards requests to a server on this machine."""

    def __init__(self, port: int, faults: Faults, seed: int = 1) -> None:
        self.faults = faults
        #: Fault -> how often it happened.
        self.made: Counter[str] = Counter()
        self._target = port
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._lists: dict[str, tuple[int, list[tuple[str, str]], bytes]] = {}
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _any(self) -> None:
                proxy._serve(self)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _any  # noqa: N815 - as the base wants

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _chosen(self, *, listing: bool) -> str:
        faults = self.faults
        with self._lock:
            drawn = self._random.random()
            for name in ("delay", "slow_down", "cut_before", "cut_after", "stale"):
                likely = getattr(faults, name)
                if drawn < likely and (name != "stale" or listing):
                    self.made[name] += 1
                    return name
                drawn -= likely
        return ""

    def _serve(self, handler: BaseHTTPRequestHandler) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length", 0)))
        listing = handler.command == "GET" and "list-type=2" in handler.path
        fault = self._chosen(listing=listing)
        if fault == "cut_before":
            _cut(handler)
            return
        if fault == "slow_down":
            _answer(handler, 503, [("Content-Type", "application/xml")], _SLOW_DOWN)
            return
        if fault == "delay":
            time.sleep(0.05)
        status, headers, content = self._forward(handler, body)
        if fault == "cut_after":
            _cut(handler)
            return
        if listing:
            fresh = (status, headers, content)
            if fault != "stale":
                self._lists[handler.path] = fresh
            status, headers, content = self._lists.setdefault(handler.path, fresh)
        _answer(handler, status, headers, content)

    def _forward(
        self, handler: BaseHTTPRequestHandler, body: bytes
    ) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self._target, timeout=30)
        headers = dict(handler.headers.items())
        if self.faults.ignores_conditions:
            headers = {key: each for key, each in headers.items() if key.lower() != "if-none-match"}
        connection.request(handler.command, handler.path, body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        return answer.status, answer.getheaders(), content


def _answer(
    handler: BaseHTTPRequestHandler, status: int, headers: list[tuple[str, str]], content: bytes
) -> None:
    handler.send_response(status)
    length = [value for key, value in headers if key.lower() == "content-length"]
    for key, value in headers:
        if key.lower() not in ("content-length", "connection", "transfer-encoding", "date"):
            handler.send_header(key, value)
    of_head = handler.command == "HEAD" and length
    handler.send_header("Content-Length", length[0] if of_head else str(len(content)))
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(content)


def _cut(handler: BaseHTTPRequestHandler) -> None:
    handler.close_connection = True
    handler.connection.shutdown(socket.SHUT_RDWR)
