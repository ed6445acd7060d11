"""Execution of SQL statements, and their results."""
