"""The ``nexmark`` connector: the generated tables of the Nexmark benchmark, an auction house.

Of every 50 events the first is a person, the next three are auctions, the others bids; event ``n``
happens at ``base_time + n / rate``.  Every value is a function of the seed, the number of the event
and the column, so an event that is read again is the same.  Only the requested columns are made.
"""

from __future__ import annotations

import functools
import random
import string
from abc import abstractmethod
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from millstream.connectors.basic.data_generator import DataGeneratorSource, GeneratorFunction
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FactoryContext, TableSink, TableSource
from millstream.sql.catalog.options import IDLE_TIMEOUT, Options, choice, integer
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from numpy.typing import NDArray

    from millstream.contracts.source import Source


_TIME: Final = pa.timestamp("ms")
_TEXT: Final = pa.string()
_NUMBER: Final = pa.int64()
#: The columns of each table.
NEXMARK_COLUMNS: Final[dict[str, dict[str, pa.DataType]]] = {
    "person": {
        "id": _NUMBER,
        "name": _TEXT,
        "emailAddress": _TEXT,
        "creditCard": _TEXT,
        "city": _TEXT,
        "state": _TEXT,
        "dateTime": _TIME,
        "extra": _TEXT,
    },
    "auction": {
        "id": _NUMBER,
        "itemName": _TEXT,
        "description": _TEXT,
        "initialBid": _NUMBER,
        "reserve": _NUMBER,
        "dateTime": _TIME,
        "expires": _TIME,
        "seller": _NUMBER,
        "category": _NUMBER,
        "extra": _TEXT,
    },
    "bid": {
        "auction": _NUMBER,
        "bidder": _NUMBER,
        "price": _NUMBER,
        "channel": _TEXT,
        "url": _TEXT,
        "dateTime": _TIME,
        "extra": _TEXT,
    },
}

#: The columns of the stream of all events: what an event is (0 a person, 1 an auction, 2 a bid),
#: its row, and its time.
ALL_EVENTS: Final[dict[str, pa.DataType]] = {
    "event_type": pa.int32(),
    **{table: pa.struct(list(columns.items())) for table, columns in NEXMARK_COLUMNS.items()},
    "dateTime": _TIME,
}

_IN_A_ROUND: Final = 50
_FIRST: Final = {"person": 0, "auction": 1, "bid": 4}
_EACH_ROUND: Final = {"person": 1, "auction": 3, "bid": 46}
_FIRST_ID: Final = 1000
_HOT_EVERY: Final = 100
_ACTIVE_PEOPLE: Final = 1000
_ACTIVE_AUCTIONS: Final = 100
_AHEAD: Final = 10
_OPEN_EVENTS: Final = 1666
_POOL: Final = 1024
_CHANNELS: Final = 10_000
_FIRST_NAMES: Final = [
    "Peter", "Paul", "Luke", "John", "Saul", "Vicky", "Kate", "Julie", "Sarah", "Deiter", "Walter"
]  # fmt: skip
_LAST_NAMES: Final = [
    "Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"
]  # fmt: skip
_NAMES: Final = [f"{first} {last}" for first in _FIRST_NAMES for last in _LAST_NAMES]
_CITIES: Final = [
    "Phoenix",
    "Los Angeles",
    "San Francisco",
    "Boise",
    "Portland",
    "Bend",
    "Redmond",
    "Seattle",
    "Kent",
    "Cheyenne",
]
_STATES: Final = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS: Final = ["Google", "Facebook", "Baidu", "Apple"]
_SITE: Final = "https://www.nexmark.com/"
_PAGE: Final = "/item.htm?query=1"
#: About as many bytes as one event of each kind has beside its numbers.
_EXTRA: Final = {"person": 80, "auction": 350, "bid": 60}


def events_of(table: str, events: int) -> int:
    """How many of the first ``events`` events belong to a table."""
    rounds, rest = divmod(events, _IN_A_ROUND)
    each = _EACH_ROUND[table]
    return rounds * each + min(max(rest - _FIRST[table], 0), each)


