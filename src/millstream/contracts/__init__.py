"""What the parts agree on: sources, sinks, operators, stores, storage, batches.

What it is: abstract classes and plain data, for everything above.
What it is not: an implementation of any of them; see ``connectors/``, ``runtime/``, ``state/``.

Read next: ``contracts/batch.py``, ``contracts/operator.py``.
"""
