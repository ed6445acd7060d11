"""CheckpointConfig: the checkpointing settings of an environment, with PyFlink's methods.

What it is: another way to read and write the ``execution.checkpointing.*`` keys.
What it is not: a store of its own.

Read next: ``configuration/configuration.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self

from millstream.configuration import options
from millstream.datastream.checkpointing_mode import CheckpointingMode
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration

__all__ = ["CheckpointConfig"]


class CheckpointConfig:
    """The checkpointing settings.

    An epoch is a checkpoint here: checkpoints never overlap, and each is complete before the
    next begins.  So Flink's settings for unaligned checkpoints have no place, and that for
    concurrent ones has no effect.
    """

    DEFAULT_MODE: Final = CheckpointingMode.EXACTLY_ONCE

    def __init__(self, configuration: Configuration) -> None:
        """Take the configuration to read and write."""
        self._configuration = configuration

    def is_checkpointing_enabled(self) -> bool:
        """Whether an interval is set."""
        return self._configuration.contains_key(options.CHECKPOINTING_INTERVAL.key)

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """The mode, exactly-once unless set."""
        return CheckpointingMode[self._configuration.get(options.CHECKPOINTING_MODE)]

    def set_checkpointing_mode(self, checkpointing_mode: CheckpointingMode) -> Self:
        """Set the mode."""
        self._configuration.set(options.CHECKPOINTING_MODE, checkpointing_mode.name)
        return self

    def set_checkpointing_consistency_mode(self, checkpointing_mode: CheckpointingMode) -> Self:
        """Set the mode (Flink 2's name)."""
        return self.set_checkpointing_mode(checkpointing_mode)

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
        """Accept an upper bound; there is one checkpoint at a time, whatever it is.

        Raises:
            ConfigurationError: it is not positive.
        """
        if max_concurrent_checkpoints < 1:
            message = f"there cannot be {max_concurrent_checkpoints} checkpoints at a time"
            raise ConfigurationError(message)
        return self

    def get_max_concurrent_checkpoints(self) -> int:
        """How many checkpoints there are at a time: 1."""
        return 1

    def set_checkpoint_storage_dir(self, checkpoint_path: str) -> Self:
        """Set the directory of the checkpoints."""
        self._configuration.set(options.CHECKPOINTS_DIRECTORY, str(checkpoint_path))
        return self
