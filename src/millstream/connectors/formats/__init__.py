"""Formats of files and messages: CSV, JSON, text, Parquet, Avro."""
