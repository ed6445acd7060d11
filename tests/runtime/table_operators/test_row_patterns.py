"""The automaton of row patterns, beside all ways in which rows can be of variables."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st
from tests.runtime.table_operators.pattern_model import check
from tests.support.examples import examples

from millstream.errors import UserFunctionError
from millstream.runtime.operators.table.row_patterns import (
    NO_ROW,
    Match,
    Matching,
    Partial,
    PatternVariable,
    RowPattern,
    SkipTo,
)

if TYPE_CHECKING:
    from tests.runtime.table_operators.pattern_model import Meets

QUANTIFIERS = [(1, 1), (0, 1), (0, None), (1, None), (2, 2), (0, 2), (1, 3), (2, None)]


@st.composite
def patterns(draw: st.DrawFn) -> RowPattern:
    """Patterns as the binder lets them through."""
    made = []
    for name in "ABCD"[: draw(st.integers(1, 4))]:
        low, high = draw(st.sampled_from(QUANTIFIERS))
        greedy = draw(st.booleans()) and low != high and (low, high) != (0, 1)
        made.append(PatternVariable(name, low, high, greedy))
    for at in range(1, len(made)):
        if made[at - 1].greedy and (made[at].minimum, made[at].maximum) in {(0, 1), (0, None)}:
            made[at] = PatternVariable(made[at].name)
    # The last variable is not greedy, and one needs a row.
    if made[-1].greedy or not any(each.minimum for each in made):
        made[-1] = PatternVariable(made[-1].name)
    skip = draw(st.sampled_from(SkipTo))
    target = None
    if skip in {SkipTo.FIRST, SkipTo.LAST}:
        target = draw(st.integers(0, len(made) - 1))
    return RowPattern(tuple(made), skip, target, draw(st.sampled_from([None, 3, 6])))


def meets_of(rows: list[tuple[str, int]]) -> Meets:
    """Conditions: a row says of which variables it can be; numbers of C do not fall."""

    def meets(start: int, counts: tuple[int, ...]) -> bool:
        row = start + sum(counts) - 1
        variables, number = rows[row]
        variable = len(counts) - 1
        if "ABCD"[variable] not in variables:
            return False
        if variable == 2 and counts[-1] > 1:
            return number >= rows[row - 1][1]
        # D is as much as the row before all of B, if there is one.
        before = start + counts[0] - 1
        return variable != 3 or not counts[0] or number >= rows[before][1]

    return meets


def _answered(matching: Matching, meets: Meets, first: int = 0, until: int | None = None) -> None:
    walk = matching.walk(first, until)
    question = next(walk, None)
    while question is not None:
        try:
            question = walk.send(meets(*question))
        except StopIteration:
            return


def _moved(meets: Meets, by: int, start: int, counts: tuple[int, ...]) -> bool:
    return meets(start + by, counts)


def run(
    pattern: RowPattern,
    rows: list[tuple[str, int]],
    times: list[int],
    cuts: list[int],
    until: int,
    found: list[Match],
) -> None:
    """Add the matches; what is in progress is stored and read again at each cut."""
    meets = meets_of(rows)
    partials: list[Partial] = []
    completed: list[Partial] = []
    base = known = 0
    for cut in sorted({*cuts, len(rows)}):
        matching = Matching(pattern, times[base:cut], partials, completed)
        now = until if cut == len(rows) else times[cut - 1]
        moved = partial(_moved, meets, base)
        try:
            _answered(matching, moved, known - base, now)
        finally:
            found += [each._replace(start=each.start + base) for each in matching.found]
        base += matching.trimmed()
        partials, completed, known = matching.partials, matching.completed, cut


rows_and_steps = st.lists(
    st.tuples(st.sampled_from(["A", "AB", "ABC", "BC", "BD", "CD", "ABCD", ""]), st.integers(0, 2)),
    max_size=9,
).flatmap(
    lambda rows: st.tuples(
        st.just(rows), st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows))
    )
)


@examples(80)
@given(
    pattern=patterns(),
    drawn=rows_and_steps,
    cuts=st.lists(st.integers(1, 9), max_size=3),
    rest=st.integers(0, 6),
)
def test_oracle_of_all_ways(
    pattern: RowPattern,
    drawn: tuple[list[tuple[str, int]], list[int]],
    cuts: list[int],
    rest: int,
) -> None:
    rows, steps = drawn
    times = [sum(steps[: at + 1]) for at in range(len(rows))]
    until = (times[-1] if times else 0) + rest
    cuts = [cut for cut in cuts if cut <= len(rows)]
    found: list[Match] = []
    error = None
    try:
        run(pattern, rows, times, cuts, until, found)
    except UserFunctionError as raised:
        error = str(raised)
    check(pattern, meets_of(rows), times, until, found, error)


def test_state_is_as_long_as_what_is_in_the_making() -> None:
    pattern = RowPattern(
        (PatternVariable("A"), PatternVariable("B", 1, None), PatternVariable("C"))
    )
    matching = Matching(pattern, [0, 1, 2, 3])
    # Only the row 1 is of A, all rows are of B.
    _answered(matching, lambda start, counts: len(counts) == 2 or (start, counts) == (1, (1,)))
    assert matching.partials == [(1, (1, 2)), (NO_ROW, ())]
    assert matching.trimmed() == 1
    assert matching.partials == [(0, (1, 2)), (NO_ROW, ())]
