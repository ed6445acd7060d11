"""DataStreamSink: the end of a stream, to be named and given a uid and a parallelism.

What it is: a handle.  What it is not: the sink (``connectors/sink.py``).

Read next: ``datastream/named_operator.py``.
"""

from __future__ import annotations

from millstream.datastream.named_operator import NamedOperator

__all__ = ["DataStreamSink"]


class DataStreamSink(NamedOperator):
    """The handle on a sink that ``sink_to`` and ``print`` return."""
