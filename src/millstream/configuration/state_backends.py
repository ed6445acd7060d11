"""State backends and checkpoint storages as PyFlink's programs configure them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from millstream.configuration import options
from millstream.configuration.flink_options import accept
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from millstream.configuration.configuration import Configuration


class PredefinedOptions(Enum):
    """Flink's sets of options of RocksDB, for kinds of disks; without effect here."""

    DEFAULT = 0
    SPINNING_DISK_OPTIMIZED = 1
    SPINNING_DISK_OPTIMIZED_HIGH_MEM = 2
    FLASH_SSD_OPTIMIZED = 3


class StateBackend(ABC):
    """Where state lives while a task runs."""

    @abstractmethod
    def configure(self, configuration: Configuration) -> None:
        """Choose it in the options of a job."""


class HashMapStateBackend(StateBackend):
    """State in memory, of which each checkpoint holds all: for small state."""

    def configure(self, configuration: Configuration) -> None:
        configuration.set(options.STATE_BACKEND, "hashmap")

    def __str__(self) -> str:
        return "HashMapStateBackend"


class EmbeddedRocksDBStateBackend(StateBackend):
    """State in RocksDB, on disk, of which a checkpoint uploads what is new: for state of any size.

    Args:
        enable_incremental_checkpointing: has no effect, checkpoints are always incremental.
    """

    def __init__(
        self,
        enable_incremental_checkpointing: bool | None = None,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if enable_incremental_checkpointing not in {None, True, False}:
            message = (
                "enable_incremental_checkpointing must be True, False or None, not "
                f"{enable_incremental_checkpointing!r}"
            )
            raise ConfigurationError(message)
        if enable_incremental_checkpointing is False:
            accept(
                "EmbeddedRocksDBStateBackend(enable_incremental_checkpointing=False)",
                "checkpoints of RocksDB are always incremental",
            )
        self._paths: list[str] = []
        self._predefined = PredefinedOptions.DEFAULT
        self._factory: str | None = None
        self._transfer_threads = 4  # Flink's default

    def configure(self, configuration: Configuration) -> None:
        """Choose it, and the directory of its files, in the options of a job."""
        configuration.set(options.STATE_BACKEND, "rocksdb")
        if self._paths:
            configuration.set(options.LOCAL_DIRECTORY, self._paths[0])

    def set_db_storage_paths(self, *paths: str) -> None:
        """Set the directory of the working state (``millstream.local-directory``).

        Args:
            paths: one; of several the first is taken.  None: the default.
        """
        if len(paths) > 1:
            accept(
                "all but the first of set_db_storage_paths()",
                "the working state of a job lies in one directory",
            )
        self._paths = [_local_path(str(path)) for path in paths if path is not None]

    def get_db_storage_paths(self) -> list[str]:
        """The directories given."""
        return list(self._paths)

    def is_incremental_checkpoints_enabled(self) -> bool:
        """True."""
        return True

    def set_predefined_options(self, options: PredefinedOptions) -> None:
        """Accept options of RocksDB; its options are those that suit an epoch."""
        self._predefined = PredefinedOptions(options)
        if self._predefined is not PredefinedOptions.DEFAULT:
            accept("set_predefined_options()", "RocksDB has options that suit Millstream")

    def get_predefined_options(self) -> PredefinedOptions:
        """Those given."""
        return self._predefined

    def set_options(self, options_factory_class_name: str) -> None:
        """Accept the name of a Java class, which nobody can call here."""
        self._factory = options_factory_class_name
        accept("set_options()", "a factory of options is a Java class, and there is no Java here")

    def get_options(self) -> str | None:
        """The name given."""
        return self._factory

    def set_number_of_transfer_threads(self, number_of_transfering_threads: int) -> None:
        """Accept a number; files are uploaded one after the other.

        Raises:
            ConfigurationError: it is not positive.
        """
        if number_of_transfering_threads < 1:
            message = (
                f"there cannot be {number_of_transfering_threads} threads to transfer files with"
            )
            raise ConfigurationError(message)
        self._transfer_threads = number_of_transfering_threads
        accept("set_number_of_transfer_threads()", "a task uploads one file after the other")

    def get_number_of_transfer_threads(self) -> int:
        """The number given."""
        return self._transfer_threads

    def __str__(self) -> str:
        return "EmbeddedRocksDBStateBackend"


class _NamedStateBackend(StateBackend):
    """One of another package, by the name of its entry point."""

    def __init__(self, name: str) -> None:
        self._name = name

    def configure(self, configuration: Configuration) -> None:
        configuration.set(options.STATE_BACKEND, self._name)

    def __str__(self) -> str:
        return self._name


def state_backend_of(configuration: Configuration) -> StateBackend:
    """Return the backend that the options of a job choose."""
    name = configuration.get(options.STATE_BACKEND)
    if name == "hashmap":
        return HashMapStateBackend()
    if name != "rocksdb":
        return _NamedStateBackend(name)
    backend = EmbeddedRocksDBStateBackend()
    if directory := configuration.get(options.LOCAL_DIRECTORY):
        backend.set_db_storage_paths(directory)
    return backend


def _local_path(path: str) -> str:
    """The path of a ``file:`` URI, without a slash at its end, as Flink reads it."""
    split = urlsplit(path)
    local = split.path if split.scheme == "file" else path
    return local if local == "/" else local.removesuffix("/")


_MEBIBYTE: Final = 1 << 20


class ExternalizedCheckpointRetention(Enum):
    """The fate of the checkpoints of a job that ends before its input does."""

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
