"""Matches of row patterns by their definition: all assignments of rows to variables are enumerated.

For each first row, in order, all ways in which the rows after it can be of variables.  A first row
without a whole way holds up all after it until it is certain that it will have none.  Its match is
one of the ways that are whole when it is emitted; which of them is left open, because in Flink it
follows from the arrays of two heaps (``tests/sql/flink/`` has recorded choices of Flink).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from millstream.errors import UserFunctionError
from millstream.runtime.operators.table.row_patterns import Match, Matching, RowPattern, SkipTo

__all__ = ["check", "matches"]

#: Whether the last row of ``counts`` meets the condition of the last variable; from ``start`` on.
Meets = Callable[[int, tuple[int, ...]], bool]


def _ways(pattern: RowPattern, meets: Meets, start: int, length: int) -> Iterator[tuple[int, ...]]:
    """The ways in which that many rows are of variables, whole or not."""

    def place(counts: tuple[int, ...], left: int) -> Iterator[tuple[int, ...]]:
        variable = pattern.variables[len(counts)]
        most = left if variable.maximum is None else min(left, variable.maximum)
        for count in range(most + 1):
            mine = (*counts, count)
            if count and not meets(start, mine):
                return
            if count == left:
                yield mine
            elif count >= variable.minimum and len(mine) < len(pattern.variables):
                if variable.greedy and meets(start, (*counts, count + 1)):
                    continue
                yield from place(mine, left - count)

    yield from place((), length)


def _known(
    pattern: RowPattern, meets: Meets, times: Sequence[int], start: int, until: int
) -> tuple[int | None, int | None]:
    """The first row that completes a match that begins there, and when that is certain.

    Neither: the match may still come.  Only the time: there is none.
    """
    within = pattern.within
    for end in range(start, len(times)):
        if within is not None and times[end] - times[start] >= within:
            return None, times[start] + within
        ways = list(_ways(pattern, meets, start, end - start + 1))
        if not any(_can_continue(pattern, counts) for counts in ways):
            return (end if _whole(pattern, ways) else None), times[end]
        if _whole(pattern, ways):
            return end, times[end]
    if within is not None and until - times[start] >= within:
        return None, times[start] + within
    return None, None


def _can_continue(pattern: RowPattern, counts: tuple[int, ...]) -> bool:
    return len(counts) < len(pattern.variables) or counts[-1] != pattern.variables[-1].maximum


def _whole(pattern: RowPattern, ways: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
    def is_whole(counts: tuple[int, ...]) -> bool:
        variable, rest = pattern.variables[len(counts) - 1], pattern.variables[len(counts) :]
        # A greedy variable is not left at the row that it has just taken.
        is_left = not (variable.greedy and rest)
        return is_left and counts[-1] >= variable.minimum and not any(each.minimum for each in rest)

    return [counts for counts in ways if is_whole(counts)]


def _candidates(
    pattern: RowPattern,
    meets: Meets,
    times: Sequence[int],
    start: int,
    now: int,
) -> Iterator[tuple[int, ...]]:
    """The matches of a first row of which one is emitted at a time."""
    for end in range(start, len(times)):
        if times[end] > now or times[end] - times[start] >= (pattern.within or 2**62):
            return
        yield from _whole(pattern, list(_ways(pattern, meets, start, end - start + 1)))


def _next_start(pattern: RowPattern, match: Match) -> int | str:
    """The first row that a next match may begin with; a text: the error of AFTER MATCH."""
    rows = [variable for variable, count in enumerate(match.counts) for _ in range(count)]
    if pattern.skip is SkipTo.PAST_LAST_ROW:
        return match.start + len(rows)
    if pattern.skip is SkipTo.NEXT_ROW:
        return match.start + 1
    places = [match.start + at for at, each in enumerate(rows) if each == pattern.target]
    if not places:
        return "Could not skip to"
    first = places[0 if pattern.skip is SkipTo.FIRST else -1]
    return "Could not skip to first element" if first == match.start else first


def check(
    pattern: RowPattern,
    meets: Meets,
    times: Sequence[int],
    until: int,
    found: Sequence[Match],
    error: str | None = None,
) -> None:
    """Assert that these are matches of the rows at these times.

    Args:
        pattern: of the matches.
        meets: the conditions.
        times: of the rows.
        until: the time at the end.
        found: the matches that were emitted, in order.
        error: the message of AFTER MATCH that ended them, if one did.
    """
    first, now, left = 0, -(2**62), list(found)
    for start in range(len(times)):
        if start < first:
            continue
        end, known = _known(pattern, meets, times, start, until)
        if known is None:
            break
        now = max(now, known)
        if end is None:
            continue
        candidates = list(_candidates(pattern, meets, times, start, now))
        if not left:
            nexts = [_next_start(pattern, Match(start, each, now)) for each in candidates]
            assert error is not None, f"the match that begins at {start} is missing: {candidates}"
            assert any(isinstance(each, str) and each in error for each in nexts)
            return
        match = left.pop(0)
        assert (match.start, match.time) == (start, now)
        assert match.counts in candidates
        after = _next_start(pattern, match)
        assert isinstance(after, int)
        first = after
    assert not left
    assert error is None


def matches(
    pattern: RowPattern, meets: Meets, times: Sequence[int], until: int
) -> list[Match] | str:
    """The matches that the automaton finds, checked; a text: the error that they end with."""
    matching = Matching(pattern, times)
    walk = matching.walk(0, until)
    error = None
    try:
        request = next(walk)
        while True:
            request = walk.send(meets(*request))
    except StopIteration:
        pass
    except UserFunctionError as raised:
        error = str(raised)
    check(pattern, meets, times, until, matching.found, error)
    return matching.found if error is None else error
