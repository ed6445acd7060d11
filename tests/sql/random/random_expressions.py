"""Expressions of SQL drawn at random, each as Flink writes it and as DuckDB does.

What it is: values and conditions over given columns, of functions whose semantics agree once the
few differences in spelling are taken away (integer division, AVG of integers, days added to dates).
What it is not: a test of functions (``tests/sql/functions``): the point is what plans make of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import random
    from collections.abc import Sequence

__all__ = ["COLUMN_TYPES", "Column", "Expressions", "Text"]

#: Integer, text, double, decimal, truth, day.
COLUMN_TYPES: Final = "ISDNBT"
_LITERALS: Final[dict[str, tuple[str, ...]]] = {
    "I": ("0", "1", "2", "3", "7", "-4", "CAST(NULL AS INT)"),
    "S": ("''", "'a'", "'b'", "'ab'", "'äö'", "'A'", "CAST(NULL AS STRING)"),
    "D": ("CAST(0.5 AS DOUBLE)", "CAST(2 AS DOUBLE)", "CAST(NULL AS DOUBLE)"),
    "N": ("1.25", "0.50", "3.00", "CAST(NULL AS DECIMAL(6, 2))"),
    "B": ("TRUE", "FALSE", "CAST(NULL AS BOOLEAN)"),
    "T": ("DATE '2024-01-03'", "DATE '2024-02-29'", "CAST(NULL AS DATE)"),
}


@dataclass(frozen=True)
class Text:
    """The same in two dialects."""

    flink: str
    duck: str

    @staticmethod
    def same(text: str) -> Text:
        return Text(text, text)

    def put(self, *parts: Text) -> Text:
        """With parts for ``{0}``, ``{1}``, ..."""
        return Text(
            self.flink.format(*(each.flink for each in parts)),
            self.duck.format(*(each.duck for each in parts)),
        )


@dataclass(frozen=True)
class Column:
    """A column of a relation; its name is that of no other column of the query."""

    name: str
    type: str


#: Result -> templates with the types of their parts.
_CALLS: Final[dict[str, list[tuple[Text, str]]]] = {
    "I": [
        (Text.same("({0} + {1})"), "II"),
        (Text.same("({0} - {1})"), "II"),
        (Text.same("({0} * 3)"), "I"),
        (Text.same("({0} % 3)"), "I"),
        (Text("({0} / 2)", "({0} // 2)"), "I"),
        (Text.same("ABS({0})"), "I"),
        (Text.same("SIGN({0})"), "I"),
        (Text.same("CHAR_LENGTH({0})"), "S"),
        (Text.same("POSITION('b' IN {0})"), "S"),
        (Text.same("EXTRACT(DAY FROM {0})"), "T"),
        (Text.same("EXTRACT(MONTH FROM {0})"), "T"),
        (Text.same("CAST({0} AS INT)"), "B"),
    ],
    "S": [
        (Text.same("UPPER({0})"), "S"),
        (Text.same("LOWER({0})"), "S"),
        (Text.same("({0} || {1})"), "SS"),
        (Text.same("SUBSTRING({0} FROM 1 FOR 1)"), "S"),
        (Text.same("SUBSTRING({0} FROM 2)"), "S"),
        (Text.same("REPLACE({0}, 'a', 'xy')"), "S"),
        (Text.same("TRIM({0})"), "S"),
        (Text.same("REVERSE({0})"), "S"),
        (Text.same("CAST({0} AS STRING)"), "I"),
        (Text.same("CAST({0} AS STRING)"), "T"),
    ],
    "D": [(Text.same("({0} + {1})"), "DD"), (Text.same("({0} - {1})"), "DD")],
    "N": [(Text.same("({0} + {1})"), "NN"), (Text.same("({0} - {1})"), "NN")],
    "B": [
        (Text.same("({0} AND {1})"), "BB"),
        (Text.same("({0} OR {1})"), "BB"),
        (Text.same("(NOT {0})"), "B"),
        (Text.same("({0} IS TRUE)"), "B"),
        (Text.same("({0} IS NOT FALSE)"), "B"),
        (Text.same("({0} LIKE 'a%')"), "S"),
        (Text.same("({0} LIKE '%b_')"), "S"),
        (Text.same("({0} IN (1, 3, {1}))"), "II"),
        (Text.same("({0} NOT IN (1, {1}))"), "II"),
        (Text.same("({0} BETWEEN {1} AND {2})"), "III"),
        (Text.same("({0} NOT BETWEEN {1} AND 5)"), "II"),
    ],
    "T": [
        (Text("({0} + INTERVAL '1' DAY)", "({0} + 1)"), "T"),
        (Text("({0} - INTERVAL '2' DAY)", "({0} - 2)"), "T"),
        (Text("FLOOR({0} TO MONTH)", "CAST(date_trunc('month', {0}) AS DATE)"), "T"),
    ],
}
_COMPARISONS: Final = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")
#: Of any type.
_ANY: Final = (
    Text.same("COALESCE({0}, {1})"),
    Text.same("NULLIF({0}, {1})"),
    Text.same("CASE WHEN {2} THEN {0} ELSE {1} END"),
    Text.same("CASE WHEN {2} THEN {0} WHEN {3} THEN {1} END"),
)
_AGGREGATES: Final[list[tuple[Text, str, str]]] = [
    (Text.same("COUNT({0})"), "I", COLUMN_TYPES),
    (Text.same("COUNT(DISTINCT {0})"), "I", COLUMN_TYPES),
    (Text.same("SUM({0})"), "=", "IDN"),
    (Text.same("SUM(DISTINCT {0})"), "=", "IN"),
    (Text.same("MIN({0})"), "=", "ISDNT"),
    (Text.same("MAX({0})"), "=", "ISDNT"),
    (Text("AVG({0})", "CAST(TRUNC(CAST(SUM({0}) AS DOUBLE) / COUNT({0})) AS BIGINT)"), "=", "I"),
]


class Expressions:
    """Draws expressions."""

    def __init__(self, drawn: random.Random) -> None:
        self.drawn = drawn

    def value(self, columns: Sequence[Column], kind: str, depth: int = 2) -> Text:
        """A value of that type."""
        drawn = self.drawn
        fitting = [each for each in columns if each.type == kind]
        if depth == 0 or drawn.random() < 0.4:
            if fitting and drawn.random() < 0.85:
                return Text.same(drawn.choice(fitting).name)
            return Text.same(drawn.choice(_LITERALS[kind]))
        if kind == "B" and drawn.random() < 0.5:
            return self._comparison(columns, depth)
        if drawn.random() < 0.25:
            parts = [self.value(columns, each, depth - 1) for each in (kind, kind, "B", "B")]
            return drawn.choice(_ANY).put(*parts)
        template, kinds = drawn.choice(_CALLS[kind])
        return template.put(*(self.value(columns, each, depth - 1) for each in kinds))

    def _comparison(self, columns: Sequence[Column], depth: int) -> Text:
        drawn = self.drawn
        kind = drawn.choice([each.type for each in columns] or ["I"])
        left = self.value(columns, kind, depth - 1)
        if drawn.random() < 0.2:
            return Text.same(drawn.choice(("({0} IS NULL)", "({0} IS NOT NULL)"))).put(left)
        right = self.value(columns, kind, depth - 1)
        return Text.same(f"({{0}} {drawn.choice(_COMPARISONS)} {{1}})").put(left, right)

    def condition(self, columns: Sequence[Column]) -> Text:
        return self.value(columns, "B", self.drawn.choice((1, 2, 2)))

    def some(self, columns: Sequence[Column], depth: int = 2) -> tuple[Text, str]:
        """A value of any type, mostly of one of the columns', with its type."""
        kind = self.drawn.choice([each.type for each in columns] * 3 + list(COLUMN_TYPES))
        return self.value(columns, kind, depth), kind

    def aggregate(self, columns: Sequence[Column]) -> tuple[Text, str]:
        """An aggregate of some value, with its type."""
        drawn = self.drawn
        made, kind = Text.same("COUNT(*)"), "I"
        if drawn.random() < 0.8:
            template, kind, kinds = drawn.choice(_AGGREGATES)
            argument = drawn.choice(
                [each.type for each in columns if each.type in kinds] or list(kinds)
            )
            made = template.put(self.value(columns, argument, drawn.choice((0, 0, 1))))
            kind = argument if kind == "=" else kind
        if drawn.random() < 0.2 and not made.flink.startswith("AVG"):
            made = Text.same("{0} FILTER (WHERE {1})").put(made, self.condition(columns))
        return made, kind
