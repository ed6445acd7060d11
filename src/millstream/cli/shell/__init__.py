"""The shell of SQL: statements from files or from a terminal, results for people.

Read next: ``cli/shell/shell.py``.
"""
