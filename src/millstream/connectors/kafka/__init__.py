"""Kafka source and sink, on ``confluent-kafka``, which stays optional: nothing else imports them.

Programs import them from ``millstream.datastream.connectors.kafka``.

Read next: ``connectors/kafka/source.py``, ``connectors/kafka/sink.py``.
"""
