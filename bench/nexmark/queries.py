"""The queries of Nexmark in SQL, and what DuckDB is asked for the same answer.

What it is: ``QUERIES``, by name.  A query's ``oracle`` is DuckDB's text where that is another.
What it is not: for one system alone; ``bench/nexmark/flink_job.py`` runs the same text on Flink.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["QUERIES", "SIDE_ROWS", "TABLES", "Query", "quoted", "sink_of", "write_side_input"]

TABLES: Final = {
    "person": (
        "id BIGINT, name STRING, emailAddress STRING, creditCard STRING, city STRING, "
        "state STRING, dateTime TIMESTAMP(3), extra STRING"
    ),
    "auction": (
        "id BIGINT, itemName STRING, description STRING, initialBid BIGINT, reserve BIGINT, "
        "dateTime TIMESTAMP(3), expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING"
    ),
    "bid": (
        "auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, "
        "dateTime TIMESTAMP(3), extra STRING"
    ),
}


#: How many keys the table has that q13 looks up.
SIDE_ROWS: Final = 10_000


@dataclass(frozen=True)
class Query:
    """A query, and DuckDB's text of it where it is another."""

    text: str
    other: str | None = None
    #: Columns and partitions of the files that it writes; None: its result goes nowhere.
    files: str | None = None

    @property
    def sql(self) -> str:
        """The query in our SQL."""
        return quoted(self.text)

    @property
    def oracle(self) -> str:
        """The query in DuckDB's SQL."""
        return self.other or self.text


def quoted(text: str) -> str:
    """Put the column that is called as a type is in backticks."""
    return re.sub(r"\bdateTime\b", "`dateTime`", text)


def sink_of(query: Query, directory: Path) -> str:
    """What follows the name of the table that a query is inserted into; "" if any will do."""
    if query.files is None:
        return ""
    return (
        f"{quoted(query.files)} WITH ('connector' = 'filesystem', 'format' = 'csv', "
        f"'path' = 'file://{directory.absolute()}')"
    )


def write_side_input(directory: Path) -> str:
    """Write the table that q13 looks up; returns its CREATE TABLE."""
    directory.mkdir(parents=True, exist_ok=True)
    lines = [f"{key},value-{key * 7919 % SIDE_ROWS}\n" for key in range(SIDE_ROWS)]
    (directory / "side.csv").write_text("".join(lines))
    return (
        "CREATE TABLE side_input (`key` BIGINT, `value` STRING) WITH ('connector' = 'filesystem', "
        f"'format' = 'csv', 'path' = 'file://{directory.absolute()}')"
    )


_HOP = "TABLE(HOP(TABLE bid, DESCRIPTOR(dateTime), INTERVAL '2' SECOND, INTERVAL '10' SECOND))"
_TUMBLE = "TABLE(TUMBLE(TABLE {}, DESCRIPTOR(dateTime), INTERVAL '10' SECOND))"
_DAY = "DATE_FORMAT(dateTime, 'yyyy-MM-dd')"
_DUCK_DAY = "strftime(dateTime, '%Y-%m-%d')"
_RANKS = ("price < 10000", "price >= 10000 AND price < 1000000", "price >= 1000000")
_COUNTS = ", ".join(f"COUNT(*) FILTER (WHERE {rank}) AS bids{n}" for n, rank in enumerate(_RANKS))
_DISTINCTS = ", ".join(
    f"COUNT(DISTINCT {column}) AS {column}s, "
    + ", ".join(
        f"COUNT(DISTINCT {column}) FILTER (WHERE {rank}) AS {column}s{n}"
        for n, rank in enumerate(_RANKS)
    )
    for column in ("bidder", "auction")
)
_WINNER = (
    "SELECT id, itemName, description, initialBid, reserve, dateTime, expires, seller, category, "
    "extra, auction, bidder, price, bidTime, bidExtra FROM (SELECT A.*, B.auction, B.bidder, "
    "B.price, B.dateTime AS bidTime, B.extra AS bidExtra, ROW_NUMBER() OVER (PARTITION BY A.id "
    "ORDER BY B.price DESC, B.dateTime ASC) AS place FROM auction A, bid B WHERE A.id = B.auction "
    "AND B.dateTime BETWEEN A.dateTime AND A.expires) WHERE place <= 1"
)
#: In DuckDB: each row once per window that it is in.
_DUCK_HOP = (
    "(SELECT *, epoch_ms(dateTime) // 2000 * 2000 - 2000 * i AS ws FROM bid, range(5) AS r(i))"
)
_DUCK_TUMBLE = "(SELECT *, epoch_ms(dateTime) // 10000 * 10000 AS ws FROM {})"
_CHANNEL = (
    "CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1' "
    "WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3' ELSE {} END"
)
_FROM_URL = "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
_NAMED = "LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')"

