"""PostgreSQL as source, and as sink by three commit protocols.

Read next: ``connectors/postgres/sink.py``.
"""
