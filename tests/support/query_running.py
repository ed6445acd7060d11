"""Queries on a MiniCluster: the changelog of a query, and what is there at the end of it.

What it is: the input is files or rows of the test; epochs are cut at random by a seed.
What it is not: an oracle; tests compare with DuckDB or plain Python.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any

from millstream.common import Configuration
from millstream.connectors.basic.collect import read_collected
from millstream.graph.validation import validate_connectors
from millstream.sql.parser.parser import parse_statement
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["changelog", "environment", "insert", "materialised", "table_of"]


def environment(parallelism: int = 1, **options: str) -> TableEnvironment:
    """An environment whose queries have that parallelism."""
    configuration = Configuration()
    configuration.set_string("parallelism.default", str(parallelism))
    for key, value in options.items():
        configuration.set_string(key.replace("__", "."), value)
    return TableEnvironment.create(
        EnvironmentSettings.new_instance().with_configuration(configuration).build()
    )


def changelog(
    env: TableEnvironment,
    query: str,
    directory: Path,
    seed: int = 0,
    limit: int | None = None,
    **options: Any,
) -> list[Any]:
    """The rows of a query with their kinds, in the order in which they came.

    Epochs read up to ``limit`` units of the sources; None: numbers drawn by the seed.  ``options``
    are those of the cluster.
    """
    plan = env.sql_query(query).plan
    out = directory / f"collected-{random.Random(query + str(seed)).random()}"
    end = env.session.collected(plan, str(out))
    graph = env.session.program.graph_of([end], "test")
    drawn = random.Random(seed)
    MiniCluster(
        graph, limits=(limit or drawn.randint(1, 400) for _ in range(1000)), seed=seed, **options
    ).run()
    return list(read_collected(out))


def insert(env: TableEnvironment, text: str, *, validated: bool = False, **options: Any) -> None:
    """Run an INSERT to its end; ``validated``: ask connectors first, which may create tables."""
    statement: Any = parse_statement(text)
    session = env.session
    graph = session.program.graph_of(session.sinks([session.target(statement, text)]), "test")
    if validated:
        validate_connectors(graph)
    MiniCluster(graph, **options).run()


def materialised(rows: Iterable[Any]) -> Counter[tuple[Any, ...]]:
    """The rows that are there after all changes; no row is ever taken away that is not there."""
    there: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        value = tuple(row)
        if row.get_row_kind().value in {1, 3}:
            assert there[value] > 0, f"{row!r} is taken away and was not there"
            there[value] -= 1
            if not there[value]:
                del there[value]
        else:
            there[value] += 1
    return there


def table_of(
    env: TableEnvironment, name: str, columns: str, rows: Iterable[tuple[Any, ...]], path: Path
) -> None:
    """A table of JSON files."""
    import json

    directory = path / name
    directory.mkdir()
    names = [each.strip().split()[0] for each in columns.split(",") if "WATERMARK" not in each]
    every = list(rows)
    for number in range(3):
        lines = [json.dumps(dict(zip(names, row, strict=False))) for row in every[number::3]]
        (directory / f"{number}.json").write_text("".join(line + "\n" for line in lines))
    env.execute_sql(
        f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', "
        f"'path' = '{directory}', 'format' = 'json')"
    )
