"""Values of every type, through the PostgreSQL sinks and source, against psycopg.

The oracle is psycopg: the same values, written by it as parameters, must give the same text in the
server, value by value, and are read by it as what they were.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import struct
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from psycopg.types.json import Jsonb
from tests.databases.server import execute

from millstream.connectors.postgres.sink import PostgresSink
from millstream.connectors.postgres.source import PostgresSource
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest, WriterContext
from millstream.testing.conformance import read_records
from millstream.types.row import Row
from millstream.types.time import Instant
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.contracts.sink import Sink
    from millstream.types.types import TypeInformation

ROWS = 400
TEXTS = [
    *("", " ", "  a ", "NULL", "null", "\\N", "\\.", "\\", '"', '""', "'", ",", "a,b", "{}", "{a}"),
    *("\n", "\r", "\r\n", "a\nb", "\t", "\x01", "\x7f", "å", "é", "\u2028", "日本", "🎈", "\ufeff"),
]
NUMBERS = [0.0, -0.0, 1.5, 1e300, 5e-324, math.nan, math.inf, -math.inf, 0.1, -1e-7]
UTC = dt.UTC


def text(numbers: random.Random) -> str:
    return "".join(numbers.choices(TEXTS, k=numbers.randint(1, 3)))


def whole(bits: int) -> Callable[[random.Random], int]:
    edges = [0, 1, -1, 2 ** (bits - 1) - 1, -(2 ** (bits - 1))]
    return lambda numbers: numbers.choice([*edges, numbers.randint(edges[4], edges[3])])


def single(numbers: random.Random) -> float:
    value = numbers.choice([0.0, 1.5, math.nan, math.inf, -math.inf, numbers.uniform(-1e30, 1e30)])
    return single_of(value)


def double(numbers: random.Random) -> float:
    return numbers.choice([*NUMBERS, numbers.uniform(-1e9, 1e9), numbers.gauss(0, 1e-9)])


def decimal(digits: int, scale: int) -> Callable[[random.Random], Decimal]:
    most = 10**digits - 1

    def made(numbers: random.Random) -> Decimal:
        value = numbers.choice([0, 1, -1, most, -most, numbers.randint(-most, most)])
        return Decimal(f"{value}E-{scale}")  # exactly, where arithmetic would round

    return made


def day(numbers: random.Random) -> dt.date:
    edges = [dt.date.min, dt.date.max, dt.date(1970, 1, 1), dt.date(2000, 2, 29)]
    return numbers.choice([*edges, dt.date.fromordinal(numbers.randint(1, 3_652_059))])


def time_of_day(numbers: random.Random) -> dt.time:
    edges = [dt.time.min, dt.time(23, 59, 59, 999_999)]
    return numbers.choice([*edges, dt.time(numbers.randrange(24), 5, 6, numbers.randrange(10**6))])


def moment(numbers: random.Random) -> dt.datetime:
    seconds = numbers.choice([0, -1, numbers.randint(-60_000_000_000, 250_000_000_000)])
    return dt.datetime(1970, 1, 1) + dt.timedelta(  # noqa: DTZ001 - as Flink's TIMESTAMP
        seconds=seconds, microseconds=numbers.choice([0, 1, 999_999, 123_000])
    )


def zoned(numbers: random.Random) -> dt.datetime:
    return moment(numbers).replace(tzinfo=UTC)


def lists(make: Callable[[random.Random], Any]) -> Callable[[random.Random], list[Any]]:
    def made(numbers: random.Random) -> list[Any]:
        count = numbers.choice([0, 1, 4])
        return [None if numbers.random() < 0.2 else make(numbers) for _ in range(count)]

    return made


def pairs(numbers: random.Random) -> list[list[int]]:
    return [[numbers.randint(-9, 9), 7] for _ in range(numbers.randint(1, 3))]


def document(numbers: random.Random) -> Row:
    return Row(a=whole(64)(numbers), b=lists(text)(numbers))


def mapping(numbers: random.Random) -> dict[str, int]:
    return {text(numbers): numbers.randint(-5, 5) for _ in range(numbers.randint(0, 3))}


#: Column -> its type here and there, and what makes values.
COLUMNS: dict[str, tuple[TypeInformation, str, Callable[[random.Random], Any]]] = {
    "text": (Types.STRING(), "TEXT", text),
    "short_text": (Types.STRING(), "VARCHAR(400)", text),
    "letter": (Types.CHAR(), "TEXT", lambda numbers: numbers.choice("aå\n\"',")),
    "yes": (Types.BOOLEAN(), "BOOLEAN", lambda numbers: numbers.random() < 0.5),
    "byte": (Types.BYTE(), "SMALLINT", whole(8)),
    "short": (Types.SHORT(), "SMALLINT", whole(16)),
    "int": (Types.INT(), "INTEGER", whole(32)),
    "long": (Types.LONG(), "BIGINT", whole(64)),
    "float": (Types.FLOAT(), "REAL", single),
    "double": (Types.DOUBLE(), "DOUBLE PRECISION", double),
    "big_int": (Types.BIG_INT(), "NUMERIC(38)", lambda n: int(decimal(38, 0)(n))),
    "big_dec": (Types.BIG_DEC(), "NUMERIC", decimal(60, 30)),
    "decimal": (Types.DECIMAL(20, 5), "NUMERIC(20, 5)", decimal(20, 5)),
    "day": (Types.SQL_DATE(), "DATE", day),
    "time": (Types.SQL_TIME(), "TIME", time_of_day),
    "at": (Types.SQL_TIMESTAMP(), "TIMESTAMP", moment),
    "zoned": (Types.TIMESTAMP_LTZ(), "TIMESTAMPTZ", zoned),
    "instant": (Types.INSTANT(), "TIMESTAMPTZ", lambda n: Instant.of_epoch_milli(whole(40)(n))),
    "raw": (Types.PRIMITIVE_ARRAY(Types.BYTE()), "BYTEA", lambda n: n.randbytes(n.randrange(5))),
    "texts": (Types.LIST(Types.STRING()), "TEXT[]", lists(text)),
    "longs": (Types.BASIC_ARRAY(Types.LONG()), "BIGINT[]", lists(whole(64))),
    "flags": (Types.LIST(Types.BOOLEAN()), "BOOLEAN[]", lists(lambda n: n.random() < 0.5)),
    "doubles": (Types.LIST(Types.DOUBLE()), "DOUBLE PRECISION[]", lists(double)),
    "decimals": (Types.LIST(Types.DECIMAL(9, 2)), "NUMERIC(9, 2)[]", lists(decimal(9, 2))),
    "days": (Types.LIST(Types.SQL_DATE()), "DATE[]", lists(day)),
    "moments": (Types.LIST(Types.TIMESTAMP_LTZ()), "TIMESTAMPTZ[]", lists(zoned)),
    "matrix": (Types.LIST(Types.LIST(Types.LONG())), "BIGINT[][]", pairs),
    "document": (
        Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.STRING())]),
        "JSONB",
        document,
    ),
    "map": (Types.MAP(Types.STRING(), Types.LONG()), "JSONB", mapping),
    "json_text": (Types.STRING(), "JSON", lambda n: json.dumps([text(n), n.randint(0, 9)])),
}
KIND = Types.ROW_NAMED(["id", *COLUMNS], [Types.LONG(), *(kind for kind, _, _ in COLUMNS.values())])


def records(seed: int) -> list[Row]:
    """Rows of which each value may be null, but for a row within a row."""
    numbers = random.Random(seed)

    def value(name: str) -> Any:
        if numbers.random() < 0.1 and name != "document":
            return None
        return COLUMNS[name][2](numbers)

    return [Row(id=i, **{name: value(name) for name in COLUMNS}) for i in range(ROWS)]


def parameter(value: Any) -> Any:
    """What psycopg takes for a value."""
    if isinstance(value, Instant):
        return dt.datetime(1970, 1, 1, tzinfo=UTC) + dt.timedelta(
            milliseconds=value.to_epoch_milli()
        )
    if isinstance(value, Row):
        return Jsonb(value.as_dict())
    return Jsonb(value) if isinstance(value, dict) else value


def write(sink: Sink, values: list[Row]) -> None:
    sink.validate()
    writer = sink.create_writer(WriterContext("job", "sink", 0, 1, 1, "a", 1))
    half = len(values) // 2
    writer.write(Batch(KIND, values=list(values[:half])))
    writer.write(Batch(KIND, arrow=KIND.to_arrow(list(values[half:]))))
    made = list(writer.prepare_commit())
    writer.close()
    committer = sink.create_committer()
    if committer is not None:
        committer.commit([CommitRequest(item, 1, retried=False) for item in made])
        committer.close()


def make_tables(database: str, values: list[Row]) -> None:
    """``results``, empty, and ``expected``, as psycopg writes it."""
    columns = ", ".join(f'"{name}" {sql}' for name, (_, sql, _) in COLUMNS.items())
    for table in ("results", "expected"):
        execute(database, f"CREATE TABLE {table} (id BIGINT PRIMARY KEY, {columns})")
    marks = ", ".join(["%s", *(f"%s::{sql}" for _, sql, _ in COLUMNS.values())])
    rows = [[parameter(row[name]) for name in ["id", *COLUMNS]] for row in values]
    statement = f"INSERT INTO expected VALUES ({marks})".encode()
    with psycopg.connect(database) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        connection.cursor().executemany(statement, rows)


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", ["two_phase", "commit_table", "upsert"])
@pytest.mark.parametrize("seed", [1])
def test_oracle_written_as_psycopg_writes(kind: str, seed: int, database: str) -> None:
    print(f"seed {seed}")
    values = records(seed)
    make_tables(database, values)
    options: dict[str, Any] = {"key": ["id"]} if kind == "upsert" else {}
    write(getattr(PostgresSink, kind)(database, "results", type_info=KIND, **options), values)
    assert execute(database, "SELECT count(*) FROM results") == [(ROWS,)]
    for name in COLUMNS:
        different = execute(
            database,
            f'SELECT e.id, e."{name}"::text, r."{name}"::text FROM expected e JOIN results r'
            f' USING (id) WHERE e."{name}"::text IS DISTINCT FROM r."{name}"::text LIMIT 3',
        )
        assert different == [], f"column {name}: (id, as psycopg writes it, as we do)"


#: What the source makes of what it has no type for: its text.
AS_TEXT = {"time", "big_dec", "document", "map", "json_text"} | {
    name for name, (_, sql, _) in COLUMNS.items() if sql.endswith("[]")
}


@pytest.mark.extended
def test_oracle_read_as_psycopg_reads(database: str) -> None:
    values = records(2)
    make_tables(database, values)
    selected = ", ".join(
        f'"{name}"::text' if name == "big_dec" else f'"{name}"' for name in ["id", *COLUMNS]
    )
    source = PostgresSource(database, f"SELECT {selected} FROM expected", key="id", splits=3)
    read: list[Any] = [
        record
        for split in source.discover(frozenset())
        for record in read_records(
            source, split, source.start_offset(split), source.end_offset(split)
        )
    ]
    wanted = ", ".join(
        f'"{name}"::text' if name in AS_TEXT else f'"{name}"' for name in ["id", *COLUMNS]
    )
    with psycopg.connect(database) as connection:
        connection.execute("SET TIME ZONE 'UTC'")
        query = f"SELECT {wanted} FROM expected ORDER BY id".encode()
        expected = connection.execute(query).fetchall()
    assert len(read) == len(expected) == ROWS
    for row, other in zip(read, expected, strict=True):
        for name, found, value in zip(["id", *COLUMNS], row, other, strict=True):
            assert same(found, value), f"row {other[0]}, {name}: {found!r}, psycopg {value!r}"


def same(found: Any, value: Any) -> bool:
    """Equal; psycopg reads REAL from its text, so without the digits that a float then has."""
    if isinstance(found, float) and isinstance(value, float):
        if math.isnan(found) or math.isnan(value):
            return math.isnan(found) and math.isnan(value)
        return math.copysign(1, found) == math.copysign(1, value) and math.isclose(
            found, value, rel_tol=1e-7 if found == single_of(found) else 0
        )
    return bool(parameter(found) == value)


def single_of(value: float) -> float:
    """The nearest float of 32 bits, if there is one."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.nan
