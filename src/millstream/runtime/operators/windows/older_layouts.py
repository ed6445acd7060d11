"""What window operators of older releases kept, brought into the layout of today.

What it is: what commit 8d10b21 and those before wrote (formats 1 and 2 of checkpoints).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from millstream.functions.window import TimeWindow
from millstream.runtime.operators.windows.sections import SECTION
from millstream.state.key_codec import decode_key
from millstream.state.registry import stored_record
from millstream.state.rewriting import rewrite_entries
from millstream.state.window_codec import WindowCodec

if TYPE_CHECKING:
    from millstream.state.keyed import KeyedState

__all__ = ["adopt_window_maps"]

#: What functions kept per window, where all keys shared these: maps by (start, end).
_WINDOW_MAP: Final = "window:"
_KINDS: Final = {"aggregating", "list", "map", "reducing", "value"}


def adopt_window_maps(keyed: KeyedState) -> None:
    """Let states of functions per window be found by window, as those of all windows are.

    A store that says what is kept of its windows is of a later release: a name that looks like
    these is the program's.
    """
    names = [name for name in keyed.stored_names() if name.startswith(_WINDOW_MAP)]
    if not names or stored_record(keyed.store, SECTION) is not None:
        return
    codec = WindowCodec()

    def namespace(map_key: bytes) -> bytes:
        start, end = cast("tuple[int, int]", decode_key(map_key))
        return codec.encode(TimeWindow(start, end))

    for name in names:
        kind, _, rest = name.removeprefix(_WINDOW_MAP).partition(":")
        old = keyed.stored_index(name)
        if kind not in _KINDS or old is None:
            continue
        moved = f"\0windows.function:{kind}:{rest}"
        new = keyed.assign_index(moved, "namespaced")
        rewrite_entries(keyed.store, old, new, keyed.key_groups, namespace)
        keyed.moved_state(name, moved)
