"""The code that runs inside tasks, independent of the engine that runs them.

Read next: ``contracts/operator.py``, ``runtime/stage.py``, ``runtime/task.py``.
"""
