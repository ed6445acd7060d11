"""The driver's side of the pipelined engine: slots, checkpoints, failover.

Read next: ``engines/pipelined/engine.py``, ``engines/pipelined/run_loop.py``.
"""
