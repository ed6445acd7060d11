"""The order in which the pages of the site are read.

What it is: two lists to edit by hand.  A page of ``docs/`` that is in none of the groups, and a
module of the programming interface that has no reference page, fail ``tests/docs/test_site.py``.

What it is not: content.  ``docs/site/pages.py`` makes the pages' source from it.

Read next: ``docs/site/pages.py``.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GUIDE", "PROJECT", "REFERENCE"]

#: Pages of docs/ by group, in reading order, without their ``.md``.
GUIDE: Final[dict[str, tuple[str, ...]]] = {
    "First steps": (
        "getting-started",
        "tutorial",
        "notebooks",
        "engines",
        "barriers",
        "porting",
        "pyflink",
        "options",
    ),
    "Programs": ("time", "windows", "aggregates", "joins", "testing"),
    "SQL": ("sql", "dynamic_tables", "sql_shell", "sql_functions", "nexmark"),
    "Sources and sinks": ("kafka", "postgres", "embedded", "connectors", "sinks"),
    "When things fail": ("guarantees", "crash_matrix", "attack", "security"),
}

#: The pages behind the reference.
PROJECT: Final = ("contributors", "stability", "decisions/index", "dependencies", "CHANGELOG")

#: Modules whose names programs and tests import, by group, with the titles of their pages.
REFERENCE: Final[dict[str, dict[str, str]]] = {
    "Programs": {
        "millstream.datastream": "Streams and jobs",
        "millstream.table": "Tables and SQL",
        "millstream.table.expressions": "Expressions of tables",
        "millstream.table.window": "Windows of tables",
        "millstream.datastream.functions": "Functions",
        "millstream.datastream.window": "Windows",
        "millstream.datastream.aggregates": "Built-in aggregates",
        "millstream.datastream.state": "State",
        "millstream.common": "Rows and configuration",
        "millstream.common.typeinfo": "Types",
        "millstream.common.watermark_strategy": "Watermarks",
        "millstream.common.time": "Lengths and points of time",
        "millstream.common.serialization": "Encoders and schemas",
        "millstream.metrics.metricbase": "Metrics of functions",
        "millstream.errors": "Errors",
    },
    "Connectors": {
        "millstream.datastream.connectors": "Simple sources and sinks",
        "millstream.datastream.connectors.file_system": "Files",
        "millstream.datastream.formats.csv": "CSV",
        "millstream.datastream.formats.json": "JSON",
        "millstream.datastream.formats.parquet": "Parquet",
        "millstream.datastream.formats.avro": "Avro",
        "millstream.datastream.formats.orc": "ORC",
        "millstream.datastream.connectors.kafka": "Kafka",
        "millstream.datastream.connectors.postgres": "PostgreSQL",
        "millstream.datastream.connectors.sqlite": "SQLite",
        "millstream.datastream.connectors.duckdb": "DuckDB",
        "millstream.datastream.connectors.datagen": "Data generator",
        "millstream.datastream.connectors.number_seq": "Numbers",
        "millstream.spark": "DataFrames",
        "millstream.datastream.connectors.base": "Contracts and templates",
    },
    "Tests": {
        "millstream.testing": "Tests of programs",
        "millstream.testing.stream_harness": "Functions without Spark",
        "millstream.testing.local_run": "Programs without Spark",
        "millstream.testing.harness": "Operators without Spark",
        "millstream.testing.mini_cluster": "Jobs without Spark",
        "millstream.testing.process_cluster": "Jobs in worker processes",
        "millstream.testing.sources": "Sources with a script",
        "millstream.testing.sinks": "Sinks that fail",
        "millstream.testing.conformance": "Conformance of connectors",
        "millstream.testing.sink_conformance": "Conformance of sinks",
        "millstream.testing.sink_processes": "Writers that are killed",
        "millstream.testing.sink_reader": "What readers of a sink see",
        "millstream.testing.crash": "Kills",
        "millstream.testing.memory_store": "State in memory",
        "millstream.testing.kafka_broker": "A Kafka broker",
    },
}
