"""CheckpointConfig: PyFlink's methods over the ``execution.checkpointing.*`` options."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from millstream.configuration import options
from millstream.configuration.options import CheckpointingMode
from millstream.configuration.state_backends import (
    ExternalizedCheckpointRetention,
    checkpoint_storage_of,
)
from millstream.errors import ConfigurationError
from millstream.types.time import Duration

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration
    from millstream.configuration.state_backends import CheckpointStorage


#: Java's largest int: Flink's "any number".
_ANY_NUMBER: Final = 2**31 - 1


class CheckpointConfig:
    """The checkpointing settings.

    With ``millstream.execution: epochs`` an epoch is a checkpoint: checkpoints never overlap, each
    is complete before the next begins, and nothing is in flight between them.  So Flink's settings
    for unaligned and for concurrent checkpoints have no effect there; each says so once.
    """

    DEFAULT_MODE: Final = CheckpointingMode.EXACTLY_ONCE

    def __init__(self, configuration: Configuration) -> None:
        """Take the configuration to read and write."""
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Return whether an interval is set."""
        return self._configuration.contains_key(options.CHECKPOINTING_INTERVAL.key)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode, exactly-once unless set."""
        return CheckpointingMode[self._configuration.get(options.CHECKPOINTING_MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> Self:
        """Set the mode."""
        self._configuration.set(options.CHECKPOINTING_MODE, checkpointing_mode.name)
        return self

    # Flink 2's names.
    set_checkpointing_consistency_mode = set_checkpointing_mode
    get_checkpointing_consistency_mode = get_checkpointing_mode

    def get_checkpoint_interval(self) -> int:
        """The shortest time between two epochs in milliseconds; -1 if none is set, as in Flink."""
        if not self.is_checkpointing_enabled():
            return -1
        return self._configuration.get(options.CHECKPOINTING_INTERVAL)

    def set_checkpoint_interval(self, checkpoint_interval: int) -> Self:
        """Set the shortest time between two epochs, in milliseconds.

        Raises:
            ConfigurationError: it is not positive.
        """
        if checkpoint_interval <= 0:
            message = f"the checkpoint interval must be positive, not {checkpoint_interval} ms"
            raise ConfigurationError(message)
        self._configuration.set(options.CHECKPOINTING_INTERVAL, checkpoint_interval)
        return self

    def set_checkpoint_timeout(self, checkpoint_timeout: int) -> Self:
        """Set how long an epoch may take, in milliseconds."""
        self._configuration.set(options.CHECKPOINTING_TIMEOUT, checkpoint_timeout)
        return self

    def get_checkpoint_timeout(self) -> int:
        """How long an epoch may take, in milliseconds."""
        return self._configuration.get(options.CHECKPOINTING_TIMEOUT)

    def set_min_pause_between_checkpoints(self, min_pause_between_checkpoints: int) -> Self:
        """Set the shortest time between the end of an epoch and the next one, in milliseconds.

        Raises:
            ConfigurationError: it is negative.
        """
        pause = min_pause_between_checkpoints
        if pause < 0:
            message = f"the pause between checkpoints must not be negative, but it is {pause} ms"
            raise ConfigurationError(message)
        self._configuration.set(options.CHECKPOINTING_MIN_PAUSE, pause)
        return self

    def get_min_pause_between_checkpoints(self) -> int:
        """The shortest time between the end of an epoch and the next one, in milliseconds."""
        return self._configuration.get(options.CHECKPOINTING_MIN_PAUSE)

    def set_max_concurrent_checkpoints(self, max_concurrent_checkpoints: int) -> Self:
        """Set how many checkpoints may be in progress at a time.

        Micro-batch execution has one at a time; a greater number is logged as having no effect.

        Raises:
            ConfigurationError: it is not positive.
        """
        if max_concurrent_checkpoints < 1:
            message = f"there cannot be {max_concurrent_checkpoints} checkpoints at a time"
            raise ConfigurationError(message)
        self._configuration.set(options.MAX_CONCURRENT_CHECKPOINTS, max_concurrent_checkpoints)
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """Return how many checkpoints may be in progress at a time, 1 unless set."""
        return self._configuration.get(options.MAX_CONCURRENT_CHECKPOINTS)

    # -- failures --------------------------------------------------------------------------

    def set_tolerable_checkpoint_failure_number(
        self, tolerable_checkpoint_failure_number: int
    ) -> Self:
        """Set how many epochs in a row may exceed the timeout without being failures of the job.

        Such an epoch is given up and run again at once; the restart strategy is not asked.

        Raises:
            ConfigurationError: the number is negative.
        """
        number = tolerable_checkpoint_failure_number
        self._configuration.set(options.TOLERABLE_FAILURES, number)
        return self

    def get_tolerable_checkpoint_failure_number(self) -> int:
        """How many epochs in a row may exceed the timeout without being failures of the job."""
        return self._configuration.get(options.TOLERABLE_FAILURES)

    def set_fail_on_checkpointing_errors(self, fail_on_checkpointing_errors: bool) -> Self:  # noqa: FBT001 - PyFlink's
        """Set whether no epoch may exceed the timeout, or any number."""
        return self.set_tolerable_checkpoint_failure_number(
            0 if fail_on_checkpointing_errors else _ANY_NUMBER
        )

    def is_fail_on_checkpointing_errors(self) -> bool:
        """Return whether no epoch may exceed the timeout."""
        return self.get_tolerable_checkpoint_failure_number() == 0

    # -- what is kept ----------------------------------------------------------------------

    def set_externalized_checkpoint_retention(
        self, retention_mode: ExternalizedCheckpointRetention
    ) -> Self:
        """Set what happens to the checkpoints of a job that is cancelled."""
        self._configuration.set(options.CHECKPOINT_RETENTION, retention_mode.name)
        return self

    def get_externalized_checkpoint_retention(self) -> ExternalizedCheckpointRetention:
        """Return what happens to the checkpoints of a job that is cancelled.

        As in Flink ``NO_EXTERNALIZED_CHECKPOINTS`` unless it is set, though checkpoints are then
        kept here.
        """
        if not self._configuration.contains(options.CHECKPOINT_RETENTION):
            return ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS
        return ExternalizedCheckpointRetention[
            self._configuration.get(options.CHECKPOINT_RETENTION)
        ]

    def is_externalized_checkpoints_enabled(self) -> bool:
        """Return whether checkpoints are set to outlive the job, as they do by default."""
        retention = self.get_externalized_checkpoint_retention()
        return retention is not ExternalizedCheckpointRetention.NO_EXTERNALIZED_CHECKPOINTS

    def set_checkpoint_storage(self, storage: CheckpointStorage) -> Self:
        """Set where checkpoints are kept (PyFlink 1's way; ``execution.checkpointing.dir``)."""
        directory = storage.get_checkpoint_path() or ""
        self._configuration.set(options.CHECKPOINTS_DIRECTORY, directory)
        return self

    def get_checkpoint_storage(self) -> CheckpointStorage:
        """Where checkpoints are kept."""
        return checkpoint_storage_of(self._configuration.get(options.CHECKPOINTS_DIRECTORY))

    # -- barriers --------------------------------------------------------------------------

    def enable_unaligned_checkpoints(self, enabled: bool = True) -> Self:  # noqa: FBT001, FBT002 - PyFlink's
        """Let barriers overtake records that wait, which become a part of the checkpoint."""
        self._configuration.set(options.UNALIGNED_CHECKPOINTS, enabled)
        return self

    def disable_unaligned_checkpoints(self) -> Self:
        """Let barriers wait for all that lies before them."""
        return self.enable_unaligned_checkpoints(enabled=False)

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether barriers may overtake; with epochs there are none."""
        return self._configuration.get(options.UNALIGNED_CHECKPOINTS)

    def set_force_unaligned_checkpoints(self, force_unaligned_checkpoints: bool = True) -> Self:  # noqa: FBT001, FBT002 - PyFlink's
        """Allow them also with ``partition_custom()``."""
        self._configuration.set(options.FORCE_UNALIGNED_CHECKPOINTS, force_unaligned_checkpoints)
        return self

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return whether they are allowed also with ``partition_custom()``."""
        return self._configuration.get(options.FORCE_UNALIGNED_CHECKPOINTS)

    def set_aligned_checkpoint_timeout(self, alignment_timeout: Duration) -> Self:
        """Set how long barriers wait, from the trigger on, before they overtake; 0: not at all."""
        milliseconds = alignment_timeout.to_millis()
        self._configuration.set(options.ALIGNED_CHECKPOINT_TIMEOUT, milliseconds)
        return self

    def get_aligned_checkpoint_timeout(self) -> Duration:
        """How long barriers wait before they overtake."""
        return Duration.of_millis(self._configuration.get(options.ALIGNED_CHECKPOINT_TIMEOUT))

    # The older names.
    set_alignment_timeout = set_aligned_checkpoint_timeout
    get_alignment_timeout = get_aligned_checkpoint_timeout

    # -- where -----------------------------------------------------------------------------

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> Self:
        """Set the directory of the checkpoints."""
        self._configuration.set(options.CHECKPOINTS_DIRECTORY, str(checkpoint_path))
        return self

    def get_checkpoint_storage_dir(self) -> str:
        """The directory of the checkpoints; empty if they live as long as the job."""
        return self._configuration.get(options.CHECKPOINTS_DIRECTORY)
