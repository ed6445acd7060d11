"""Keyed state: key groups, handles, timers, backends and their snapshots.

Read next: ``contracts/key_value_store.py`` for the contract, ``state/keyed.py`` for its use.
"""
