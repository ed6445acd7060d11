"""Lookups: tables outside that are asked for rows by keys (``contracts/lookup.py``)."""
