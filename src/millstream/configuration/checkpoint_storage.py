"""Where checkpoints are kept, and for how long, as PyFlink's programs say it.

What it is: ``JobManagerCheckpointStorage`` and ``FileSystemCheckpointStorage`` as values that
choose the checkpoint directory; ``ExternalizedCheckpointRetention``.
What it is not: the storage itself (``contracts/checkpoint_storage.py``).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import Final

from millstream.errors import ConfigurationError

_MEBIBYTE: Final = 1 << 20


class ExternalizedCheckpointRetention(Enum):
    """What happens to the checkpoints of a job that ends before its input does."""

    #: Those of a cancelled job are deleted, those of one that failed are kept.
    DELETE_ON_CANCELLATION = 0
    #: They are kept, so that the job can be run again from them.
    RETAIN_ON_CANCELLATION = 1
    #: They are deleted however the job ends.
    NO_EXTERNALIZED_CHECKPOINTS = 2


class CheckpointStorage(ABC):
    """Where checkpoints are kept."""

    @abstractmethod
    def get_checkpoint_path(self) -> str | None:
        """The directory of the checkpoints; None if no run outlives its process."""

    def get_savepoint_path(self) -> str | None:
        """The directory of savepoints: None, each is given its own."""
        return None


class JobManagerCheckpointStorage(CheckpointStorage):
    """Checkpoints that live as long as the job: in a temporary directory.

    They survive restarts of the job, not the end of its process.  Their size has no limit here,
    for they are files all the same.

    Args:
        checkpoint_path: a directory to keep them in after all.
        max_state_size: has no effect.
    """

    DEFAULT_MAX_STATE_SIZE: Final = 5 * _MEBIBYTE

    def __init__(
        self, checkpoint_path: str | None = None, max_state_size: int | None = None
    ) -> None:
        self._checkpoint_path = None if checkpoint_path is None else str(checkpoint_path)
        self._max_state_size = (
            self.DEFAULT_MAX_STATE_SIZE if max_state_size is None else max_state_size
        )

    def get_checkpoint_path(self) -> str | None:
        """The directory given; None without one."""
        return self._checkpoint_path

    def get_max_state_size(self) -> int:
        """The number given, which has no effect."""
        return self._max_state_size

    def __str__(self) -> str:
        return f"JobManagerCheckpointStorage({self._checkpoint_path or 'temporary'})"


class FileSystemCheckpointStorage(CheckpointStorage):
    """Checkpoints in a directory, from which another run of the program goes on.

    Args:
        checkpoint_path: the directory.
        file_state_size_threshold: has no effect.
        write_buffer_size: has no effect.

    Raises:
        ConfigurationError: there is no path.
    """

    MAX_FILE_STATE_THRESHOLD: Final = _MEBIBYTE
    #: Flink's defaults.
    _THRESHOLD: Final = 20 * 1024
    _WRITE_BUFFER: Final = 4096

    def __init__(
        self,
        checkpoint_path: str | None = None,
        file_state_size_threshold: int | None = None,
        write_buffer_size: int = -1,
    ) -> None:
        if not checkpoint_path:
            message = "FileSystemCheckpointStorage needs the path of a directory"
            raise ConfigurationError(message)
        path = str(checkpoint_path)
        is_root = path.endswith(("//", ":/")) or path == "/"
        self._checkpoint_path = path if is_root else path.removesuffix("/")  # as Flink's Path
        given = -1 if file_state_size_threshold is None else file_state_size_threshold
        self._threshold = self._THRESHOLD if given < 0 else given
        self._write_buffer_size = (
            max(self._threshold, self._WRITE_BUFFER) if write_buffer_size < 0 else write_buffer_size
        )

    def get_checkpoint_path(self) -> str:
        return self._checkpoint_path

    def get_min_file_size_threshold(self) -> int:
        """The number given, which has no effect: state is always in files of its own."""
        return self._threshold

    def get_write_buffer_size(self) -> int:
        """The number given, which has no effect."""
        return self._write_buffer_size

    def __str__(self) -> str:
        return f"FileSystemCheckpointStorage({self._checkpoint_path})"


def checkpoint_storage_of(directory: str) -> CheckpointStorage:
    """The storage that an option's checkpoint directory stands for."""
    if directory:
        return FileSystemCheckpointStorage(directory)
    return JobManagerCheckpointStorage()
