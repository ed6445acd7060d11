"""The sink that forgets (Flink's ``DiscardingSink``); records are made for it all the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.contracts.sink import Sink, SinkKind, SinkWriter, WriterContext

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.batch import Batch
    from millstream.contracts.sink import Committable


class BlackholeSink(Sink):
    """Drops every record."""

    reads_timestamps = False
    #: It commits nothing; nobody sees a record, so nobody sees one twice.
    kind = SinkKind.ANY

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