QUERIES: Final[dict[str, Query]] = {
    "q0": Query("SELECT auction, bidder, price, dateTime, extra FROM bid"),
    "q1": Query("SELECT auction, bidder, 0.908 * price AS price, dateTime, extra FROM bid"),
    "q2": Query("SELECT auction, price FROM bid WHERE MOD(auction, 123) = 0"),
    "q3": Query(
        "SELECT P.name, P.city, P.state, A.id FROM auction AS A INNER JOIN person AS P "
        "ON A.seller = P.id WHERE A.category = 10 AND P.state IN ('OR', 'ID', 'CA')"
    ),
    "q4": Query(
        "SELECT Q.category, AVG(Q.final) AS price FROM (SELECT MAX(B.price) AS final, A.category "
        "FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime AND "
        "A.expires GROUP BY A.id, A.category) Q GROUP BY Q.category",
        "SELECT Q.category, SUM(Q.final) // COUNT(*) FROM (SELECT MAX(B.price) AS final, "
        "A.category FROM auction A, bid B WHERE A.id = B.auction AND B.dateTime BETWEEN A.dateTime "
        "AND A.expires GROUP BY A.id, A.category) Q GROUP BY Q.category",
    ),
    "q5": Query(
        f"SELECT B.auction, B.num FROM (SELECT auction, COUNT(*) AS num, window_start AS ws, "
        f"window_end AS we FROM {_HOP} GROUP BY auction, window_start, window_end) AS B JOIN "
        f"(SELECT MAX(num) AS most, ws, we FROM (SELECT auction, COUNT(*) AS num, window_start AS "
        f"ws, window_end AS we FROM {_HOP} GROUP BY auction, window_start, window_end) GROUP BY "
        f"ws, we) AS M ON B.ws = M.ws AND B.we = M.we AND B.num >= M.most",
        f"WITH n AS (SELECT auction, COUNT(*) AS num, ws FROM {_DUCK_HOP} GROUP BY ALL) SELECT "
        "auction, num FROM n WHERE num = (SELECT MAX(num) FROM n AS m WHERE m.ws = n.ws)",
    ),
    "q6": Query(
        "SELECT seller, AVG(price) OVER (PARTITION BY seller ORDER BY bidTime ROWS BETWEEN 10 "
        f"PRECEDING AND CURRENT ROW) AS price FROM ({_WINNER})",
        "SELECT seller, SUM(price) OVER w // COUNT(price) OVER w FROM ("
        f"{_WINNER}) WINDOW w AS (PARTITION BY seller ORDER BY bidTime ROWS BETWEEN 10 PRECEDING "
        "AND CURRENT ROW)",
    ),
    "q7": Query(
        "SELECT B.auction, B.price, B.bidder, B.dateTime, B.extra FROM bid B JOIN (SELECT "
        f"MAX(price) AS maxprice, window_end AS we FROM {_TUMBLE.format('bid')} GROUP BY "
        "window_start, window_end) M ON B.price = M.maxprice WHERE B.dateTime BETWEEN M.we - "
        "INTERVAL '10' SECOND AND M.we",
        f"WITH w AS {_DUCK_TUMBLE.format('bid')}, m AS (SELECT ws, MAX(price) AS price FROM w "
        "GROUP BY ws) SELECT b.auction, b.price, b.bidder, b.dateTime, b.extra FROM bid b JOIN m "
        "ON b.price = m.price AND epoch_ms(b.dateTime) BETWEEN m.ws AND m.ws + 10000",
    ),
    "q8": Query(
        "SELECT P.id, P.name, P.ws FROM (SELECT id, name, window_start AS ws, window_end AS we "
        f"FROM {_TUMBLE.format('person')} GROUP BY id, name, window_start, window_end) P JOIN "
        "(SELECT seller, window_start AS ws, window_end AS we FROM "
        f"{_TUMBLE.format('auction')} GROUP BY seller, window_start, window_end) A ON "
        "P.id = A.seller AND P.ws = A.ws AND P.we = A.we",
        f"SELECT DISTINCT p.id, p.name, make_timestamp(p.ws * 1000) FROM "
        f"{_DUCK_TUMBLE.format('person')} p JOIN {_DUCK_TUMBLE.format('auction')} a ON "
        "p.id = a.seller AND p.ws = a.ws",
    ),
    "q9": Query(_WINNER),
    "q10": Query(
        "SELECT auction, bidder, price, dateTime, extra, DATE_FORMAT(dateTime, 'yyyy-MM-dd') AS "
        "dt, DATE_FORMAT(dateTime, 'HH:mm') AS hm FROM bid",
        "SELECT auction, bidder, price, dateTime, extra, strftime(dateTime, '%Y-%m-%d') AS dt, "
        "strftime(dateTime, '%H:%M') AS hm FROM bid",
        files="(auction BIGINT, bidder BIGINT, price BIGINT, dateTime TIMESTAMP(3), extra STRING, "
        "dt STRING, hm STRING) PARTITIONED BY (dt, hm)",
    ),
    "q11": Query(
        "SELECT bidder, COUNT(*) AS bids, window_start, window_end FROM TABLE(SESSION(TABLE bid "
        "PARTITION BY bidder, DESCRIPTOR(dateTime), INTERVAL '10' SECOND)) GROUP BY bidder, "
        "window_start, window_end",
        "WITH g AS (SELECT bidder, dateTime, SUM(CASE WHEN gap < INTERVAL '10' SECOND THEN 0 ELSE "
        "1 END) OVER (PARTITION BY bidder ORDER BY dateTime) AS session FROM (SELECT bidder, "
        "dateTime, dateTime - LAG(dateTime) OVER (PARTITION BY bidder ORDER BY dateTime) AS gap "
        "FROM bid)) SELECT bidder, COUNT(*), MIN(dateTime), MAX(dateTime) + INTERVAL '10' SECOND "
        "FROM g GROUP BY bidder, session",
    ),
    "q12": Query(
        "WITH timed AS (SELECT bidder, PROCTIME() AS p_time FROM bid) SELECT bidder, COUNT(*) AS "
        "bids, window_start, window_end FROM TABLE(TUMBLE(TABLE timed, DESCRIPTOR(p_time), "
        "INTERVAL '10' SECOND)) GROUP BY bidder, window_start, window_end",
        # How many windows there are is a matter of the clock: their sums are not.
        "SELECT bidder, COUNT(*) FROM bid GROUP BY bidder",
    ),
    "q13": Query(
        "SELECT B.auction, B.bidder, B.price, B.dateTime, S.`value` FROM (SELECT *, PROCTIME() AS "
        "p_time FROM bid) AS B JOIN side_input FOR SYSTEM_TIME AS OF B.p_time AS S ON "
        f"MOD(B.auction, {SIDE_ROWS}) = S.`key`",
        "SELECT B.auction, B.bidder, B.price, B.dateTime, S.value FROM bid AS B JOIN side_input "
        f"AS S ON B.auction % {SIDE_ROWS} = S.key",
    ),
    "q14": Query(
        "SELECT auction, bidder, 0.908 * price AS price, CASE WHEN HOUR(dateTime) >= 8 AND "
        "HOUR(dateTime) <= 18 THEN 'dayTime' WHEN HOUR(dateTime) <= 6 OR HOUR(dateTime) >= 20 "
        "THEN 'nightTime' ELSE 'otherTime' END AS timeType, dateTime, extra, CHAR_LENGTH(extra) - "
        "CHAR_LENGTH(REPLACE(extra, 'c', '')) AS cs FROM bid WHERE 0.908 * price > 1000000 AND "
        "0.908 * price < 50000000",
    ),
    "q15": Query(
        f"SELECT {_DAY} AS d, COUNT(*) AS n, {_COUNTS}, {_DISTINCTS} FROM bid GROUP BY {_DAY}",
        f"SELECT {_DUCK_DAY}, COUNT(*) AS n, {_COUNTS}, {_DISTINCTS} FROM bid GROUP BY {_DUCK_DAY}",
    ),
    "q16": Query(
        f"SELECT channel, {_DAY} AS d, MAX(DATE_FORMAT(dateTime, 'HH:mm')) AS m, COUNT(*) AS n, "
        f"{_COUNTS}, {_DISTINCTS} FROM bid GROUP BY channel, {_DAY}",
        f"SELECT channel, {_DUCK_DAY}, MAX(strftime(dateTime, '%H:%M')), COUNT(*) AS n, "
        f"{_COUNTS}, {_DISTINCTS} FROM bid GROUP BY channel, {_DUCK_DAY}",
    ),
    "q17": Query(
        f"SELECT auction, {_DAY} AS d, COUNT(*) AS n, {_COUNTS}, MIN(price) AS lowest, MAX(price) "
        f"AS highest, AVG(price) AS middle, SUM(price) AS total FROM bid GROUP BY auction, {_DAY}",
        f"SELECT auction, {_DUCK_DAY}, COUNT(*) AS n, {_COUNTS}, MIN(price), MAX(price), "
        f"SUM(price) // COUNT(*), SUM(price) FROM bid GROUP BY auction, {_DUCK_DAY}",
    ),
    "q18": Query(
        "SELECT auction, bidder, price, channel, url, dateTime, extra FROM (SELECT *, ROW_NUMBER() "
        "OVER (PARTITION BY bidder, auction ORDER BY dateTime DESC) AS place FROM bid) "
        "WHERE place <= 1"
    ),
    "q19": Query(
        "SELECT auction, price, place FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY auction "
        "ORDER BY price DESC) AS place FROM bid) WHERE place <= 10"
    ),
    "q20": Query(
        "SELECT auction, bidder, price, channel, url, B.dateTime, B.extra, itemName, description, "
        "initialBid, reserve, A.dateTime AS opened, expires, seller, category, A.extra AS more "
        "FROM bid AS B INNER JOIN auction AS A ON B.auction = A.id WHERE A.category = 10"
    ),
    "q21": Query(
        f"SELECT auction, bidder, price, channel, {_CHANNEL.format(_FROM_URL)} AS channel_id "
        f"FROM bid WHERE {_FROM_URL} IS NOT NULL OR {_NAMED}",
        "SELECT auction, bidder, price, channel, "
        + _CHANNEL.format("regexp_extract(url, '(&|^)channel_id=([^&]*)', 2)")
        + f" FROM bid WHERE url LIKE '%&channel_id=%' OR {_NAMED}",
    ),
    "q22": Query(
        "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, "
        "SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid",
        "SELECT auction, bidder, price, channel, split_part(url, '/', 4), split_part(url, '/', 5), "
        "split_part(url, '/', 6) FROM bid",
    ),
}
