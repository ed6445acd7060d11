"""Windows over tables with updates and deletes, against plain Python over the rows that are left.

Sessions are those of all changes, as in Flink: a row that is deleted has joined what it joined.
"""

from __future__ import annotations

import datetime as dt
import json
import random
from collections import Counter, defaultdict
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from tests.support.query_running import changelog, environment, materialised

from millstream.table.expressions import col, lit
from millstream.table.window import Session, Tumble

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from millstream.table import TableEnvironment

    Answer = Counter[tuple[Any, ...]]
    #: The row before and the row after, None if there is none.
    Event = tuple["_Row | None", "_Row | None"]
    Values = Callable[[list["_Row"]], tuple[Any, ...]]
    Window = tuple[int, int]


class _Row(NamedTuple):
    ts: int
    k: str
    v: int


class _Change(NamedTuple):
    """A row that comes (1) or goes (-1)."""

    weight: int
    row: _Row


_START: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_GAP: Final = 20


def _time(second: int) -> dt.datetime:
    return _START + dt.timedelta(seconds=second)


def _drawn(seed: int) -> list[list[Event]]:
    """The events of three files."""
    drawn = random.Random(seed)
    files = []
    for _ in range(3):
        there: list[_Row] = []
        events: list[Event] = []
        for _ in range(40):
            new = _Row(drawn.randint(0, 900), drawn.choice("ab"), drawn.randint(0, 4))
            step = drawn.random()
            old = there.pop(drawn.randrange(len(there))) if there and step < 0.6 else None
            if old is not None and step < 0.3:
                events.append((old, None))
                continue
            if old is not None and step < 0.45:
                new = old._replace(v=new.v)
            there.append(new)
            events.append((old, new))
        files.append(events)
    return files


def _table(
    env: TableEnvironment,
    files: list[list[Event]],
    path: Path,
    delay: int,
) -> None:
    directory = path / "events"
    directory.mkdir()
    for number, events in enumerate(files):
        lines = []
        for old, new in events:
            sides = [
                None if row is None else row._asdict() | {"ts": str(_time(row.ts))}
                for row in (old, new)
            ]
            op = "c" if old is None else "d" if new is None else "u"
            lines.append(json.dumps({"before": sides[0], "after": sides[1], "op": op}) + "\n")
        (directory / f"{number}.json").write_text("".join(lines))
    env.execute_sql(
        "CREATE TABLE e (ts TIMESTAMP(3), k STRING, v INT, "
        f"WATERMARK FOR ts AS ts - INTERVAL '{delay}' SECOND) WITH ('connector' = 'filesystem', "
        f"'path' = '{directory}', 'format' = 'debezium-json')"
    )


def _changes(files: list[list[Event]]) -> list[_Change]:
    both = [each for events in files for each in events]
    gone = [_Change(-1, old) for old, _ in both if old is not None]
    return gone + [_Change(1, new) for _, new in both if new is not None]


def _sessions(changes: list[_Change], key: Callable[[_Row], Any]) -> dict[Any, list[_Row]]:
    """The rows that are left in each session: (key, window)."""
    found: dict[Any, list[_Row]] = {}
    of_key: dict[Any, list[_Change]] = defaultdict(list)
    for change in changes:
        of_key[key(change.row)].append(change)
    for mine in of_key.values():
        mine.sort(key=lambda each: each.row.ts)
        start, members = mine[0].row.ts, [mine[0]]
        rest: list[_Change | None] = [*mine[1:], None]
        for each in rest:
            if each is not None and each.row.ts <= members[-1].row.ts + _GAP:
                members.append(each)
                continue
            left = _left(members)
            if left:
                found[key(left[0]), (start, members[-1].row.ts + _GAP)] = left
            if each is not None:
                start, members = each.row.ts, [each]
    return found


def _left(changes: Iterable[_Change]) -> list[_Row]:
    counts: Counter[_Row] = Counter()
    for each in changes:
        counts[each.row] += each.weight
    return list(counts.elements())


def _fixed(
    changes: list[_Change], size: int, step: int, key: Callable[[_Row], Any]
) -> dict[Any, list[_Row]]:
    found: dict[Any, list[_Row]] = defaultdict(list)
    for row in _left(changes):
        start = row.ts - row.ts % step
        while start > row.ts - size:
            found[key(row), (start, start + size)].append(row)
            start -= step
    return found


def _by_key(row: _Row) -> tuple[str]:
    return (row.k,)


def _all(row: _Row) -> tuple[()]:
    del row
    return ()


def _answer(
    groups: dict[Any, list[_Row]], values: Callable[[list[_Row]], tuple[Any, ...]]
) -> Answer:
    return Counter(
        (*key, *map(_time, window), *values(rows)) for (key, window), rows in groups.items()
    )


