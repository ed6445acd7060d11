"""Serializers of windows, for ``get_window_serializer`` of a program's own assigners.

What it is: PyFlink's classes of ``pyflink.datastream.window``.
What it is not: needed for these windows, which are written as they are without one.
"""

from __future__ import annotations

import struct
from typing import IO, Final

from millstream.contracts.serialization import TypeSerializer
from millstream.functions.window import CountWindow, GlobalWindow, TimeWindow

__all__ = ["CountWindowSerializer", "GlobalWindowSerializer", "TimeWindowSerializer"]

_TIMES: Final = struct.Struct(">qq")
_NUMBER: Final = struct.Struct(">q")


class TimeWindowSerializer(TypeSerializer[TimeWindow]):
    """Start and end, 16 bytes."""

    def serialize(self, element: TimeWindow, stream: IO[bytes]) -> None:
        stream.write(_TIMES.pack(element.start, element.end))

    def deserialize(self, stream: IO[bytes]) -> TimeWindow:
        return TimeWindow(*_TIMES.unpack(stream.read(_TIMES.size)))


class CountWindowSerializer(TypeSerializer[CountWindow]):
    """The number, 8 bytes."""

    def serialize(self, element: CountWindow, stream: IO[bytes]) -> None:
        stream.write(_NUMBER.pack(element.id))

    def deserialize(self, stream: IO[bytes]) -> CountWindow:
        return CountWindow(*_NUMBER.unpack(stream.read(_NUMBER.size)))


class GlobalWindowSerializer(TypeSerializer[GlobalWindow]):
    """A byte: there is one such window."""

    def serialize(self, element: GlobalWindow, stream: IO[bytes]) -> None:
        del element
        stream.write(b"\0")

    def deserialize(self, stream: IO[bytes]) -> GlobalWindow:
        stream.read(1)
        return GlobalWindow()
