"""A TCP proxy that can stop forwarding: to its clients the server hangs, and to the server they do.

Connections are accepted and stay open, and nothing is lost: what was sent meanwhile arrives when
the proxy goes on, also that of clients that are gone by then.
"""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable


class HangingProxy:
    """Forwards between a port of its own and one of a server, both on the loopback interface.

    Args:
        server: the server's port.
        answer: changes what the server answers, given both ports.
    """

    def __init__(
        self, server: int, answer: Callable[[bytes, int, int], bytes] = lambda data, *_: data
    ) -> None:
        self._server = server
        self._answer = answer
        self._going = threading.Event()
        self._going.set()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.hangs = 0
        #: Says of a request whether it is held back, once: the client's connection is cut, and the
        #: server gets the request when ``late`` is set; ``arrived`` is set when it has answered.
        self.hold: Callable[[bytes], bool] = lambda _: False
        self.held = threading.Event()
        self.late = threading.Event()
        self.arrived = threading.Event()
        self._delayed: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._going.set()
        self.late.set()
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    @property
    def hanging(self) -> bool:
        """Whether nothing is forwarded."""
        return not self._going.is_set()

    def hang(self) -> None:
        """From now on nothing is forwarded."""
        self.hangs += 1
        self._going.clear()

    def resume(self) -> None:
        """Forward what was held back, and go on."""
        self._going.set()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self._going.wait()
        with contextlib.suppress(OSError):  # one of the two is gone
            server = socket.create_connection(("127.0.0.1", self._server))
            self._sockets.append(server)
            for one, other in ((client, server), (server, client)):
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                pump = self._ask if one is client else self._reply
                threading.Thread(target=pump, args=(one, other), daemon=True).start()

    def _ask(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                self._going.wait()
                if not self.held.is_set() and self.hold(data):
                    self._delayed.append(server)
                    self.held.set()
                    client.shutdown(socket.SHUT_RDWR)
                    self.late.wait()
                server.sendall(data)
            self._going.wait()
            server.shutdown(socket.SHUT_WR)

    def _reply(self, server: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := server.recv(1 << 16):
                if self.late.is_set() and server in self._delayed:
                    self.arrived.set()
                self._going.wait()
                client.sendall(self._answer(data, self._server, self.port))
            self._going.wait()
            client.shutdown(socket.SHUT_WR)


def moved_broker(data: bytes, server: int, port: int) -> bytes:
    """Let the addresses of brokers in Kafka's answers lead to the proxy.

    A port follows its host as a big-endian number of four bytes.
    """
    host = b"127.0.0.1"
    return data.replace(host + server.to_bytes(4, "big"), host + port.to_bytes(4, "big"))