class _InColumns(GeneratorFunction):
    """Makes rows in columns; one by itself is a batch of one."""

    @abstractmethod
    def map_batch(self, indices: NDArray[np.int64]) -> pa.RecordBatch:
        """The rows at these places."""

    def map(self, value: int) -> object:
        batch = self.map_batch(np.array([value], dtype=np.int64))
        return tuple(column[0].as_py() for column in batch.columns)


class NexmarkEvents(_InColumns):
    """The rows of one of the three tables, by their number in it.

    Args:
        table: person, auction or bid.
        columns: which of its columns, by name.
        seed: other seeds give other events.
        rate: events of all tables in a second of event time.
        base_time: of the first event, milliseconds since 1970.
    """

    def __init__(
        self, table: str, columns: Sequence[str], seed: int, rate: float, base_time: int
    ) -> None:
        self._table = table
        self._columns = tuple(columns)
        self._seed = seed
        self._rate = rate
        self._base = base_time

    def map_batch(self, indices: NDArray[np.int64]) -> pa.RecordBatch:
        each = _EACH_ROUND[self._table]
        numbers = indices // each * _IN_A_ROUND + _FIRST[self._table] + indices % each
        made = _Events(numbers, self._seed, self._rate, self._base)
        columns = _columns_of(self._table, self._columns, made)
        return pa.RecordBatch.from_arrays(columns, names=list(self._columns))


class NexmarkStream(_InColumns):
    """All events in their order, each with the row of its kind; rows of other kinds are NULL.

    Args:
        columns: which of ``ALL_EVENTS``, by name.
        seed: as of ``NexmarkEvents``, which makes the same rows.
        rate: events in a second of event time.
        base_time: of the first event, milliseconds since 1970.
    """

    def __init__(self, columns: Sequence[str], seed: int, rate: float, base_time: int) -> None:
        self._columns = tuple(columns)
        self._seed = seed
        self._rate = rate
        self._base = base_time

    def map_batch(self, indices: NDArray[np.int64]) -> pa.RecordBatch:
        # Persons come first in a round, then auctions.
        starts = list(_FIRST.values())
        kinds = np.searchsorted(starts, indices % _IN_A_ROUND, side="right") - 1
        columns = []
        for name in self._columns:
            if name == "event_type":
                columns.append(pa.array(kinds, pa.int32()))
            elif name in NEXMARK_COLUMNS:
                columns.append(self._rows(name, indices, kinds))
            else:
                times = _Events(indices, self._seed, self._rate, self._base).time()
                columns.append(pa.array(times, _NUMBER).cast(_TIME))
        return pa.RecordBatch.from_arrays(columns, names=list(self._columns))

    def _rows(
        self, table: str, indices: NDArray[np.int64], kinds: NDArray[np.int64]
    ) -> pa.StructArray:
        is_own = kinds == list(_FIRST).index(table)
        made = _Events(indices[is_own], self._seed, self._rate, self._base)
        columns = NEXMARK_COLUMNS[table]
        fields = [pa.field(name, kind) for name, kind in columns.items()]
        rows = pa.StructArray.from_arrays(_columns_of(table, columns, made), fields=fields)
        return rows.take(pa.array(np.cumsum(is_own) - 1, mask=~is_own))


def _columns_of(table: str, names: Iterable[str], events: _Events) -> list[pa.Array]:
    columns = []
    for name in names:
        values = _MAKERS[table][name](events)
        if not isinstance(values, pa.Array):
            values = pa.array(values, _NUMBER)
        columns.append(values.cast(NEXMARK_COLUMNS[table][name]))
    return columns


