"""Every configuration key that Millstream knows, with type, default and meaning.

Keys are Flink's where the meaning is the same, else they start with ``millstream.``.  Durations are
read as integer milliseconds.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, Final

from millstream.configuration.machine_time_zone import machine_time_zone
from millstream.configuration.option import (
    ConfigOption,
    parse_attempts,
    parse_boolean,
    parse_duration,
    parse_float,
    parse_integer,
    parse_list_text,
    parse_lowercase,
    parse_map,
    parse_max_parallelism,
    parse_memory,
    parse_string,
    parse_target,
    parse_time_zone,
    parse_uppercase,
)
from millstream.entry_points import Extensions

CHECKPOINTING_INTERVAL: Final = ConfigOption(
    "execution.checkpointing.interval",
    parse_duration,
    0,
    "shortest time between two checkpoints; 0: micro-batches follow each other at once, and with "
    "millstream.execution: pipelined there is a checkpoint each second",
    minimum=0,
)
CHECKPOINTS_DIRECTORY: Final = ConfigOption(
    "execution.checkpointing.dir",
    parse_string,
    "",
    "where checkpoints are kept; without it the job keeps them in a temporary directory and "
    "cannot be recovered by another run",
    aliases=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
CHECKPOINTING_MODE: Final = ConfigOption(
    "execution.checkpointing.mode",
    parse_uppercase,
    "EXACTLY_ONCE",
    "guarantee for state and sinks; NONE: at most once, without state after a failure",
    choices=("EXACTLY_ONCE", "AT_LEAST_ONCE", "NONE"),
)
NUM_RETAINED: Final = ConfigOption(
    "execution.checkpointing.num-retained",
    parse_integer,
    2,
    "how many checkpoints are kept",
    aliases=("state.checkpoints.num-retained",),
    minimum=1,
)
CHECKPOINTING_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.timeout",
    parse_duration,
    600_000,
    "longest time that a checkpoint, or the tasks of a micro-batch, may take; it is then aborted, "
    "and the restart strategy decides whether it runs again",
    minimum=1,
)
CHECKPOINTING_MIN_PAUSE: Final = ConfigOption(
    "execution.checkpointing.min-pause",
    parse_duration,
    0,
    "shortest time between the end of a checkpoint and the next one",
    minimum=0,
)
CHECKPOINT_RETENTION: Final = ConfigOption(
    "execution.checkpointing.externalized-checkpoint-retention",
    parse_uppercase,
    "RETAIN_ON_CANCELLATION",
    "what happens to the checkpoints of a job that is canceled; DELETE_ON_CANCELLATION: what is "
    "published is committed, and they are deleted; NO_EXTERNALIZED_CHECKPOINTS: they are deleted "
    "however the job ends, unless it was stopped without draining",
    choices=("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
)
TOLERABLE_FAILURES: Final = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    parse_integer,
    0,
    "how many micro-batches in a row may exceed execution.checkpointing.timeout; they run again at "
    "once, without the restart strategy; with millstream.execution: pipelined the tasks "
    "continue to the next checkpoint, also where state could not be uploaded",
    minimum=0,
)
MAX_CONCURRENT_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.max-concurrent-checkpoints",
    parse_integer,
    1,
    "how many checkpoints may be in progress at a time, with millstream.execution: pipelined; "
    "a micro-batch ends with a checkpoint, so there is one at a time",
    minimum=1,
    without_effect="a micro-batch ends before the next one begins",
    pipelined=True,
)
UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.enabled",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "whether barriers overtake buffered records, which become a part of the checkpoint, with "
    "millstream.execution: pipelined and mode EXACTLY_ONCE; micro-batches have none in flight",
    aliases=("execution.checkpointing.unaligned",),
    without_effect="nothing is in flight between two micro-batches",
    pipelined=True,
)
FORCE_UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.forced",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "unaligned checkpoints also with partition_custom(), whose partitioner must return the same "
    "for a record after each restart",
    without_effect="nothing is in flight between two micro-batches",
    pipelined=True,
)
ALIGNED_CHECKPOINT_TIMEOUT: Final = ConfigOption(
    "execution.checkpointing.aligned-checkpoint-timeout",
    parse_duration,
    0,
    "how long the barriers of an unaligned checkpoint wait, from its trigger on, before they "
    "overtake records; 0: not at all",
    aliases=("execution.checkpointing.alignment-timeout",),
    minimum=0,
    without_effect="nothing is in flight between two micro-batches",
    pipelined=True,
)
SAVEPOINT_DIRECTORY: Final = ConfigOption(
    "execution.checkpointing.savepoint-dir",
    parse_string,
    "",
    "accepted; there are no savepoints yet",
    aliases=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
    without_effect="there are no savepoints yet",
)
CHANGELOG_ENABLED: Final = ConfigOption(
    "state.changelog.enabled",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "accepted; checkpoints of RocksDB are incremental without a log of changes",
    aliases=("state.backend.changelog.enabled",),
    without_effect="checkpoints of RocksDB are incremental",
)
COMMIT_RETRY_INITIAL: Final = ConfigOption(
    "millstream.commit-retry.initial-backoff",
    parse_duration,
    100,
    "wait before the second try of a sink's commit that failed; doubled before each further one",
    minimum=0,
)
COMMIT_RETRY_MAXIMUM: Final = ConfigOption(
    "millstream.commit-retry.max-backoff",
    parse_duration,
    10_000,
    "longest wait between two tries of a commit",
    minimum=0,
)
COMMIT_RETRY_ATTEMPTS: Final = ConfigOption(
    "millstream.commit-retry.attempts",
    parse_integer,
    6,
    "tries of a commit before the run fails; the restart strategy then decides, and the next run "
    "commits first of all",
    minimum=1,
)
COMMIT_TIMEOUT: Final = ConfigOption(
    "millstream.commit.timeout",
    parse_duration,
    600_000,
    "longest time that one try of a sink's commit may take; a try that hangs longer fails the run, "
    "and the next run commits first of all",
    minimum=1,
)
CHECKPOINT_FSYNC: Final = ConfigOption(
    "millstream.checkpoint.fsync",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "whether checkpoints are forced to disk, so that they survive a crash of the machine",
)
CHECKPOINT_HMAC_KEY_FILE: Final = ConfigOption(
    "millstream.checkpoint.hmac-key-file",
    parse_string,
    "",
    "a file with a key that only its owner can read, on the driver and on all workers; checkpoints "
    "are signed with it, and nothing is loaded that is not",
)


#: Of the keys of all restart strategies.
RESTART_STRATEGY_PREFIX: Final = "restart-strategy"
RESTART_STRATEGY: Final = ConfigOption(
    "restart-strategy.type",
    parse_lowercase,
    "",
    "what happens after a failure; exponential-delay if checkpointing is on, else none",
    aliases=("restart-strategy",),
    choices=(
        *("", "none", "off", "disable", "fixed-delay", "fixeddelay"),
        *("exponential-delay", "exponentialdelay", "failure-rate", "failurerate"),
    ),
)
FIXED_DELAY_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.fixed-delay.attempts", parse_integer, 1, "number of restarts", minimum=0
)
FIXED_DELAY_DELAY: Final = ConfigOption(
    "restart-strategy.fixed-delay.delay", parse_duration, 1000, "time before a restart", minimum=0
)
FAILURE_RATE_MAX: Final = ConfigOption(
    "restart-strategy.failure-rate.max-failures-per-interval",
    parse_integer,
    1,
    "most failures within the interval after which the job is run again",
    minimum=0,
)
FAILURE_RATE_INTERVAL: Final = ConfigOption(
    "restart-strategy.failure-rate.failure-rate-interval",
    parse_duration,
    60_000,
    "how far back failures count",
    minimum=1,
)
FAILURE_RATE_DELAY: Final = ConfigOption(
    "restart-strategy.failure-rate.delay", parse_duration, 1000, "time before a restart", minimum=0
)
EXPONENTIAL_INITIAL_BACKOFF: Final = ConfigOption(
    "restart-strategy.exponential-delay.initial-backoff",
    parse_duration,
    1000,
    "time before the first restart",
    minimum=0,
)
EXPONENTIAL_MAX_BACKOFF: Final = ConfigOption(
    "restart-strategy.exponential-delay.max-backoff",
    parse_duration,
    60_000,
    "longest time before a restart",
    minimum=0,
)
EXPONENTIAL_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    parse_float,
    1.5,
    "factor from one restart to the next",
    minimum=1,
)
EXPONENTIAL_RESET_THRESHOLD: Final = ConfigOption(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    parse_duration,
    3_600_000,
    "time without failure after which the first delay is used again",
    minimum=0,
)
EXPONENTIAL_JITTER: Final = ConfigOption(
    "restart-strategy.exponential-delay.jitter-factor",
    parse_float,
    0.1,
    "random part of a delay, 0 to 1",
    minimum=0,
)
EXPONENTIAL_ATTEMPTS: Final = ConfigOption(
    "restart-strategy.exponential-delay.attempts-before-reset-backoff",
    parse_attempts,
    "infinite",
    "restarts in a row before the job fails for good",
)
USER_ERROR_MAX_REPEATS: Final = ConfigOption(
    "millstream.user-error.max-repeats",
    parse_integer,
    3,
    "how often the same error of user code, or a target that refuses for good, may repeat without"
    " progress before the job fails",
    minimum=1,
)


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
    "TRY_RESOLVE: SQL that would find rows to retract by columns that are computed again is "
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
    "order of rows of asynchronous lookup joins, unless a hint sets it: as they come or are known",
    choices=("ORDERED", "ALLOW_UNORDERED"),
)
ASYNC_LOOKUP_CAPACITY: Final = ConfigOption(
    "table.exec.async-lookup.buffer-capacity",
    parse_integer,
    100,
    "keys that an asynchronous lookup join requests at a time, unless a hint sets it",
    minimum=1,
)
ASYNC_LOOKUP_TIMEOUT: Final = ConfigOption(
    "table.exec.async-lookup.timeout",
    parse_duration,
    180_000,
    "how long an asynchronous lookup join waits for an answer, unless a hint sets it",
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
    "whether INSERT needs ON CONFLICT where the key of the query is not that of the sink",
)
TABLE_PARALLELISM: Final = ConfigOption(
    "table.exec.resource.default-parallelism",
    parse_integer,
    -1,
    "parallelism of jobs of tables, before parallelism.default; -1: that of parallelism.default",
    minimum=-1,
)


#: By the values of ``state.backend.type``: what opens stores (``state/backends/place.py``).
STATE_BACKENDS: Final[Extensions[Any]] = Extensions(
    "millstream.state_backends",
    "state backend",
    {
        "rocksdb": "millstream.state.backends.rocksdb:open_rocksdb",
        "hashmap": "millstream.state.backends.hashmap:open_hashmap",
    },
    ("__call__",),
)
STATE_BACKEND: Final = ConfigOption(
    "state.backend.type",
    parse_lowercase,
    "rocksdb",
    "where state lives while a task runs",
    aliases=("state.backend",),
    choices=STATE_BACKENDS,
)
PARALLELISM: Final = ConfigOption(
    "parallelism.default",
    parse_integer,
    0,
    "subtasks per operator; 0: one per core of this machine",
    minimum=0,
)
MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.max-parallelism",
    parse_max_parallelism,
    -1,
    "number of key groups; fixed for the life of a job's state. -1: derived from the parallelism "
    "of each operator, 1.5 times as many, rounded up to a power of two, at least 128",
)
IGNORE_UNCLAIMED_STATE: Final = ConfigOption(
    "execution.state-recovery.ignore-unclaimed-state",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "drop what the checkpoint holds of operators that the program does not have any more",
    aliases=("execution.savepoint.ignore-unclaimed-state",),
)
JOB_NAME: Final = ConfigOption(
    "pipeline.name", parse_string, "", "name of the job; that given to execute() wins"
)
AUTO_WATERMARK_INTERVAL: Final = ConfigOption(
    "pipeline.auto-watermark-interval",
    parse_duration,
    200,
    "time between two periodic watermarks of a split, which are emitted at the end of a "
    "micro-batch or, with millstream.execution: pipelined, by the clock; 0: none; while it is not "
    "set, they are also emitted after every batch of records",
    minimum=0,
)
RUNTIME_MODE: Final = ConfigOption(
    "execution.runtime-mode",
    parse_uppercase,
    "STREAMING",
    "STREAMING; BATCH, for bounded input: no watermark but the maximum at its end, final results; "
    "AUTOMATIC: BATCH if every source is bounded",
    choices=("STREAMING", "BATCH", "AUTOMATIC"),
)
GLOBAL_JOB_PARAMETERS: Final[ConfigOption[dict[str, str]]] = ConfigOption(
    "pipeline.global-job-parameters",
    parse_map,
    {},
    "the program's own parameters, which functions ask for by get_job_parameter()",
)
AUTO_GENERATE_UIDS: Final = ConfigOption(
    "pipeline.auto-generate-uids",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "whether operators without a uid get a generated one; else a job that has such is refused",
)
OPERATOR_CHAINING: Final = ConfigOption(
    "pipeline.operator-chaining.enabled",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "accepted; operators of one stage always run in one task",
    aliases=("pipeline.operator-chaining",),
    without_effect="operators of one stage share a task",
)
CHAINING_OF_DIFFERENT_MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "accepted, as pipeline.operator-chaining.enabled",
    without_effect="operators of one stage share a task",
)
BUFFER_TIMEOUT: Final = ConfigOption(
    "execution.buffer-timeout.interval",
    parse_duration,
    100,
    "how long records may be gathered before they go to the next task, with millstream.execution: "
    "pipelined, where it is 5 ms if it is not set; 0: they go at once",
    aliases=("execution.buffer-timeout",),
    minimum=0,
    without_effect="records leave a task batch by batch",
    pipelined=True,
)
BUFFER_DEBLOAT_ENABLED: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.enabled",
    parse_boolean,
    False,  # noqa: FBT003 - Flink's default
    "whether what waits for a task is limited by its throughput, with millstream.execution: "
    "pipelined, where it is if this is not set",
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_TARGET: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.target",
    parse_duration,
    1000,
    "how long a task should need to process what waits for it; 2 MiB wait on a connection at most",
    minimum=1,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_PERIOD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.period",
    parse_duration,
    200,
    "time between two measurements of the throughput of a task",
    minimum=1,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_SAMPLES: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.samples",
    parse_integer,
    20,
    "measurements of throughput that the moving average consists of, where it becomes less",
    minimum=1,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_THRESHOLD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages",
    parse_integer,
    25,
    "smaller changes of what may wait, in percent, are not made",
    minimum=0,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_TIMEOUT_ENABLED: Final = ConfigOption(
    "execution.buffer-timeout.enabled",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "whether records that are gathered go to the next task by time at all; else when they are many",
    without_effect="records leave a task batch by batch",
    pipelined=True,
)
PYTHON_EXECUTABLE: Final = ConfigOption(
    "python.executable", parse_string, "", "Python of the workers; that of the driver by default"
)
PYTHON_FILES: Final = ConfigOption(
    "python.files", parse_list_text, "", "files shipped to the workers' Python path, with commas"
)
PYTHON_REQUIREMENTS: Final = ConfigOption(
    "python.requirements",
    parse_string,
    "",
    "a requirements.txt whose packages are installed where tasks run; '#' and a directory of their "
    "wheels and source distributions may follow, and nothing else is asked then",
)
PYTHON_ARCHIVES: Final = ConfigOption(
    "python.archives",
    parse_list_text,
    "",
    "archives that are extracted in the working directory of the workers, with commas; '#' and the "
    "name of the directory may follow each",
)
CACHED_FILES: Final = ConfigOption(
    "pipeline.cached-files",
    parse_list_text,
    "",
    "files that functions find by name: 'name:words,path:/tmp/words.txt', with semicolons",
)
TARGET_EPOCH_DURATION: Final = ConfigOption(
    "millstream.epoch.target-duration",
    parse_duration,
    1000,
    "how long a micro-batch should take; how much is read for one adapts to it",
    minimum=1,
)
MANAGED_MEMORY: Final = ConfigOption(
    "taskmanager.memory.managed.size",
    parse_memory,
    256 << 20,
    "about how many bytes of keyed state a process keeps in memory as Python objects, with "
    "millstream.execution: pipelined; its keyed operators share them",
    aliases=("taskmanager.memory.size",),
    minimum=0,
    without_effect="a micro-batch keeps what it works on",
    pipelined=True,
)
BATCH_SIZE: Final = ConfigOption(
    "millstream.batch.size",
    parse_integer,
    16_384,
    "most records in a batch that a source hands on; longer ones are cut",
    minimum=1,
)
LOCAL_DIRECTORY: Final = ConfigOption(
    "millstream.local-directory",
    parse_string,
    "",
    "where tasks keep working state; a directory of the system's temporary one by default",
)
PROGRESS: Final = ConfigOption(
    "millstream.progress",
    parse_lowercase,
    "auto",
    "progress display; auto: a line on a terminal, else log lines; none in programs that print or"
    " collect unless the logger 'millstream' or 'millstream.progress' has a level",
    choices=("auto", "on", "off"),
)
TICK_INTERVAL: Final = ConfigOption(
    "millstream.tick-interval",
    parse_duration,
    200,
    "resolution of processing-time timers while the job is idle",
    minimum=1,
)
TARGET: Final = ConfigOption(
    "execution.target",
    parse_target,
    "spark",
    "what runs the job: spark, or local: processes of this machine, without Spark and Java; Flink's"
    " targets for clusters mean spark",
    choices=("spark", "local"),
)
EXECUTION: Final = ConfigOption(
    "millstream.execution",
    parse_lowercase,
    "epochs",
    "how the job runs: `epochs`: in micro-batches; `pipelined`: as long-running tasks, whose "
    "records reach the next task within milliseconds, with checkpoint barriers between them",
    choices=("epochs", "pipelined"),
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout",
    parse_duration,
    2000,
    "time without a sign of life after which a slot is lost, and the job runs again from its last "
    "checkpoint, with millstream.execution: pipelined; a slot gives one each 0.3 s",
    minimum=1000,
    without_effect="the engine monitors the tasks of a micro-batch",
    pipelined=True,
)
FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy",
    parse_lowercase,
    "region",
    "what is restarted when a task fails, with millstream.execution: pipelined: region, what is "
    "connected with it; full, the whole job",
    choices=("region", "full"),
    without_effect="a micro-batch that fails runs again as a whole",
    pipelined=True,
)
SLOT_REQUEST_TIMEOUT: Final = ConfigOption(
    "slot.request.timeout",
    parse_duration,
    300_000,
    "how long to wait until all slots are there, or one that takes the place of a lost slot, with "
    "millstream.execution: pipelined; also until all have begun when a task of one has failed, and "
    "until what is connected with it has begun again",
    minimum=1,
    without_effect="tasks begin when there are free slots",
    pipelined=True,
)
SPARK_MASTER: Final = ConfigOption(
    "millstream.spark.master", parse_string, "local[*]", "Spark master, if no session is active"
)
SPARK_CLASS_ARCHIVE: Final = ConfigOption(
    "millstream.spark.class-archive",
    parse_boolean,
    True,  # noqa: FBT003 - the default of an option
    "whether sessions of Millstream's own keep an archive of Spark's classes in the user's cache "
    "directory, with which later ones start in half the time; made in the background",
)

#: By key and by alias.
ALL_OPTIONS: Final[dict[str, ConfigOption[object]]] = {
    key: option
    for option in list(globals().values())
    if isinstance(option, ConfigOption)
    for key in (option.key, *option.aliases)
}


class CheckpointingMode(Enum):
    """The effect of a record after a failure."""

    #: An epoch is published, then its output is committed: once.
    EXACTLY_ONCE = 0
    #: Its output is committed, then it is published: once, or more often if a run dies in between.
    AT_LEAST_ONCE = 1
    #: It is published with no state before it runs: once, or not at all if it fails.
    NONE = 2
