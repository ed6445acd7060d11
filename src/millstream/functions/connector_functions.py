"""Older names of what ``add_source`` and ``add_sink`` take."""

from __future__ import annotations

from millstream.contracts.sink import Sink
from millstream.contracts.source import Source
from millstream.errors import ProgramError

__all__ = ["SinkFunction", "SourceFunction"]


class SourceFunction:
    """Hold a source for ``add_source``.

    Args:
        source_func: the source; in PyFlink an object or the name of a class of Java.

    Raises:
        ProgramError: it is no source of Python.
    """

    def __init__(self, source_func: Source) -> None:
        given: object = source_func
        if not isinstance(given, Source):
            message = (
                f"SourceFunction() needs a Source, not {given!r:.100}: classes of Java cannot be "
                "loaded. Write a Source of your own (docs/connectors.md)."
            )
            raise ProgramError(message)
        self.source = source_func


class SinkFunction:
    """Hold a sink for ``add_sink``.

    Args:
        sink_func: the sink; in PyFlink an object or the name of a class of Java.

    Raises:
        ProgramError: it is no sink of Python.
    """

    def __init__(self, sink_func: Sink) -> None:
        given: object = sink_func
        if not isinstance(given, Sink):
            message = (
                f"SinkFunction() needs a Sink, not {given!r:.100}: classes of Java cannot be "
                "loaded. Write a Sink of your own (docs/sinks.md)."
            )
            raise ProgramError(message)
        self.sink = sink_func
