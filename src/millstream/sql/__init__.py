"""SQL in Flink's dialect: what makes a dataflow of statements.

This is not the Table API, which is a facade above it.  Read next: ``parser/__init__.py``.
"""
