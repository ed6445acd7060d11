"""SESSION as a table function, and what stands above it, against plain Python."""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.support.query_running import changelog, environment, materialised, table_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    Row = tuple[dt.datetime, str, str, int]

_START: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_GAP: Final = dt.timedelta(seconds=20)
_COLUMNS: Final = (
    "ts TIMESTAMP(3), k STRING, g STRING, v INT, WATERMARK FOR ts AS ts - INTERVAL '700' SECOND"
)
_SESSION: Final = "SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
_ALL: Final = "SESSION(TABLE e, DESCRIPTOR(ts), INTERVAL '20' SECOND)"
_BY_TWO: Final = _SESSION.replace("BY k", "BY (k, g)")


@dataclass
class _Session:
    start: dt.datetime
    end: dt.datetime
    rows: list[Row]

    @property
    def window(self) -> tuple[dt.datetime, dt.datetime]:
        return self.start, self.end


def _sessions(rows: list[Row], key: Callable[[Row], Any]) -> list[_Session]:
    found = []
    for _, group in groupby(sorted(rows, key=lambda row: (key(row), row)), key):
        session: _Session | None = None
        for row in group:
            if session is None or row[0] > session.end:
                session = _Session(row[0], row[0], [])
                found.append(session)
            session.end = row[0] + _GAP
            session.rows.append(row)
    return found


def _by_key(rows: list[Row]) -> list[_Session]:
    return _sessions(rows, lambda row: row[1])


