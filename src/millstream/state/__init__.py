"""Keyed state: key groups, handles, timers, backends and their snapshots.

Read next: ``contracts/key_value_store.py`` for the contract, ``state/keyed.py`` for its use.
"""

from __future__ import annotations

__all__: list[str] = []
