"""A TCP relay between the job and one server: cuts connections, holds or slows what goes through.

What it is: bytes are passed on unread, but for Kafka: there requests and answers are taken apart
at their lengths, so that those of one kind can be slowed, and answers lead to the relay instead of
to the broker.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Relay"]

_HOST: Final = b"127.0.0.1"
#: The number of Kafka's request that appends records.
_PRODUCE: Final = 0


class Relay:
    """Listens on a port of its own and connects each client to the server."""

    def __init__(self, server_port: int, *, kafka: bool = False) -> None:
        self._server_port = server_port
        self._kafka = kafka
        #: Seconds by which each Produce request is late.
        self.slow_produce = 0.0
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    def cut(self) -> int:
        """End every connection in both directions; how many there were."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        for pair in pairs:
            for end in pair:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        return len(pairs)

    def close(self) -> None:
        """Take no more connections and end those that are there."""
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._join, args=(client,), daemon=True).start()

    def _join(self, client: socket.socket) -> None:
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port), 10)
        except OSError:  # the server is down
            client.close()
            return
        server.settimeout(None)
        pair = client, server
        with self._lock:
            self._pairs.add(pair)
        for end in pair:
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        there, back = (self._requests, self._answers) if self._kafka else (_raw, _raw)
        other = threading.Thread(target=self._pump, args=(back, server, client), daemon=True)
        other.start()
        self._pump(there, client, server)
        other.join()
        with self._lock:
            self._pairs.discard(pair)
        client.close()
        server.close()

    def _pump(
        self,
        way: Callable[[socket.socket, socket.socket], None],
        source: socket.socket,
        target: socket.socket,
    ) -> None:
        with contextlib.suppress(OSError):
            way(source, target)
        # Whoever ends one direction ends both: a client that is gone wants no answer.
        for end in (source, target):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _requests(self, client: socket.socket, server: socket.socket) -> None:
        while message := _message(client):
            kind = struct.unpack_from(">h", message, 4)[0]
            if kind == _PRODUCE and self.slow_produce:
                time.sleep(self.slow_produce)  # the fault itself, not a wait for something
            server.sendall(message)

    def _answers(self, server: socket.socket, client: socket.socket) -> None:
        broker = _HOST + struct.pack(">i", self._server_port)
        relay = _HOST + struct.pack(">i", self.port)
        while message := _message(server):
            client.sendall(message.replace(broker, relay))


def _raw(source: socket.socket, target: socket.socket) -> None:
    while data := source.recv(1 << 16):
        target.sendall(data)


def _message(source: socket.socket) -> bytes:
    """A length and as many bytes; empty at the end."""
    head = _exactly(source, 4)
    return head and head + _exactly(source, struct.unpack(">i", head)[0])


def _exactly(source: socket.socket, size: int) -> bytes:
    parts = []
    while size:
        part = source.recv(min(size, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        size -= len(part)
    return b"".join(parts)
