"""The built-in functions, one module per group of Flink's reference.

Read next: ``expressions/functions/registry.py``.
"""
