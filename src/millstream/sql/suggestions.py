"""``Did you mean`` suggestions for unknown names."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


_MOST_LISTED = 12


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest known name as `` Did you mean 'x'?``; empty if none is near."""
    by_lower = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.6)
    return f" Did you mean '{by_lower[found[0]]}'?" if found else ""


def listed(names: Iterable[str]) -> str:
    """The names in a row, with commas; the first dozen if there are many."""
    every = list(names)
    shown = ", ".join(every[:_MOST_LISTED])
    more = len(every) - _MOST_LISTED
    return f"{shown}, and {more} more" if more > 0 else shown
