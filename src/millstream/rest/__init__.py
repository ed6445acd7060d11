"""The REST API of a driver, with the paths and the JSON of Flink's monitoring API.

Read next: ``app.py`` (routes), ``view.py`` (what is shown of a job), ``security.py``.
"""
