"""Kafka: source and sink, on ``confluent-kafka``.

What it is: the connectors.  Programs import them from ``millstream.datastream.connectors.kafka``.

What it is not: imported by anything else in Millstream, so that Kafka's packages stay optional.

Read next: ``connectors/kafka/source.py``, ``connectors/kafka/sink.py``.
"""
