"""A collector of OpenTelemetry: takes OTLP over HTTP, and keeps what came."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

if TYPE_CHECKING:
    from collections.abc import Iterator


class Collector:
    """What came."""

    def __init__(self) -> None:
        self.address = ""
        #: Name -> its last data, by the operator and subtask, or () of others.
        self.metrics: dict[str, Any] = {}
        self.spans: list[tuple[str, Any]] = []
        self.services: set[str] = set()
        #: It answers so many requests with an error first.
        self.refuses = 0

    def take(self, path: str, content: bytes) -> int:
        if self.refuses > 0:
            self.refuses -= 1
            return 400  # one that clients do not repeat by themselves
        if path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(content)
            for resource in metrics.resource_metrics:
                self._note_service(resource.resource)
                for scope in resource.scope_metrics:
                    self.metrics.update({each.name: each for each in scope.metrics})
            return 200
        spans = ExportTraceServiceRequest.FromString(content)
        for traced in spans.resource_spans:
            self._note_service(traced.resource)
            for found in traced.scope_spans:
                self.spans += [(found.scope.name, each) for each in found.spans]
        return 200

    def _note_service(self, resource: Any) -> None:
        self.services.add(attributes(resource)["service.name"])


def attributes(of: Any) -> dict[str, Any]:
    """The attributes of something, by key."""
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in of.attributes}


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run one at a free port."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            content = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(collector.take(self.path, content))
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Nothing is logged."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    collector.address = f"http://127.0.0.1:{server.server_port}"
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
