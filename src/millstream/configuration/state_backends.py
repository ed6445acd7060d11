"""State backends as PyFlink's programs name them: what the ``state.backend.*`` options say.

What it is: ``HashMapStateBackend`` and ``EmbeddedRocksDBStateBackend`` as values.
What it is not: the stores, which are in ``state/backends/``.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum
from typing import TYPE_CHECKING
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
            accept("set_predefined_options()", "RocksDB has the options that suit an epoch")

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
