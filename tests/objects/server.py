"""An S3 server of the tests' own: moto in a separate process, on a free port of loopback.

It is a process because clients in this one must be able to fork and to wait, and because tests that
kill jobs must not disturb it.  It accepts every key, has conditional writes and hides multipart
uploads until they are completed.  What it lacks is in ``docs/how-to/object-stores.md``.
"""

from __future__ import annotations

import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping

    from obstore.store import S3Store

KEY: Final = "AKIDEXAMPLE"
SECRET: Final = "wJalr/secret-of-tests"
REGION: Final = "us-east-1"
_PROGRAM: Final = """
import logging, sys
from werkzeug.serving import make_server
from moto.server import DomainDispatcherApplication, create_backend_app
logging.getLogger("werkzeug").setLevel(logging.ERROR)
application = DomainDispatcherApplication(create_backend_app)
log = open(sys.argv[2], "a", buffering=1)


def logged(environ, start_response):
    query = environ["QUERY_STRING"]
    key = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2].partition("/")[0]
    path = f"{environ['PATH_INFO']}{query and '?' + query}"
    log.write(f"{environ['REQUEST_METHOD']} {path}\\t{key}\\n")
    try:
        return application(environ, start_response)
    except KeyError:  # moto's answer to the completion of an upload that was aborted
        if "uploadId=" not in query:
            raise
        start_response("404 NOT FOUND", [("Content-Type", "application/xml")])
        return [b"<Error><Code>NoSuchUpload</Code><Message>no such upload</Message></Error>"]


server = make_server("127.0.0.1", int(sys.argv[1]), logged, threaded=True)
import threading
threading.Thread(target=lambda: (sys.stdin.read(), server.shutdown()), daemon=True).start()
server.serve_forever()
"""
_PATIENCE: Final = 60.0


class S3Server:
    """A server with buckets made on demand."""

    def __init__(self) -> None:
        self.port = free_port()
        self._buckets = 0
        self._log = Path(tempfile.mkstemp(prefix="s3-requests-")[1])
        # It ends with its standard input, whatever becomes of this process.
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(self.port), str(self._log)],
            stdin=subprocess.PIPE,
        )
        deadline = time.monotonic() + _PATIENCE
        while not self._answers():
            assert self._process.poll() is None, "the S3 server has ended"
            assert time.monotonic() < deadline, "the S3 server does not answer"
            time.sleep(0.05)

    @property
    def endpoint(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(_PATIENCE)
        self._log.unlink()

    def environment(self) -> dict[str, str]:
        """The variables with which clients find it and may use it."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": REGION,
        }

    def options(self) -> Mapping[str, str]:
        """The same as options of a job."""
        return {
            "s3.endpoint": self.endpoint,
            "s3.access-key": KEY,
            "s3.secret-key": SECRET,
            "s3.region": REGION,
        }

    def requests(self, bucket: str) -> list[str]:
        """Method and path of all requests for a bucket so far, without its name."""
        return [line for line, _ in self.authorizations(bucket)]

    def authorizations(self, bucket: str) -> list[tuple[str, str]]:
        """The same, each with the access key that it was signed with."""
        lines = (line.split("\t") for line in self._log.read_text().splitlines())
        return [
            (line.replace(f" /{bucket}", " ", 1), key)
            for line, key in lines
            if f" /{bucket}/" in line or f" /{bucket}?" in line
        ]

    def new_bucket(self) -> str:
        """The name of a new bucket."""
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        self.admin().create_bucket(Bucket=name)
        return name

    def drop(self, bucket: str) -> None:
        """Delete a bucket and all that is in it: the server keeps everything in memory."""
        admin = self.admin()
        for upload in self.uploads(bucket):
            admin.abort_multipart_upload(Bucket=bucket, **upload)
        for key in self.keys(bucket):
            admin.delete_object(Bucket=bucket, Key=key)
        admin.delete_bucket(Bucket=bucket)

    def uploads(self, bucket: str) -> list[dict[str, str]]:
        """Key and id of all multipart uploads that are neither completed nor aborted."""
        found = self.admin().list_multipart_uploads(Bucket=bucket).get("Uploads", [])
        return [{"Key": each["Key"], "UploadId": each["UploadId"]} for each in found]

    def admin(self) -> Any:
        """A client of the library that the server itself uses."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            aws_access_key_id=KEY,
            aws_secret_access_key=SECRET,
            region_name=REGION,
        )

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """The keys of all objects that are visible."""
        return [
            entry["path"] for page in self.client(bucket).list(prefix or None) for entry in page
        ]

    def content(self, bucket: str, key: str) -> bytes:
        """An object."""
        return bytes(self.client(bucket).get(key).bytes())

    def client(self, bucket: str) -> S3Store:
        """A client that is independent of Millstream."""
        from obstore.store import S3Store

        return S3Store(
            bucket,
            endpoint=self.endpoint,
            access_key_id=KEY,
            secret_access_key=SECRET,
            region=REGION,
            client_options={"allow_http": True},
        )

    def _answers(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self.port), _PATIENCE):
                return True
        except OSError:
            return False
