"""The Spark engines; the only package that imports pyspark.

A Structured Streaming query logs the offsets; each of its micro-batches is one epoch, run as one
Spark job.

Read next: ``engines/spark/engine.py``, then ``engines/spark/stage_function.py``.
"""
