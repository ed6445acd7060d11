"""A schema registry for tests, by the published REST protocol of Confluent's Schema Registry.

What it is: subjects with versions, ids, references, a compatibility level, basic and bearer
credentials, and faults.  What it is not: Confluent's server, against which nothing was tried; of
compatibility it checks BACKWARD of Avro, by reading records of the latest schema with the new one.
"""

from __future__ import annotations

import base64
import io
import json
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import parse_qs, unquote, urlsplit

import fastavro
from fastavro.utils import generate_many

if TYPE_CHECKING:
    import ssl
    from types import TracebackType


class _RefusedError(Exception):
    def __init__(self, status: int, code: int, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


@dataclass
class RegistryServer:
    """A registry at a free port of this machine; a context manager.

    Args:
        credentials: the value of the header Authorization that it asks for; empty: none.
        tls: the server's certificate; None: HTTP.
        host: the address of this machine that it listens at.
    """

    credentials: str = ""
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    #: id -> what a client posted, and subject -> ids in the order of versions.
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    subjects: dict[str, list[int]] = field(default_factory=dict)
    compatibility: dict[str, str] = field(default_factory=dict)
    #: Requests by "GET /path", without queries.
    requests: Counter[str] = field(default_factory=Counter)
    #: Status of the next answers, whatever is asked.
    faults: list[int] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.host}:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def _handle(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size) or b"{}")
                status, answer = registry.answer(
                    self.command, self.path, body, self.headers.get("Authorization", "")
                )
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = do_DELETE = _handle  # noqa: N815 - the names of http.server

            def log_message(self, *arguments: object) -> None:
                del arguments

        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer((self.host, 0), Handler)
        if self.tls is not None:
            self._server.socket = self.tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.02,), daemon=True
        )
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def add(self, subject: str, schema: Any, kind: str = "AVRO") -> int:
        """Register a schema as an operator would, and return its id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return self._register(subject, {"schema": text, "schemaType": kind})

    def answer(
        self, method: str, target: str, body: dict[str, Any], authorization: str
    ) -> tuple[int, Any]:
        """Return status and JSON for a request."""
        parts = urlsplit(target)
        with self._lock:
            self.requests[f"{method} {parts.path}"] += 1
            if self.faults:
                status = self.faults.pop(0)
                return status, {"error_code": status, "message": "a fault of the test"}
            if self.credentials and authorization != self.credentials:
                return 401, {"error_code": 401, "message": "Unauthorized"}
            try:
                path = [unquote(each) for each in parts.path.strip("/").split("/")]
                return 200, self._found(method, path, parse_qs(parts.query), body)
            except _RefusedError as error:
                return error.status, {"error_code": error.code, "message": str(error)}

    def _found(  # noqa: C901, PLR0911 - a table of paths
        self, method: str, path: list[str], query: dict[str, list[str]], body: dict[str, Any]
    ) -> Any:
        match method, path:
            case "GET", ["schemas", "ids", number]:
                return self._schema(int(number))
            case "GET", ["subjects"]:
                return list(self.subjects)
            case "GET", ["subjects", subject, "versions"]:
                return list(range(1, len(self._versions(subject)) + 1))
            case "GET", ["subjects", subject, "versions", wanted]:
                versions = self._versions(subject)
                version = len(versions) if wanted == "latest" else int(wanted)
                if not 1 <= version <= len(versions):
                    raise _RefusedError(404, 40402, f"Version {wanted} not found.")
                return self._described(subject, versions[version - 1])
            case "POST", ["subjects", subject, "versions"]:
                identifier = self._register(subject, body)
                return self._described(subject, identifier)
            case "POST", ["subjects", subject]:
                for identifier in self._versions(subject):
                    if self._same(self.schemas[identifier], body):
                        return self._described(subject, identifier)
                raise _RefusedError(404, 40403, "Schema not found")
            case "PUT", ["config", subject]:
                self.compatibility[subject] = body["compatibility"]
                return body
        raise _RefusedError(404, 404, f"HTTP 404 Not Found: {query}")

    def _versions(self, subject: str) -> list[int]:
        if subject not in self.subjects:
            raise _RefusedError(404, 40401, f"Subject '{subject}' not found.")
        return self.subjects[subject]

    def _schema(self, identifier: int) -> dict[str, Any]:
        if identifier not in self.schemas:
            raise _RefusedError(404, 40403, f"Schema {identifier} not found")
        found = dict(self.schemas[identifier])
        if found.get("schemaType", "AVRO") == "AVRO":
            found.pop("schemaType", None)  # as the published protocol leaves it out
        return found

    def _described(self, subject: str, identifier: int) -> dict[str, Any]:
        version = self.subjects[subject].index(identifier) + 1
        return {
            "subject": subject,
            "version": version,
            "id": identifier,
            **self._schema(identifier),
        }

    def _register(self, subject: str, body: dict[str, Any]) -> int:
        kind = body.get("schemaType", "AVRO")
        versions = self.subjects.setdefault(subject, [])
        for identifier in versions:
            if self._same(self.schemas[identifier], body):
                return identifier
        level = self.compatibility.get(subject, "BACKWARD")
        if kind == "AVRO" and versions and level != "NONE":
            _require_backward(self.schemas[versions[-1]]["schema"], body["schema"], subject)
        known = (number for number, each in self.schemas.items() if self._same(each, body))
        identifier = next(known, len(self.schemas) + 1)
        kept = {"schema": body["schema"], "schemaType": kind}
        if body.get("references"):
            kept["references"] = body["references"]
        self.schemas[identifier] = kept
        versions.append(identifier)
        return identifier

    @staticmethod
    def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
        def of(schema: dict[str, Any]) -> Any:
            text, kind = schema["schema"], schema.get("schemaType") or "AVRO"
            return kind, text if kind == "PROTOBUF" else json.loads(text)

        return bool(of(one) == of(other))


def _require_backward(old: str, new: str, subject: str) -> None:
    """Raise unless the new schema reads what the old one wrote."""
    try:
        writer, reader = (fastavro.parse_schema(json.loads(each)) for each in (old, new))
        for record in generate_many(writer, 5):
            stream = io.BytesIO()
            fastavro.schemaless_writer(stream, writer, record)
            stream.seek(0)
            fastavro.schemaless_reader(stream, writer, reader)
    except (fastavro.read.SchemaResolutionError, fastavro.schema.SchemaParseException) as error:
        message = (
            f"Schema being registered is incompatible with an earlier schema for subject "
            f'"{subject}", details: [{error}]'
        )
        raise _RefusedError(409, 409, message) from error


def basic(user: str, password: str) -> str:
    """Return the header of basic credentials."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
