"""Types of records and state: type information, rows, inference, time.

Read next: ``types/types.py``, ``types/type_information.py``.
"""
