"""Options of tables and SQL: state, plans, lookups, sources and sinks.

What it is: definitions that ``configuration/options.py`` gives on under their names.
What it is not: where they are read (``sql/statements/session.py``).
"""

from __future__ import annotations

from typing import Final

from millstream.configuration.machine_time_zone import machine_time_zone
from millstream.configuration.option import ConfigOption
from millstream.configuration.parsing import (
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_string,
    parse_time_zone,
    parse_uppercase,
)

__all__ = [
    "AGG_PHASE_STRATEGY",
    "ASYNC_LOOKUP_CAPACITY",
    "ASYNC_LOOKUP_MODE",
    "ASYNC_LOOKUP_TIMEOUT",
    "ASYNC_SCALAR_CONCURRENCY",
    "ASYNC_SCALAR_MAX_ATTEMPTS",
    "ASYNC_SCALAR_RETRY_DELAY",
    "ASYNC_SCALAR_RETRY_STRATEGY",
    "ASYNC_SCALAR_TIMEOUT",
    "BUILTIN_CATALOG",
    "BUILTIN_DATABASE",
    "CDC_EVENTS_DUPLICATE",
    "DISTINCT_BUCKETS",
    "DML_SYNC",
    "FORCE_RECOMPILE",
    "LOCAL_TIME_ZONE",
    "MAX_COLUMN_WIDTH",
    "MINI_BATCH",
    "NON_DETERMINISTIC_UPDATES",
    "NOT_NULL_ENFORCER",
    "REQUIRE_ON_CONFLICT",
    "RESULT_MODE",
    "REUSE_SUB_PLANS",
    "SOURCE_IDLE_TIMEOUT",
    "SPLIT_DISTINCT",
    "STATE_TTL",
    "TABLE_PARALLELISM",
    "TYPE_LENGTH_ENFORCER",
    "UPSERT_MATERIALIZE",
]

