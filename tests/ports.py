"""Ports for the servers of tests."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

__all__ = ["free_port"]

#: Below those that systems give to outgoing connections.  One of these could take the port before
#: the server does or while it restarts; whoever tries to connect to it might even meet himself.
PORTS: Final = range(10_000, 32_000)


def free_port() -> int:
    """A port of the loopback interface on which nobody listens."""
    chance = random.SystemRandom()
    while True:
        port = chance.choice(PORTS)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
