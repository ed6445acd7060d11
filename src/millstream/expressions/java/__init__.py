"""What functions of SQL took over from Java: its strings, patterns, formats and dates.

Read next: ``expressions/java/strings.py``.
"""
