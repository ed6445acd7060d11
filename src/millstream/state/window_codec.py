"""Bytes of windows: the namespaces under which their state and timers are kept.

What it is: one canonical, prefix-free encoding per window, so that it can stand in the middle of a
name in a store; Millstream's kinds of windows take 1 to 19 bytes.

What it is not: a serializer of elements.

Layout: a letter and, for ``t`` (time) start and end in 9 bytes each, biased by 2^71 so that bytes
sort as times do; ``g`` (global) nothing; ``c`` (count) the number in 8 bytes; ``s`` (the assigner's
own serializer) and ``x`` (as a key is encoded) length in 4 bytes and content.

Read next: ``state/namespaced_state.py``.
"""

from __future__ import annotations

import io
import struct
from typing import Any, Final

from millstream.errors import ProgramError
from millstream.functions.window import (
    CountWindow,
    GlobalWindow,
    TimeWindow,
    Window,
)
from millstream.state.key_codec import decode_key, encode_key

__all__ = ["WindowCodec"]

_BIAS: Final = 2**71
_TIME_SIZE: Final = 9
_NUMBER: Final = struct.Struct(">cQ")
_LENGTH: Final = struct.Struct(">cI")
_MOST_KNOWN: Final = 20_000


class WindowCodec:
    """Encodes and decodes the windows of one assigner."""

    __slots__ = ("_known", "_serializer")

    def __init__(self, serializer: Any = None) -> None:
        """Take what ``get_window_serializer`` returned; None or an object with ``serialize``."""
        self._serializer = serializer if hasattr(serializer, "serialize") else None
        self._known: dict[bytes, Window] = {}

    def encode(self, window: Any) -> bytes:
        """Return the bytes of ``window``.

        Raises:
            ProgramError: it is not a window.
        """
        kind = type(window)
        if kind is TimeWindow:
            start: int = window.start
            end: int = window.end
            return (
                b"t"
                + (start + _BIAS).to_bytes(_TIME_SIZE, "big")
                + (end + _BIAS).to_bytes(_TIME_SIZE, "big")
            )
        if kind is GlobalWindow:
            return b"g"
        if kind is CountWindow:
            return _NUMBER.pack(b"c", window.id)
        if not isinstance(window, Window):
            message = f"a window assigner returned {window!r}, which is not a Window"
            raise ProgramError(message)
        if self._serializer is not None:
            stream = io.BytesIO()
            self._serializer.serialize(window, stream)
            content = stream.getvalue()
            return _LENGTH.pack(b"s", len(content)) + content
        content = encode_key(window)
        return _LENGTH.pack(b"x", len(content)) + content

    @staticmethod
    def length_of(encoded: bytes) -> int | None:
        """How many bytes the window has that ``encoded`` begins with; None if it is no window."""
        letter = encoded[:1]
        if letter in b"sx" and len(encoded) >= _LENGTH.size:
            return _LENGTH.size + int(_LENGTH.unpack_from(encoded)[1])
        return {b"t": 1 + 2 * _TIME_SIZE, b"g": 1, b"c": _NUMBER.size}.get(letter)

    def decode(self, encoded: bytes) -> Any:
        """Return the window with these bytes."""
        found = self._known.get(encoded)
        if found is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            found = self._known[encoded] = self._decode(encoded)
        return found

    def _decode(self, encoded: bytes) -> Any:
        letter = encoded[:1]
        if letter == b"t":
            middle = 1 + _TIME_SIZE
            start = int.from_bytes(encoded[1:middle], "big") - _BIAS
            return TimeWindow(start, int.from_bytes(encoded[middle:], "big") - _BIAS)
        if letter == b"g":
            return GlobalWindow()
        if letter == b"c":
            return CountWindow(_NUMBER.unpack(encoded)[1])
        content = encoded[_LENGTH.size :]
        if letter == b"s":
            if self._serializer is None:
                message = "the state holds windows of a serializer that the assigner no longer has"
                raise ProgramError(message)
            return self._serializer.deserialize(io.BytesIO(content))
        return decode_key(content)
