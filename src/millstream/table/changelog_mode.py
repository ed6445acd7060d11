"""ChangelogMode: which kinds of changes a stream has."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ChangelogMode:
    """Kinds of changes: I, UB, UA, D."""

    kinds: frozenset[str]

    @staticmethod
    def insert_only() -> ChangelogMode:
        """Inserts alone."""
        return ChangelogMode(frozenset({"I"}))

    @staticmethod
    def upsert() -> ChangelogMode:
        """Updates by key, without the row before."""
        return ChangelogMode(frozenset({"I", "UA", "D"}))

    @staticmethod
    def all() -> ChangelogMode:
        """All kinds."""
        return ChangelogMode(frozenset({"I", "UB", "UA", "D"}))
