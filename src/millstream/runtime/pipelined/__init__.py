"""The slots of the pipelined engine: long-running tasks with barriers between records.

Read next: ``runtime/pipelined/main_loop.py``, ``runtime/pipelined/control.py``.
"""
