"""CAST and TRY_CAST: one value at a time, and columns.

Read next: ``expressions/casts/values.py``.
"""
