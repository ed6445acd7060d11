"""What can be set: options, configuration, restart strategies, modes.

Read next: ``configuration/options.py``.
"""
