"""Contracts between the packages: sources, sinks, operators, stores, storage, batches.

Abstract classes and plain data; ``connectors/``, ``runtime/`` and ``state/`` implement them.

Read next: ``contracts/batch.py``, ``contracts/operator.py``.
"""
