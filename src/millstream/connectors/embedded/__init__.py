"""Databases that live in a file: SQLite, DuckDB."""