def _totals(rows: list[_Row]) -> tuple[Any, ...]:
    return len(rows), sum(row.v for row in rows)


def _extremes(rows: list[_Row]) -> tuple[Any, ...]:
    values = [row.v for row in rows]
    return len(values), min(values), max(values), len(set(values))


_TOTALS: Final = "COUNT(*) AS n, SUM(v) AS s"
_EXTREMES: Final = "COUNT(*) AS n, MIN(v) AS low, MAX(v) AS high, COUNT(DISTINCT v) AS d"
_SOME: Final = "MAX(v) AS m, COUNT(DISTINCT v) AS d"
_BOUNDS: Final = "window_start, window_end"
_SESSION: Final = "SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
_SESSIONS: Final = "SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
_TUMBLE: Final = "TUMBLE(TABLE e, DESCRIPTOR(ts), INTERVAL '1' MINUTE)"
_HOP: Final = "HOP(TABLE e, DESCRIPTOR(ts), INTERVAL '20' SECOND, INTERVAL '1' MINUTE)"


def _group(kind: str, keys: str, calls: str) -> str:
    name, lengths = kind.split(" ", 1)
    window = f"(ts, {lengths})"
    shown = "".join(f"{key}, " for key in keys)
    return (
        f"SELECT {shown}{name}_START{window} AS a, {name}_END{window} AS b, {calls} FROM e "
        f"GROUP BY {shown}{name}{window}"
    )


_QUERIES: Final[dict[str, Callable[[list[_Change]], Answer]]] = {
    f"SELECT k, {_BOUNDS}, {_TOTALS} FROM {_SESSION} GROUP BY k, {_BOUNDS}": lambda changes: (
        _answer(_sessions(changes, _by_key), _totals)
    ),
    f"SELECT k, {_BOUNDS}, {_EXTREMES} FROM {_SESSION} GROUP BY k, {_BOUNDS}": lambda changes: (
        _answer(_sessions(changes, _by_key), _extremes)
    ),
    f"SELECT {_BOUNDS}, {_TOTALS} FROM {_SESSIONS} GROUP BY {_BOUNDS}": lambda changes: _answer(
        _sessions(changes, _all), _totals
    ),
    f"SELECT {_BOUNDS}, {_EXTREMES} FROM {_SESSIONS} GROUP BY {_BOUNDS}": lambda changes: _answer(
        _sessions(changes, _all), _extremes
    ),
    _group("SESSION INTERVAL '20' SECOND", "k", _TOTALS): lambda changes: _answer(
        _sessions(changes, _by_key), _totals
    ),
    _group("SESSION INTERVAL '20' SECOND", "", _EXTREMES): lambda changes: _answer(
        _sessions(changes, _all), _extremes
    ),
    _group("TUMBLE INTERVAL '1' MINUTE", "k", _EXTREMES): lambda changes: _answer(
        _fixed(changes, 60, 60, _by_key), _extremes
    ),
    f"SELECT k, {_BOUNDS}, {_TOTALS} FROM {_TUMBLE} GROUP BY k, {_BOUNDS}": lambda changes: _answer(
        _fixed(changes, 60, 60, _by_key), _totals
    ),
    f"SELECT {_BOUNDS}, {_EXTREMES} FROM {_TUMBLE} GROUP BY {_BOUNDS}": lambda changes: _answer(
        _fixed(changes, 60, 60, _all), _extremes
    ),
    f"SELECT k, {_BOUNDS}, {_TOTALS} FROM {_HOP} GROUP BY k, {_BOUNDS}": lambda changes: _answer(
        _fixed(changes, 60, 20, _by_key), _totals
    ),
    f"SELECT k, {_BOUNDS}, {_EXTREMES} FROM {_HOP} GROUP BY k, {_BOUNDS}": lambda changes: _answer(
        _fixed(changes, 60, 20, _by_key), _extremes
    ),
    f"SELECT {_BOUNDS}, SUM(n) AS n, SUM(s) AS s FROM (SELECT k, {_BOUNDS}, {_TOTALS} FROM "
    f"{_TUMBLE} GROUP BY k, {_BOUNDS}) GROUP BY {_BOUNDS}": lambda changes: _answer(
        _fixed(changes, 60, 60, _all), _totals
    ),
    # Rows of sessions keep their kinds, so what is above is updated.
    f"SELECT k, ts, v, {_BOUNDS} FROM {_SESSION}": lambda changes: Counter(
        (row.k, _time(row.ts), row.v, *map(_time, window))
        for (_, window), rows in _sessions(changes, _by_key).items()
        for row in rows
    ),
    f"SELECT {_BOUNDS}, {_TOTALS} FROM {_SESSION} GROUP BY {_BOUNDS}": lambda changes: Counter(
        (*map(_time, window), len(rows), sum(row.v for row in rows))
        for window, rows in _merged(_sessions(changes, _by_key)).items()
    ),
}


