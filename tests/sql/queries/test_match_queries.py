"""MATCH_RECOGNIZE in queries: the examples of Flink's documentation, time attributes, refusals."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import pytest
from tests.runtime.table_operators.pattern_model import matches
from tests.support.query_running import changelog, environment

from millstream.errors import MillstreamError, ValidationError
from millstream.runtime.operators.table.row_patterns import PatternVariable, RowPattern, SkipTo
from millstream.table import DataTypes
from millstream.table.udf import udf

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

COLUMNS = (
    "symbol STRING, price BIGINT, rowtime TIMESTAMP(3), "
    "WATERMARK FOR rowtime AS rowtime - INTERVAL '3' SECOND"
)


def ticker(
    env: TableEnvironment, prices: list[int], path: Path, symbol: str = "ACME", minutes: int = 0
) -> None:
    """A table of prices, one each second, or so many minutes."""
    step = 60 * minutes or 1
    times = [at * step for at in range(len(prices))]
    rows = [
        (symbol, price, f"2020-01-01 {t // 3600:02}:{t // 60 % 60:02}:{t % 60:02}")
        for price, t in zip(prices, times, strict=True)
    ]
    table_in_order(env, rows, path)


def table_in_order(env: TableEnvironment, rows: list[Any], path: Path) -> None:
    """A table of one file: rows come in their order, so none is late."""
    directory = path / "Ticker"
    directory.mkdir()
    names = ("symbol", "price", "rowtime")
    lines = [json.dumps(dict(zip(names, row, strict=True))) + "\n" for row in rows]
    (directory / "rows.json").write_text("".join(lines))
    env.execute_sql(
        f"CREATE TABLE Ticker ({COLUMNS}) WITH ('connector' = 'filesystem', "
        f"'path' = '{directory}', 'format' = 'json')"
    )


def clock(value: Any) -> Any:
    return value.strftime("%H:%M:%S") if hasattr(value, "strftime") else value


def found(env: TableEnvironment, clauses: str, path: Path, select: str = "*") -> list[Any]:
    query = f"SELECT {select} FROM Ticker MATCH_RECOGNIZE ({clauses}) AS T"
    return [tuple(map(clock, row)) for row in changelog(env, query, path)]


def test_a_price_that_falls_and_rises(tmp_path: Path) -> None:
    env = environment()
    ticker(env, [12, 17, 19, 21, 25, 18, 15, 14, 24, 25, 19], tmp_path)
    clauses = """
        PARTITION BY symbol ORDER BY rowtime
        MEASURES START_ROW.rowtime AS start_tstamp, LAST(PRICE_DOWN.rowtime) AS bottom_tstamp,
            LAST(PRICE_UP.rowtime) AS end_tstamp
        ONE ROW PER MATCH AFTER MATCH SKIP TO LAST PRICE_UP
        PATTERN (START_ROW PRICE_DOWN+ PRICE_UP)
        DEFINE PRICE_DOWN AS
                (LAST(PRICE_DOWN.price, 1) IS NULL AND PRICE_DOWN.price < START_ROW.price) OR
                    PRICE_DOWN.price < LAST(PRICE_DOWN.price, 1),
            PRICE_UP AS PRICE_UP.price > LAST(PRICE_DOWN.price, 1)"""
    assert found(env, clauses, tmp_path) == [("ACME", "00:00:04", "00:00:07", "00:00:08")]


def test_an_average_that_stays_low(tmp_path: Path) -> None:
    env = environment()
    ticker(env, [12, 17, 13, 16, 25, 2, 4, 10, 15, 25, 25, 30], tmp_path)
    clauses = """
        PARTITION BY symbol ORDER BY rowtime
        MEASURES FIRST(A.rowtime) AS s, LAST(A.rowtime) AS e, AVG(CAST(A.price AS DOUBLE)) AS p
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A+ B) DEFINE A AS AVG(A.price) < 15"""
    assert found(env, clauses, tmp_path) == [
        ("ACME", "00:00:00", "00:00:03", 14.5),
        ("ACME", "00:00:05", "00:00:10", 13.5),
    ]


@pytest.mark.parametrize(("quantifier", "last"), [("B*", [16]), ("B*?", [13, 16])])
def test_greedy_and_reluctant(quantifier: str, last: list[int], tmp_path: Path) -> None:
    env = environment()
    ticker(env, [10, 11, 12, 13, 14, 16], tmp_path)
    clauses = f"""
        PARTITION BY symbol ORDER BY rowtime MEASURES C.price AS lastPrice
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW PATTERN (A {quantifier} C)
        DEFINE A AS A.price > 10, B AS B.price < 15, C AS C.price > 12"""
    assert [row[1] for row in found(env, clauses, tmp_path)] == last


AFTER = {
    "PAST LAST ROW": [(26, "00:00:00", "00:00:03"), (17, "00:00:04", "00:00:06")],
    "TO NEXT ROW": [
        (26, "00:00:00", "00:00:03"),
        (24, "00:00:01", "00:00:04"),
        (25, "00:00:02", "00:00:05"),
        (22, "00:00:03", "00:00:06"),
        (17, "00:00:04", "00:00:06"),
    ],
    "TO LAST A": [
        (26, "00:00:00", "00:00:03"),
        (25, "00:00:02", "00:00:05"),
        (17, "00:00:04", "00:00:06"),
    ],
    "TO FIRST A": "Could not skip to first element of a match",
}


@pytest.mark.parametrize("skip", [*AFTER, ""])
def test_after_match(skip: str, tmp_path: Path) -> None:
    env = environment()
    ticker(env, [7, 9, 10, 5, 10, 7, 14], tmp_path)
    after = f"AFTER MATCH SKIP {skip}" if skip else ""  # as in Flink: TO NEXT ROW
    clauses = f"""
        PARTITION BY symbol ORDER BY rowtime
        MEASURES SUM(A.price) AS s, FIRST(rowtime) AS b, LAST(rowtime) AS e
        ONE ROW PER MATCH {after} PATTERN (A+ C) DEFINE A AS SUM(A.price) < 30"""
    wanted = AFTER[skip or "TO NEXT ROW"]
    if isinstance(wanted, str):
        with pytest.raises(MillstreamError, match=wanted):
            found(env, clauses, tmp_path)
    else:
        assert [row[1:] for row in found(env, clauses, tmp_path)] == wanted


def test_within_is_longer_than_the_match(tmp_path: Path) -> None:
    env = environment()
    ticker(env, [20, 17, 18, 11, 14, 9, 15, 14, 24, 1, 19], tmp_path, minutes=20)
    clauses = """
        PARTITION BY symbol ORDER BY rowtime
        MEASURES C.rowtime AS dropTime, A.price - C.price AS dropDiff
        ONE ROW PER MATCH AFTER MATCH SKIP PAST LAST ROW
        PATTERN (A B* C) WITHIN INTERVAL '{}' MINUTE
        DEFINE B AS B.price > A.price - 10, C AS C.price < A.price - 10"""
    assert found(env, clauses.format(61), tmp_path) == [("ACME", "03:00:00", 14)]
    assert found(env, clauses.format(60), tmp_path) == [("ACME", "03:00:00", 13)]


def test_the_time_of_a_match_is_event_time(tmp_path: Path) -> None:
    env = environment()
    ticker(env, [1, 5, 1, 6, 1, 7, 0], tmp_path)
    matched = """SELECT * FROM Ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY rowtime
        MEASURES MATCH_ROWTIME({}) AS mt, B.price AS p PATTERN (A B)
        DEFINE B AS B.price > A.price)"""
    for argument in ("", "rowtime"):
        env.execute_sql(f"CREATE TEMPORARY VIEW m{argument} AS {matched.format(argument)}")
        query = f"""SELECT window_start, SUM(p) AS s FROM TUMBLE(TABLE m{argument},
            DESCRIPTOR(mt), INTERVAL '4' SECOND) GROUP BY window_start, window_end"""
        rows = [tuple(map(clock, row)) for row in changelog(env, query, tmp_path)]
        assert rows == [("00:00:00", 11), ("00:00:04", 7)]


def test_the_time_of_a_match_over_instants_is_in_utc(tmp_path: Path) -> None:
    env = environment()
    env.get_config().set("table.local-time-zone", "Asia/Tokyo")
    directory = tmp_path / "t"
    directory.mkdir()
    lines = [json.dumps({"n": n, "ms": 1000 * at}) + "\n" for at, n in enumerate((1, 5, 1, 6))]
    (directory / "a.json").write_text("".join(lines))
    env.execute_sql(
        "CREATE TABLE t (n INT, ms BIGINT, rt AS TO_TIMESTAMP_LTZ(ms, 3), WATERMARK FOR rt AS rt) "
        f"WITH ('connector' = 'filesystem', 'path' = '{directory}', 'format' = 'json')"
    )
    query = """SELECT * FROM t MATCH_RECOGNIZE (ORDER BY rt MEASURES MATCH_ROWTIME({}) AS mt,
        B.n AS n PATTERN (A B) DEFINE B AS B.n > A.n)"""
    rows = [tuple(row) for row in changelog(env, query.format(""), tmp_path / "1")]
    assert [(str(time), n) for time, n in rows] == [
        ("1970-01-01 00:00:01", 5),
        ("1970-01-01 00:00:03", 6),
    ]
    instants = [tuple(row) for row in changelog(env, query.format("rt"), tmp_path / "2")]
    assert [(time.timestamp(), n) for time, n in instants] == [(1, 5), (3, 6)]


def test_a_column_of_a_row_is_no_time_attribute(tmp_path: Path) -> None:
    env = environment()
    ticker(env, [1], tmp_path)
    env.execute_sql("""CREATE TEMPORARY VIEW m AS SELECT * FROM Ticker MATCH_RECOGNIZE (
        ORDER BY rowtime MEASURES A.rowtime AS t PATTERN (A) DEFINE A AS TRUE)""")
    with pytest.raises(ValidationError, match="is a time attribute type"):
        env.sql_query("SELECT * FROM TUMBLE(TABLE m, DESCRIPTOR(t), INTERVAL '4' SECOND)")


def test_by_processing_time(tmp_path: Path) -> None:
    env = environment()
    rows = [(n,) for n in (1, 3, 2, 4)]
    directory = tmp_path / "t"
    directory.mkdir()
    (directory / "a.json").write_text("".join(f'{{"n": {n}}}\n' for (n,) in rows))
    env.execute_sql(
        "CREATE TABLE t (n INT, p AS PROCTIME()) WITH ('connector' = 'filesystem', "
        f"'path' = '{directory}', 'format' = 'json')"
    )
    query = """SELECT a, b, CAST(t AS TIMESTAMP_LTZ(3)) > TO_TIMESTAMP_LTZ(0, 3) FROM t
        MATCH_RECOGNIZE (ORDER BY p MEASURES A.n AS a, B.n AS b, MATCH_PROCTIME() AS t
        PATTERN (A B) DEFINE B AS B.n > A.n)"""
    assert [tuple(row) for row in changelog(env, query, tmp_path)] == [(1, 3, True), (2, 4, True)]


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_oracle_over_cuts_and_restores(parallelism: int, tmp_path: Path) -> None:
    drawn = random.Random(parallelism)
    rows = [
        (drawn.choice("abcd"), drawn.choice([None, *range(5)]), f"2020-01-01 00:00:{s:02}")
        for s in range(60)
    ]
    env = environment(parallelism)
    table_in_order(env, rows, tmp_path)
    query = """SELECT * FROM Ticker MATCH_RECOGNIZE (PARTITION BY symbol ORDER BY rowtime
        MEASURES FIRST(A.rowtime) AS b, C.rowtime AS e, SUM(B.price) AS s
        AFTER MATCH SKIP PAST LAST ROW PATTERN (A B{1,3}? C) WITHIN INTERVAL '20' SECOND
        DEFINE B AS B.price >= A.price, C AS SUM(B.price) > 4)"""
    variables = (PatternVariable("A"), PatternVariable("B", 1, 3), PatternVariable("C"))
    pattern = RowPattern(variables, SkipTo.PAST_LAST_ROW, None, 20)
    wanted = []
    for symbol in "abcd":
        prices = [price for key, price, _ in rows if key == symbol]
        times = [int(time[-2:]) for key, _, time in rows if key == symbol]

        def meets(start: int, counts: tuple[int, ...], prices: list[Any] = prices) -> bool:
            now = prices[start + sum(counts) - 1]
            if len(counts) == 2:
                return None not in (now, prices[start]) and now >= prices[start]
            of_b = prices[start + 1 : start + 1 + sum(counts[1:2])]
            return len(counts) == 1 or sum(of_b) > 4

        known = matches(pattern, meets, times, 10**6)
        assert not isinstance(known, str)
        for start, counts, _ in known:
            of_b = prices[start + 1 : start + 1 + counts[1]]
            end = times[start + sum(counts) - 1]
            wanted.append((symbol, f"00:00:{times[start]:02}", f"00:00:{end:02}", sum(of_b)))
    got = [tuple(map(clock, row)) for row in changelog(env, query, tmp_path, seed=parallelism)]
    assert len(wanted) > 3
    assert sorted(got) == sorted(wanted)


def test_other_aggregates(tmp_path: Path) -> None:
    env = environment()
    ticker(env, [3, 7, 1, 4, 9], tmp_path)
    clauses = """ORDER BY rowtime MEASURES LISTAGG(CAST(A.price AS STRING)) AS l,
        STDDEV_POP(A.price) AS d, FIRST_VALUE(A.price) AS f, LAST_VALUE(price) AS e
        AFTER MATCH SKIP PAST LAST ROW PATTERN (A{2} B) DEFINE A AS A.price > 2"""
    assert found(env, clauses, tmp_path) == [("3,7", 2, 3, 1)]


def test_explain(tmp_path: Path) -> None:
    env = environment()
    ticker(env, [1], tmp_path)
    plan = env.explain_sql("""SELECT * FROM Ticker MATCH_RECOGNIZE (PARTITION BY symbol
        ORDER BY rowtime MEASURES LAST(B.price, 1) AS p, COUNT(*) AS n
        AFTER MATCH SKIP TO LAST B PATTERN (A B{2,}? C) WITHIN INTERVAL '1' HOUR
        DEFINE B AS price > FIRST(A.price) AND SUM(B.price) < 9)""")
    assert (
        "Match(partitionBy=[symbol], orderBy=[rowtime ASC], measures=[FINAL(LAST(B.price, 1)) AS "
        "p, FINAL(COUNT(*)) AS n], rowsPerMatch=[ONE ROW PER MATCH], after=[SKIP TO LAST B], "
        "pattern=[A B{2,}? C], within=[3600000 ms], "
        "define=[{B=AND(>(price, FIRST(A.price, 0)), <(SUM(B.price), CAST(9 AS BIGINT)))}])"
    ) in plan


ORDER = "ORDER BY rowtime MEASURES A.price AS p"
A_IS_TRUE = "DEFINE A AS TRUE"
#: Clauses -> a part of the message.
REFUSED = {
    f"MEASURES A.price AS p PATTERN (A) {A_IS_TRUE}": "either rowtime or proctime for order by.",
    f"ORDER BY price, rowtime MEASURES A.price AS p PATTERN (A) {A_IS_TRUE}": "as the first one",
    f"ORDER BY rowtime DESC MEASURES A.price AS p PATTERN (A) {A_IS_TRUE}": "must be ascending",
    f"ORDER BY rowtime + INTERVAL '1' DAY MEASURES A.price AS p PATTERN (A) {A_IS_TRUE}": "columns",
    f"ORDER BY rowtime PATTERN (A) {A_IS_TRUE}": "without MEASURES",
    f"{ORDER} ALL ROWS PER MATCH PATTERN (A) {A_IS_TRUE}": "All rows per match mode",
    f"{ORDER} PATTERN (A B+) {A_IS_TRUE}": "Greedy quantifiers are not allowed as the last",
    f"{ORDER} PATTERN (A+ B*? C) {A_IS_TRUE}": "Optional pattern cannot be preceded by greedy",
    f"{ORDER} PATTERN (A+ B? C) {A_IS_TRUE}": "Optional pattern cannot be preceded by greedy",
    f"{ORDER} PATTERN (A*) {A_IS_TRUE}": "Patterns that can produce empty matches",
    f"{ORDER} PATTERN (A? B*?) {A_IS_TRUE}": "Patterns that can produce empty matches",
    f"{ORDER} PATTERN (A B?? C) {A_IS_TRUE}": "Reluctant optional variables",
    f"{ORDER} PATTERN (A B{{0}} C) {A_IS_TRUE}": "at least one row",
    f"{ORDER} PATTERN (A | B) {A_IS_TRUE}": "Alternatives",
    f"{ORDER} PATTERN (PERMUTE(A, B)) {A_IS_TRUE}": "PERMUTE",
    f"{ORDER} PATTERN ({{- A -}} B) {A_IS_TRUE}": "Exclusions",
    f"{ORDER} PATTERN (A (B C)+ D) {A_IS_TRUE}": "group patterns are not supported",
    f"{ORDER} PATTERN (A B A) {A_IS_TRUE}": "Pattern variables must be unique",
    f"{ORDER} PATTERN (A) SUBSET S = (B) {A_IS_TRUE}": "'B' is not in PATTERN",
    f"{ORDER} PATTERN (A) SUBSET S = (A), S = (A) {A_IS_TRUE}": "has already been defined",
    f"{ORDER} PATTERN (A) SUBSET S = (A) DEFINE S AS TRUE": "has already been defined",
    f"{ORDER} AFTER MATCH SKIP TO LAST S PATTERN (A) SUBSET S = (A) {A_IS_TRUE}": (
        "'S' is not in PATTERN"
    ),
    f"{ORDER} PATTERN (A B) SUBSET S = (A) DEFINE B AS S.price < 1": "the pattern variables are: A",
    f"{ORDER} PATTERN (A) WITHIN INTERVAL '1' MONTH {A_IS_TRUE}": "with millisecond resolution",
    f"{ORDER} PATTERN (A) WITHIN INTERVAL '0' SECOND {A_IS_TRUE}": "a positive interval",
    f"{ORDER} AFTER MATCH SKIP TO LAST B PATTERN (A) {A_IS_TRUE}": "'B' is not in PATTERN",
    f"{ORDER} PATTERN (A) DEFINE A AS TRUE, A AS TRUE": "has already been defined",
    f"{ORDER} PATTERN (A B) DEFINE B AS PREV(B.price) < 1": "Physical offsets",
    f"{ORDER} PATTERN (A B) DEFINE B AS NEXT(B.price) < 1": "Physical offsets",
    f"{ORDER} PATTERN (A B) DEFINE B AS LAST(A.price * B.price) < 1": "a single pattern variable",
    f"{ORDER} PATTERN (A B) DEFINE B AS SUM(A.price * B.price) < 1": "a single pattern variable",
    f"{ORDER} PATTERN (A B) DEFINE B AS SUM(price + B.price) < 1": "a single pattern variable",
    f"{ORDER} PATTERN (A B) DEFINE B AS SUM(1) < 1": "No pattern variable",
    f"{ORDER} PATTERN (A B) DEFINE B AS LAST(B.price, A.price) < 1": "must be a whole number",
    f"{ORDER} PATTERN (A B) DEFINE B AS LAST(SUM(B.price)) < 1": "cannot stand within",
    f"{ORDER} PATTERN (A B) DEFINE B AS SUM(LAST(B.price)) < 1": "cannot stand within",
    f"{ORDER} PATTERN (A B) DEFINE B AS MATCH_ROWTIME() > rowtime": "only in MEASURES",
    f"{ORDER} PATTERN (A B) DEFINE B AS COUNT(DISTINCT B.price) < 1": "DISTINCT aggregations",
    f"{ORDER} PATTERN (A B) DEFINE B AS C.price < 1": "the pattern variables are: A, B",
    f"{ORDER} PATTERN (A B) DEFINE B AS plus(B.price) < 1": "Python Function can not be used",
    f"{ORDER} PATTERN (A B) DEFINE B AS SUM(plus(B.price)) < 1": "Python Function can not be used",
    f"{ORDER} PATTERN (A B) DEFINE B AS B.price IN (SELECT 1)": "A sub-query cannot stand here",
    f"{ORDER} PATTERN (A B) DEFINE B AS B.price": "A condition must be BOOLEAN",
    f"ORDER BY rowtime MEASURES PREV(A.price) AS p PATTERN (A) {A_IS_TRUE}": "PREV/NEXT in MEASURE",
    f"ORDER BY rowtime MEASURES CLASSIFIER() AS p PATTERN (A) {A_IS_TRUE}": "CLASSIFIER",
    f"ORDER BY rowtime MEASURES RUNNING LAST(A.price) AS p PATTERN (A) {A_IS_TRUE}": "Only FINAL",
    f"ORDER BY rowtime MEASURES MATCH_ROWTIME(price) AS p PATTERN (A) {A_IS_TRUE}": (
        "takes the time attribute of ORDER BY"
    ),
    f"ORDER BY rowtime MEASURES COLLECT(A.symbol) AS p PATTERN (A) {A_IS_TRUE}": (
        "Aggregates of MATCH_RECOGNIZE are AVG, COUNT"
    ),
    f"ORDER BY rowtime MEASURES Ticker.price AS p PATTERN (A) {A_IS_TRUE}": (
        "'Ticker' is no pattern variable"
    ),
    f"PARTITION BY symbol ORDER BY rowtime MEASURES A.symbol AS symbol PATTERN (A) {A_IS_TRUE}": (
        "Columns ambiguously defined: {symbol}"
    ),
}


@udf(result_type=DataTypes.BIGINT())
def plus(number: int) -> int:
    return number + 1


@pytest.fixture(scope="module")
def refusing(tmp_path_factory: pytest.TempPathFactory) -> TableEnvironment:
    env = environment()
    ticker(env, [1], tmp_path_factory.mktemp("refusing"))
    env.create_temporary_function("plus", plus)
    return env


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_what_flink_refuses(number: int, refusing: TableEnvironment) -> None:
    clauses = list(REFUSED)[number]
    with pytest.raises(MillstreamError) as caught:
        refusing.sql_query(f"SELECT * FROM Ticker MATCH_RECOGNIZE ({clauses})")
    assert REFUSED[clauses] in str(caught.value), clauses


def test_updates_are_refused(refusing: TableEnvironment) -> None:
    with pytest.raises(ValidationError, match="Match Recognize doesn't support consuming update"):
        refusing.explain_sql(f"""SELECT * FROM (SELECT price, rowtime FROM
            (SELECT price, rowtime, ROW_NUMBER() OVER (PARTITION BY price ORDER BY rowtime DESC)
            AS n FROM Ticker) WHERE n = 1) MATCH_RECOGNIZE ({ORDER} PATTERN (A) {A_IS_TRUE})""")


@pytest.mark.parametrize("call", ["MATCH_ROWTIME()", "MATCH_PROCTIME()", "LAST(price, 1)"])
def test_functions_of_matches_elsewhere(call: str, refusing: TableEnvironment) -> None:
    with pytest.raises(ValidationError, match="not found"):
        refusing.sql_query(f"SELECT {call} FROM Ticker")
