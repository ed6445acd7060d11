"""Modules and names that PyFlink has and Millstream has not: errors that name the replacement.

A finder at the end of ``sys.meta_path`` is asked only when no other has found a module of this
package.
"""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from typing import TYPE_CHECKING, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType


_CONNECTORS: Final = "millstream.datastream.connectors."
_ANY_SINK: Final = (
    "write a sink with TwoPhaseCommitSinkFunction, GenericWriteAheadSink or UpsertSink "
    "of millstream.datastream.connectors (docs/how-to/custom-sinks.md), or go through Kafka"
)
_ANY_SOURCE: Final = (
    "write a Source (docs/how-to/custom-connectors.md), "
    "bring the records into Kafka, or read them "
    "with Spark and env.from_spark()"
)
_JDBC: Final = (
    "for PostgreSQL take PostgresSink and PostgresSource of millstream.datastream.connectors."
    "postgres; for other databases " + _ANY_SINK
)
_SCHEDULER: Final = "it is a setting of Flink's old scheduler, which nothing takes any more"
#: Module -> what to take instead.
NOT_OFFERED: Final = {
    _CONNECTORS + "cassandra": _ANY_SINK,
    _CONNECTORS + "dynamic_kafka": "take KafkaSource of millstream.datastream.connectors.kafka; "
    "it finds new topics by set_topic_pattern()",
    _CONNECTORS + "elasticsearch": _ANY_SINK,
    _CONNECTORS + "firehose": _ANY_SINK,
    _CONNECTORS + "jdbc": _JDBC,
    _CONNECTORS + "kinesis": _ANY_SOURCE,
    _CONNECTORS + "mongodb": _ANY_SINK,
    _CONNECTORS + "opensearch": _ANY_SINK,
    _CONNECTORS + "pubsub": _ANY_SOURCE,
    _CONNECTORS + "pulsar": _ANY_SOURCE,
    _CONNECTORS + "rabbitmq": _ANY_SOURCE,
    "millstream.common.input_dependency_constraint": _SCHEDULER,
    "millstream.common.io": "it wraps input formats of Java; from_source() takes sources in Python",
    "millstream.java_gateway": "there is no JVM of Flink here",
    "millstream.ml": "call the model in a map() or map_batches()",
    "millstream.fn_execution": "it is the inside of PyFlink's workers",
    "millstream.table.functions": "it is the inside of PyFlink's workers",
    "millstream.table.model_descriptor": "models are not in this release; call the model in a udf",
    "millstream.table.serializers": "it is the inside of PyFlink",
}
#: Where PyFlink's classes are, for those that ask the package for them.
_CLASSES: Final = {
    "CassandraSink": "cassandra",
    "Elasticsearch6SinkBuilder": "elasticsearch",
    "Elasticsearch7SinkBuilder": "elasticsearch",
    "ElasticsearchSink": "elasticsearch",
    "FlinkKinesisConsumer": "kinesis",
    "JdbcConnectionOptions": "jdbc",
    "JdbcExecutionOptions": "jdbc",
    "JdbcSink": "jdbc",
    "KinesisFirehoseSink": "kinesis",
    "KinesisStreamsSink": "kinesis",
    "PubSubSink": "pubsub",
    "PubSubSource": "pubsub",
    "PulsarSink": "pulsar",
    "PulsarSource": "pulsar",
    "RMQConnectionConfig": "rabbitmq",
    "RMQSink": "rabbitmq",
    "RMQSource": "rabbitmq",
}
#: Names of ``pyflink.datastream`` and its functions -> what to take instead.
_NAMES: Final = {
    "CustomCheckpointStorage": "it wraps a class of Java; checkpoints are files",
    "CustomStateBackend": "it wraps a class of Java; take EmbeddedRocksDBStateBackend or "
    "HashMapStateBackend",
}
#: Classes that are called otherwise, or that are in a module of their own.
_RENAMED: Final = {
    "PostgresSink": "import it from millstream.datastream.connectors.postgres",
    "PostgresSource": "import it from millstream.datastream.connectors.postgres",
}


class _Finder(MetaPathFinder):
    """Says what is not there."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> ModuleSpec | None:
        """None for what is none of ours; else an error.

        Raises:
            ModuleNotFoundError: PyFlink has the module and Millstream has not.
        """
        del path, target
        instead = NOT_OFFERED.get(fullname)
        if instead is None:
            return None
        message = f"Millstream has no {fullname.removeprefix('millstream.')}: {instead}"
        raise ModuleNotFoundError(message, name=fullname)


def refuse_name(module: str, name: str) -> NoReturn:
    """Say what to take in place of a name that a module does not have.

    Raises:
        ImportError: PyFlink has it, or another module of ours.
        AttributeError: nobody has.
    """
    instead = _NAMES.get(name)
    if module + "." == _CONNECTORS and instead is None:
        home = _CLASSES.get(name)
        instead = _RENAMED.get(name) if home is None else NOT_OFFERED[_CONNECTORS + home]
    if instead is not None:
        message = f"Millstream has no {name} in {module}: {instead}"
        raise ImportError(message, name=module)
    message = f"module {module!r} has no attribute {name!r}"
    raise AttributeError(message)


def install() -> None:
    """Ask the finder after all others."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.append(_Finder())
