"""DataStreamSink: the end of a stream, to be named and given a uid and a parallelism.

Read next: ``datastream/named_operator.py``.
"""

from __future__ import annotations

from millstream.datastream.named_operator import NamedOperator

__all__ = ["DataStreamSink"]


class DataStreamSink(NamedOperator):
    """The handle on a sink that ``sink_to`` and ``print`` return."""

    def __repr__(self) -> str:
        """Name, parallelism and place."""
        physical = self._physical("repr")
        own = f", parallelism {physical.parallelism}" if physical.parallelism else ""
        return f"<DataStreamSink '{physical.name}'{own}, {physical.location}>"
