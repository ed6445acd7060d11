"""The pipelined engine, the driver's side: tasks live long, barriers make checkpoints.

What it is: slots are started and registered, checkpoints triggered, completed and committed, and
everything is fenced when anything fails.  It knows slot hosts by their contract; that of this
machine's processes is here.

What it is not: what runs in a slot (``runtime/pipelined/``), nor Spark's slot host
(``engines/spark/``).

Read next: ``engines/pipelined/engine.py``, ``engines/pipelined/run_loop.py``.
"""
