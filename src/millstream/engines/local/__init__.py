"""The local engine: a job in processes of this machine, without Spark and Java.

What it is: the same tasks, checkpoints and life of a job as on Spark; frames go from stage to stage
in files.
What it is not: for several machines.

Read next: ``engines/local/engine.py``, ``engines/local/engine.py``.
"""
