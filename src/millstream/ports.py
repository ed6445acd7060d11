"""Ports that this process listens at: ranges in options, the first free one, forked children."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import TYPE_CHECKING, Final

from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST: Final = 65_535
_BACKLOG: Final = 512
#: Of this process.
_listening: Final[set[socket.socket]] = set()


def parse_ports(text: str) -> list[int]:
    """Return the ports of ``9249``, ``9250-9260`` or ``9249,9260-9265``; 0 is any free one.

    Raises:
        ConfigurationError: it is none of these.
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = (each.strip() for each in part.partition("-"))
        if not first.isdecimal() or (dash and not last.isdecimal()):
            break
        found += range(int(first), int(last or first) + 1)
    else:
        if found and max(found) <= _MOST:
            return found
    message = f"a port must be a number, or a range such as 9250-9260, not {text!r}"
    raise ConfigurationError(message)


def listen(host: str, ports: Sequence[int]) -> socket.socket:
    """Listen at the first free one of some ports.

    Args:
        host: name or address of this machine.
        ports: tried in this order.

    Raises:
        OSError: none is free, or the machine has no such address.
    """
    for port in ports:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind(address)
            made.listen(_BACKLOG)
        except OSError:
            made.close()
            if port == ports[-1]:
                raise
            continue
        close_in_children(made)
        return made
    message = "there is no port to listen at"
    raise OSError(message)


def close_in_children(listener: socket.socket) -> None:
    """Close a socket in processes that are forked: they would keep its port after this one."""
    _listening.add(listener)


def close(listener: socket.socket) -> None:
    """Close a socket of this process."""
    _listening.discard(listener)
    listener.close()


def _close_inherited() -> None:
    for each in list(_listening):
        with contextlib.suppress(OSError):
            each.close()
    _listening.clear()


os.register_at_fork(after_in_child=_close_inherited)
