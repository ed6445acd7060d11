"""Timers under PyFlink's import path."""

from millstream.functions.functions import TimerService as TimerService
