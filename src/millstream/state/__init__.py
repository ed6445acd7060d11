"""Keyed state: key groups, handles, timers, backends and their snapshots.

What it is: everything between ``runtime_context.get_state(...)`` and the files of a checkpoint.
What it is not: the checkpoint itself (``millstream/checkpoint``).

Read next: ``contracts/key_value_store.py`` for the contract, ``state/keyed.py`` for its use.
"""

from __future__ import annotations

__all__: list[str] = []
