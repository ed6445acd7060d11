"""Configuration: options, restart strategies, modes.

Read next: ``configuration/options.py``.
"""
