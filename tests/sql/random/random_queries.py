"""Queries drawn at random, each as Flink writes it and as DuckDB does.

What it is: relations made of relations: filters, projections, aggregates, joins, sub-queries, set
operations, Top-N, windows, OVER.  Names of columns are unique in a query.
What it is not: the tables (``tests/sql/random/random_tables.py``) or their run.

Where streams and databases differ by intent, DuckDB's text says what a stream does: a global
aggregate of nothing has no row, NULL is the smallest value, a limit has a total order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.sql.random.random_expressions import Column, Expressions, Text

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["BASES", "EVENTS", "SOME", "Queries", "Relation", "listed", "random_query"]


@dataclass(frozen=True)
class Relation:
    """What can stand in FROM, and the columns that it has there."""

    text: Text
    columns: tuple[Column, ...]
    #: Whether it is a table of rows that are never empty.
    base: bool = False


#: Table -> its columns: two that grow, one that is changed by -U, +U and -D, one by upserts.
BASES: Final[dict[str, str]] = {"t": "ISIDNBT", "u": "IISN", "s": "ISIDNBT", "p": "ISIN"}
#: The columns of the table with event time, but for the time.
EVENTS: Final = "ISI"
#: Which of its rows are versions in the views ``last_k`` and ``last_v``.
SOME: Final = "id <> 3 OR id IS NULL"
_JOINS: Final = ("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
_SETS: Final = ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
_LIMITED: Final = 2


class Queries:
    """Draws relations."""

    def __init__(self, seed: int) -> None:
        self.drawn = random.Random(seed)
        self.expressions = Expressions(self.drawn)
        self._names = 0

    def name(self, prefix: str = "c") -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    # -- relations -------------------------------------------------------------------------------

    def relation(self, depth: int) -> Relation:
        if depth == 0:
            return self.base()
        kinds: list[tuple[int, Callable[[int], Relation]]] = [
            (3, self.selected),
            (4, self.aggregated),
            (4, self.joined),
            (1, self.rolled_up),
            (1, self.distinct),
            (2, self.combined),
            (2, self.ranked),
            (1, self.limited),
            (2, self.semi_joined),
            (1, self.with_scalar),
            (2, self.timed),
            (3, self.joined_by_keys),
            (2, self.with_itself),
        ]
        return self.drawn.choices([each for _, each in kinds], [each for each, _ in kinds])[0](
            depth - 1
        )

    def base(self) -> Relation:
        table = self.drawn.choice(list(BASES))
        columns = tuple(Column(self.name(), kind) for kind in BASES[table])
        names = ", ".join(each.name for each in columns)
        return Relation(Text.same(f"{table} AS {self.name('r')} ({names})"), columns, base=True)

    def sub_query(self, text: Text, columns: Sequence[Column]) -> Relation:
        return Relation(Text.same(f"({{0}}) AS {self.name('r')}").put(text), tuple(columns))

    def where(self, columns: Sequence[Column], chance: float = 0.5) -> Text:
        if self.drawn.random() > chance:
            return Text.same("")
        return Text.same(" WHERE {0}").put(self.expressions.condition(columns))

    def selected(self, depth: int) -> Relation:
        below = self.relation(depth)
        made, columns = self.projected(below.columns, self.drawn.randint(1, 4))
        text = Text.same("SELECT {0} FROM {1}{2}")
        return self.sub_query(
            text.put(listed(made), below.text, self.where(below.columns, 0.7)), columns
        )

    def projected(self, given: Sequence[Column], count: int) -> tuple[list[Text], list[Column]]:
        """Columns with names of their own, most of them as they were."""
        texts, columns = [], []
        for _ in range(count):
            name = self.name()
            if self.drawn.random() < 0.6:
                column = self.drawn.choice(given)
                value, kind = Text.same(column.name), column.type
            else:
                value, kind = self.expressions.some(given)
            texts.append(Text.same(f"{{0}} AS {name}").put(value))
            columns.append(Column(name, kind))
        return texts, columns

    def of_types(self, below: Relation, kinds: Sequence[str]) -> tuple[Text, list[Column]]:
        """A query that gives columns of some types."""
        columns = [Column(self.name(), kind) for kind in kinds]
        made = [
            Text.same(f"{{0}} AS {each.name}").put(
                self.expressions.value(below.columns, each.type, self.drawn.choice((0, 0, 1)))
            )
            for each in columns
        ]
        text = Text.same("SELECT {0} FROM {1}{2}")
        return text.put(listed(made), below.text, self.where(below.columns, 0.3)), columns

    def aggregated(self, depth: int) -> Relation:
        below = self.relation(depth)
        keys, columns = [], []
        for _ in range(self.drawn.choice((0, 1, 1, 1, 2))):
            depth_of_key = self.drawn.choice((0, 0, 0, 1))
            key, kind = self.expressions.some(below.columns, depth_of_key)
            if key.flink in {each.name for each in below.columns}:
                keys.append(key)
                columns.append(Column(self.name(), kind))
        calls = [self.expressions.aggregate(below.columns) for _ in range(self.drawn.randint(1, 3))]
        columns += [Column(self.name(), kind) for _, kind in calls]
        values = [*keys, *(each for each, _ in calls)]
        shown = [
            Text.same(f"{{0}} AS {column.name}").put(value)
            for value, column in zip(values, columns, strict=True)
        ]
        having = ""
        if self.drawn.random() < 0.3:
            having = f"COUNT(*) > {self.drawn.randint(0, 3)}"
        of_duck = " AND ".join(filter(None, ["COUNT(*) > 0", having]))
        group = f" GROUP BY {listed(keys).flink}" if keys else ""
        text = Text(
            f"SELECT {{0}} FROM {{1}}{{2}}{group}{' HAVING ' + having if having else ''}",
            f"SELECT {{0}} FROM {{1}}{{2}}{group} HAVING {of_duck}",
        )
        return self.sub_query(
            text.put(listed(shown), below.text, self.where(below.columns)), columns
        )

    def rolled_up(self, depth: int) -> Relation:
        below = self.relation(depth)
        keys = self.drawn.sample(below.columns, min(2, len(below.columns)))
        names = ", ".join(each.name for each in keys)
        sets = self.drawn.choice(
            [
                f"ROLLUP ({names})",
                f"CUBE ({names})",
                f"GROUPING SETS (({names}), ())",
                *([f"GROUPING SETS (({names}), ({keys[0].name}))"] if len(keys) > 1 else []),
            ]
        )
        call, kind = self.expressions.aggregate(below.columns)
        columns = [Column(self.name(), each.type) for each in keys]
        columns += [Column(self.name(), kind), Column(self.name(), "I")]
        values = [Text.same(each.name) for each in keys]
        values += [call, Text.same(f"GROUPING({keys[0].name})")]
        shown = [
            Text.same(f"{{0}} AS {column.name}").put(value)
            for value, column in zip(values, columns, strict=True)
        ]
        text = Text(
            f"SELECT {{0}} FROM {{1}}{{2}} GROUP BY {sets}",
            f"SELECT {{0}} FROM {{1}}{{2}} GROUP BY {sets} HAVING COUNT(*) > 0",
        )
        return self.sub_query(
            text.put(listed(shown), below.text, self.where(below.columns)), columns
        )

    def distinct(self, depth: int) -> Relation:
        below = self.relation(depth)
        made, columns = self.projected(below.columns, self.drawn.randint(1, 3))
        text = Text.same("SELECT DISTINCT {0} FROM {1}{2}")
        return self.sub_query(
            text.put(listed(made), below.text, self.where(below.columns)), columns
        )

    def joined(self, depth: int) -> Relation:
        left, right = self.relation(depth), self.relation(self.drawn.randint(0, depth))
        kind = self.drawn.choice(_JOINS)
        pairs = [
            (one.name, other.name)
            for one in left.columns
            for other in right.columns
            if one.type == other.type and one.type != "B"
        ]
        parts = [
            Text.same(f"{one} = {other}")
            for one, other in self.drawn.sample(
                pairs, min(len(pairs), self.drawn.choice((1, 1, 2)))
            )
        ]
        both = (*left.columns, *right.columns)
        if not parts or self.drawn.random() < 0.3:
            parts.append(self.expressions.condition(both))
        condition = Text.same(" AND ".join(f"{{{i}}}" for i in range(len(parts)))).put(*parts)
        made, columns = self.projected(both, self.drawn.randint(2, 5))
        text = Text.same(f"SELECT {{0}} FROM {{1}} {kind} {{2}} ON {{3}}{{4}}")
        if kind == "JOIN" and self.drawn.random() < 0.3:
            text = Text.same("SELECT {0} FROM {1}, {2} WHERE {3}")
        where = self.where(both, 0.3)
        return self.sub_query(
            text.put(listed(made), left.text, right.text, condition, where), columns
        )

    def grouped(self) -> Relation:
        """Aggregates by one column, which comes first, or the table that has a key."""
        if self.drawn.random() < 0.3:
            columns = tuple(Column(self.name(), kind) for kind in BASES["p"])
            names = ", ".join(each.name for each in columns)
            return Relation(Text.same(f"p AS {self.name('r')} ({names})"), columns, base=True)
        below = self.relation(self.drawn.choice((0, 0, 1)))
        numbers = [each for each in below.columns if each.type == "I"] or below.columns
        key = self.drawn.choice(numbers)
        calls = [self.expressions.aggregate(below.columns) for _ in range(self.drawn.randint(1, 2))]
        columns = tuple(Column(self.name(), kind) for kind in (key.type, *(k for _, k in calls)))
        values = [Text.same(key.name), *(each for each, _ in calls)]
        shown = [
            Text.same(f"{{0}} AS {column.name}").put(value)
            for value, column in zip(values, columns, strict=True)
        ]
        text = Text.same(f"SELECT {{0}} FROM {{1}}{{2}} GROUP BY {key.name}")
        where = self.where(below.columns, 0.3)
        return self.sub_query(text.put(listed(shown), below.text, where), columns)

    def joined_by_keys(self, depth: int) -> Relation:
        """Two relations with keys, joined by them; another condition may end a pair."""
        del depth
        left, right = self.grouped(), self.grouped()
        one, other = left.columns[0], right.columns[0]
        if one.type != other.type:
            return self.joined(0)
        kind = self.drawn.choice(_JOINS)
        both = (*left.columns, *right.columns)
        more = Text.same("")
        if self.drawn.random() < 0.4:
            more = Text.same(" AND {0}").put(self.expressions.condition(both))
        # The keys stay: so the rows have one.
        made, columns = self.projected(both, self.drawn.randint(1, 3))
        names = [self.name(), self.name()]
        made += [
            Text.same(f"{each.name} AS {name}")
            for each, name in zip((one, other), names, strict=True)
        ]
        columns += [Column(name, one.type) for name in names]
        text = Text.same(
            f"SELECT {{0}} FROM {{1}} {kind} {{2}} ON {one.name} = {other.name}{{3}}{{4}}"
        )
        where = self.where(both, 0.2)
        put = text.put(listed(made), left.text, right.text, more, where)
        return self.sub_query(put, columns)

    def with_itself(self, depth: int) -> Relation:
        """A relation that is read twice."""
        below = self.relation(depth) if self.drawn.random() < 0.5 else self.grouped()
        name = self.name("w")
        sides = [
            (self.name("r"), [Column(self.name(), e.type) for e in below.columns]) for _ in "ab"
        ]
        reads = [
            f"{name} AS {alias} ({', '.join(each.name for each in columns)})"
            for alias, columns in sides
        ]
        (_, left), (_, right) = sides
        head = f"WITH {name} ({', '.join(each.name for each in below.columns)}) AS "
        names = ", ".join(each.name for each in below.columns)
        body = Text.same(f"{head}(SELECT {names} FROM {{0}}) ").put(below.text)
        if self.drawn.random() < 0.3:
            shown = ", ".join(each.name for each in left)
            again = ", ".join(each.name for each in right)
            text = Text.same(
                f"{{0}}SELECT {shown} FROM {reads[0]}{{1}} {self.drawn.choice(_SETS)} "
                f"SELECT {again} FROM {reads[1]}{{2}}"
            )
            wheres = self.where(left), self.where(right)
            return self.sub_query(text.put(body, *wheres), left)
        at = self.drawn.randrange(len(left))
        made, columns = self.projected((*left, *right), self.drawn.randint(2, 4))
        text = Text.same(
            f"{{0}}SELECT {{1}} FROM {reads[0]} {self.drawn.choice(_JOINS)} {reads[1]} "
            f"ON {left[at].name} = {right[at].name}{{2}}"
        )
        where = self.where((*left, *right), 0.3)
        return self.sub_query(text.put(body, listed(made), where), columns)

    def combined(self, depth: int) -> Relation:
        left, right = self.relation(depth), self.relation(self.drawn.randint(0, depth))
        kinds = self.drawn.choices([each.type for each in left.columns], k=self.drawn.randint(1, 3))
        one, columns = self.of_types(left, kinds)
        other, _ = self.of_types(right, kinds)
        return self.sub_query(
            Text.same(f"{{0}} {self.drawn.choice(_SETS)} {{1}}").put(one, other), columns
        )

    # -- order -----------------------------------------------------------------------------------

    def order(self, given: Sequence[Column]) -> Text:
        """A total order: all columns; what ties is the same row."""
        columns = self.drawn.sample(given, len(given))
        parts = []
        for each in columns:
            way = self.drawn.choice(("", " ASC", " DESC"))
            nulls = self.drawn.choice(("", "", " NULLS FIRST", " NULLS LAST"))
            of_duck = nulls or (" NULLS LAST" if way == " DESC" else " NULLS FIRST")
            parts.append(Text(f"{each.name}{way}{nulls}", f"{each.name}{way}{of_duck}"))
        return listed(parts)

    def ranked(self, depth: int) -> Relation:
        below = self.relation(depth)
        keys = self.drawn.sample(below.columns, self.drawn.choice((0, 1, 1)))
        partition = f"PARTITION BY {keys[0].name} " if keys else ""
        number, most = self.name(), self.drawn.choice((1, 1, 2, 3))
        columns = list(below.columns)
        names = ", ".join(each.name for each in columns)
        text = Text.same(
            f"SELECT {names}{{2}} FROM (SELECT *, ROW_NUMBER() OVER ({partition}ORDER BY {{0}}) "
            f"AS {number} FROM {{1}}{{3}}) WHERE {number} <= {most}"
        )
        shown = Text.same("")
        where = self.where(below.columns, 0.3)
        order = self.order(below.columns)
        if self.drawn.random() < 0.4:
            shown = Text.same(f", {number}")
            columns.append(Column(number, "I"))
        return self.sub_query(text.put(order, below.text, shown, where), columns)

    def limited(self, depth: int) -> Relation:
        below = self.relation(depth)
        offset = self.drawn.choice(("", "", " OFFSET 1"))
        names = ", ".join(each.name for each in below.columns)
        text = Text.same(
            f"SELECT {names} FROM {{0}} ORDER BY {{1}} LIMIT {self.drawn.randint(1, 5)}{offset}"
        )
        return self.sub_query(text.put(below.text, self.order(below.columns)), below.columns)

    # -- sub-queries -----------------------------------------------------------------------------

    def semi_joined(self, depth: int) -> Relation:
        below, other = self.relation(depth), self.relation(self.drawn.randint(0, depth))
        not_ = self.drawn.choice(("", "NOT "))
        one = self.drawn.choice(below.columns)
        if self.drawn.random() < 0.6:
            inner, _ = self.of_types(other, [one.type])
            condition = Text.same(f"{one.name} {not_}IN ({{0}})").put(inner)
        else:
            same = [each for each in other.columns if each.type == one.type]
            equal = f"{self.drawn.choice(same).name} = {one.name}" if same else "1 = 1"
            more = Text.same("")
            if self.drawn.random() < 0.4:
                more = Text.same(" AND {0}").put(self.expressions.condition(other.columns))
            condition = Text.same(f"{not_}EXISTS (SELECT 1 FROM {{0}} WHERE {equal}{{1}})").put(
                other.text, more
            )
        made, columns = self.projected(below.columns, self.drawn.randint(1, 3))
        text = Text.same("SELECT {0} FROM {1} WHERE {2}")
        if self.drawn.random() < 0.4:
            more = self.expressions.condition(below.columns)
            condition = Text.same("{0} AND {1}").put(condition, more)
        return self.sub_query(text.put(listed(made), below.text, condition), columns)

    def with_scalar(self, depth: int) -> Relation:
        below, other = self.relation(depth), self.relation(0)
        one, same = self.drawn.choice(below.columns), self.drawn.choice(other.columns)
        call = self.drawn.choice(("MAX", "MIN", "COUNT"))
        kind = "I" if call == "COUNT" else same.type
        if kind == "B":
            call, kind = "COUNT", "I"
        pairs = [each.name for each in other.columns if each.type == one.type]
        where = ""
        if pairs and self.drawn.random() < 0.6:
            where = f" WHERE {self.drawn.choice(pairs)} = {one.name}"
        scalar = Text.same(f"(SELECT {call}({same.name}) FROM {{0}}{where})").put(other.text)
        if self.drawn.random() < 0.5:
            made, columns = self.projected(below.columns, self.drawn.randint(1, 3))
            text = Text.same("SELECT {0}, {1} AS " + (name := self.name()) + " FROM {2}{3}")
            put = text.put(listed(made), scalar, below.text, self.where(below.columns, 0.3))
            return self.sub_query(put, [*columns, Column(name, kind)])
        left = self.expressions.value(below.columns, kind, 1)
        sign = self.drawn.choice(("=", "<", ">=", "<>"))
        made, columns = self.projected(below.columns, self.drawn.randint(1, 3))
        text = Text.same(f"SELECT {{0}} FROM {{1}} WHERE {{2}} {sign} {{3}}")
        return self.sub_query(text.put(listed(made), below.text, left, scalar), columns)

    # -- time ------------------------------------------------------------------------------------

    def timed(self, _: int) -> Relation:
        kinds = (self.windowed, self.windowed, self.first_of_windows, self.sessions)
        more = (self.over, self.near, self.newest, self.unnested, self.joined_in_windows)
        return self.drawn.choice((*kinds, *more, self.numbered, self.versioned))()

    def windowed(self) -> Relation:
        """Aggregates per window over the table with event time."""
        kind, start, end = self.drawn.choice(_WINDOWS)
        given = (Column("id", "I"), Column("k", "S"), Column("v", "I"))
        calls = [self.expressions.aggregate(given) for _ in range(self.drawn.randint(1, 2))]
        keyed = self.drawn.random() < 0.7
        columns = [Column(self.name(), kind) for kind in ["I", *("S" if keyed else "")]]
        columns += [Column(self.name(), each) for _, each in calls]
        values = [Text("EXTRACT(MINUTE FROM window_end)", f"EXTRACT(MINUTE FROM {end})")]
        values += [Text.same("k")] if keyed else []
        values += [each for each, _ in calls]
        shown = [
            Text.same(f"{{0}} AS {column.name}").put(value)
            for value, column in zip(values, columns, strict=True)
        ]
        group = ", k" if keyed else ""
        text = Text(
            f"SELECT {{0}} FROM {kind}{{1}} GROUP BY window_start, window_end{group}",
            f"SELECT {{0}} FROM (SELECT *, {start} AS w FROM e){{1}} GROUP BY w{group}",
        )
        return self.sub_query(text.put(listed(shown), self.where(given, 0.3)), columns)

    def first_of_windows(self) -> Relation:
        kind, start, _ = self.drawn.choice(_WINDOWS)
        keyed = self.drawn.choice(("", ", k"))
        columns = [Column(self.name(), kind) for kind in "ISI"]
        one, two, three = (each.name for each in columns)
        order = self.order((Column("v", "I"), Column("id", "I"), Column("ts", "T")))
        most = self.drawn.choice((1, 2))
        text = Text(
            f"SELECT id AS {one}, k AS {two}, v AS {three} FROM (SELECT *, ROW_NUMBER() OVER "
            f"(PARTITION BY window_start, window_end{keyed} ORDER BY {{0}}) AS n FROM {kind}) "
            f"WHERE n <= {most}",
            f"SELECT id AS {one}, k AS {two}, v AS {three} FROM (SELECT *, ROW_NUMBER() OVER "
            f"(PARTITION BY w{keyed} ORDER BY {{0}}) AS n FROM (SELECT *, {start} AS w FROM e)) "
            f"WHERE n <= {most}",
        )
        return self.sub_query(text.put(order), columns)

    def joined_in_windows(self) -> Relation:
        window, start, _ = self.drawn.choice(_WINDOWS)
        kind = self.drawn.choice(_JOINS)
        key = self.drawn.choice(("k", "v"))
        columns = [Column(self.name(), each) for each in "IISS"]
        one, two, three, four = (each.name for each in columns)
        where = self.where((Column("id", "I"), Column("k", "S"), Column("v", "I")), 0.3)
        shown = f"SELECT a.id AS {one}, b.id AS {two}, a.k AS {three}, b.k AS {four} FROM "
        text = Text(
            f"{shown}(SELECT * FROM {window}{{0}}) a {kind} (SELECT * FROM {window}) b ON a.{key} "
            f"= b.{key} AND a.window_start = b.window_start AND a.window_end = b.window_end",
            f"{shown}(SELECT * FROM (SELECT *, {start} AS w FROM e){{0}}) a {kind} "
            f"(SELECT *, {start} AS w FROM e) b ON a.{key} = b.{key} AND a.w = b.w",
        )
        return self.sub_query(text.put(where), columns)

    def sessions(self) -> Relation:
        given = (Column("id", "I"), Column("v", "I"))
        call, kind = self.expressions.aggregate(given)
        columns = [Column(self.name(), each) for each in ("S", "I", kind)]
        one, two, three = (each.name for each in columns)
        text = Text(
            f"SELECT k AS {one}, EXTRACT(SECOND FROM window_start) AS {two}, {{0}} AS {three} FROM "
            "SESSION(TABLE e PARTITION BY k, DESCRIPTOR(ts), INTERVAL '20' SECOND) "
            "GROUP BY k, window_start, window_end",
            f"SELECT k AS {one}, CAST(EXTRACT(SECOND FROM MIN(ts)) AS INT) AS {two}, {{0}} AS "
            f"{three} FROM (SELECT *, SUM(CAST(b AS INT)) OVER (PARTITION BY k ORDER BY ts) AS s "
            "FROM (SELECT *, COALESCE(ts - LAG(ts) OVER (PARTITION BY k ORDER BY ts) > "
            "INTERVAL 20 SECOND, TRUE) AS b FROM e)) GROUP BY k, s",
        )
        return self.sub_query(text.put(call), columns)

    def newest(self) -> Relation:
        """The first or last row of each key by event time."""
        columns = [Column(self.name(), kind) for kind in "ISI"]
        one, two, three = (each.name for each in columns)
        key, way = self.drawn.choice(("k", "v")), self.drawn.choice(("ASC", "DESC"))
        where = self.where((Column("id", "I"), Column("k", "S"), Column("v", "I")), 0.3)
        text = Text.same(
            f"SELECT id AS {one}, k AS {two}, v AS {three} FROM (SELECT *, ROW_NUMBER() OVER "
            f"(PARTITION BY {key} ORDER BY ts {way}) AS n FROM e{{0}}) WHERE n = 1"
        )
        return self.sub_query(text.put(where), columns)

    def unnested(self) -> Relation:
        below = self.relation(self.drawn.choice((0, 1)))
        values = [self.expressions.value(below.columns, "I", 1) for _ in "ab"]
        made, columns = self.projected(below.columns, self.drawn.randint(1, 2))
        name, alias = self.name(), self.name("u")
        text = Text(
            f"SELECT {{0}}, {name} FROM {{1}} CROSS JOIN UNNEST(ARRAY[{{2}}, {{3}}]) "
            f"AS {alias} ({name})",
            f"SELECT {{0}}, UNNEST([{{2}}, {{3}}]) AS {name} FROM {{1}}",
        )
        put = text.put(listed(made), below.text, *values)
        return self.sub_query(put, [*columns, Column(name, "I")])

    def over(self) -> Relation:
        frame = self.drawn.choice(_FRAMES)
        call = self.drawn.choice(("COUNT(v)", "SUM(v)", "MIN(id)", "MAX(k)", "COUNT(*)"))
        partition = self.drawn.choice(("", "PARTITION BY k "))
        columns = [Column(self.name(), kind) for kind in ("I", "S", "S" if "k)" in call else "I")]
        one, two, three = (each.name for each in columns)
        text = (
            f"SELECT id AS {one}, k AS {two}, {call} OVER ({partition}ORDER BY ts{frame}) "
            f"AS {three} FROM e"
        )
        return self.sub_query(Text.same(text), columns)

    def numbered(self) -> Relation:
        """Rows with their number, which no filter bounds."""
        rank = self.drawn.choice(("ROW_NUMBER()", "RANK()", "DENSE_RANK()"))
        partition = self.drawn.choice(("", "PARTITION BY k ", "PARTITION BY v, k "))
        columns = [Column(self.name(), kind) for kind in "ISI"]
        one, two, three = (each.name for each in columns)
        text = (
            f"SELECT id AS {one}, k AS {two}, CAST(n AS INT) AS {three} FROM (SELECT *, {rank} "
            f"OVER ({partition}ORDER BY ts) AS n FROM e)"
        )
        more = self.drawn.choice(("", " WHERE n > 2"))
        return self.sub_query(Text.same(text + more), columns)

    def versioned(self) -> Relation:
        """Rows with the version of their key at their time."""
        key, kind = self.drawn.choice("kv"), self.drawn.choice(("", "LEFT "))
        columns = [Column(self.name(), each) for each in "ISI"]
        one, two, three = (each.name for each in columns)
        shown = f"SELECT a.id AS {one}, b.k AS {two}, b.v AS {three} FROM e AS a {{0}} ON "
        joined = f"{kind}JOIN last_{key} FOR SYSTEM_TIME AS OF a.ts AS b"
        flink = f"{shown.format(joined)}b.{key} = a.{key}"
        duck = f"{shown.format(f'ASOF {kind}JOIN (FROM e WHERE {SOME}) AS b')}b.{key} = a.{key}"
        return self.sub_query(Text(flink, f"{duck} AND a.ts >= b.ts"), columns)

    def near(self) -> Relation:
        columns = [Column(self.name(), kind) for kind in "ISI"]
        one, two, three = (each.name for each in columns)
        key, kind = self.drawn.choice(("a.k = b.k", "a.v = b.v")), self.drawn.choice(_JOINS)
        text = (
            f"SELECT a.id AS {one}, b.k AS {two}, b.v AS {three} FROM e a {kind} e b ON {key} AND "
            "b.ts BETWEEN a.ts - INTERVAL '40' SECOND AND a.ts + INTERVAL '10' SECOND"
        )
        return self.sub_query(Text.same(text), columns)


_TABLE: Final = "TABLE e, DESCRIPTOR(ts), "
_STARTS: Final = "date_trunc('minute', ts)"
_THREE: Final = "make_timestamp((epoch_us(ts) // 180000000) * 180000000)"
#: A window function, and for DuckDB: a column ``w`` that tells windows apart, and their end.
_WINDOWS: Final = (
    (f"TUMBLE({_TABLE}INTERVAL '1' MINUTE)", _STARTS, "w + INTERVAL 1 MINUTE"),
    (
        f"HOP({_TABLE}INTERVAL '1' MINUTE, INTERVAL '2' MINUTE)",
        f"UNNEST([{_STARTS}, {_STARTS} - INTERVAL 1 MINUTE])",
        "w + INTERVAL 2 MINUTE",
    ),
    (
        f"CUMULATE({_TABLE}INTERVAL '1' MINUTE, INTERVAL '3' MINUTE)",
        (
            f"UNNEST([x FOR x IN [{_THREE} + INTERVAL 1 MINUTE, {_THREE} + INTERVAL 2 MINUTE, "
            f"{_THREE} + INTERVAL 3 MINUTE] IF x > ts])"
        ),
        "w",
    ),
)
_FRAMES: Final = (
    "",
    " ROWS BETWEEN 2 PRECEDING AND CURRENT ROW",
    " ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN INTERVAL '50' SECOND PRECEDING AND CURRENT ROW",
    " RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW",
)


def listed(texts: Sequence[Text]) -> Text:
    """Parts with commas between them."""
    return Text(", ".join(each.flink for each in texts), ", ".join(each.duck for each in texts))


def random_query(seed: int) -> Text:
    """The query of a seed."""
    made: Any = Queries(seed)
    relation = made.relation(made.drawn.choice((1, 2, 2, 3, 3, 4)))
    names = ", ".join(each.name for each in relation.columns)
    return Text.same(f"SELECT {names} FROM {{0}}").put(relation.text)
