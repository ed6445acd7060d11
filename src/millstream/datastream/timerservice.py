"""Timers under PyFlink's import path."""

from __future__ import annotations

from millstream.functions.functions import TimerService

__all__ = ["TimerService"]
