"""The groups of pages, and the modules that have a page in the API reference.

Edit the lists by hand.  ``tests/docs/test_site.py`` fails if a page is missing from the index of
its group, or if a module of the programming interface has no page.
"""

from __future__ import annotations

from typing import Final

__all__ = ["GROUPS", "REFERENCE", "ROOT_PAGES"]

#: The groups of pages, with what the site adds to those that ``docs/GROUP/index.md`` lists.
GROUPS: Final[dict[str, tuple[str, ...]]] = {
    "tutorials": ("examples",),
    "how-to": (),
    "reference": ("/api/index",),
    "concepts": (),
    "development": ("/decisions/index", "/CONTRIBUTING", "/CHANGELOG", "/SECURITY"),
}

#: Pages of the repository's root that the site has, too.
ROOT_PAGES: Final = ("CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")

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
        "millstream.datastream.connectors.delta": "Delta Lake",
        "millstream.datastream.connectors.iceberg": "Apache Iceberg",
        "millstream.datastream.connectors.postgres_cdc": "Changes of PostgreSQL tables",
        "millstream.datastream.connectors.datagen": "Data generator",
        "millstream.datastream.connectors.number_seq": "Numbers",
        "millstream.datastream.connectors.hybrid_source": "Sources one after the other",
        "millstream.spark": "DataFrames",
        "millstream.datastream.connectors.base": "Contracts and templates",
        "millstream.state_processor": "State as data",
        "millstream.state_processor.reader": "State as DataFrames",
        "millstream.state_processor.writer": "State from DataFrames",
        "millstream.extensions": "Extensions",
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
        "millstream.testing.crash": "Kills",
        "millstream.testing.memory_store": "State in memory",
        "millstream.testing.kafka_broker": "A Kafka broker",
    },
}
