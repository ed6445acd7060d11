"""Messages of control connections, as bytes: a length, then a pickled message.

What it is: the same for both ends, of which one reads with a selector and one in a thread.

What it is not: a check of who is at the other end, which comes before the first message
(``runtime/pipelined/handshake.py``); nothing is unpickled before it.

Read next: ``runtime/pipelined/messages.py``.
"""

from __future__ import annotations

import pickle
import struct
from typing import Final

__all__ = ["MessageReader", "packed"]

_LENGTH: Final = struct.Struct("!Q")


def packed(message: object) -> bytes:
    """A message as it is sent."""
    content = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(content)) + content


class MessageReader:
    """Makes messages of the bytes of one connection, however they are cut."""

    def __init__(self) -> None:
        """Begin with none."""
        self._bytes = bytearray()

    def feed(self, content: bytes) -> list[object]:
        """The messages that are whole with ``content``, in order."""
        held = self._bytes
        held += content
        messages: list[object] = []
        at = 0
        while len(held) - at >= _LENGTH.size:
            begin = at + _LENGTH.size
            end = begin + _LENGTH.unpack_from(held, at)[0]
            if len(held) < end:
                break
            messages.append(pickle.loads(held[begin:end]))
            at = end
        del held[:at]
        return messages
