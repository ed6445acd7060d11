"""Size and time of single state values, typed and pickled: ``python -m bench.state_values``.

Prints the table of docs/concepts/state-types.md.  Times are CPU time, the best of five rounds.
"""

from __future__ import annotations

import datetime as dt
import random
import time
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

from millstream.state.serializers import dumps, loads
from millstream.state.value_codec import codec_of
from millstream.types.types import Row, Types, dataclass_type

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.type_information import TypeInformation


_COUNT: Final = 20_000
_ROUNDS: Final = 5
_FIELDS: Final = ["page", "score", "seconds"]


@dataclass
class Visit:
    """A record of three fields."""

    page: str
    score: float
    seconds: int


def _cases() -> list[tuple[str, TypeInformation, list[Any]]]:
    generator = random.Random(1)
    longs = [generator.randrange(-(2**40), 2**40) for _ in range(_COUNT)]
    names = [f"name-{number}" for number in longs]
    doubles = [generator.random() for _ in longs]
    start = dt.datetime.fromisoformat("2020-01-01")
    times = [start + dt.timedelta(seconds=each * 1e6) for each in doubles]
    fields = list(zip(names, doubles, longs, strict=True))
    kinds = [Types.STRING(), Types.DOUBLE(), Types.LONG()]
    row, make = Types.ROW_NAMED(_FIELDS, kinds), Row(*_FIELDS)
    rows, visits = [make(*each) for each in fields], [Visit(*each) for each in fields]
    of_ten = range(0, _COUNT, 10)
    scalars: list[tuple[str, TypeInformation, list[Any]]] = [
        ("BOOLEAN", Types.BOOLEAN(), [each % 2 == 0 for each in longs]),
        ("INT, below 128", Types.INT(), [each % 128 for each in longs]),
        ("INT", Types.INT(), [each % 2**31 for each in longs]),
        ("LONG, 40 bits", Types.LONG(), longs),
        ("DOUBLE", Types.DOUBLE(), doubles),
        ("STRING, 17 characters", Types.STRING(), names),
        ("17 bytes", Types.PRIMITIVE_ARRAY(Types.BYTE()), [each.encode() for each in names]),
        ("SQL_DATE", Types.SQL_DATE(), [each.date() for each in times]),
        ("SQL_TIMESTAMP", Types.SQL_TIMESTAMP(), times),
        ("DECIMAL(15, 2)", Types.DECIMAL(15, 2), [Decimal(each).scaleb(-2) for each in longs]),
    ]
    return [
        *scalars,
        ("tuple of STRING, DOUBLE, LONG", Types.TUPLE(kinds), fields),
        ("row of the same", row, rows),
        ("dataclass of the same", dataclass_type(Visit), visits),
        ("list of 10 LONG", Types.LIST(Types.LONG()), [longs[n : n + 10] for n in of_ten]),
        ("list of 10 rows", Types.LIST(row), [rows[n : n + 10] for n in of_ten]),
        (
            "map of 5 rows",
            Types.MAP(Types.STRING(), row),
            [dict(zip("abcde", rows[n : n + 5], strict=True)) for n in of_ten],
        ),
    ]


def _nanoseconds(function: Callable[[Any], Any], values: list[Any]) -> float:
    best = float("inf")
    for _ in range(_ROUNDS):
        begin = time.process_time()
        for value in values:
            function(value)
        best = min(best, time.process_time() - begin)
    return best / len(values) * 1e9


def main() -> None:
    """Print the table."""
    print("| type | bytes, pickled | typed | ns to write, pickled | typed | ns to read, pickled | typed |")  # fmt: skip  # noqa: E501
    print("|---|---|---|---|---|---|---|")
    for name, kind, values in _cases():
        codec = codec_of(kind)
        pickles, typed = list(map(dumps, values)), list(map(codec.encode, values))
        if list(map(codec.decode, typed)) != values:
            message = f"{name}: values do not come back"
            raise AssertionError(message)
        sizes = [sum(map(len, each)) / len(each) for each in (pickles, typed)]
        times = [
            _nanoseconds(dumps, values),
            _nanoseconds(codec.encode, values),
            _nanoseconds(loads, pickles),
            _nanoseconds(codec.decode, typed),
        ]
        if not codec.is_typed:
            print(f"| {name} | {sizes[0]:.0f} | pickled | {times[0]:.0f} | | {times[2]:.0f} | |")
            continue
        print(f"| {name} | " + " | ".join(f"{each:.0f}" for each in (*sizes, *times)) + " |")


if __name__ == "__main__":
    main()
