"""The engines that run the tasks of a job, one package each.

Read next: ``engines/registry.py``, ``execution/engine.py``.
"""