class _Events:
    """Some events, by their numbers among all."""

    def __init__(self, numbers: NDArray[np.int64], seed: int, rate: float, base: int) -> None:
        self.numbers = numbers
        self._seed, self._rate, self._base = seed, rate, base
        #: The newest person at each event.
        self.person = numbers // _IN_A_ROUND

    @property
    def auction(self) -> NDArray[np.int64]:
        """The newest auction at each event; negative: there is none yet."""
        rest = self.numbers % _IN_A_ROUND
        of_round = np.where(rest < 1, -1, np.minimum(rest - 1, 2))
        newest: NDArray[np.int64] = 3 * self.person + of_round
        return newest

    def drawn(self, what: str) -> NDArray[np.uint64]:
        """64 random bits per event, of its own for each purpose."""
        salt = random.Random(f"{self._seed} {what}").getrandbits(64)  # noqa: S311 - as above
        mixed = self.numbers.astype(np.uint64) + np.uint64(salt)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = mixed + np.uint64(0x9E3779B97F4A7C15)
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return mixed ^ (mixed >> np.uint64(31))

    def below(self, bound: Any, what: str) -> NDArray[np.int64]:
        """Random numbers from 0 up to and without ``bound``."""
        bits = self.drawn(what) >> np.uint64(1)
        found: NDArray[np.int64] = bits.astype(np.int64) % np.asarray(bound, dtype=np.int64)
        return found

    def price(self, what: str) -> NDArray[np.int64]:
        """Prices, of which each power of ten is as frequent."""
        unit = (self.drawn(what) >> np.uint64(11)).astype(np.float64) / 2**53
        found: NDArray[np.int64] = np.rint(10 ** (6 * unit) * 100).astype(np.int64)
        return found

    def time(self) -> NDArray[np.int64]:
        """Milliseconds since 1970."""
        found: NDArray[np.int64] = self._base + np.floor(self.numbers * (1000 / self._rate)).astype(
            np.int64
        )
        return found

    def expires(self) -> NDArray[np.int64]:
        """When auctions end, in milliseconds since 1970."""
        open_for = max(int(2 * _OPEN_EVENTS * 1000 / self._rate), 1)
        return self.time() + 1 + self.below(open_for + 1, "expires")

    def someone(self, what: str) -> NDArray[np.int64]:
        """One of the newest people, or one who is not there yet."""
        active = np.minimum(self.person, _ACTIVE_PEOPLE - 1)
        return self.person - active + self.below(active + 1 + _AHEAD, what)

    def seller(self) -> NDArray[np.int64]:
        """The ids of sellers."""
        is_hot = self.below(4, "hotseller") > 0
        hot = self.person // _HOT_EVERY * _HOT_EVERY
        return _FIRST_ID + np.where(is_hot, hot, self.someone("seller"))

    def bidder(self) -> NDArray[np.int64]:
        """The ids of bidders."""
        is_hot = self.below(4, "hotbidder") > 0
        hot = self.person // _HOT_EVERY * _HOT_EVERY + 1
        return _FIRST_ID + np.where(is_hot, hot, self.someone("bidder"))

    def bid_auction(self) -> NDArray[np.int64]:
        """The ids of the auctions of bids."""
        newest = self.auction
        is_hot = self.below(2, "hotauction") > 0
        active = np.minimum(newest, _ACTIVE_AUCTIONS - 1)
        cold = newest - active + self.below(active + 1 + _AHEAD, "auction")
        return _FIRST_ID + np.where(is_hot, newest // _HOT_EVERY * _HOT_EVERY, cold)

    def one_of(self, values: Sequence[str], what: str) -> pa.Array:
        """One of some texts for each event."""
        return pa.array(values, _TEXT).take(pa.array(self.below(len(values), what)))

    def text(self, length: int, what: str) -> pa.Array:
        """Text of letters, of about that length."""
        return self.one_of(_pool(length, self._seed), what)

    def _channel_number(self) -> NDArray[np.int64]:
        is_hot = self.below(2, "hotchannel") > 0
        hot = self.below(len(_HOT_CHANNELS), "whichhot")
        return np.where(is_hot, hot, len(_HOT_CHANNELS) + self.below(_CHANNELS, "channel"))

    def channel(self) -> pa.Array:
        """The names of channels."""
        names = [*_HOT_CHANNELS, *(f"channel-{number}" for number in range(_CHANNELS))]
        return pa.array(names, _TEXT).take(pa.array(self._channel_number()))

    def url(self) -> pa.Array:
        """Where bids came from; of nine tenths of the other channels it says which."""
        return _urls(self._seed).take(pa.array(self._channel_number()))


@functools.cache
def _urls(seed: int) -> pa.Array:
    drawn = random.Random(seed)  # noqa: S311 - not for secrets
    urls = [_site(drawn) + _PAGE for _ in _HOT_CHANNELS]
    for number in range(_CHANNELS):
        tail = f"&channel_id={number}" if drawn.random() < 0.9 else ""  # noqa: PLR2004
        urls.append(_site(drawn) + _PAGE + tail)
    return pa.array(urls, _TEXT)


def _site(drawn: random.Random) -> str:
    parts = ["".join(drawn.choices(string.ascii_lowercase, k=3)) for _ in range(3)]
    return _SITE + "/".join(parts)


@functools.cache
def _pool(length: int, seed: int) -> list[str]:
    drawn = random.Random(f"{length} {seed}")  # noqa: S311 - not for secrets
    letters = string.ascii_lowercase + " "
    return [
        "".join(drawn.choices(letters, k=drawn.randint(length * 4 // 5, length * 6 // 5)))
        for _ in range(_POOL)
    ]


def _name(events: _Events) -> pa.Array:
    return events.one_of(_NAMES, "name")


def _email(events: _Events) -> pa.Array:
    parts = zip(
        events.text(7, "mail").to_pylist(), events.text(5, "mailhost").to_pylist(), strict=True
    )
    return pa.array([f"{one}@{other}.com".replace(" ", "") for one, other in parts], _TEXT)


def _card(events: _Events) -> pa.Array:
    groups = [events.below(10_000, f"card{part}").tolist() for part in range(4)]
    cards = zip(*groups, strict=True)
    return pa.array([" ".join(f"{part:04d}" for part in card) for card in cards], _TEXT)


_MAKERS: Final[dict[str, dict[str, Callable[[_Events], Any]]]] = {
    "person": {
        "id": lambda events: _FIRST_ID + events.person,
        "name": _name,
        "emailAddress": _email,
        "creditCard": _card,
        "city": lambda events: events.one_of(_CITIES, "city"),
        "state": lambda events: events.one_of(_STATES, "state"),
        "dateTime": _Events.time,
        "extra": lambda events: events.text(_EXTRA["person"], "extra"),
    },
    "auction": {
        "id": lambda events: _FIRST_ID + events.auction,
        "itemName": lambda events: events.text(20, "itemName"),
        "description": lambda events: events.text(100, "descript"),
        "initialBid": lambda events: events.price("initial"),
        "reserve": lambda events: events.price("initial") + events.price("reserve"),
        "dateTime": _Events.time,
        "expires": _Events.expires,
        "seller": _Events.seller,
        "category": lambda events: 10 + events.below(5, "category"),
        "extra": lambda events: events.text(_EXTRA["auction"], "extra"),
    },
    "bid": {
        "auction": _Events.bid_auction,
        "bidder": _Events.bidder,
        "price": lambda events: events.price("price"),
        "channel": _Events.channel,
        "url": _Events.url,
        "dateTime": _Events.time,
        "extra": lambda events: events.text(_EXTRA["bid"], "extra"),
    },
}


# -- the connector ---------------------------------------------------------------------------------


_EVENTS = "events"
_COLUMNS = {**NEXMARK_COLUMNS, _EVENTS: ALL_EVENTS}
_DEFAULT_RATE: Final = 100_000
#: 2020-01-01, milliseconds since 1970.
_BASE_TIME = 1_577_836_800_000


_OPTIONS: Final = (
    choice("table", tuple(_COLUMNS), None),
    integer("events.num"),
    integer("next-event.rate", _DEFAULT_RATE),
    integer("base-time", _BASE_TIME),
    integer("seed", 0),
    integer("splits", 4),
    IDLE_TIMEOUT,
)
#: Connector -> its options.
OPTIONS: Final = {"nexmark": _OPTIONS}


class _EventTable(TableSource):
    def __init__(self, options: Options, table: str, columns: list[str]) -> None:
        self._options = options
        self._table = table
        self._columns = columns

    def with_columns(self, names: Collection[str]) -> TableSource | None:
        if self._table == _EVENTS:
            return None  # whole events, as the benchmark has them: what they cost is counted
        read = [name for name in self._columns if name in names]
        return _EventTable(self._options, self._table, read or ["dateTime"])

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
    return _EventTable(options, table, columns)


def sink(context: FactoryContext) -> TableSink:
    """Refused."""
    message = f"{context.owner} cannot be written; it is a source."
    raise ValidationError(message)
