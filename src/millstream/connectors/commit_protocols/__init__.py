"""Sinks to derive from: two-phase commit, write-ahead, upsert.

Read next: ``connectors/commit_protocols/two_phase.py``, docs/how-to/custom-sinks.md.
"""
