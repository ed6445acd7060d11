"""Expressions of SQL and the Table API after binding: nodes, evaluator, functions.

Read next: ``expressions/nodes.py``.
"""
