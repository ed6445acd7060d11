"""Matches of row patterns by their definition: all ways are enumerated, nothing is remembered.

What it is: the oracle of MATCH_RECOGNIZE.  For each first row, the ways in which the rows behind it
are of variables; the shortest that is whole is its match, of several the one with more rows of
earlier variables.  Then first rows are gone through in order, and those skipped that AFTER MATCH
says.  A first row whose match may still come holds up all behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from millstream.runtime.operators.table.match import Match, RowPattern, SkipTo

__all__ = ["matches"]

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


def _match_of(
    pattern: RowPattern, meets: Meets, times: Sequence[int], start: int, until: int
) -> tuple[tuple[int, ...] | None, int | None]:
    """The match that begins there, and the time at which that, or that there is none, is known."""
    within = pattern.within
    for end in range(start, len(times)):
        if within is not None and times[end] - times[start] >= within:
            return None, times[start] + within
        ways = list(_ways(pattern, meets, start, end - start + 1))
        if not ways:
            return None, times[end]
        whole = [
            counts
            for counts in ways
            if counts[-1] >= pattern.variables[len(counts) - 1].minimum
            and not any(each.minimum for each in pattern.variables[len(counts) :])
        ]
        if whole:
            return max(whole), times[end]
    if within is not None and until - times[start] >= within:
        return None, times[start] + within
    return None, None


def matches(
    pattern: RowPattern, meets: Meets, times: Sequence[int], until: int
) -> list[Match] | str:
    """The matches of the rows at these times; a text: the error that they end with."""
    found: list[Match] = []
    first, now = 0, -(2**62)
    for start in range(len(times)):
        if start < first:
            continue
        counts, known = _match_of(pattern, meets, times, start, until)
        if known is None:
            break
        now = max(now, known)
        if counts is None:
            continue
        rows = [variable for variable, count in enumerate(counts) for _ in range(count)]
        if pattern.skip is SkipTo.PAST_LAST_ROW:
            first = start + len(rows)
        elif pattern.skip is SkipTo.NEXT_ROW:
            first = start + 1
        else:
            places = [start + at for at, variable in enumerate(rows) if variable == pattern.target]
            if not places:
                return "Could not skip to"
            first = places[0 if pattern.skip is SkipTo.FIRST else -1]
            if first == start:
                return "Could not skip to first element"
        found.append(Match(start, counts, now))
    return found
