"""More queries at random: OVER in any order over changelogs, and lookups in a table outside.

What it is: what ``random_queries.py`` does not draw, over relations and beneath others of its own.
What it is not: late rows; the order in which rows meet watermarks is that of a harness
(``tests/runtime/table_operators/test_over.py``, ``tests/runtime/table_operators/test_windows.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.sql.random.random_expressions import Column, Text
from tests.sql.random.random_queries import Queries, Relation, listed

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["OUTSIDE", "more_random_query"]

#: The rows of the table that is asked: id, name, number.
OUTSIDE: Final = [
    (0, "a", 1),
    (1, "b", None),
    (1, "", 2),
    (2, None, 3),
    (3, "ab", -4),
    (None, "a", 0),
]
_FRAMES: Final = (
    "",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN CURRENT ROW AND CURRENT ROW",
    " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN 3 PRECEDING AND CURRENT ROW",
)


class _Queries(Queries):
    def over_changes(self, depth: int) -> Relation:
        """Aggregates over the rows in front of each, in a total order of columns."""
        below = self.relation(depth)
        keys = self.drawn.sample(below.columns, self.drawn.choice((0, 1, 1)))
        partition = f"PARTITION BY {keys[0].name} " if keys else ""
        frame, order = self.drawn.choice(_FRAMES), self.order(below.columns)
        made, columns = self.projected(below.columns, self.drawn.randint(1, 3))
        for _ in range(self.drawn.choice((1, 1, 2))):
            column, call = self.drawn.choice(below.columns), "COUNT"
            kind = column.type
            if kind != "B":
                call = self.drawn.choice(("COUNT", "MIN", "MAX"))
            kind = "I" if call == "COUNT" else kind
            name = self.name()
            over = Text.same(
                f"{call}({column.name}) OVER ({partition}ORDER BY {{0}}{frame}) AS {name}"
            )
            made.append(over.put(order))
            columns.append(Column(name, kind))
        text = Text.same("SELECT {0} FROM {1}{2}")
        where = self.where(below.columns, 0.3)
        return self.sub_query(text.put(listed(made), below.text, where), columns)

    def looked_up(self, depth: int) -> Relation:
        """Rows with those of a table outside."""
        below = self.relation(depth)
        numbers = [each.name for each in below.columns if each.type == "I"]
        if not numbers:
            return self.over_changes(depth)
        kind = self.drawn.choice(("", "LEFT "))
        alias, clock = self.name("r"), self.name("p")
        table = self.name("l")
        key = self.drawn.choice((f"{table}.id", f"{table}.m"))
        number = self.drawn.choice(numbers)  # some are BIGINT, which names no field as it is
        condition = Text.same(f"CAST({alias}.{number} AS INT) = {key}")
        if self.drawn.random() < 0.4:
            names = (Column(f"{table}.name", "S"), Column(f"{table}.m", "I"))
            condition = Text.same("{0} AND {1}").put(
                condition, self.expressions.condition((*below.columns, *names))
            )
        made, columns = self.projected(below.columns, self.drawn.randint(1, 3))
        for column, each in ((f"{table}.name", "S"), (f"{table}.m", "I")):
            columns.append(Column(self.name(), each))
            made.append(Text.same(f"{column} AS {columns[-1].name}"))
        asked = f"'table'='{table}', 'async'='true'"
        hint = self.drawn.choice(
            (
                "",
                "",
                f"/*+ LOOKUP({asked}, 'output-mode'='allow_unordered') */ ",
                f"/*+ LOOKUP({asked}, 'capacity'='2') */ ",
            )
        )
        text = Text(
            f"SELECT {hint}{{0}} FROM (SELECT *, PROCTIME() AS {clock} FROM {{1}}) AS {alias} "
            f"{kind}JOIN outside FOR SYSTEM_TIME AS OF {alias}.{clock} AS {table} ON {{2}}",
            f"SELECT {{0}} FROM (SELECT * FROM {{1}}) AS {alias} {kind}JOIN outside AS {table} "
            "ON {2}",
        )
        return self.sub_query(text.put(listed(made), below.text, condition), columns)


def more_random_query(seed: int) -> Text:
    """The query of a seed: one of these kinds over others, or beneath them."""
    made = _Queries(seed)
    kinds: list[Callable[[int], Relation]] = [made.over_changes, made.looked_up]
    drawn = made.drawn
    relation = drawn.choice(kinds)(drawn.choice((0, 1, 1, 2)))
    if drawn.random() < 0.4:
        above = drawn.choice((made.aggregated, made.distinct, made.ranked, made.selected))
        below, base = relation, made.relation
        made.relation = lambda depth: below if depth == 9 else base(depth)  # type: ignore[method-assign]
        relation = above(9)
    names = ", ".join(each.name for each in relation.columns)
    return Text.same(f"SELECT {names} FROM {{0}}").put(relation.text)
