"""The words users program with: functions, windows, triggers, evictors, state, watermarks.

What it is not: what runs them (``runtime/operators/``), nor where users import them from
(``datastream/``, ``common/``).

Read next: ``functions/functions.py``, ``functions/windows.py``.
"""
