"""Late rows in SQL: windows, OVER and ORDER BY against a plain interpreter of watermarks.

What it is: rows come one by one, each with the watermark behind it; times and watermarks meet the
ends of windows often.  Runs are stopped, and go on at another parallelism or on the other engine.
``MILLSTREAM_QUERY_SEEDS=7,8`` replays some.
What it is not: joins by time (``tests/runtime/table_operators/test_joins_by_time.py``).
"""

from __future__ import annotations

import datetime as dt
import os
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.integration.job_runs import SplitsSource
from tests.sql.random.random_tables import env_stream
from tests.support.tiers import sampled

from millstream.common import Types
from millstream.connectors.basic.collect import read_collected
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

#: Time (seconds), key, value, number of the row.
Row = tuple[int, str | None, int | None, int]

_START: Final = dt.datetime(2024, 1, 1)  # noqa: DTZ001 - TIMESTAMP has no zone
_DELAY: Final = 30
_TYPE: Final = Types.ROW_NAMED(
    ["ts", "k", "v", "id"], [Types.SQL_TIMESTAMP(), Types.STRING(), Types.INT(), Types.INT()]
)
_SEEDS: Final = [int(each) for each in os.environ.get("MILLSTREAM_QUERY_SEEDS", "1,2").split(",")]


def _at(seconds: int) -> dt.datetime:
    return _START + dt.timedelta(seconds=seconds)


def _rows(drawn: random.Random) -> list[Row]:
    """Times go on, and now and then back by more than the delay."""
    rows: list[Row] = []
    now = 0
    for number in range(22):
        now += drawn.choice((0, 10, 10, 20, 50))
        late = drawn.choice((0, 0, 10, 20, 40, 70, 130))
        key, value = drawn.choice(("a", "b", None)), drawn.choice((None, 1, 2, 3))
        rows.append((max(0, now - late), key, value, number))
    return rows


def _watermarked(rows: list[Row]) -> Iterator[tuple[Row | None, int]]:
    """Each row with the watermark in front of it; then nothing, at the end of time."""
    watermark = -(10**6)
    for row in rows:
        yield row, watermark
        watermark = max(watermark, row[0] - _DELAY)
    yield None, 10**6


@dataclass(frozen=True)
class _Question:
    """A query, and what plain Python says."""

    query: str
    answer: Callable[[list[Row]], list[tuple[Any, ...]]]
    in_order: bool = False


# -- windows -------------------------------------------------------------------------------------


