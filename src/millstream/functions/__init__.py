"""The API that programs implement: functions, windows, triggers, evictors, state, watermarks.

Read next: ``functions/functions.py``, ``functions/window_assigners.py``.
"""
