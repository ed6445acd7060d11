"""MATCH_RECOGNIZE drawn at random: its text, and what it gives by an interpreter of its own.

What it is: patterns with quantifiers, conditions of each kind, AFTER MATCH, WITHIN and measures;
the interpreter evaluates conditions over lists of rows.  It asks the automaton for matches, and
checks them by going through all ways (``tests/runtime/table_operators/pattern_model.py``).
What it is not: the run (``tests/sql/random/test_random_matches.py``).
"""

from __future__ import annotations

import operator
import random
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.runtime.table_operators.pattern_model import matches

from millstream.runtime.operators.table.row_patterns import PatternVariable, RowPattern, SkipTo

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["RandomMatch"]

_QUANTIFIERS: Final = [
    (1, 1), (1, 1), (0, 1), (0, None), (1, None), (2, 2), (0, 2), (1, 3), (2, None)
]  # fmt: skip
_OPERATORS: Final[dict[str, Callable[[int, int], bool]]] = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "<>": operator.ne
}  # fmt: skip
#: Rows of a variable up to now -> a value; None: NULL.
_VALUES: Final[dict[str, Callable[[list[int | None]], int | None]]] = {
    "{0}.v": lambda found: found[-1] if found else None,
    "LAST({0}.v, 1)": lambda found: found[-2] if len(found) > 1 else None,
    "FIRST({0}.v)": lambda found: found[0] if found else None,
    "FIRST({0}.v, 1)": lambda found: found[1] if len(found) > 1 else None,
    "SUM({0}.v)": lambda found: _of(sum, found),
    "MAX({0}.v)": lambda found: _of(max, found),
    "COUNT({0}.v)": lambda found: sum(each is not None for each in found),
}


def _of(aggregate: Any, found: list[int | None]) -> int | None:
    known = [each for each in found if each is not None]
    return aggregate(known) if known else None


@dataclass(frozen=True)
class _Term:
    """A value of the rows of a variable; without one, a constant."""

    form: str
    variable: int
    constant: int = 0

    @property
    def text(self) -> str:
        return self.form.format("ABCD"[self.variable]) if self.form else str(self.constant)

    def value(self, rows: Sequence[list[int | None]]) -> int | None:
        if not self.form:
            return self.constant
        return _VALUES[self.form](rows[self.variable] if self.variable < len(rows) else [])


@dataclass(frozen=True)
class _Part:
    """A comparison, which NULL on the left meets if it may."""

    left: _Term
    operator: str
    right: _Term
    or_null: bool

    @property
    def text(self) -> str:
        compared = f"{self.left.text} {self.operator} {self.right.text}"
        return f"({self.left.text} IS NULL OR {compared})" if self.or_null else compared

    def meets(self, rows: Sequence[list[int | None]]) -> bool:
        left, right = self.left.value(rows), self.right.value(rows)
        if left is None or right is None:
            return left is None and self.or_null
        return _OPERATORS[self.operator](left, right)


