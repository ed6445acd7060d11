"""The life of a job, whatever the engine: what each epoch reads, restarts, the job client.

What it is not: how a plan is run; see ``engines/``.

Read next: ``execution/planner.py``, ``execution/restart.py``.
"""
