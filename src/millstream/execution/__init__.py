"""The life of a job, whatever the engine: driver, run, epoch loop, planner, restarts, job client.

What it is not: how a plan is run; see ``engines/``.

Read next: ``execution/driver.py``, ``execution/run.py``, ``execution/run.py``.
"""
