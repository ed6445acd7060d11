"""Autoscaling: chooses the parallelism of each chain of operators of a running job.

``algorithm.py`` computes it from figures of a window of time, ``autoscaler.py`` collects these and
decides when.  The driver (``execution/driver.py``) stops the job with a checkpoint and continues.
"""
