"""Lengths and points of time under PyFlink's import path."""

from __future__ import annotations

from millstream.types.time import Duration, Instant, Time

__all__ = ["Duration", "Instant", "Time"]
