"""Files as source and sink.

Read next: ``connectors/files/source.py``, ``connectors/files/sink.py``.
"""
