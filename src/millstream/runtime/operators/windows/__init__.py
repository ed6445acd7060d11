"""Window operators of DataStream programs.

``window_factory.py`` chooses among ``aligned.py`` (all windows of one size, fired by the
watermark), ``generic.py`` (any assigner, trigger and evictor), ``columnar.py`` and
``columnar_sessions.py`` (built-in aggregates).

Read next: ``runtime/operators/windows/window_factory.py``.
"""
