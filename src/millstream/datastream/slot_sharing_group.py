"""MemorySize and SlotSharingGroup, under PyFlink's import path."""

from __future__ import annotations

from millstream.configuration.resources import MemorySize, SlotSharingGroup

__all__ = ["MemorySize", "SlotSharingGroup"]
