"""The sink that forgets: for measurements and for streams nobody reads.

What it is: Flink's ``DiscardingSink``.
What it is not: free; records are still made and delivered to it.

Read next: ``contracts/sink.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.contracts.sink import Sink, SinkWriter, WriterContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable

__all__ = ["BlackholeSink", "DiscardingSink"]


class BlackholeSink(Sink):
    """Drops every record."""

    def create_writer(self, context: WriterContext) -> SinkWriter:
        del context
        return _BlackholeWriter()


class _BlackholeWriter(SinkWriter):
    def write(self, batch: Batch) -> None:
        del batch

    def prepare_commit(self) -> Sequence[Committable]:
        return []


#: Flink's name.
DiscardingSink = BlackholeSink
