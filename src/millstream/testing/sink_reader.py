"""The records that a reader of a sink's target sees after each step of the conformance suite."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ["ConformanceError", "SinkReader", "require"]


class ConformanceError(AssertionError):
    """A contract is broken; the message begins with its number."""


def require(condition: object, message: str) -> None:
    """Raise ConformanceError unless a condition holds."""
    if not condition:
        raise ConformanceError(message)


class SinkReader:
    """A reader's last view, and the expected one."""

    def __init__(
        self,
        read: Callable[[], Sequence[object]],
        leftovers: Callable[[], Sequence[object]] | None,
        *,
        ordered: bool,
        by_key: bool,
    ) -> None:
        self._by_key = by_key
        self._read = read
        self._leftovers = leftovers
        self._ordered = ordered
        #: What one epoch makes visible, and what all so far have.
        self._once: list[str] = []
        self._seen: list[str] = []

    def now(self) -> list[str]:
        """Return what is visible, in a comparable form."""
        found = list(map(repr, self._read()))
        return found if self._ordered else sorted(found)

    def first(self, message: str) -> None:
        """An epoch must have become visible; whatever that is, is what each further one adds."""
        self._once = self._seen = self.now()
        require(self._once, message)

    def unchanged(self, message: str) -> None:
        """Nothing more and nothing less is visible."""
        found, expected = self.now(), self._seen
        require(found == expected, f"{message}{_difference(expected, found)}")

    def grown(self, times: int, message: str) -> None:
        """The records came ``times`` more; by key they replaced themselves."""
        if not self._by_key:
            expected = self._seen + self._once * times
            self._seen = expected if self._ordered else sorted(expected)
        self.unchanged(message)

    def at_least(self, times: int, message: str) -> None:
        """Each record is there so many times, or more."""
        found = Counter(self.now())
        lost = {each for each, n in Counter(self._once).items() if found[each] < n * times}
        require(not lost, f"{message}: lost are {sorted(lost)!r:.300}")

    def nothing_left(self, message: str) -> None:
        """Nothing is pre-committed, if that can be seen."""
        if self._leftovers is not None:
            left = list(self._leftovers())
            require(not left, f"{message}: {left!r:.300}")


def _difference(expected: Sequence[str], found: Sequence[str]) -> str:
    more, less = Counter(found), Counter(expected)
    surplus, missing = list((more - less).elements()), list((less - more).elements())
    if not surplus and not missing:
        return f" (in another order: {list(found)!r:.300})"
    return f" (too many: {surplus!r:.200}, missing: {missing!r:.200})"
