"""A proxy that delays Produce: everything else overtakes it on other connections.

librdkafka talks to the coordinator of its transactions on a connection of its own, so what ends a
transaction arrives before the records that are on their way.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING, Final

from tests.coordination.proxy import HangingProxy, moved_broker

if TYPE_CHECKING:
    from pathlib import Path
    from typing import BinaryIO

#: The number of Produce in Kafka's protocol.
_PRODUCE: Final = b"\x00\x00"


class SlowProxy(HangingProxy):
    """Forwards to a Kafka broker; what was sent arrives, whatever becomes of its sender.

    Args:
        server: the broker's port.
        delay: seconds that a Produce request takes.
        sign: a file that is there while one is on its way, for other processes.
    """

    def __init__(self, server: int, delay: float, sign: Path | None = None) -> None:
        super().__init__(server, moved_broker)
        self._delay = delay
        self._sign = sign
        self._underway = 0
        self._idle = threading.Condition()
        #: How many were delayed.
        self.delayed = 0

    def drain(self, seconds: float) -> None:
        """Wait until all that was sent has arrived.

        Raises:
            TimeoutError: it takes longer.
        """
        with self._idle:
            if not self._idle.wait_for(lambda: self._underway == 0, seconds):
                message = f"{self._underway} requests are still on their way after {seconds} s"
                raise TimeoutError(message)

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError), client.makefile("rb") as stream:
            while request := _next_request(stream):
                if request[4:6] == _PRODUCE:
                    self._forward_late(request, server)
                else:
                    server.sendall(request)
            server.shutdown(socket.SHUT_WR)

    def _forward_late(self, request: bytes, server: socket.socket) -> None:
        self._count(1)
        try:
            time.sleep(self._delay)
            server.sendall(request)
        finally:
            self._count(-1)

    def _count(self, step: int) -> None:
        with self._idle:
            self._underway += step
            self.delayed += max(0, step)
            if self._sign is not None and self._underway:
                self._sign.touch()
            elif self._sign is not None:
                self._sign.unlink()
            self._idle.notify_all()


def _next_request(stream: BinaryIO) -> bytes:
    """A whole request with its length; empty at the end."""
    length = stream.read(4)
    body = stream.read(int.from_bytes(length, "big")) if len(length) == len(b"1234") else b""
    return length + body if body else b""
