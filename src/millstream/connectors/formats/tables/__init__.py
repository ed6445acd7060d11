"""Formats of tables: messages of bytes as rows of logical types, with kinds of changes."""
