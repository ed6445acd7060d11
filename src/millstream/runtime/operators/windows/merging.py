"""Which windows of a key are in flight where windows may be merged (sessions).

What it is: Flink's merging window set.  A window that is the result of merging has its content
under the names of the windows it was made of (its *state windows*), so that what was stored need
not be copied when windows are merged.

Layout: one ``K`` entry per key: a pickled list of (window, its state windows), as bytes.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from typing import TYPE_CHECKING, Any, TypeAlias

from millstream.errors import ProgramError
from millstream.functions.descriptors import StateDescriptor
from millstream.functions.windows import MergingWindowAssigner
from millstream.state.serializers import dumps, loads
from millstream.state.value_state import CachedValues

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from millstream.functions.window import TimeWindow, Window
    from millstream.state.key_codec import CacheKey, WindowCodec
    from millstream.state.keyed import KeyedState


#: Where the content of a window is: namespaces, in order of the elements.
StateWindows: TypeAlias = tuple[bytes, ...]


class _Collected(MergingWindowAssigner.MergeCallback[Any]):
    """Remembers what an assigner wants merged."""

    def __init__(self) -> None:
        self.merges: list[tuple[Any, list[Any]]] = []

    def merge(self, to_be_merged: Iterable[Any], merge_result: Any) -> None:
        self.merges.append((merge_result, list(to_be_merged)))


class MergingWindowSet:
    """The windows in flight of one key.

    Invariant: ``windows`` maps each to its state windows, at least one.
    Invariant: if ``_ordered`` is not None, it has the same windows in order of time, and no two of
    them overlap or touch.
    """

    __slots__ = ("_ordered", "windows")

    def __init__(self, windows: dict[Any, StateWindows], *, sessions: bool) -> None:
        """Take the windows; ``sessions`` if those merge that overlap or touch."""
        self.windows = windows
        self._ordered: list[TimeWindow] | None = sorted(windows) if sessions else None

    def add(
        self,
        window: Window,
        assigner: MergingWindowAssigner[Any, Any],
        codec: WindowCodec,
        merge: Callable[[Any, list[Any], list[StateWindows]], StateWindows],
    ) -> Any:
        """Add a window and merge what then belongs together.

        Args:
            window: a new element's.
            assigner: says what is to be merged.
            codec: makes the state window of a new window.
            merge: called with the result, the windows it is made of (not ``window``) and their
                state windows; returns the result's.

        Returns:
            The window that the element is in: ``window``, or what it became part of.
        """
        if window in self.windows:
            return window
        actual, placed = window, False
        for result, group in self._groups(window, assigner):
            parts = [each for each in group if each != window]
            if len(parts) < len(group):
                actual, placed = result, True
            if parts == [result]:
                continue  # the new window lies within the old one
            for part in parts:
                if part not in self.windows:
                    message = f"merge_windows() of {assigner!r} merges {part!r}, which it made up"
                    raise ProgramError(message)
            states = [self._remove(part) for part in parts]
            self._insert(result, merge(result, parts, states) if parts else (codec.encode(result),))
        if not placed:
            self._insert(window, (codec.encode(window),))
        return actual

    def retire(self, window: Window) -> None:
        """Forget a window whose content is gone."""
        if window in self.windows:
            self._remove(window)

    def insert(self, window: Window, states: StateWindows) -> None:
        """Let a window be in flight that touches no other."""
        self._insert(window, states)

    def _groups(
        self, window: Any, assigner: MergingWindowAssigner[Any, Any]
    ) -> list[tuple[Any, list[Any]]]:
        """What is to be merged, as (result, windows): few with sessions, asked of others."""
        if self._ordered is None:
            collected = _Collected()
            assigner.merge_windows([*self.windows, window], collected)
            return collected.merges
        first = bisect_left(self._ordered, window.start, key=_end)
        last = bisect_right(self._ordered, window.end, key=_start)
        touched = self._ordered[first:last]
        if not touched:
            return []
        result = touched[0].cover(touched[-1]).cover(window)
        # The very object where nothing changes: it is known already.
        return [(touched[0] if touched[0] == result else result, [*touched, window])]

    def _insert(self, window: Any, states: StateWindows) -> None:
        self.windows[window] = states
        if self._ordered is not None:
            insort(self._ordered, window)

    def _remove(self, window: Any) -> StateWindows:
        if self._ordered is not None:
            del self._ordered[bisect_left(self._ordered, window)]
        return self.windows.pop(window)


def _start(window: TimeWindow) -> int:
    return window.start


def _end(window: TimeWindow) -> int:
    return window.end


class MergingSetsDescriptor(StateDescriptor):
    """Of the sets, whichever way they are held in memory."""

    kind = "merging windows"


class MergingSets(CachedValues["CacheKey"]):
    """The merging window sets of all keys: a state like those of the user."""

    __slots__ = ("_codec", "_sessions")

    def __init__(self, keyed: KeyedState, codec: WindowCodec, *, sessions: bool) -> None:
        """Keep the sets in ``keyed``; ``sessions`` as for ``MergingWindowSet``."""
        super().__init__(keyed, MergingSetsDescriptor("\0windows.merging"))
        self._codec = codec
        self._sessions = sessions

    def of(self, key: CacheKey) -> MergingWindowSet:
        """Return the set of a key."""
        found: MergingWindowSet | None = self.cache.get(key)
        return self.read(key) if found is None else found

    def touch(self, key: CacheKey) -> None:
        """Note that the set of a key, which ``of`` gave, has changed."""
        self.dirty.add(key)

    def end_epoch(self) -> None:
        """Forget everything."""
        self.forget()

    def encoded(self, value: MergingWindowSet) -> bytes:
        encode = self._codec.encode
        entries = [(encode(window), states) for window, states in value.windows.items()]
        return dumps(entries) if entries else b""

    def decoded(self, key: CacheKey, stored: bytes | None) -> MergingWindowSet:
        del key
        entries = [] if stored is None else loads(stored)
        decode = self._codec.decode
        windows = {decode(window): states for window, states in entries}
        return MergingWindowSet(windows, sessions=self._sessions)
