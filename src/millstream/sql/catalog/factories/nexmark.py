"""The ``nexmark`` connector: the generated tables of the Nexmark benchmark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.connectors.basic.data_generator import DataGeneratorSource
from millstream.connectors.basic.nexmark import (
    ALL_EVENTS,
    NEXMARK_COLUMNS,
    NexmarkEvents,
    NexmarkStream,
    events_of,
)
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import IDLE_TIMEOUT, Options, choice, integer
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Collection

    from millstream.contracts.source import Source


_EVENTS = "events"
_COLUMNS = {**NEXMARK_COLUMNS, _EVENTS: ALL_EVENTS}
_RATE = 100_000
#: 2020-01-01, milliseconds since 1970.
_BASE_TIME = 1_577_836_800_000


_OPTIONS: Final = (
    choice("table", tuple(_COLUMNS), None),
    integer("events.num"),
    integer("next-event.rate", _RATE),
    integer("base-time", _BASE_TIME),
    integer("seed", 0),
    integer("splits", 4),
    IDLE_TIMEOUT,
)
#: Connector -> its options.
OPTIONS: Final = {"nexmark": _OPTIONS}


class _Events(TableSource):
    def __init__(self, options: Options, table: str, columns: list[str]) -> None:
        self._options = options
        self._table = table
        self._columns = columns

    def with_columns(self, names: Collection[str]) -> TableSource | None:
        if self._table == _EVENTS:
            return None  # whole events, as the benchmark has them: what they cost is counted
        read = [name for name in self._columns if name in names]
        return _Events(self._options, self._table, read or ["dateTime"])

    def create(self) -> Source:
        options, table = self._options, self._table
        given = options["seed"], options["next-event.rate"], options["base-time"]
        count = options["events.num"]
        function: NexmarkEvents | NexmarkStream = NexmarkStream(self._columns, *given)
        if table != _EVENTS:
            count = None if count is None else events_of(table, count)
            function = NexmarkEvents(table, self._columns, *given)
        kinds = [ArrowTypeInfo(_COLUMNS[table][name]) for name in self._columns]
        kind = RowTypeInfo(kinds, self._columns)
        return DataGeneratorSource(function, count, None, kind, splits=options["splits"])


def source(context: FactoryContext) -> TableSource:
    """Events of one kind, or all."""
    options = Options(context.owner, context.options, _OPTIONS)
    table = options["table"]
    if table is None:
        message = f"{context.owner} needs 'table'; it is one of {listed(_COLUMNS)}."
        raise ValidationError(message)
    columns = [each.name for each in context.physical]
    for name in columns:
        if name not in _COLUMNS[table]:
            there = _COLUMNS[table]
            message = (
                f"{context.owner} has no column '{name}' of {table}.{did_you_mean(name, there)} "
                f"There are: {listed(there)}."
            )
            raise ValidationError(message)
    if options["events.num"] is not None and options["events.num"] < 0:
        message = f"{context.owner} needs 'events.num' of at least 0."
        raise ValidationError(message)
    if options["next-event.rate"] < 1 or options["splits"] < 1:
        message = f"{context.owner} needs 'next-event.rate' and 'splits' of at least 1."
        raise ValidationError(message)
    return _Events(options, table, columns)


def sink(context: FactoryContext) -> TableSink:
    """Refused."""
    message = f"{context.owner} cannot be written; it is a source."
    raise ValidationError(message)
