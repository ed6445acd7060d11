"""The local engine: a job in processes of this machine, without Spark and Java.

Read next: ``engines/local/engine.py``, ``engines/local/worker.py``.
"""