def _merged(groups: dict[Any, list[_Row]]) -> dict[Window, list[_Row]]:
    ordered = sorted(groups.items(), key=lambda each: each[0][1])
    return {
        window: [row for _, rows in each for row in rows]
        for window, each in groupby(ordered, lambda each: each[0][1])
    }


@pytest.mark.both_engines(every=3)
@pytest.mark.parametrize("number", range(len(_QUERIES)))
def test_oracle_windows_of_changelogs(number: int, tmp_path: Path) -> None:
    query, answer = list(_QUERIES.items())[number]
    files = _drawn(number)
    env = environment(number % 3 + 1)
    _table(env, files, tmp_path, delay=2000)
    assert materialised(changelog(env, query, tmp_path, number)) == answer(_changes(files))


@pytest.mark.parametrize("window", ["tumble", "session"])
@pytest.mark.parametrize("keys", ["", "k"])
def test_oracle_windows_of_the_table_api(window: str, keys: str, tmp_path: Path) -> None:
    files = _drawn(7)
    env = environment(2)
    _table(env, files, tmp_path, delay=2000)
    if window == "tumble":
        kind: Any = Tumble.over(lit(1).minutes)
    else:
        kind = Session.with_gap(lit(20).seconds)
    table = env.from_path("e").window(kind.on(col("ts")).alias("w"))
    grouped = table.group_by(*[col(each) for each in (*keys, "w")])
    named = [*map(col, keys), col("w").start.alias("a"), col("w").end.alias("b")]
    result = grouped.select(*named, col("v").count.alias("n"), col("v").sum.alias("s"))
    env.create_temporary_view("found", result)
    key = _by_key if keys else _all
    changes = _changes(files)
    groups = _fixed(changes, 60, 60, key) if window == "tumble" else _sessions(changes, key)
    found = materialised(changelog(env, "SELECT * FROM found", tmp_path))
    assert found == _answer(groups, _totals)


def _late(env: TableEnvironment, query: str, path: Path) -> Answer:
    a, b, last = _Row(0, "a", 1), _Row(10, "a", 2), _Row(500, "a", 3)
    unknown = _Row(505, "a", 9)
    # The retractions of a and of a row that never was arrive, the first of them late.
    events: list[Event] = [(None, a), (None, b), (None, last)]
    events += [(a, None), (b, None), (None, _Row(501, "a", 4)), (unknown, None)]
    events.append((None, _Row(2000, "a", 0)))
    _table(env, [events], path, delay=1)
    return materialised(changelog(env, query, path, limit=1))


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        # As in Flink, what is retracted and is not there is subtracted.
        (
            f"SELECT window_start, {_TOTALS} FROM {_SESSION} GROUP BY k, {_BOUNDS}",
            {(0, 2, 3): 1, (500, 1, -2): 1, (2000, 1, 0): 1},
        ),
        (
            f"SELECT window_start, {_TOTALS} FROM {_TUMBLE} GROUP BY k, {_BOUNDS}",
            {(0, 2, 3): 1, (480, 1, -2): 1, (1980, 1, 0): 1},
        ),
        (
            f"SELECT window_start, {_SOME} FROM {_SESSION} GROUP BY k, {_BOUNDS}",
            {(0, 2, 2): 1, (500, 4, 2): 1, (2000, 0, 1): 1},
        ),
    ],
)
def test_late_and_unknown_retractions(
    query: str, expected: dict[tuple[int, ...], int], tmp_path: Path
) -> None:
    shown = {(_time(start), *rest): count for (start, *rest), count in expected.items()}
    assert _late(environment(), query, tmp_path) == shown


def test_plans_show_what_is_retracted(tmp_path: Path) -> None:
    env = environment()
    _table(env, [[]], tmp_path, delay=1)
    query = f"SELECT k, {_BOUNDS}, COUNT(*) AS n, MAX(v) AS m FROM {_SESSION} GROUP BY k, {_BOUNDS}"
    plan = env.explain_sql(query)
    assert "select=[k, COUNT_RETRACT(*) AS EXPR$0, MAX_RETRACT(v) AS EXPR$1, " in plan
    two = env.explain_sql(
        f"SELECT k, {_BOUNDS}, COUNT(*) AS n FROM {_TUMBLE} GROUP BY k, {_BOUNDS}"
    )
    assert "GlobalWindowAggregate(groupBy=[k]" in two
    assert "LocalWindowAggregate(groupBy=[k], " in two
    assert "COUNT_RETRACT(*) AS count$0" in two
