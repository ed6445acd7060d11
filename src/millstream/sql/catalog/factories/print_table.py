"""The table that prints: ``'connector' = 'print'``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.connectors.basic.print_sink import PrintSink
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import Options, boolean, integer, text

if TYPE_CHECKING:
    from millstream.contracts.sink import Sink

__all__ = ["sink", "source"]

_OPTIONS = (
    text("print-identifier"),
    boolean("standard-error", default=False),
    integer("sink.parallelism"),
)


class _Print(TableSink):
    def __init__(self, options: Options) -> None:
        self._options = options
        self.parallelism = options["sink.parallelism"]

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        return given

    def create(self) -> Sink:
        options = self._options
        return PrintSink(options["print-identifier"], to_stderr=options["standard-error"])


def source(context: FactoryContext) -> TableSource:
    """Refused."""
    message = f"{context.owner} cannot be read; it is a sink."
    raise ValidationError(message)


def sink(context: FactoryContext) -> TableSink:
    """Prints each change as ``+I[1, a]``."""
    return _Print(Options(context.owner, context.options, _OPTIONS))
