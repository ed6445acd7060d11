"""Text to statements: lexer, nodes, parser and unparser of Flink's dialect.

Nothing here knows a catalog: names are names, and whether they exist is the binder's question.
Read next: ``nodes.py``.
"""
