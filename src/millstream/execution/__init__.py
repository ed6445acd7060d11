"""The life of a job, whatever the engine: driver, run, planner, restarts, job client.

Read next: ``execution/driver.py``, ``execution/run.py``.
"""