BUILTIN_CATALOG: Final = ConfigOption(
    "table.builtin-catalog-name",
    parse_string,
    "default_catalog",
    "name of the catalog that a session begins with; read when its environment is created",
)
BUILTIN_DATABASE: Final = ConfigOption(
    "table.builtin-database-name",
    parse_string,
    "default_database",
    "name of the database that a session begins with; read when its environment is created",
)
DML_SYNC: Final = ConfigOption(
    "table.dml-sync",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "whether statements that write tables wait until their job has ended",
)
FORCE_RECOMPILE: Final = ConfigOption(
    "table.plan.force-recompile",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "whether COMPILE PLAN replaces a file that exists",
)
MAX_COLUMN_WIDTH: Final = ConfigOption(
    "table.display.max-column-width",
    parse_integer,
    30,
    "most characters of a column of rows that are printed; longer values end with '...'",
    minimum=1,
)
RESULT_MODE: Final = ConfigOption(
    "sql-client.execution.result-mode",
    parse_uppercase,
    "TABLE",
    "how the SQL shell shows the rows of a query: kept up to date, or the changes as they come",
    choices=("TABLE", "CHANGELOG", "TABLEAU"),
)
CDC_EVENTS_DUPLICATE: Final = ConfigOption(
    "table.exec.source.cdc-events-duplicate",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "whether sources of changes may repeat them; their rows are then kept by PRIMARY KEY",
)
STATE_TTL: Final = ConfigOption(
    "table.exec.state.ttl",
    parse_duration,
    0,
    "after how long unused state of SQL goes; 0: never",
    minimum=0,
)
MINI_BATCH: Final = ConfigOption(
    "table.exec.mini-batch.enabled",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "one change of SQL per key and batch",
)
AGG_PHASE_STRATEGY: Final = ConfigOption(
    "table.optimizer.agg-phase-strategy",
    parse_string,
    "AUTO",
    "whether windows and mini-batches of SQL are aggregated ahead of their exchange: AUTO and "
    "TWO_PHASE where it can be done, ONE_PHASE never",
    choices=("AUTO", "TWO_PHASE", "ONE_PHASE"),
)
SPLIT_DISTINCT: Final = ConfigOption(
    "table.optimizer.distinct-agg.split.enabled",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "aggregates of SQL over DISTINCT values first per bucket of these, then over the buckets",
)
DISTINCT_BUCKETS: Final = ConfigOption(
    "table.optimizer.distinct-agg.split.bucket-num",
    parse_integer,
    1024,
    "buckets of table.optimizer.distinct-agg.split.enabled",
    minimum=1,
)
NON_DETERMINISTIC_UPDATES: Final = ConfigOption(
    "table.optimizer.non-deterministic-update.strategy",
    parse_string,
    "TRY_RESOLVE",
    "TRY_RESOLVE: SQL that would look for rows to take back by columns that are computed anew is "
    "refused; IGNORE: it runs, and its results may be wrong, as by default in Flink",
    choices=("TRY_RESOLVE", "IGNORE"),
)
REUSE_SUB_PLANS: Final = ConfigOption(
    "table.optimizer.reuse-sub-plan-enabled",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "whether parts of SQL plans that are the same run once",
)
LOCAL_TIME_ZONE: Final = ConfigOption(
    "table.local-time-zone",
    parse_time_zone,
    "default",
    "time zone of TIMESTAMP_LTZ in SQL; default: that of the machine that submits the job",
    compute_default=machine_time_zone,
)
ASYNC_LOOKUP_MODE: Final = ConfigOption(
    "table.exec.async-lookup.output-mode",
    parse_uppercase,
    "ORDERED",
    "order of rows of asynchronous lookup joins, unless a hint says: as they come or are known",
    choices=("ORDERED", "ALLOW_UNORDERED"),
)
ASYNC_LOOKUP_CAPACITY: Final = ConfigOption(
    "table.exec.async-lookup.buffer-capacity",
    parse_integer,
    100,
    "keys that an asynchronous lookup join asks for at a time, unless a hint says",
    minimum=1,
)
ASYNC_LOOKUP_TIMEOUT: Final = ConfigOption(
    "table.exec.async-lookup.timeout",
    parse_duration,
    180_000,
    "how long an asynchronous lookup join waits for an answer, unless a hint says",
    minimum=1,
)
ASYNC_SCALAR_CONCURRENCY: Final = ConfigOption(
    "table.exec.async-scalar.max-concurrent-operations",
    parse_integer,
    10,
    "most calls of an asynchronous scalar function that wait at a time",
    minimum=1,
    aliases=("table.exec.async-scalar.buffer-capacity",),
)
ASYNC_SCALAR_TIMEOUT: Final = ConfigOption(
    "table.exec.async-scalar.timeout",
    parse_duration,
    180_000,
    "how long an asynchronous scalar function has for a row, with all of its attempts",
    minimum=1,
)
ASYNC_SCALAR_RETRY_STRATEGY: Final = ConfigOption(
    "table.exec.async-scalar.retry-strategy",
    parse_uppercase,
    "FIXED_DELAY",
    "whether an asynchronous scalar function that raises is called again",
    choices=("FIXED_DELAY", "NO_RETRY"),
)
ASYNC_SCALAR_RETRY_DELAY: Final = ConfigOption(
    "table.exec.async-scalar.retry-delay",
    parse_duration,
    100,
    "how long to wait before an asynchronous scalar function is called again",
    minimum=0,
)
ASYNC_SCALAR_MAX_ATTEMPTS: Final = ConfigOption(
    "table.exec.async-scalar.max-attempts",
    parse_integer,
    3,
    "how often an asynchronous scalar function that raises is called again before the job fails",
    minimum=1,
)
SOURCE_IDLE_TIMEOUT: Final = ConfigOption(
    "table.exec.source.idle-timeout",
    parse_duration,
    0,
    "idle time of WATERMARK FOR; 0: never",
    minimum=0,
)
NOT_NULL_ENFORCER: Final = ConfigOption(
    "table.exec.sink.not-null-enforcer",
    parse_string,
    "ERROR",
    "what happens to NULL that is written into a column NOT NULL",
    choices=("ERROR", "DROP"),
)
TYPE_LENGTH_ENFORCER: Final = ConfigOption(
    "table.exec.sink.type-length-enforcer",
    parse_uppercase,
    "IGNORE",
    "whether texts and bytes are cut and filled up to the length of the sink's column",
    choices=("IGNORE", "TRIM_PAD"),
)
UPSERT_MATERIALIZE: Final = ConfigOption(
    "table.exec.sink.upsert-materialize",
    parse_uppercase,
    "AUTO",
    "whether rows are kept by the key of a sink: where its key is not that of the query; always; "
    "never",
    choices=("AUTO", "FORCE", "NONE"),
)
REQUIRE_ON_CONFLICT: Final = ConfigOption(
    "table.exec.sink.require-on-conflict",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "whether INSERT must say ON CONFLICT where the key of the query is not that of the sink",
)
TABLE_PARALLELISM: Final = ConfigOption(
    "table.exec.resource.default-parallelism",
    parse_integer,
    -1,
    "parallelism of jobs of tables, before parallelism.default; -1: as that says",
    minimum=-1,
)
