"""What names stand for: in sub-queries of sub-queries, and behind USING."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import duckdb
import pytest
from tests.support.query_running import changelog, environment, materialised

from millstream.errors import ValidationError

if TYPE_CHECKING:
    from pathlib import Path

TABLES: dict[str, tuple[str, list[tuple[int, ...]]]] = {
    "a": ("k, x, j", [(1, 10, 1), (2, 20, 2), (3, 30, 1), (4, 40, 9)]),
    "b": ("y, k", [(10, 1), (25, 2), (30, 3), (1, 7)]),
    "c": ("j, k, z", [(1, 1, 5), (2, 3, 6), (3, 2, 7)]),
}


def both(
    query: str, path: Path, told: str = ""
) -> tuple[Counter[tuple[object, ...]], list[tuple[object, ...]]]:
    """The result here, and that of DuckDB, which may be told in other words."""
    env, duck = environment(), duckdb.connect()
    for name, (columns, rows) in TABLES.items():
        values = ", ".join(str(row) for row in rows)
        env.execute_sql(f"CREATE TEMPORARY VIEW {name} ({columns}) AS VALUES {values}")
        duck.execute(f"CREATE TABLE {name} AS SELECT * FROM (VALUES {values}) AS t({columns})")
    return materialised(changelog(env, query, path)), duck.execute(told or query).fetchall()


NESTED = [
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k AND y IN (SELECT x FROM a))",
    (
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k "
        "AND EXISTS (SELECT 1 FROM c WHERE c.k = b.k))"
    ),
    "SELECT k FROM a WHERE x > (SELECT MIN(y) FROM b WHERE k IN (SELECT c.k FROM c))",
    # The innermost names a column of the outermost.
    (
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE b.k = a.k "
        "AND EXISTS (SELECT 1 FROM c WHERE c.j = a.j))"
    ),
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE y IN (SELECT z FROM c WHERE c.j = a.j))",
    "SELECT k FROM a WHERE k IN (SELECT k FROM b WHERE a.x IN (SELECT z FROM c))",
    "SELECT k, (SELECT COUNT(*) FROM b WHERE EXISTS (SELECT 1 FROM c WHERE z = a.x)) FROM a",
]
#: It does so as a value, or by less than an equality.
TWO_OUT = [
    (
        "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b "
        "WHERE y > (SELECT COUNT(*) FROM c WHERE c.j = a.j))"
    ),
    "SELECT k FROM a WHERE EXISTS (SELECT 1 FROM b WHERE EXISTS (SELECT 1 FROM c WHERE z < a.x))",
]


@pytest.mark.parametrize("query", NESTED)
def test_oracle_sub_queries_of_sub_queries(query: str, tmp_path: Path) -> None:
    got, wanted = both(query, tmp_path)
    assert got == Counter(wanted)


@pytest.mark.parametrize("query", TWO_OUT)
def test_a_column_of_two_queries_further_out_is_refused(query: str, tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="a separate sub-query only so"):
        both(query, tmp_path)


#: Query -> the columns of its result; those that USING merges come first, as in Flink.
USING = {
    "SELECT * FROM a JOIN b USING (k)": "k, x, j, y",
    "SELECT * FROM b RIGHT JOIN a USING (k)": "k, y, x, j",
    "SELECT * FROM b FULL JOIN a USING (k)": "k, y, x, j",
    "SELECT * FROM a JOIN c USING (j, k)": "j, k, x, z",
    "SELECT * FROM a NATURAL JOIN c": "k, j, x, z",
    "SELECT * FROM b JOIN a USING (k) JOIN c USING (j)": "j, k, y, x, k0, z",
    "SELECT * FROM b FULL JOIN a USING (k) FULL JOIN c USING (k)": "k, y, x, j, j0, z",
    "SELECT b.*, a.x FROM b JOIN a USING (k)": "y, k, x",
}
RESULTS = {
    "SELECT * FROM b FULL JOIN a USING (k) FULL JOIN c USING (k)": (
        "SELECT k, y, x, a.j, c.j, z FROM b FULL JOIN a USING (k) FULL JOIN c USING (k)"
    ),
    "SELECT * FROM b JOIN a USING (k) JOIN c USING (j)": (
        "SELECT a.j, b.k, y, x, c.k, z FROM b JOIN a USING (k) JOIN c USING (j)"
    ),
}


def test_columns_of_using_come_first() -> None:
    env = environment()
    for name, (columns, rows) in TABLES.items():
        values = ", ".join(str(row) for row in rows)
        env.execute_sql(f"CREATE TEMPORARY VIEW {name} ({columns}) AS VALUES {values}")
    for query, columns in USING.items():
        assert ", ".join(env.sql_query(query).plan.row.names) == columns, query
    with pytest.raises(ValidationError, match="Column 'k' is ambiguous"):
        env.sql_query("SELECT k FROM b JOIN a USING (k) JOIN c ON a.j = c.j")


@pytest.mark.parametrize("query", RESULTS)
def test_oracle_using(query: str, tmp_path: Path) -> None:
    got, wanted = both(query, tmp_path, RESULTS[query])
    assert got == Counter(wanted)
