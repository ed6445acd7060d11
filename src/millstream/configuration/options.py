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
    boolean,
    choice,
    duration,
    integer,
    parse_attempts,
    parse_compressions,
    parse_float,
    parse_list_text,
    parse_lowercase,
    parse_map,
    parse_max_parallelism,
    parse_memory,
    parse_ratio,
    parse_string,
    parse_target,
    parse_time_zone,
    text,
)
from millstream.entry_points import Extensions

CHECKPOINTING_INTERVAL: Final = duration(
    "execution.checkpointing.interval",
    0,
    "shortest time between two checkpoints; 0: micro-batches follow each other at once, and with "
    "millstream.execution: pipelined there is a checkpoint each second",
)
CHECKPOINTS_DIRECTORY: Final = text(
    "execution.checkpointing.dir",
    "where checkpoints are kept; without it the job keeps them in a temporary directory and "
    "cannot be recovered by another run",
    aliases=("state.checkpoints.dir", "state.backend.fs.checkpointdir"),
)
CHECKPOINTING_MODE: Final = choice(
    "execution.checkpointing.mode",
    "EXACTLY_ONCE",
    ("EXACTLY_ONCE", "AT_LEAST_ONCE", "NONE"),
    "guarantee for state and sinks; NONE: at most once, without state after a failure",
)
NUM_RETAINED: Final = integer(
    "execution.checkpointing.num-retained",
    2,
    "how many checkpoints are kept",
    aliases=("state.checkpoints.num-retained",),
    minimum=1,
)
CHECKPOINTING_TIMEOUT: Final = duration(
    "execution.checkpointing.timeout",
    600_000,
    "longest time that a checkpoint, or the tasks of a micro-batch, may take; it is then aborted, "
    "and the restart strategy decides whether it runs again",
    minimum=1,
)
CHECKPOINTING_MIN_PAUSE: Final = duration(
    "execution.checkpointing.min-pause",
    0,
    "shortest time between the end of a checkpoint and the next one",
)
CHECKPOINT_RETENTION: Final = choice(
    "execution.checkpointing.externalized-checkpoint-retention",
    "RETAIN_ON_CANCELLATION",
    ("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
    "what happens to the checkpoints of a job that is canceled; DELETE_ON_CANCELLATION: what is "
    "published is committed, and they are deleted; NO_EXTERNALIZED_CHECKPOINTS: they are deleted "
    "however the job ends, unless it was stopped without draining",
)
TOLERABLE_FAILURES: Final = integer(
    "execution.checkpointing.tolerable-failed-checkpoints",
    0,
    "how many micro-batches in a row may exceed execution.checkpointing.timeout; they run again at "
    "once, without the restart strategy; with millstream.execution: pipelined the tasks "
    "continue to the next checkpoint, also where state could not be uploaded",
    minimum=0,
)
MAX_CONCURRENT_CHECKPOINTS: Final = integer(
    "execution.checkpointing.max-concurrent-checkpoints",
    1,
    "how many checkpoints may be in progress at a time, with millstream.execution: pipelined; "
    "a micro-batch ends with a checkpoint, so there is one at a time",
    minimum=1,
    without_effect="a micro-batch ends before the next one begins",
    pipelined=True,
)
UNALIGNED_CHECKPOINTS: Final = boolean(
    "execution.checkpointing.unaligned.enabled",
    "whether barriers overtake buffered records, which become a part of the checkpoint, with "
    "millstream.execution: pipelined and mode EXACTLY_ONCE; micro-batches have none in flight",
    aliases=("execution.checkpointing.unaligned",),
    without_effect="nothing is in flight between two micro-batches",
    pipelined=True,
)
FORCE_UNALIGNED_CHECKPOINTS: Final = boolean(
    "execution.checkpointing.unaligned.forced",
    "unaligned checkpoints also with partition_custom(), whose partitioner must return the same "
    "for a record after each restart",
    without_effect="nothing is in flight between two micro-batches",
    pipelined=True,
)
ALIGNED_CHECKPOINT_TIMEOUT: Final = duration(
    "execution.checkpointing.aligned-checkpoint-timeout",
    0,
    "how long the barriers of an unaligned checkpoint wait, from its trigger on, before they "
    "overtake records; 0: not at all",
    aliases=("execution.checkpointing.alignment-timeout",),
    without_effect="nothing is in flight between two micro-batches",
    pipelined=True,
)
SAVEPOINT_DIRECTORY: Final = text(
    "execution.checkpointing.savepoint-dir",
    "where savepoints are written if the request names no directory; each is a separate directory "
    "in it",
    aliases=("state.savepoints.dir", "savepoints.state.backend.fs.dir"),
)
CHANGELOG_ENABLED: Final = boolean(
    "state.changelog.enabled",
    "accepted; checkpoints of RocksDB are incremental without a log of changes",
    aliases=("state.backend.changelog.enabled",),
    without_effect="checkpoints of RocksDB are incremental",
)
COMMIT_RETRY_INITIAL: Final = duration(
    "millstream.commit-retry.initial-backoff",
    100,
    "wait before the second try of a sink's commit that failed; doubled before each further one",
)
COMMIT_RETRY_MAXIMUM: Final = duration(
    "millstream.commit-retry.max-backoff", 10_000, "longest wait between two tries of a commit"
)
COMMIT_RETRY_ATTEMPTS: Final = integer(
    "millstream.commit-retry.attempts",
    6,
    "tries of a commit before the run fails; the restart strategy then decides, and the next run "
    "commits first of all",
    minimum=1,
)
COMMIT_TIMEOUT: Final = duration(
    "millstream.commit.timeout",
    600_000,
    "longest time that one try of a sink's commit may take; a try that hangs longer fails the run, "
    "and the next run commits first of all",
    minimum=1,
)
CHECKPOINT_FSYNC: Final = boolean(
    "millstream.checkpoint.fsync",
    "whether checkpoints are forced to disk, so that they survive a crash of the machine",
    default=True,
)
CHECKPOINT_HMAC_KEY_FILE: Final = text(
    "millstream.checkpoint.hmac-key-file",
    "a file with a key that only its owner can read, on the driver and on all workers; checkpoints "
    "are signed with it, and nothing is loaded that is not",
)
S3_ACCESS_KEY: Final = text(
    "s3.access-key",
    "access key of S3 and stores with its interface; with s3.secret-key. Without it credentials "
    "come from millstream.s3.profile, the environment or the machine's role",
    aliases=("s3.access.key", "fs.s3a.access.key"),
)
S3_SECRET_KEY: Final = text(
    "s3.secret-key",
    "secret key that belongs to s3.access-key",
    aliases=("s3.secret.key", "fs.s3a.secret.key"),
)
S3_SESSION_TOKEN: Final = text(
    "s3.session.token",
    "session token of temporary credentials; they are not renewed",
    aliases=("fs.s3a.session.token",),
)
S3_PROFILE: Final = text(
    "millstream.s3.profile",
    "profile of the AWS command line whose keys, region and endpoint are used, on the driver and "
    "on all workers; without it that of AWS_PROFILE",
)
S3_ENDPOINT: Final = text(
    "s3.endpoint",
    "address of the server, such as http://127.0.0.1:9000; Amazon's in the region if it is not set",
    aliases=("fs.s3a.endpoint",),
)
S3_REGION: Final = text(
    "s3.region",
    "region of the bucket; AWS_REGION, else us-east-1, if it is not set",
    aliases=("s3.endpoint.region", "fs.s3a.endpoint.region"),
)
S3_PATH_STYLE: Final = boolean(
    "s3.path.style.access",
    "whether the bucket is a part of the path instead of the host name; if it is not, s3.endpoint "
    "must contain the bucket",
    default=True,
    aliases=("s3.path-style-access", "fs.s3a.path.style.access"),
)
#: What an object store is opened with.
OBJECT_STORE_OPTIONS: Final[tuple[ConfigOption[Any], ...]] = (
    *(S3_ACCESS_KEY, S3_SECRET_KEY, S3_SESSION_TOKEN, S3_PROFILE),
    *(S3_ENDPOINT, S3_REGION, S3_PATH_STYLE),
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
FIXED_DELAY_ATTEMPTS: Final = integer(
    "restart-strategy.fixed-delay.attempts", 1, "number of restarts", minimum=0
)
FIXED_DELAY_DELAY: Final = duration(
    "restart-strategy.fixed-delay.delay", 1000, "time before a restart"
)
FAILURE_RATE_MAX: Final = integer(
    "restart-strategy.failure-rate.max-failures-per-interval",
    1,
    "most failures within the interval after which the job is run again",
    minimum=0,
)
FAILURE_RATE_INTERVAL: Final = duration(
    "restart-strategy.failure-rate.failure-rate-interval",
    60_000,
    "how far back failures count",
    minimum=1,
)
FAILURE_RATE_DELAY: Final = duration(
    "restart-strategy.failure-rate.delay", 1000, "time before a restart"
)
EXPONENTIAL_INITIAL_BACKOFF: Final = duration(
    "restart-strategy.exponential-delay.initial-backoff", 1000, "time before the first restart"
)
EXPONENTIAL_MAX_BACKOFF: Final = duration(
    "restart-strategy.exponential-delay.max-backoff", 60_000, "longest time before a restart"
)
EXPONENTIAL_MULTIPLIER: Final = ConfigOption(
    "restart-strategy.exponential-delay.backoff-multiplier",
    parse_float,
    1.5,
    "factor from one restart to the next",
    minimum=1,
)
EXPONENTIAL_RESET_THRESHOLD: Final = duration(
    "restart-strategy.exponential-delay.reset-backoff-threshold",
    3_600_000,
    "time without failure after which the first delay is used again",
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
USER_ERROR_MAX_REPEATS: Final = integer(
    "millstream.user-error.max-repeats",
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
DML_SYNC: Final = boolean(
    "table.dml-sync", "whether statements that write tables wait until their job has ended"
)
FORCE_RECOMPILE: Final = boolean(
    "table.plan.force-recompile", "whether COMPILE PLAN replaces a file that exists"
)
MAX_COLUMN_WIDTH: Final = integer(
    "table.display.max-column-width",
    30,
    "most characters of a column of rows that are printed; longer values end with '...'",
    minimum=1,
)
RESULT_MODE: Final = choice(
    "sql-client.execution.result-mode",
    "TABLE",
    ("TABLE", "CHANGELOG", "TABLEAU"),
    "how the SQL shell shows the rows of a query: kept up to date, or the changes as they come",
)
SQL_GATEWAY_PORT: Final = ConfigOption(
    "sql-gateway.endpoint.rest.port",
    parse_string,
    "8083",
    "port of the SQL gateway, or a range of ports, of which the first free one is taken; 0: any",
    aliases=("sql-gateway.endpoint.rest.bind-port",),
)
SQL_GATEWAY_BIND_ADDRESS: Final = ConfigOption(
    "sql-gateway.endpoint.rest.bind-address",
    parse_string,
    "127.0.0.1",
    "the address at which the SQL gateway listens; others than this machine's need "
    "millstream.rest.token-file and security.ssl.rest.enabled",
    aliases=("sql-gateway.endpoint.rest.address",),
)
SQL_GATEWAY_IDLE_TIMEOUT: Final = duration(
    "sql-gateway.session.idle-timeout",
    600_000,
    "after how long a session of the SQL gateway that nobody uses is closed; 0: never",
)
SQL_GATEWAY_CHECK_INTERVAL: Final = duration(
    "sql-gateway.session.check-interval",
    60_000,
    "time between two checks for idle sessions of the SQL gateway",
    minimum=1,
)
SQL_GATEWAY_MAX_SESSIONS: Final = integer(
    "sql-gateway.session.max-num",
    1_000_000,
    "how many sessions the SQL gateway has at most",
    minimum=1,
)
CDC_EVENTS_DUPLICATE: Final = boolean(
    "table.exec.source.cdc-events-duplicate",
    "whether sources of changes may repeat them; their rows are then kept by PRIMARY KEY",
)
STATE_TTL: Final = duration(
    "table.exec.state.ttl", 0, "after how long unused state of SQL goes; 0: never"
)
MINI_BATCH: Final = boolean("table.exec.mini-batch.enabled", "one change of SQL per key and batch")
AGG_PHASE_STRATEGY: Final = ConfigOption(
    "table.optimizer.agg-phase-strategy",
    parse_string,
    "AUTO",
    "whether windows and mini-batches of SQL are aggregated ahead of their exchange: AUTO and "
    "TWO_PHASE where it can be done, ONE_PHASE never",
    choices=("AUTO", "TWO_PHASE", "ONE_PHASE"),
)
SPLIT_DISTINCT: Final = boolean(
    "table.optimizer.distinct-agg.split.enabled",
    "aggregates of SQL over DISTINCT values first per bucket of these, then over the buckets",
)
DISTINCT_BUCKETS: Final = integer(
    "table.optimizer.distinct-agg.split.bucket-num",
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
REUSE_SUB_PLANS: Final = boolean(
    "table.optimizer.reuse-sub-plan-enabled",
    "whether parts of SQL plans that are the same run once",
    default=True,
)
LOCAL_TIME_ZONE: Final = ConfigOption(
    "table.local-time-zone",
    parse_time_zone,
    "default",
    "time zone of TIMESTAMP_LTZ in SQL; default: that of the machine that submits the job",
    compute_default=machine_time_zone,
)
ASYNC_LOOKUP_MODE: Final = choice(
    "table.exec.async-lookup.output-mode",
    "ORDERED",
    ("ORDERED", "ALLOW_UNORDERED"),
    "order of rows of asynchronous lookup joins, unless a hint sets it: as they come or are known",
)
ASYNC_LOOKUP_CAPACITY: Final = integer(
    "table.exec.async-lookup.buffer-capacity",
    100,
    "keys that an asynchronous lookup join requests at a time, unless a hint sets it",
    minimum=1,
)
ASYNC_LOOKUP_TIMEOUT: Final = duration(
    "table.exec.async-lookup.timeout",
    180_000,
    "how long an asynchronous lookup join waits for an answer, unless a hint sets it",
    minimum=1,
)
ASYNC_SCALAR_CONCURRENCY: Final = integer(
    "table.exec.async-scalar.max-concurrent-operations",
    10,
    "most calls of an asynchronous scalar function that wait at a time",
    minimum=1,
    aliases=("table.exec.async-scalar.buffer-capacity",),
)
ASYNC_SCALAR_TIMEOUT: Final = duration(
    "table.exec.async-scalar.timeout",
    180_000,
    "how long an asynchronous scalar function has for a row, with all of its attempts",
    minimum=1,
)
ASYNC_SCALAR_RETRY_STRATEGY: Final = choice(
    "table.exec.async-scalar.retry-strategy",
    "FIXED_DELAY",
    ("FIXED_DELAY", "NO_RETRY"),
    "whether an asynchronous scalar function that raises is called again",
)
ASYNC_SCALAR_RETRY_DELAY: Final = duration(
    "table.exec.async-scalar.retry-delay",
    100,
    "how long to wait before an asynchronous scalar function is called again",
)
ASYNC_SCALAR_MAX_ATTEMPTS: Final = integer(
    "table.exec.async-scalar.max-attempts",
    3,
    "how often an asynchronous scalar function that raises is called again before the job fails",
    minimum=1,
)
SOURCE_IDLE_TIMEOUT: Final = duration(
    "table.exec.source.idle-timeout", 0, "idle time of WATERMARK FOR; 0: never"
)
NOT_NULL_ENFORCER: Final = ConfigOption(
    "table.exec.sink.not-null-enforcer",
    parse_string,
    "ERROR",
    "what happens to NULL that is written into a column NOT NULL",
    choices=("ERROR", "DROP"),
)
TYPE_LENGTH_ENFORCER: Final = choice(
    "table.exec.sink.type-length-enforcer",
    "IGNORE",
    ("IGNORE", "TRIM_PAD"),
    "whether texts and bytes are cut and filled up to the length of the sink's column",
)
UPSERT_MATERIALIZE: Final = choice(
    "table.exec.sink.upsert-materialize",
    "AUTO",
    ("AUTO", "FORCE", "NONE"),
    "whether rows are kept by the key of a sink: where its key is not that of the query; always; "
    "never",
)
REQUIRE_ON_CONFLICT: Final = boolean(
    "table.exec.sink.require-on-conflict",
    "whether INSERT needs ON CONFLICT where the key of the query is not that of the sink",
    default=True,
)
TABLE_PARALLELISM: Final = integer(
    "table.exec.resource.default-parallelism",
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
PARALLELISM: Final = integer(
    "parallelism.default", 0, "subtasks per operator; 0: one per core of this machine", minimum=0
)
MAX_PARALLELISM: Final = ConfigOption(
    "pipeline.max-parallelism",
    parse_max_parallelism,
    -1,
    "number of key groups; if a checkpoint has another one, the keys of its state are hashed again "
    "at the start. -1: that of the checkpoint, or derived from the parallelism of each operator, "
    "1.5 times as many, rounded up to a power of two, at least 128",
)
IGNORE_UNCLAIMED_STATE: Final = boolean(
    "execution.state-recovery.ignore-unclaimed-state",
    "drop what the checkpoint holds of operators that the program does not have any more",
    aliases=("execution.savepoint.ignore-unclaimed-state",),
)
MOVED_CLASSES: Final[ConfigOption[dict[str, str]]] = ConfigOption(
    "millstream.state.moved-classes",
    parse_map,
    {},
    "classes of state values that have another module or name now: "
    "old.module.Class:new.module.Class, separated by commas",
)
SAVEPOINT_PATH: Final = text(
    "execution.state-recovery.path",
    "savepoint, or checkpoint directory of another job, from which the job starts; one that has "
    "started from it and already has later checkpoints continues from those",
    aliases=("execution.savepoint.path",),
)
CLAIM_MODE: Final = choice(
    "execution.state-recovery.claim-mode",
    "NO_CLAIM",
    ("NO_CLAIM", "CLAIM"),
    "CLAIM: the savepoint that the job starts from is deleted after the first checkpoint of the "
    "job; NO_CLAIM: it stays. The job only needs it until its state is copied, before the first "
    "record",
    aliases=("execution.savepoint-restore-mode",),
)
JOB_NAME: Final = text("pipeline.name", "name of the job; that given to execute() wins")
AUTO_WATERMARK_INTERVAL: Final = duration(
    "pipeline.auto-watermark-interval",
    200,
    "time between two periodic watermarks of a split, which are emitted at the end of a "
    "micro-batch or, with millstream.execution: pipelined, by the clock; 0: none; while it is not "
    "set, they are also emitted after every batch of records",
)
RUNTIME_MODE: Final = choice(
    "execution.runtime-mode",
    "STREAMING",
    ("STREAMING", "BATCH", "AUTOMATIC"),
    "STREAMING; BATCH, for bounded input: no watermark but the maximum at its end, final results; "
    "AUTOMATIC: BATCH if every source is bounded",
)
GLOBAL_JOB_PARAMETERS: Final[ConfigOption[dict[str, str]]] = ConfigOption(
    "pipeline.global-job-parameters",
    parse_map,
    {},
    "the program's own parameters, which functions ask for by get_job_parameter()",
)
AUTO_GENERATE_UIDS: Final = boolean(
    "pipeline.auto-generate-uids",
    "whether operators without a uid get a generated one; else a job that has such is refused",
    default=True,
)
OPERATOR_CHAINING: Final = boolean(
    "pipeline.operator-chaining.enabled",
    "accepted; operators of one stage always run in one task",
    default=True,
    aliases=("pipeline.operator-chaining",),
    without_effect="operators of one stage share a task",
)
CHAINING_OF_DIFFERENT_MAX_PARALLELISM: Final = boolean(
    "pipeline.operator-chaining.chain-operators-with-different-max-parallelism",
    "accepted, as pipeline.operator-chaining.enabled",
    default=True,
    without_effect="operators of one stage share a task",
)
BUFFER_TIMEOUT: Final = duration(
    "execution.buffer-timeout.interval",
    100,
    "how long records may be gathered before they go to the next task, with millstream.execution: "
    "pipelined, where it is 5 ms if it is not set; 0: they go at once",
    aliases=("execution.buffer-timeout",),
    without_effect="records leave a task batch by batch",
    pipelined=True,
)
BUFFER_DEBLOAT_ENABLED: Final = boolean(
    "taskmanager.network.memory.buffer-debloat.enabled",
    "whether what waits for a task is limited by its throughput, with millstream.execution: "
    "pipelined, where it is if this is not set",
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_TARGET: Final = duration(
    "taskmanager.network.memory.buffer-debloat.target",
    1000,
    "how long a task should need to process what waits for it; 2 MiB wait on a connection at most",
    minimum=1,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_PERIOD: Final = duration(
    "taskmanager.network.memory.buffer-debloat.period",
    200,
    "time between two measurements of the throughput of a task",
    minimum=1,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_SAMPLES: Final = integer(
    "taskmanager.network.memory.buffer-debloat.samples",
    20,
    "measurements of throughput that the moving average consists of, where it becomes less",
    minimum=1,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_THRESHOLD: Final = integer(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages",
    25,
    "smaller changes of what may wait, in percent, are not made",
    minimum=0,
    without_effect="a micro-batch reads what it can process",
    pipelined=True,
)
BUFFER_TIMEOUT_ENABLED: Final = boolean(
    "execution.buffer-timeout.enabled",
    "whether records that are gathered go to the next task by time at all; else when they are many",
    default=True,
    without_effect="records leave a task batch by batch",
    pipelined=True,
)
PYTHON_EXECUTABLE: Final = text(
    "python.executable", "Python of the workers; that of the driver by default"
)
PYTHON_FILES: Final = ConfigOption(
    "python.files", parse_list_text, "", "files shipped to the workers' Python path, with commas"
)
PYTHON_REQUIREMENTS: Final = text(
    "python.requirements",
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
TARGET_EPOCH_DURATION: Final = duration(
    "millstream.epoch.target-duration",
    1000,
    "how long a micro-batch should take; how much is read for one adapts to it",
    minimum=1,
)
MANAGED_MEMORY: Final = ConfigOption(
    "taskmanager.memory.managed.size",
    parse_memory,
    512 << 20,
    "about how many bytes a process uses for keyed state: one half for Python objects, shared by "
    "all its keyed operators, the other for RocksDB",
    aliases=("taskmanager.memory.size",),
    minimum=0,
)
ROCKSDB_MANAGED: Final = boolean(
    "state.backend.rocksdb.memory.managed",
    "whether block cache and write buffers of all stores of a process are bounded together, by "
    "the half of taskmanager.memory.managed.size",
    default=True,
)
ROCKSDB_FIXED_MEMORY: Final = ConfigOption(
    "state.backend.rocksdb.memory.fixed-per-slot",
    parse_memory,
    0,
    "bytes for block cache and write buffers of all stores of a process; 0: see "
    "state.backend.rocksdb.memory.managed",
    minimum=0,
)
ROCKSDB_WRITE_BUFFER_RATIO: Final = ConfigOption(
    "state.backend.rocksdb.memory.write-buffer-ratio",
    parse_ratio,
    0.5,
    "the part of this memory that write buffers may take",
)
ROCKSDB_CACHE_SIZE: Final = ConfigOption(
    "state.backend.rocksdb.block.cache-size",
    parse_memory,
    64 << 20,
    "bytes of the block cache of a process, where its memory is not managed",
    minimum=0,
)
ROCKSDB_BLOCK_SIZE: Final = ConfigOption(
    "state.backend.rocksdb.block.blocksize",
    parse_memory,
    4 << 10,
    "bytes of a block before it is compressed",
    minimum=512,
)
ROCKSDB_WRITE_BUFFER_SIZE: Final = ConfigOption(
    "state.backend.rocksdb.writebuffer.size",
    parse_memory,
    32 << 20,
    "most bytes in a write buffer; a store with more writes than that between two checkpoints "
    "flushes them earlier",
    minimum=64 << 10,
)
ROCKSDB_WRITE_BUFFER_COUNT: Final = integer(
    "state.backend.rocksdb.writebuffer.count",
    2,
    "most write buffers of a store",
    minimum=2,
)
ROCKSDB_COMPRESSION: Final = ConfigOption(
    "state.backend.rocksdb.compression.per.level",
    parse_compressions,
    ["LZ4_COMPRESSION"],
    "compression of each level from 0 on; the last one is for all further levels",
)
ROCKSDB_BLOOM_FILTER: Final = boolean(
    "state.backend.rocksdb.use-bloom-filter",
    "whether files have Bloom filters, which make reads of missing keys cheap",
    default=True,
)
ROCKSDB_BLOOM_BITS: Final = ConfigOption(
    "state.backend.rocksdb.bloom-filter.bits-per-key",
    parse_float,
    10.0,
    "bits per key in a Bloom filter",
    minimum=0,
)
ROCKSDB_OPEN_FILES: Final = integer(
    "state.backend.rocksdb.files.open",
    512,
    "most files that a store keeps open; -1: all",
    minimum=-1,
)
ROCKSDB_THREADS: Final = integer(
    "state.backend.rocksdb.thread.num",
    2,
    "threads of a store for flushes and compaction",
    minimum=1,
)
BATCH_SIZE: Final = integer(
    "millstream.batch.size",
    16_384,
    "most records in a batch that a source hands on; longer ones are cut",
    minimum=1,
)
STANDBY: Final = boolean(
    "millstream.standby",
    "whether the driver waits until no other one runs the job, and takes over then; "
    "`millstream run --standby PROGRAM` sets it",
)
LEASE_DURATION: Final = duration(
    "millstream.lease.duration",
    10_000,
    "time after which a driver that has not renewed its lease in the checkpoint directory is taken "
    "for dead by a standby; it is renewed three times as often",
    minimum=500,
)
LOCAL_DIRECTORY: Final = text(
    "millstream.local-directory",
    "where tasks keep working state; a directory of the system's temporary one by default",
)
PROGRESS: Final = choice(
    "millstream.progress",
    "auto",
    ("auto", "on", "off"),
    "progress display; auto: a line on a terminal, else log lines; none in programs that print or"
    " collect unless the logger 'millstream' or 'millstream.progress' has a level",
)
LOGGING_FORMAT: Final = choice(
    "millstream.logging.format",
    "text",
    ("text", "json"),
    "format of log lines of `millstream run PROGRAM`, and of programs that set this; json: an"
    " object per line, with job, operator, subtask and checkpoint as fields",
)
LOGGING_LEVEL: Final = choice(
    "millstream.logging.level",
    "INFO",
    ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"),
    "level of the root logger, on the driver and in workers",
)
LOGGING_CONFIG_FILE: Final = text(
    "millstream.logging.config-file",
    "a file with a configuration for Python's logging: YAML or JSON for dictConfig, or .ini, .cfg"
    " or .conf for fileConfig; used on the driver and in workers, in place of format and level",
)
TICK_INTERVAL: Final = duration(
    "millstream.tick-interval",
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
EXECUTION: Final = choice(
    "millstream.execution",
    "epochs",
    ("epochs", "pipelined"),
    "how the job runs: `epochs`: in micro-batches; `pipelined`: as long-running tasks, whose "
    "records reach the next task within milliseconds, with checkpoint barriers between them",
)
HEARTBEAT_TIMEOUT: Final = duration(
    "heartbeat.timeout",
    2000,
    "time without a sign of life after which a slot is lost, and the job runs again from its last "
    "checkpoint, with millstream.execution: pipelined; a slot gives one each 0.3 s",
    minimum=1000,
    without_effect="the engine monitors the tasks of a micro-batch",
    pipelined=True,
)
FAILOVER_STRATEGY: Final = choice(
    "jobmanager.execution.failover-strategy",
    "region",
    ("region", "full"),
    "what is restarted when a task fails, with millstream.execution: pipelined: region, what is "
    "connected with it; full, the whole job",
    without_effect="a micro-batch that fails runs again as a whole",
    pipelined=True,
)
SLOT_REQUEST_TIMEOUT: Final = duration(
    "slot.request.timeout",
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
SPARK_CLASS_ARCHIVE: Final = boolean(
    "millstream.spark.class-archive",
    "whether sessions of Millstream's own keep an archive of Spark's classes in the user's cache "
    "directory, with which later ones start in half the time; made in the background",
    default=True,
)

METRICS_REPORTERS: Final = text(
    "metrics.reporters",
    "the names of the metric reporters that are started, separated by commas; empty: all that have "
    "options `metrics.reporter.NAME.*`",
)
TRACES_REPORTERS: Final = text(
    "traces.reporters",
    "the names of the reporters of spans that are started, separated by commas; empty: all that "
    "have options `traces.reporter.NAME.*`",
)
METRICS_SCOPE_DELIMITER: Final = ConfigOption(
    "metrics.scope.delimiter", parse_string, ".", "what separates the parts of an identifier"
)
_SCOPE: Final = "the identifier of metrics of "
METRICS_SCOPE_JM: Final = ConfigOption(
    "metrics.scope.jm", parse_string, "<host>.jobmanager", _SCOPE + "the driver"
)
METRICS_SCOPE_JM_JOB: Final = ConfigOption(
    "metrics.scope.jm-job",
    parse_string,
    "<host>.jobmanager.<job_name>",
    _SCOPE + "the job",
    aliases=("metrics.scope.jm.job",),
)
METRICS_SCOPE_TM: Final = ConfigOption(
    "metrics.scope.tm", parse_string, "<host>.taskmanager.<tm_id>", _SCOPE + "a slot"
)
METRICS_SCOPE_TM_JOB: Final = ConfigOption(
    "metrics.scope.tm-job",
    parse_string,
    "<host>.taskmanager.<tm_id>.<job_name>",
    _SCOPE + "a job in a slot",
    aliases=("metrics.scope.tm.job",),
)
METRICS_SCOPE_TASK: Final = ConfigOption(
    "metrics.scope.task",
    parse_string,
    "<host>.taskmanager.<tm_id>.<job_name>.<task_name>.<subtask_index>",
    _SCOPE + "a subtask of a chain of operators",
)
METRICS_SCOPE_OPERATOR: Final = ConfigOption(
    "metrics.scope.operator",
    parse_string,
    "<host>.taskmanager.<tm_id>.<job_name>.<operator_name>.<subtask_index>",
    _SCOPE + "a subtask of an operator",
)
METRICS_LATENCY_INTERVAL: Final = duration(
    "metrics.latency.interval",
    0,
    "time between two latency markers of a source, with millstream.execution: pipelined; 0: none",
)
METRICS_LATENCY_GRANULARITY: Final = choice(
    "metrics.latency.granularity",
    "operator",
    ("single", "operator", "subtask"),
    "whether latencies are of all sources together, of each source, or of each subtask of a source",
)
METRICS_LATENCY_HISTORY: Final = integer(
    "metrics.latency.history-size",
    128,
    "how many of the last markers the statistics of latency are of",
    minimum=1,
)
METRICS_JOB_STATUS: Final = ConfigOption(
    "metrics.job.status.enable",
    parse_list_text,
    "CURRENT_TIME",
    "what is reported of each status of the job: STATE, CURRENT_TIME, TOTAL_TIME, or several as "
    "`STATE;CURRENT_TIME`",
)

# -- autoscaling: keys, rules and defaults of Flink's Kubernetes operator --------------------------

_A: Final = "job.autoscaler."
AUTOSCALER_ENABLED: Final = boolean(
    f"{_A}enabled", "observe the job, and compute a parallelism for each vertex", default=False
)
AUTOSCALER_SCALING: Final = boolean(
    f"{_A}scaling.enabled",
    "give vertices that parallelism; false: it is only logged and in metrics",
    default=True,
)
AUTOSCALER_STABILIZATION: Final = duration(
    f"{_A}stabilization.interval",
    300_000,
    "time after a start or a scaling in which nothing is observed",
)
AUTOSCALER_WINDOW: Final = duration(
    f"{_A}metrics.window", 900_000, "time over which metrics are averaged", minimum=1
)
AUTOSCALER_TARGET: Final = ConfigOption(
    f"{_A}utilization.target",
    parse_ratio,
    0.7,
    "the part of its time that a vertex should be busy",
    aliases=(f"{_A}target.utilization",),
)
AUTOSCALER_BOUNDARY: Final = ConfigOption(
    f"{_A}target.utilization.boundary",
    parse_ratio,
    0.3,
    "nothing is scaled while all vertices are busy by no more or less than this beside the target",
)
AUTOSCALER_UP_FACTOR: Final = ConfigOption(
    f"{_A}scale-up.max-factor",
    parse_float,
    100_000.0,
    "by which part of itself a parallelism is raised at once, at most",
)
AUTOSCALER_DOWN_FACTOR: Final = ConfigOption(
    f"{_A}scale-down.max-factor",
    parse_ratio,
    0.6,
    "by which part of itself a parallelism is lowered at once, at most",
)
AUTOSCALER_LEAST: Final = integer(
    f"{_A}vertex.min-parallelism", 1, "the lowest parallelism of a vertex"
)
AUTOSCALER_MOST: Final = integer(
    f"{_A}vertex.max-parallelism",
    200,
    "the highest one; the cores of Spark, or of this machine, are a limit besides",
)
AUTOSCALER_CATCH_UP: Final = duration(
    f"{_A}catch-up.duration", 1_800_000, "time in which a backlog is to be processed; 0: no matter"
)
AUTOSCALER_RESTART: Final = duration(
    f"{_A}restart.time", 300_000, "time that a scaling takes, whose records are a backlog"
)
AUTOSCALER_DETECTION: Final = boolean(
    f"{_A}scaling.effectiveness.detection.enabled",
    "raise no parallelism again whose last raise has not helped",
    default=False,
)
AUTOSCALER_EFFECTIVENESS: Final = ConfigOption(
    f"{_A}scaling.effectiveness.threshold",
    parse_ratio,
    0.1,
    "the part of the expected gain from which on a raise has helped",
)
AUTOSCALER_EXCLUDED: Final = ConfigOption(
    f"{_A}vertex.exclude.ids",
    parse_list_text,
    "",
    "vertices that are not scaled: the uids of their first operators, separated by `;`",
)

# -- servers of HTTP ------------------------------------------------------------------------------

REST_TOKEN: Final = text(
    "millstream.rest.token",
    "what clients send as `Authorization: Bearer TOKEN`; empty: no token is needed, which is only "
    "allowed if the server listens at a loopback address",
)
REST_TOKEN_FILE: Final = text(
    "millstream.rest.token-file", "a file that contains millstream.rest.token"
)
REST_TLS: Final = boolean(
    "security.ssl.rest.enabled",
    "whether servers speak HTTPS, with millstream.rest.certificate and millstream.rest.key",
)
REST_CERTIFICATE: Final = text(
    "millstream.rest.certificate", "a PEM file with the certificate and its chain"
)
REST_KEY: Final = text(
    "millstream.rest.key", "a PEM file with the private key; that of the certificate unless set"
)
REST_KEY_PASSWORD: Final = text(
    "security.ssl.rest.key-password", "the password of millstream.rest.key, if it has one"
)
REST_READ_ONLY: Final = boolean(
    "millstream.rest.read-only",
    "whether servers refuse every request that changes something",
)
REST_ALLOWED_HOSTS: Final = ConfigOption(
    "millstream.rest.allowed-hosts",
    parse_list_text,
    "",
    "further names of hosts, separated by `;`, that requests may have in their Host header: those "
    "of a proxy",
)

REST_PORT: Final = ConfigOption(
    "rest.port",
    parse_string,
    "",
    "the port of the REST API on the driver, which is started if this option or rest.bind-port is "
    "set; 0: any free one",
    aliases=("web.port",),
)
REST_BIND_PORT: Final = text(
    "rest.bind-port",
    "the port, or a range such as 8081-8099 of which the first free one is taken; rest.port unless "
    "set",
    aliases=("jobmanager.web.port",),
)
REST_BIND_ADDRESS: Final = ConfigOption(
    "rest.bind-address",
    parse_string,
    "127.0.0.1",
    "where the REST API listens; beyond the machine itself only with millstream.rest.token (or "
    "token-file) and security.ssl.rest.enabled",
    aliases=("web.address", "jobmanager.web.address"),
)
REST_ADDRESS: Final = text(
    "rest.address", "the name by which clients reach the REST API, if it is not that of the machine"
)
WEB_CANCEL: Final = boolean(
    "web.cancel.enable", "whether jobs can be canceled from the web UI", default=True
)
WEB_REFRESH_INTERVAL: Final = duration(
    "web.refresh-interval",
    3_000,
    "how often the web UI refreshes",
    minimum=100,
    aliases=("jobmanager.web.refresh-interval",),
)
WEB_HISTORY: Final = integer(
    "web.history",
    5,
    "how many ended jobs the REST API of a driver with several jobs still shows",
    minimum=0,
    aliases=("jobmanager.web.history",),
)
WEB_CHECKPOINTS_HISTORY: Final = integer(
    "web.checkpoints.history",
    10,
    "how many checkpoints the REST API shows",
    minimum=0,
    aliases=("jobmanager.web.checkpoints.history",),
)
WEB_EXCEPTION_HISTORY: Final = integer(
    "web.exception-history-size", 16, "how many failures the REST API shows", minimum=0
)
REST_STORE_DURATION: Final = duration(
    "rest.async.store-duration",
    300_000,
    "how long the REST API keeps the result of a savepoint or a stop",
)

FLAMEGRAPH: Final = boolean(
    "rest.flamegraph.enabled",
    "whether the REST API shows flame graphs of long-running tasks, for which stacks of slots are "
    "sampled on request",
)
FLAMEGRAPH_SAMPLES: Final = integer(
    "rest.flamegraph.num-samples", 100, "how many samples a flame graph has", minimum=1
)
FLAMEGRAPH_DELAY: Final = duration(
    "rest.flamegraph.delay-between-samples", 50, "time between two samples of a flame graph"
)
FLAMEGRAPH_REFRESH_INTERVAL: Final = duration(
    "rest.flamegraph.refresh-interval",
    60_000,
    "how old samples are when the next request for a flame graph takes new ones",
)
FLAMEGRAPH_DEPTH: Final = integer(
    "rest.flamegraph.stack-depth", 100, "the most frames of a stack in a flame graph", minimum=1
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
