"""JSON as Flink's functions see it: texts, values, paths.

Read next: ``expressions/json/texts.py``, ``expressions/json/paths.py``.
"""
