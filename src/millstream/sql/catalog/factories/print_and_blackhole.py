"""The ``print`` and ``blackhole`` connectors, which print or discard all changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.connectors.basic.print_sink import BlackholeSink, PrintSink, RowTexts
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import Option, Options, boolean, integer, text
from millstream.sql.stream_types import stream_type
from millstream.types.logical_types import RowField, RowType

if TYPE_CHECKING:
    from millstream.contracts.sink import Sink
    from millstream.types.types import TypeInformation


_OPTIONS = (
    text("print-identifier"),
    boolean("standard-error", default=False),
    integer("sink.parallelism"),
)
#: Connector -> its options.
OPTIONS: Final[dict[str, tuple[Option, ...]]] = {"print": _OPTIONS, "blackhole": ()}


class _Print(TableSink):
    def __init__(self, options: Options, row: RowType) -> None:
        self._options = options
        self._row = row
        self.parallelism = options["sink.parallelism"]

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        return given

    def stream_type(self, declared: TypeInformation) -> TypeInformation:
        del declared
        return stream_type(self._row)

    def create(self) -> Sink:
        options, texts = self._options, RowTexts(self._row)
        to_stderr = options["standard-error"]
        return PrintSink(options["print-identifier"], to_stderr=to_stderr, texts=texts)


class _Blackhole(TableSink):
    needs_key = False

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        # -U is of no use to it, as in Flink.
        return given - {"UB"}

    def create(self) -> Sink:
        return BlackholeSink()


def source(context: FactoryContext) -> TableSource:
    """Refuse to read the table."""
    message = f"{context.owner} cannot be read; it is a sink."
    raise ValidationError(message)


def sink(context: FactoryContext) -> TableSink:
    """Return the sink that prints each change as ``+I[1, a]``, or discards it."""
    connector = context.table.options["connector"]
    options = Options(context.owner, context.options, OPTIONS[connector])
    if connector == "blackhole":
        return _Blackhole()
    fields = (RowField(each.name, each.type) for each in context.physical)
    return _Print(options, RowType(tuple(fields), nullable=False))
