"""What runs in a slot of the pipelined engine: tasks that live long, and barriers between records.

What it is: links with credit between tasks, the alignment of barriers, the task that goes on from
snapshot to snapshot, and the main loop of a slot.

What it is not: the driver's side (``engines/pipelined/``), nor operators, which are those of every
engine.

Read next: ``runtime/pipelined/main_loop.py``, ``runtime/pipelined/control.py``.
"""
