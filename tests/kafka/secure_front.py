"""TLS and SASL in front of the broker of the tests, which has no TLS and lets everybody in.

It listens on the port of the broker at another loopback address, and what the broker says of its
own address (in metadata and of coordinators) is changed on the way: both addresses have nine
characters, so nothing else of an answer changes.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
import subprocess
import threading
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

Reader: TypeAlias = asyncio.StreamReader
Writer: TypeAlias = asyncio.StreamWriter

PLAIN, SECURE = b"127.0.0.1", b"127.0.0.2"
_SASL_HANDSHAKE, _API_VERSIONS, _SASL_AUTHENTICATE = 17, 18, 36


def certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for ``SECURE`` that is its own authority, and its key."""
    made, key = directory / "certificate.pem", directory / "key.pem"
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=secure front"),
            *("-addext", f"subjectAltName=IP:{SECURE.decode()}"),
            *("-keyout", str(key), "-out", str(made)),
        ],
        check=True,
        capture_output=True,
    )
    return made, key


class SecureFront:
    """Ends TLS, asks for a certificate or for SASL PLAIN, passes all else on.

    Args:
        servers: the broker.
        directory: where the certificate is made.
        credentials: user and password; None: clients need a certificate.
    """

    def __init__(
        self, servers: str, directory: Path, credentials: tuple[str, str] | None = None
    ) -> None:
        self.port = int(servers.rpartition(":")[2])
        self.servers = f"{SECURE.decode()}:{self.port}"
        self.certificate, self.key = certificate(directory)
        #: Connections that got in.
        self.admitted = 0
        self._token = None if credentials is None else "\0{}\0{}".format(*credentials).encode()
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(self.certificate, self.key)
        if credentials is None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(self.certificate)

    async def _serve(self, near: Reader, answers: Writer) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            far, requests = await asyncio.open_connection(PLAIN.decode(), self.port)
            back = asyncio.create_task(_answer(far, answers))
            try:
                await self._pass_on(near, requests)
            finally:
                back.cancel()
                requests.close()
        answers.close()

    async def _pass_on(self, near: Reader, requests: Writer) -> None:
        inside = self._token is None
        self.admitted += inside
        while True:
            request = await _message(near)
            (kind,) = struct.unpack(">h", request[:2])
            if not inside and kind == _SASL_AUTHENTICATE:
                if self._token is None or self._token not in request:
                    return
                inside = True
                self.admitted += 1
            elif not inside and kind not in {_API_VERSIONS, _SASL_HANDSHAKE}:
                return
            requests.write(struct.pack(">i", len(request)) + request)
            await requests.drain()

    @contextlib.contextmanager
    def running(self) -> Iterator[SecureFront]:
        """Serve, in a thread."""
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, daemon=True)
        thread.start()

        async def start() -> asyncio.Server:
            return await asyncio.start_server(
                self._serve, SECURE.decode(), self.port, ssl=self._context
            )

        async def stop() -> None:
            server.close()
            tasks = asyncio.all_tasks() - {asyncio.current_task()}
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        server = asyncio.run_coroutine_threadsafe(start(), loop).result(60)
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(stop(), loop).result(60)
            loop.call_soon_threadsafe(loop.stop)
            thread.join(60)
            loop.close()


async def _message(reader: Reader) -> bytes:
    """One message, without its length."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


async def _answer(far: Reader, answers: Writer) -> None:
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        while True:
            content = (await _message(far)).replace(PLAIN, SECURE)
            answers.write(struct.pack(">i", len(content)) + content)
            await answers.drain()
    answers.close()