def _counted(rows: list[Row], key: Callable[[Row], tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """COUNT(*) of groups of rows of one window."""
    groups = Counter((*key(row), *each.window) for each in _by_key(rows) for row in each.rows)
    return Counter((*group, count) for group, count in groups.items())


def _joined(rows: list[Row]) -> Counter[tuple[Any, ...]]:
    return Counter(
        (a[1], a[3], b[3]) for each in _by_key(rows) for a in each.rows for b in each.rows
    )


_JOIN: Final = (
    "SELECT 1 FROM (SELECT * FROM {0}) a JOIN (SELECT * FROM {0}) b ON a.key = b.key AND "
    "a.window_start = b.window_start AND a.window_end = b.window_end"
)
_LAST: Final = dt.timedelta(milliseconds=1)
#: Query -> its result.
_QUERIES: Final[dict[str, Callable[[list[Row]], Counter[tuple[Any, ...]]]]] = {
    f"SELECT * FROM TABLE({_SESSION})": lambda rows: Counter(
        (*row, *each.window, each.end - _LAST) for each in _by_key(rows) for row in each.rows
    ),
    f"SELECT v, window_start FROM {_ALL} WHERE v > 3": lambda rows: Counter(
        (row[3], each.start)
        for each in _sessions(rows, lambda _: 0)
        for row in each.rows
        if row[3] > 3
    ),
    f"SELECT g, window_start, window_end, COUNT(*) AS n FROM {_SESSION} "
    "GROUP BY g, window_start, window_end": lambda rows: _counted(rows, lambda row: (row[2],)),
    f"SELECT window_start, window_end, COUNT(*) AS n FROM {_SESSION} "
    "GROUP BY window_start, window_end": lambda rows: _counted(rows, lambda _: ()),
    f"SELECT k, COUNT(*) AS n FROM {_SESSION} GROUP BY k": (
        lambda rows: Counter(Counter(row[1] for row in rows).items())
    ),
    f"SELECT k, g, window_start, window_end, COUNT(*) AS n FROM {_SESSION} "
    "GROUP BY window_start, window_end, ROLLUP(k, g)": lambda rows: (
        _counted(rows, lambda row: (row[1], row[2]))
        + _counted(rows, lambda row: (row[1], None))
        + _counted(rows, lambda _: (None, None))
    ),
    f"SELECT k, window_start, COUNT(DISTINCT v) AS d, LISTAGG(DISTINCT g) IS NULL AS x FROM "
    f"{_SESSION} GROUP BY k, window_start, window_end": lambda rows: Counter(
        (each.rows[0][1], each.start, len({row[3] for row in each.rows}), False)
        for each in _by_key(rows)
    ),
    f"SELECT COUNT(DISTINCT k) AS d, SUM(v) AS s FROM {_ALL} GROUP BY window_start, window_end": (
        lambda rows: Counter(
            (len({row[1] for row in each.rows}), sum(row[3] for row in each.rows))
            for each in _sessions(rows, lambda _: 0)
        )
    ),
    f"SELECT g, COUNT(*) AS n FROM {_BY_TWO} WHERE EXTRACT(MINUTE FROM window_start) < 5 "
    "GROUP BY k, g, window_start, window_end": lambda rows: Counter(
        (each.rows[0][2], len(each.rows))
        for each in _sessions(rows, lambda row: row[1:3])
        if each.start.minute < 5
    ),
    "SELECT window_end, k, v FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, "
    f"window_end, k ORDER BY v DESC, ts) AS n FROM {_SESSION}) WHERE n <= 2": lambda rows: Counter(
        (each.end, row[1], row[3])
        for each in _by_key(rows)
        for row in sorted(each.rows, key=lambda row: (-row[3], row[0]))[:2]
    ),
    f"SELECT a.k, a.v, b.v FROM (SELECT * FROM {_SESSION}) a JOIN (SELECT * FROM {_SESSION}) b "
    "ON a.k = b.k AND a.window_start = b.window_start AND a.window_end = b.window_end": _joined,
    f"SELECT k, COUNT(*) AS n FROM (SELECT k, window_start AS a, window_end AS b, v FROM {_SESSION}"
    ") WHERE CAST(a AS STRING) > '2024' GROUP BY a, b, k": lambda rows: Counter(
        (each.rows[0][1], len(each.rows)) for each in _by_key(rows)
    ),
}


def _rows(seed: int) -> list[Row]:
    drawn = random.Random(seed)
    return [
        (
            _START + dt.timedelta(seconds=drawn.randint(0, 600)),
            drawn.choice("abc"),
            drawn.choice("xy"),
            drawn.randint(0, 9),
        )
        for _ in range(70)
    ]


@pytest.mark.sampled(every=3)
@pytest.mark.both_engines
@pytest.mark.parametrize("number", range(len(_QUERIES)))
def test_oracle_sessions(number: int, tmp_path: Path) -> None:
    query, answer = list(_QUERIES.items())[number]
    rows = _rows(number)
    env = environment(number % 3 + 1)
    table_of(env, "e", _COLUMNS, [(str(row[0]), *row[1:]) for row in rows], tmp_path)
    assert materialised(changelog(env, query, tmp_path, number)) == answer(rows)


@pytest.mark.parametrize(
    ("query", "nodes"),
    [
        # Of sessions with equal bounds and other keys, the window alone is no group.
        ("SELECT COUNT(*) FROM {} GROUP BY window_start, window_end", ["GroupAggregate"]),
        ("SELECT COUNT(*) FROM {} GROUP BY window_start, window_end, g", ["GroupAggregate"]),
        ("SELECT COUNT(*) FROM {} GROUP BY window_start, window_end, k, g", ["GroupAggregate"]),
        (
            "SELECT MAX(window_start) FROM {} GROUP BY window_start, window_end, k",
            ["WindowAggregate"],
        ),
        (
            _JOIN.replace("key", "g"),
            ["Join"],
        ),
        (
            _JOIN.replace("key", "k"),
            ["WindowJoin"],
        ),
    ],
)
def test_windows_of_sessions_are_planned_as_in_flink(
    query: str, nodes: list[str], tmp_path: Path
) -> None:
    env = environment()
    table_of(env, "e", _COLUMNS, [], tmp_path)
    shown = env.explain_sql(query.format(_SESSION))
    plan = shown[shown.index("== Optimized Physical Plan") :]
    made = [line.strip(" +-:|").partition("(")[0] for line in plan.splitlines()]
    kinds = {"GroupAggregate", "WindowAggregate", "Join", "WindowJoin"}
    assert [each for each in made[: made.index("WindowTableFunction")] if each in kinds] == nodes
    function = (
        "WindowTableFunction(window=[SESSION(time_col=[ts], gap=[20 s], partition keys=[k])])"
    )
    assert function in plan


@pytest.mark.both_engines
def test_sessions_by_processing_time_end_with_their_input(tmp_path: Path) -> None:
    env = environment(2)
    values = "(SELECT k, v, PROCTIME() AS p FROM (VALUES ('a', 1), ('a', 1), ('b', 2)) AS t(k, v))"
    session = f"SESSION({values} PARTITION BY k, DESCRIPTOR(p), INTERVAL '1' HOUR)"
    found = changelog(env, f"SELECT k, v FROM {session}", tmp_path, limit=9)
    assert materialised(found) == {("a", 1): 2, ("b", 2): 1}
    query = f"SELECT k, SUM(DISTINCT v) AS s FROM {session} GROUP BY k, window_start, window_end"
    assert materialised(changelog(env, query, tmp_path, limit=9)) == {("a", 1): 1, ("b", 2): 1}
