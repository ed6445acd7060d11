"""Options: every configuration key that Millstream knows, with type, default and meaning.

What it is: one constant per key: those of jobs and of what runs them, and all those of
checkpoints, restarts and tables, which stand in modules of their own.  Keys are Flink's where the
meaning is the same, else they start with ``millstream.``.  Lengths of time are read as integer
milliseconds.

What it is not: where values are kept (``configuration/configuration.py``, to be read next).
"""

from __future__ import annotations

from typing import Any, Final

from millstream.configuration import checkpointing_options, restart_options, table_options
from millstream.configuration.checkpointing_options import *  # noqa: F403 - given on, as a whole
from millstream.configuration.option import ConfigOption
from millstream.configuration.parsing import (
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_list_text,
    parse_lowercase,
    parse_map,
    parse_max_parallelism,
    parse_memory,
    parse_string,
    parse_target,
    parse_uppercase,
)
from millstream.configuration.restart_options import *  # noqa: F403 - given on, as a whole
from millstream.configuration.table_options import *  # noqa: F403 - given on, as a whole
from millstream.entry_points import Extensions

__all__ = ["ALL_OPTIONS"]
__all__ += checkpointing_options.__all__
__all__ += restart_options.__all__
__all__ += table_options.__all__

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
    "time between two periodic watermarks of a split, which are emitted at the end of an epoch or, "
    "with millstream.execution: pipelined, by the clock; 0: none; while it is not set, they are "
    "also emitted after every batch of records",
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
    "whether operators without a uid of their own get one; else a job that has such is refused",
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
    without_effect="an epoch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_TARGET: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.target",
    parse_duration,
    1000,
    "how long a task should need to process what waits for it; 2 MiB wait on a connection at most",
    minimum=1,
    without_effect="an epoch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_PERIOD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.period",
    parse_duration,
    200,
    "time between two measurements of the throughput of a task",
    minimum=1,
    without_effect="an epoch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_SAMPLES: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.samples",
    parse_integer,
    20,
    "measurements of throughput that the moving average consists of, where it becomes less",
    minimum=1,
    without_effect="an epoch reads what it can process",
    pipelined=True,
)
BUFFER_DEBLOAT_THRESHOLD: Final = ConfigOption(
    "taskmanager.network.memory.buffer-debloat.threshold-percentages",
    parse_integer,
    25,
    "smaller changes of what may wait, in percent, are not made",
    minimum=0,
    without_effect="an epoch reads what it can process",
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
    "how long an epoch should take; what is read per epoch adapts to it",
    minimum=1,
)
MANAGED_MEMORY: Final = ConfigOption(
    "taskmanager.memory.managed.size",
    parse_memory,
    256 << 20,
    "about how many bytes of keyed state a process keeps in memory as Python objects while its "
    "tasks live on (millstream.execution: pipelined); its keyed operators share them",
    aliases=("taskmanager.memory.size",),
    minimum=0,
    without_effect="an epoch keeps what it works on",
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
    "time between looks at the clock when a job that needs processing time gets no data",
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
    "how the job runs: epochs, one after the other, each with its tasks; pipelined: tasks live as "
    "long as the job, records reach the next task within milliseconds, checkpoints are barriers "
    "between them",
    choices=("epochs", "pipelined"),
)
HEARTBEAT_TIMEOUT: Final = ConfigOption(
    "heartbeat.timeout",
    parse_duration,
    2000,
    "time without a sign of life after which a slot is lost, and the job runs again from its last "
    "checkpoint, with millstream.execution: pipelined; a slot gives one each 0.3 s",
    minimum=1000,
    without_effect="the tasks of an epoch are watched by what runs them",
    pipelined=True,
)
FAILOVER_STRATEGY: Final = ConfigOption(
    "jobmanager.execution.failover-strategy",
    parse_lowercase,
    "region",
    "what is restarted when a task fails, with millstream.execution: pipelined: region, what is "
    "connected with it; full, the whole job",
    choices=("region", "full"),
    without_effect="an epoch that fails is run again as a whole",
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
    without_effect="tasks begin when there is room for them",
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
