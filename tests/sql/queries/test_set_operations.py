"""INTERSECT ALL and EXCEPT ALL: how often rows are there counts."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, materialised

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import Table, TableEnvironment


def tables(env: TableEnvironment, seed: int) -> list[tuple[Table, list[Any]]]:
    drawn = random.Random(seed)
    found = []
    for name in ("l", "r"):
        rows = [
            (drawn.choice([1, 2, 3]), drawn.choice(["x", "y", None]), drawn.randint(0, 3))
            for _ in range(30)
        ]
        table = env.from_elements(rows, ["a", "b", "c"])
        env.create_temporary_view(name, table)
        found.append((table, rows))
    return found


@pytest.mark.both_engines
@pytest.mark.parametrize("seed", [1, 2])
def test_oracle_of_rows_and_of_updates(seed: int, tmp_path: Path) -> None:
    env = environment(2)
    (_, left), (_, right) = tables(env, seed)

    def found(query: str) -> Counter[tuple[Any, ...]]:
        return materialised(changelog(env, query, tmp_path, seed))

    one, other = (Counter((a, b) for a, b, _ in rows) for rows in (left, right))
    assert found("SELECT a, b FROM l INTERSECT ALL SELECT a, b FROM r") == one & other
    assert found("SELECT a, b FROM l EXCEPT ALL SELECT a, b FROM r") == one - other
    # Counts of counts, which change: each side takes rows back.
    sums = [Counter(Counter((a, b) for a, b, _ in rows).values()) for rows in (left, right)]
    wanted = Counter({(n,): count for n, count in (sums[0] - sums[1]).items()})
    counts = "SELECT COUNT(*) AS n FROM {} GROUP BY a, b"
    assert found(f"{counts.format('l')} EXCEPT ALL {counts.format('r')}") == wanted
    # Rows that are there several times are no keys of what reads them.
    again = "SELECT a, COUNT(*) AS n FROM (SELECT a, b FROM l EXCEPT ALL SELECT a, b FROM r) t "
    wanted = Counter()
    for (a, _), count in (one - other).items():
        wanted[a] += count
    assert found(again + "GROUP BY a") == Counter(wanted.items())


def test_the_table_api_has_the_same_plans() -> None:
    env = environment(1)
    (left, _), (right, _) = tables(env, 3)
    for table, word in (
        (left.minus_all(right), "EXCEPT"),
        (left.intersect_all(right), "INTERSECT"),
    ):
        same = env.sql_query(f"SELECT * FROM l {word} ALL SELECT * FROM r").explain(
            "CHANGELOG_MODE"
        )
        assert table.explain("CHANGELOG_MODE").split("\n\n")[1] == same.split("\n\n")[1]
