"""Stores of keyed state: in memory, and in RocksDB."""