def _windows(kind: str, size: int, step: int, time_: int) -> list[tuple[int, int]]:
    if kind == "CUMULATE":
        start = time_ // size * size
        return [(start, end) for end in range(start + step, start + size + 1, step) if end > time_]
    starts = range(time_ // step * step, time_ - size, -step)
    return [(start, start + size) for start in starts]


def _in_windows(kind: str, size: int, step: int, rows: list[Row]) -> dict[Any, list[Row]]:
    """The rows of each window that were there before it was over."""
    found: dict[Any, list[Row]] = {}
    for row, watermark in _watermarked(rows):
        for window in _windows(kind, size, step, row[0]) if row else ():
            # Times are whole seconds: the last millisecond is passed with the end.
            if row and window[1] > watermark:
                found.setdefault(window, []).append(row)
    return found


def _sum(values: list[int | None]) -> int | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _window_question(drawn: random.Random) -> _Question:
    kind, size, step = drawn.choice(
        (("TUMBLE", 40, 40), ("HOP", 60, 20), ("HOP", 80, 40), ("CUMULATE", 60, 20))
    )
    lengths = [size] if kind == "TUMBLE" else [step, size]
    given = ", ".join(f"INTERVAL '{each}' SECOND" for each in lengths)
    table = f"{kind}(TABLE e, DESCRIPTOR(ts), {given})"
    if drawn.random() < 0.3:
        query = (
            "SELECT window_end, k, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY "
            f"window_start, window_end, k ORDER BY v DESC, id) AS n FROM {table}) WHERE n <= 2"
        )
        return _Question(query, lambda rows: _firsts(_in_windows(kind, size, step, rows)))
    keyed, distinct = drawn.random() < 0.7, drawn.choice(("", "DISTINCT "))
    key = ", k" if keyed else ""
    query = (
        f"SELECT window_start, window_end{key}, COUNT(*), SUM({distinct}v), MAX(id), "
        f"LAST_VALUE(id) FROM {table} GROUP BY window_start, window_end{key}"
    )

    def answer(rows: list[Row]) -> list[tuple[Any, ...]]:
        made = []
        for (start, end), mine in _in_windows(kind, size, step, rows).items():
            for one in {row[1] for row in mine} if keyed else {None}:
                some = [row for row in mine if not keyed or row[1] == one]
                values = [row[2] for row in some]
                total = _sum(list(set(values)) if distinct else values)
                shown = [one] if keyed else []
                last = max(row[3] for row in some)  # they come in the order of their numbers
                made.append((_at(start), _at(end), *shown, len(some), total, last, last))
        return made

    return _Question(query, answer)


@dataclass
class _Session:
    key: str | None
    start: int
    end: int
    rows: list[Row]


def _sessions(rows: list[Row], gap: int) -> list[_Session]:
    """The sessions of each key; a row is late if the session that it makes is over."""
    open_: list[_Session] = []
    over: list[_Session] = []
    for row, watermark in _watermarked(rows):
        over += [each for each in open_ if each.end <= watermark]
        open_ = [each for each in open_ if each.end > watermark]
        if row is None:
            continue
        made = _Session(row[1], row[0], row[0] + gap, [row])
        met = [
            each
            for each in open_
            if each.key == made.key and each.start <= made.end and each.end >= made.start
        ]
        for each in met:
            made.start, made.end = min(made.start, each.start), max(made.end, each.end)
            made.rows += each.rows
        if made.end > watermark:
            open_ = [each for each in open_ if each not in met] + [made]
    return over


def _session_question(drawn: random.Random) -> _Question:
    gap = drawn.choice((10, 20, 50))
    keyed = drawn.random() < 0.7
    parted, key = (" PARTITION BY k", ", k") if keyed else ("", "")
    table = f"SESSION(TABLE e{parted}, DESCRIPTOR(ts), INTERVAL '{gap}' SECOND)"

    def over(rows: list[Row]) -> list[_Session]:
        return _sessions(rows if keyed else [(t, None, v, n) for t, _, v, n in rows], gap)

    def by_itself(rows: list[Row]) -> list[tuple[Any, ...]]:
        found = over(rows)
        return [(_at(each.start), _at(each.end), row[3]) for each in found for row in each.rows]

    def ranked(rows: list[Row]) -> list[tuple[Any, ...]]:
        found = []
        for each in over(rows):
            each.rows.sort(key=lambda row: (row[2] is None, -(row[2] or 0), row[3]))
            found += [(_at(each.end), row[3]) for row in each.rows[:2]]
        return found

    def grouped(rows: list[Row]) -> list[tuple[Any, ...]]:
        found = []
        for each in over(rows):
            values = _sum(list({row[2] for row in each.rows}))
            last = max(row[3] for row in each.rows)
            shown = [each.key] if keyed else []
            found.append((_at(each.start), _at(each.end), *shown, len(each.rows), values, last))
        return found

    # Without keys, sessions do not overlap: the window alone is a partition of theirs.
    rank = (
        f"SELECT window_end, id FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY window_start, "
        f"window_end{key} ORDER BY v DESC, id) AS n FROM {table}) WHERE n <= 2"
    )
    aggregates = (
        f"SELECT window_start, window_end{key}, COUNT(*), SUM(DISTINCT v), LAST_VALUE(id) "
        f"FROM {table} GROUP BY window_start, window_end{key}"
    )
    return drawn.choice(
        (
            _Question(f"SELECT window_start, window_end, id FROM {table}", by_itself),
            _Question(rank, ranked),
            _Question(aggregates, grouped),
        )
    )


def _firsts(windows: dict[Any, list[Row]]) -> list[tuple[Any, ...]]:
    made = []
    for (_, end), mine in windows.items():
        for key in {row[1] for row in mine}:
            some = [row for row in mine if row[1] == key]
            some.sort(key=lambda row: (row[2] is None, -(row[2] or 0), row[3]))
            made += [(_at(end), key, row[3]) for row in some[:2]]
    return made


# -- OVER, ORDER BY ------------------------------------------------------------------------------


def _sorted_question(drawn: random.Random) -> _Question:
    del drawn

    def answer(rows: list[Row]) -> list[tuple[Any, ...]]:
        return [(_at(row[0]), row[3]) for row in _in_order(rows)]

    return _Question("SELECT ts, id FROM e ORDER BY ts, v", answer, in_order=True)


def _in_order(rows: list[Row]) -> list[Row]:
    """A row is late if one of its time or of a later one was given, not if the watermark is past.

    Such a row waits until the watermark advances again.
    """
    waiting: list[Row] = []
    made: list[Row] = []
    last_given = before = -(10**6)
    for row, watermark in _watermarked(rows):
        if watermark != before:
            due = [each for each in waiting if each[0] <= watermark]
            waiting = [each for each in waiting if each[0] > watermark]
            made += sorted(due, key=lambda each: (each[0], each[2] is not None, each[2] or 0))
            last_given = max([last_given, *(each[0] for each in due)])
        before = watermark
        if row and row[0] > last_given:
            waiting.append(row)
    return made


def _over_question(drawn: random.Random) -> _Question:
    frame, is_rows, length = drawn.choice(
        (
            ("ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", True, 2),
            ("ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", True, None),
            ("RANGE BETWEEN INTERVAL '50' SECOND PRECEDING AND CURRENT ROW", False, 50),
            ("RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW", False, None),
        )
    )
    over = f"OVER (PARTITION BY k ORDER BY ts {frame})"
    query = f"SELECT id, COUNT(*) {over}, SUM(v) {over} FROM e"
    return _Question(query, lambda rows: _over(rows, is_rows=is_rows, length=length))


def _bound(given: list[int], watermark: int, *, is_rows: bool, length: int | None) -> int:
    """The last time of which rows of a key are late."""
    if length is None:
        return watermark
    last = max(given, default=-(10**6))
    if is_rows or last >= watermark - length:
        return last
    return watermark - 1  # forgotten


def _over(rows: list[Row], *, is_rows: bool, length: int | None) -> list[tuple[Any, ...]]:
    waiting: list[Row] = []
    taken: dict[Any, list[Row]] = {}
    made = []
    before = None
    for row, watermark in _watermarked(rows):
        due: list[Row] = []
        if watermark != before:  # what is behind it waits until it goes on
            due = sorted((one for one in waiting if one[0] <= watermark), key=lambda one: one[0])
            waiting = [one for one in waiting if one[0] > watermark]
        before = watermark
        for each in due:
            taken.setdefault(each[1], []).append(each)
        for each in due:
            mine = taken[each[1]]
            frame = mine[: mine.index(each) + 1]
            if not is_rows:
                first = -1 if length is None else each[0] - length
                frame = [one for one in mine if first <= one[0] <= each[0]]
            elif length is not None:
                frame = frame[-length - 1 :]
            made.append((each[3], len(frame), _sum([one[2] for one in frame])))
        given = [] if row is None else [each[0] for each in taken.get(row[1], [])]
        if row and row[0] > _bound(given, watermark, is_rows=is_rows, length=length):
            waiting.append(row)
    return made


# -- runs ----------------------------------------------------------------------------------------


def _environment(rows: list[Row], parallelism: int) -> StreamTableEnvironment:
    stream_env = StreamExecutionEnvironment.get_execution_environment()
    stream_env.set_parallelism(parallelism)
    env = StreamTableEnvironment.create(stream_env)
    source = SplitsSource([[(_at(row[0]), *row[1:]) for row in rows]], _TYPE)
    schema = Schema.new_builder().column("ts", "TIMESTAMP(3)").column("k", "STRING")
    schema = schema.column("v", "INT").column("id", "INT")
    schema = schema.watermark("ts", f"ts - INTERVAL '{_DELAY}' SECOND")
    stream = env_stream(stream_env, source, "e")
    env.create_temporary_view("e", env.from_data_stream(stream, schema.build()))
    return env


def _found(rows: list[Row], query: str, drawn: random.Random, path: Path) -> list[Any]:
    """What comes of a query, one row of input per epoch."""
    stops = drawn.choice(([], [], [7], [4, 9]))
    out = path / "out"
    for stop in (*stops, 10_000):
        env = _environment(rows, drawn.choice((1, 2)))
        end = env.session.collected(env.sql_query(query).plan, str(out))
        graph = env.session.program.graph_of([end], "late")
        lives_on = drawn.random() < 0.3
        cluster = MiniCluster(graph, path / "state", limits=[1] * 200, pipelined=lives_on)
        cluster.run(stop)
    collected: list[Any] = list(read_collected(str(out)))
    return [tuple(row) for row in collected]


def compare(
    seed: int, path: Path, make: Callable[[random.Random], _Question] | None = None
) -> None:
    """Run the query of a seed; ``make`` None: of any kind."""
    drawn = random.Random(seed)
    rows = _rows(drawn)
    if make is None:
        kinds = (_window_question, _window_question, _over_question, _sorted_question)
        make = drawn.choice((*kinds, _session_question))
    question = make(drawn)
    print(f"replay with MILLSTREAM_QUERY_SEEDS={seed}\n{question.query}\n{rows}")
    found, wanted = _found(rows, question.query, drawn, path), question.answer(rows)
    assert Counter(found) == Counter(wanted)
    assert not question.in_order or found == wanted


@pytest.mark.parametrize("seed", _SEEDS)
def test_oracle_late_rows(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path)


def test_order_by_gives_a_row_after_the_watermark_unless_a_later_one_was_given(
    tmp_path: Path,
) -> None:
    # The watermark is 30 when 2 and 3 come; nothing after time 0 was given.  Not so when 5 comes.
    rows: list[Row] = [
        (0, "a", 1, 0),
        (60, "a", 1, 1),
        (20, "b", 2, 2),
        (20, "b", 1, 3),
        (90, "a", 1, 4),
        (20, "b", 3, 5),
    ]
    question = _sorted_question(random.Random(1))
    wanted = [
        (_at(time_), number) for time_, number in [(0, 0), (20, 3), (20, 2), (60, 1), (90, 4)]
    ]
    assert _found(rows, question.query, random.Random(1), tmp_path) == wanted
    assert question.answer(rows) == wanted


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("seed", [*sampled(range(60, 72), 4), *_SEEDS])
def test_oracle_sessions_of_late_rows(seed: int, tmp_path: Path) -> None:
    compare(seed, tmp_path, _session_question)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_oracle_late_rows_for_long(tmp_path: Path) -> None:
    end = time.monotonic() + float(os.environ.get("MILLSTREAM_SOAK_SECONDS", "600"))
    seed = int(time.time())
    while time.monotonic() < end:
        seed += 1
        compare(seed, tmp_path / str(seed))
        shutil.rmtree(tmp_path / str(seed))
