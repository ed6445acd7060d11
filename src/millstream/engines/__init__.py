"""What runs the tasks of a job: one package per engine.

Read next: ``engines/registry.py``, ``execution/engine.py``.
"""
