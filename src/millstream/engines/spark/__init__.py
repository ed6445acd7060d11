"""The only package that imports pyspark: session, split source, exchange, epoch driver.

What it is: how a job graph runs on Spark.  One Structured Streaming query logs the offsets; each
of its micro-batches is one epoch, run as one Spark job.
What it is not: operators, state or the commit protocol; these know nothing of Spark.

Read next: ``engines/spark/engine.py``, then ``engines/spark/engine.py``.
"""