class RandomMatch:
    """A query, its rows and its answer."""

    def __init__(self, drawn: random.Random) -> None:
        self._drawn = drawn
        self.rows = self._rows()
        self.pattern = self._pattern()
        width = len(self.pattern.variables)
        self._conditions = [self._condition(at) for at in range(width)]
        forms = [(form, at) for form in _VALUES for at in range(width)]
        self._measures = [_Term(*each) for each in self._drawn.sample(forms, min(4, len(forms)))]

    @staticmethod
    def of(seed: int) -> RandomMatch:
        """That of a seed; of some the first that is drawn, of most the first with matches."""
        drawn = random.Random(seed)
        while True:
            made = RandomMatch(drawn)
            answer = made.answer()
            if seed % 8 == 0 or (not isinstance(answer, str) and answer.total() > 1):
                return made

    # -- drawing ---------------------------------------------------------------------------------

    def _rows(self) -> list[tuple[str, int | None, int]]:
        """Rows of keys with values and seconds, at most two behind those that came before."""
        drawn, time = self._drawn, 0
        rows = []
        for _ in range(drawn.randint(15, 45)):
            time += drawn.choice([1, 1, 2, 5])
            rows.append((drawn.choice("xyz"), drawn.choice([None, *range(5), *range(5)]), time))
        return sorted(rows, key=lambda row: row[2] + drawn.choice([0, 0, 2]))

    def _pattern(self) -> RowPattern:
        drawn = self._drawn
        made: list[PatternVariable] = []
        for name in "ABCD"[: drawn.randint(1, 4)]:
            low, high = drawn.choice(_QUANTIFIERS)
            greedy = drawn.random() < 0.5 and low != high and (low, high) != (0, 1)
            if made and made[-1].greedy and (low, high) in {(0, 1), (0, None)}:
                low, high, greedy = 1, 1, False
            made.append(PatternVariable(name, low, high, greedy))
        # The last variable is not greedy, and one needs a row.
        if made[-1].greedy or not any(each.minimum for each in made):
            made[-1] = PatternVariable(made[-1].name)
        skip = drawn.choice(list(SkipTo))
        to_variable = skip in {SkipTo.FIRST, SkipTo.LAST}
        # Mostly one that has rows and does not begin the match, which would be an error.
        good = [at for at, each in enumerate(made) if at and each.minimum]
        if not good and to_variable and drawn.random() < 0.8:
            skip, to_variable = SkipTo.PAST_LAST_ROW, False
        target = drawn.choice([*good, *good, *good, 0]) if to_variable else None
        return RowPattern(tuple(made), skip, target, drawn.choice([None, None, 6, 15]))

    def _term(self, at: int, *, constant: bool) -> _Term:
        if constant and self._drawn.random() < 0.5:
            return _Term("", 0, self._drawn.randint(0, 3))
        mine = self._drawn.random() < 0.5
        form = self._drawn.choice(["{0}.v", *_VALUES] if mine else list(_VALUES))
        return _Term(form, at if mine else self._drawn.randint(0, at))

    def _condition(self, at: int) -> list[_Part]:
        """What rows of a variable must meet, by its rows and those of variables before it."""
        return [
            _Part(
                self._term(at, constant=False),
                self._drawn.choice(list(_OPERATORS)),
                self._term(at, constant=True),
                self._drawn.random() < 0.6,
            )
            for _ in range(self._drawn.choice([0, 1, 1, 1, 2] if at else [1, 1, 2]))
        ]

    # -- the query -------------------------------------------------------------------------------

    @property
    def query(self) -> str:
        """The text of the query."""
        defined = [
            f"{name} AS {' AND '.join(part.text for part in parts)}"
            for name, parts in zip("ABCD", self._conditions, strict=False)
            if parts
        ]
        shown = [f"{each.text} AS m{number}" for number, each in enumerate(self._measures)]
        within = self.pattern.within
        return (
            "SELECT * FROM e MATCH_RECOGNIZE (PARTITION BY k ORDER BY ts MEASURES "
            f"{', '.join(shown)} ONE ROW PER MATCH AFTER MATCH SKIP {self._skip()} "
            f"PATTERN ({' '.join(map(_quantified, self.pattern.variables))})"
            + ("" if within is None else f" WITHIN INTERVAL '{within}' SECOND")
            + f" DEFINE {', '.join(defined) or 'A AS TRUE'})"
        )

    def _skip(self) -> str:
        words = {SkipTo.PAST_LAST_ROW: "PAST LAST ROW", SkipTo.NEXT_ROW: "TO NEXT ROW"}
        if self.pattern.skip in words:
            return words[self.pattern.skip]
        assert self.pattern.target is not None
        side = "FIRST" if self.pattern.skip is SkipTo.FIRST else "LAST"
        return f"TO {side} {'ABCD'[self.pattern.target]}"

    # -- the answer ------------------------------------------------------------------------------

    def answer(self) -> Counter[Any] | str:
        """The rows of the query; a text: a part of its error."""
        found: Counter[Any] = Counter()
        for key in "xyz":
            ordered = sorted((time, value) for k, value, time in self.rows if k == key)
            values = [value for _, value in ordered]

            def meets(
                start: int, counts: tuple[int, ...], values: list[int | None] = values
            ) -> bool:
                rows = _rows_of(values, start, counts)
                return all(part.meets(rows) for part in self._conditions[len(counts) - 1])

            known = matches(self.pattern, meets, [time for time, _ in ordered], 10**6)
            if isinstance(known, str):
                return known
            for start, counts, _ in known:
                rows = _rows_of(values, start, counts)
                found[key, *(each.value(rows) for each in self._measures)] += 1
        return found


def _rows_of(
    values: Sequence[int | None], start: int, counts: tuple[int, ...]
) -> list[list[int | None]]:
    rows = []
    for count in counts:
        rows.append(list(values[start : start + count]))
        start += count
    return rows


def _quantified(variable: PatternVariable) -> str:
    low, high = variable.minimum, variable.maximum
    sign = {(1, 1): "", (0, 1): "?", (0, None): "*", (1, None): "+"}.get((low, high))
    if sign is None:
        sign = f"{{{low}}}" if low == high else f"{{{low},{'' if high is None else high}}}"
    reluctant = low != high and (low, high) != (0, 1) and not variable.greedy
    return variable.name + sign + "?" * reluctant
