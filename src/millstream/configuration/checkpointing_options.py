"""Options of checkpoints: when they are taken, where they are kept, how sinks commit behind them.

What it is: definitions that ``configuration/options.py`` gives on under their names.
What it is not: where they are read (``execution/driver.py``, ``checkpoint/coordinator.py``).
"""

from __future__ import annotations

from typing import Final

from millstream.configuration.option import ConfigOption
from millstream.configuration.parsing import (
    parse_boolean,
    parse_duration,
    parse_integer,
    parse_string,
    parse_uppercase,
)

__all__ = [
    "ALIGNED_CHECKPOINT_TIMEOUT",
    "CHANGELOG_ENABLED",
    "CHECKPOINTING_INTERVAL",
    "CHECKPOINTING_MIN_PAUSE",
    "CHECKPOINTING_MODE",
    "CHECKPOINTING_TIMEOUT",
    "CHECKPOINTS_DIRECTORY",
    "CHECKPOINT_FSYNC",
    "CHECKPOINT_HMAC_KEY_FILE",
    "CHECKPOINT_RETENTION",
    "COMMIT_RETRY_ATTEMPTS",
    "COMMIT_RETRY_INITIAL",
    "COMMIT_RETRY_MAXIMUM",
    "COMMIT_TIMEOUT",
    "FORCE_UNALIGNED_CHECKPOINTS",
    "MAX_CONCURRENT_CHECKPOINTS",
    "NUM_RETAINED",
    "SAVEPOINT_DIRECTORY",
    "TOLERABLE_FAILURES",
    "UNALIGNED_CHECKPOINTS",
]

CHECKPOINTING_INTERVAL: Final = ConfigOption(
    "execution.checkpointing.interval",
    parse_duration,
    0,
    "shortest time between two checkpoints; 0: epochs follow each other at once, and with "
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
    "longest time that the tasks of an epoch (a checkpoint) may take; it is given up then, and the "
    "restart strategy decides whether it runs again",
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
    "what happens to the checkpoints of a job that is cancelled; DELETE_ON_CANCELLATION: what is "
    "published is committed, and they are deleted; NO_EXTERNALIZED_CHECKPOINTS: they are deleted "
    "however the job ends, unless it was stopped without draining",
    choices=("RETAIN_ON_CANCELLATION", "DELETE_ON_CANCELLATION", "NO_EXTERNALIZED_CHECKPOINTS"),
)
TOLERABLE_FAILURES: Final = ConfigOption(
    "execution.checkpointing.tolerable-failed-checkpoints",
    parse_integer,
    0,
    "how many epochs in a row may exceed execution.checkpointing.timeout; they are run again at "
    "once, and the restart strategy is not asked; with millstream.execution: pipelined the tasks "
    "go on to the next checkpoint, also where state could not be uploaded",
    minimum=0,
)
MAX_CONCURRENT_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.max-concurrent-checkpoints",
    parse_integer,
    1,
    "how many checkpoints may be under way at the same time, with millstream.execution: pipelined; "
    "an epoch is a checkpoint, and there is one at a time",
    minimum=1,
    without_effect="an epoch ends before the next one begins",
    pipelined=True,
)
UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.enabled",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "whether barriers overtake records that wait, which become a part of the checkpoint, with "
    "millstream.execution: pipelined and mode EXACTLY_ONCE; epochs have nothing in flight",
    aliases=("execution.checkpointing.unaligned",),
    without_effect="nothing is in flight between two epochs",
    pipelined=True,
)
FORCE_UNALIGNED_CHECKPOINTS: Final = ConfigOption(
    "execution.checkpointing.unaligned.forced",
    parse_boolean,
    False,  # noqa: FBT003 - the default of an option
    "unaligned checkpoints also with partition_custom(), whose partitioner must say the same of a "
    "record at each restart",
    without_effect="nothing is in flight between two epochs",
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
    without_effect="nothing is in flight between two epochs",
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
