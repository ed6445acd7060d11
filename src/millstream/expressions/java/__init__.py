"""Java's strings, patterns, formats and dates, on which functions of SQL depend.

Read next: ``expressions/java/strings.py``.
"""
