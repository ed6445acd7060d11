"""Going on from windows that another operator kept, where windows are kept key by key.

What it is: content is put where it belongs; windows that are over by the lateness of today end;
for the others the trigger takes over and the timers of today are registered.

What it is not: the reading and the making of content (``adoption.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from millstream.runtime.operators.windows.conversions import trigger_of
from millstream.runtime.operators.windows.sections import KEYED
from millstream.runtime.operators.windows.trigger_context import WINDOW_TIMERS
from millstream.state.key_context import KeyContext
from millstream.state.namespaced_state import ABSENT
from millstream.state.rewriting import scan_in_steps

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.state_sections import StateSection
    from millstream.runtime.operators.windows.adoption import Adoption
    from millstream.runtime.operators.windows.contents import Contents
    from millstream.runtime.operators.windows.merging import StateWindows
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState

__all__ = ["adopt_windows"]

_LENGTH_AT = 13
_KEY_AT = 17


class KeyedWindows(Protocol):
    """What an operator has for it."""

    keyed_state: KeyedState
    section: StateSection

    @property
    def contents(self) -> Contents:
        """Where content is kept."""

    def place_new(self, key: CacheKey, window: Any) -> StateWindows:
        """Let a window be in flight; return where its content belongs."""

    def take_over(self, key: CacheKey, window: Any, states: StateWindows, *, restart: bool) -> None:
        """End a window that is over; else register its timers, those of the trigger if ``restart``.

        Nothing is evaluated.
        """

    def spill(self) -> None:
        """Write state to the store if there is much of it in memory."""


def adopt_windows(host: KeyedWindows, adoption: Adoption) -> None:
    """Make the windows of a store those of ``host``."""
    if adoption.stored.layout == KEYED:
        _adopt_keyed(host, adoption)
    else:
        for key, window, content in adoption.windows():
            states = host.place_new(key, window)
            if content is not ABSENT:
                host.contents.put(key, states, content)
            host.take_over(key, window, states, restart=True)
            host.spill()
        host.keyed_state.flush()
        adoption.source.drop()
    host.keyed_state.flush()
    adoption.finish(host.section)


def _adopt_keyed(host: KeyedWindows, adoption: Adoption) -> None:
    old, new = adoption.stored, host.section
    restart = trigger_of(old) != trigger_of(new) or old.details.get("timers") != new.details.get(
        "timers"
    )
    source, keyed = adoption.source, host.keyed_state
    # What was purged has timers only.  All are known before any is registered or removed.
    merging = source.merges
    waiting = set() if merging else set(_with_timers(adoption))
    if adoption.convert.is_needed:
        for key, head, window, states in source.in_flight():
            content = source.content(head, states)
            if content is not ABSENT:
                host.contents.put(key, states, adoption.convert(key, window, content))
            host.spill()
        keyed.flush()
    if restart:
        adoption.drop_timers()
        adoption.drop_states("\0windows.trigger:")
        for queue in (keyed.timers.event, keyed.timers.processing):
            queue.begin_epoch(queue.index)
    for key, _, window, states in source.in_flight():
        waiting.discard((key, states[0]))
        host.take_over(key, window, states, restart=restart)
        host.spill()
    for key, namespace in waiting:
        window = source.codec.decode(namespace)
        host.take_over(key, window, (namespace,), restart=restart)
    keyed.flush()
    if adoption.convert.is_needed and not new.details["content"].startswith("elements"):
        source.drop_elements()


def _with_timers(adoption: Adoption) -> Iterator[tuple[CacheKey, bytes]]:
    """Key and window of every timer."""
    for section in adoption.sections:
        if section.kind != "timers":
            continue
        numbers = (section.index, section.index + 1)
        start, stop = (b"T" + each.to_bytes(2, "big") for each in numbers)
        for name, _ in scan_in_steps(adoption.store, start, stop):
            end = _KEY_AT + int.from_bytes(name[_LENGTH_AT:_KEY_AT], "big")
            if name[end:].startswith(WINDOW_TIMERS):
                key = KeyContext.decode_cache_key(name[_KEY_AT:end])
                yield key, name[end + len(WINDOW_TIMERS) :]
