"""Going on from windows that another operator kept, where windows are kept key by key.

What it is: content is put where it belongs; windows that are over by the lateness of today end;
for the others the trigger takes over and the timers of today are registered.

What it is not: the reading and the making of content (``adoption.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from millstream.runtime.operators.windows.clock import TimeSection
from millstream.runtime.operators.windows.conversions import trigger_of
from millstream.runtime.operators.windows.sections import KEYED
from millstream.runtime.operators.windows.trigger_context import WINDOW_TIMERS
from millstream.state.key_context import KeyContext
from millstream.state.namespaced_state import ABSENT
from millstream.state.rewriting import scan_in_steps, timed_key_and_rest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.contracts.operator import StateSection
    from millstream.runtime.operators.windows.adoption import Adoption
    from millstream.runtime.operators.windows.contents import Contents
    from millstream.runtime.operators.windows.merging import StateWindows
    from millstream.state.key_codec import CacheKey
    from millstream.state.keyed import KeyedState

__all__ = ["adopt_windows"]


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
        timers = TimeSection(b"T", section.index).everything()
        for name, _ in scan_in_steps(adoption.store, *timers):
            encoded, rest = timed_key_and_rest(name)
            if rest.startswith(WINDOW_TIMERS):
                yield KeyContext.decode_cache_key(encoded), rest.removeprefix(WINDOW_TIMERS)
