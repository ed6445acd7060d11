"""The table that forgets: ``'connector' = 'blackhole'``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.connectors.basic.blackhole import BlackholeSink
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import Option, Options

if TYPE_CHECKING:
    from millstream.contracts.sink import Sink


#: Connector -> its options.
OPTIONS: Final[dict[str, tuple[Option, ...]]] = {"blackhole": ()}


class _Blackhole(TableSink):
    needs_key = False

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        # -U is of no use to it, as in Flink.
        return given - {"UB"}

    def create(self) -> Sink:
        return BlackholeSink()


def source(context: FactoryContext) -> TableSource:
    """Refused."""
    message = f"{context.owner} cannot be read; it is a sink."
    raise ValidationError(message)


def sink(context: FactoryContext) -> TableSink:
    """Takes all and keeps none."""
    Options(context.owner, context.options, OPTIONS["blackhole"])
    return _Blackhole()
