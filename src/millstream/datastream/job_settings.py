"""Job settings: what a program sets of its job, with PyFlink's methods.

What it is: another way to read and write a job's ``Configuration``.  What has no meaning here is
kept, so that its getter gives it back, and says once that it has none.
What it is not: sources and ``execute`` (``datastream/environment.py``).

Read next: ``configuration/options.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from millstream.configuration import options
from millstream.configuration.accepted import accept
from millstream.configuration.configuration import Configuration
from millstream.configuration.execution_config import ExecutionConfig
from millstream.configuration.parallelism import check_parallelism
from millstream.configuration.state_backends import state_backend_of
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.errors import ConfigurationError
from millstream.graph.job_files import cached_file_entry

if TYPE_CHECKING:
    from millstream.configuration.checkpointing_mode import CheckpointingMode
    from millstream.configuration.execution_mode import RuntimeExecutionMode
    from millstream.configuration.resources import SlotSharingGroup
    from millstream.configuration.restart_strategies import RestartStrategyConfiguration
    from millstream.configuration.state_backends import StateBackend

__all__ = ["JobSettings"]


class JobSettings:
    """The settings of a program under construction."""

    def __init__(self, configuration: Configuration) -> None:
        self._configuration = configuration
        #: Options of restart strategies before the program set one.
        self._configured_restart: dict[str, str] | None = None
        self._slot_sharing_groups: dict[str, SlotSharingGroup] = {}

    def get_configuration(self) -> Configuration:
        """The settings, to be read and written."""
        return self._configuration

    def get_config(self) -> ExecutionConfig:
        """The settings under the names of PyFlink's ``ExecutionConfig``."""
        return ExecutionConfig(self._configuration)

    def configure(self, configuration: Configuration) -> Self:
        """Take over all settings of ``configuration``."""
        self._configuration.add_all(configuration)
        return self

    def get_parallelism(self) -> int:
        """The parallelism of operators that have none of their own.

        Unless set, the number of processor cores that this process may use.
        """
        return self.get_config().get_parallelism()

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of operators that have none of their own."""
        self._configuration.set(options.PARALLELISM, check_parallelism(parallelism))
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups of operators that have none of their own.

        -1: derived from the parallelism of each operator.
        """
        return self.get_config().get_max_parallelism()

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups; it cannot be changed while a job keeps its state."""
        self.get_config().set_max_parallelism(max_parallelism)
        return self

    def set_runtime_mode(self, execution_mode: RuntimeExecutionMode) -> Self:
        """Set whether bounded programs give results as they come or final ones only."""
        self._configuration.set(options.RUNTIME_MODE, execution_mode.name)
        return self

    def enable_checkpointing(self, interval: int, mode: CheckpointingMode | None = None) -> Self:
        """Set the shortest time between two epochs.

        Args:
            interval: milliseconds.
            mode: what a record counts for after a failure; exactly-once unless set.

        Raises:
            ConfigurationError: the interval is not positive.
        """
        config = self.get_checkpoint_config().set_checkpoint_interval(interval)
        if mode is not None:
            config.set_checkpointing_mode(mode)
        return self

    def get_checkpoint_config(self) -> CheckpointConfig:
        """The checkpointing settings."""
        return CheckpointConfig(self._configuration)

    def get_checkpoint_interval(self) -> int:
        """The shortest time between two epochs in milliseconds; -1 if none is set."""
        return self.get_checkpoint_config().get_checkpoint_interval()

    def get_checkpointing_mode(self) -> CheckpointingMode:
        """What a record counts for after a failure."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """What a record counts for after a failure (Flink 2's name)."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Whether barriers may overtake records; with epochs there are none."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Whether they may also with ``partition_custom()``."""
        return self.get_checkpoint_config().is_force_unaligned_checkpoints()

    def set_state_backend(self, state_backend: StateBackend) -> Self:
        """Set where state lives while a task runs (PyFlink 1's way; ``state.backend.type``)."""
        state_backend.configure(self._configuration)
        return self

    def get_state_backend(self) -> StateBackend:
        """Where state lives while a task runs."""
        return state_backend_of(self._configuration)

    def enable_changelog_state_backend(self, enabled: bool) -> Self:  # noqa: FBT001 - PyFlink's
        """Accept it: checkpoints are small without a log of changes."""
        self._configuration.set(options.CHANGELOG_ENABLED, enabled)
        return self

    def is_changelog_state_backend_enabled(self) -> bool | None:
        """What was set, which has no effect; None if nothing was."""
        if not self._configuration.contains(options.CHANGELOG_ENABLED):
            return None
        return self._configuration.get(options.CHANGELOG_ENABLED)

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Accept a directory of savepoints, of which there are none yet."""
        self._configuration.set(options.SAVEPOINT_DIRECTORY, str(directory))
        return self

    def get_default_savepoint_directory(self) -> str | None:
        """The directory given; None without one."""
        return self._configuration.get(options.SAVEPOINT_DIRECTORY) or None

    def set_restart_strategy(self, restart_strategy: RestartStrategyConfiguration) -> Self:
        """Set when a failed job is run again (PyFlink 1's way; keys do the same).

        Each call takes the place of the one before; ``fall_back_restart()`` gives back what the
        configuration said before the first.
        """
        config, prefix = self._configuration, options.RESTART_STRATEGY_PREFIX
        now = {key: value for key, value in config.to_dict().items() if key.startswith(prefix)}
        if self._configured_restart is None:
            self._configured_restart = now
        for key in now:
            config.remove_config(key)
        config.add_all(Configuration({**self._configured_restart, **restart_strategy.entries}))
        return self

    # -- where tasks run ---------------------------------------------------------------------

    def get_default_local_parallelism(self) -> int:
        """The parallelism of operators that have none, on this machine: its cores unless set."""
        return self.get_parallelism()

    def set_default_local_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of operators that have none; ``set_parallelism`` is the same."""
        return self.set_parallelism(parallelism)

    def register_slot_sharing_group(self, slot_sharing_group: SlotSharingGroup) -> Self:
        """Keep what a group of operators would need.

        Raises:
            ConfigurationError: another group of its name has other resources.
        """
        name = slot_sharing_group.get_name()
        if self._slot_sharing_groups.setdefault(name, slot_sharing_group) != slot_sharing_group:
            message = f"slot sharing group {name!r} was registered with other resources before"
            raise ConfigurationError(message)
        accept("register_slot_sharing_group()", "Spark places tasks, by its own options")
        return self

    def set_buffer_timeout(self, timeout_millis: int) -> Self:
        """Say how long records may be gathered before they leave their task.

        With ``millstream.execution: pipelined``; of an epoch's they leave it batch by batch.

        Args:
            timeout_millis: milliseconds; -1: none.

        Raises:
            ConfigurationError: it is less than -1.
        """
        if timeout_millis < -1:
            message = f"the buffer timeout must be -1 or more, not {timeout_millis}"
            raise ConfigurationError(message)
        self._configuration.set(options.BUFFER_TIMEOUT_ENABLED, timeout_millis >= 0)
        if timeout_millis >= 0:
            self._configuration.set(options.BUFFER_TIMEOUT, timeout_millis)
        return self

    def get_buffer_timeout(self) -> int:
        """What was set, in milliseconds; -1: none."""
        if not self._configuration.get(options.BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._configuration.get(options.BUFFER_TIMEOUT)

    def disable_operator_chaining(self) -> Self:
        """Accept it: operators of one stage run in one task, results are the same."""
        self._configuration.set(options.OPERATOR_CHAINING, False)  # noqa: FBT003
        return self

    def is_chaining_enabled(self) -> bool:
        """Whether ``disable_operator_chaining`` has not been called."""
        return self._configuration.get(options.OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """What was set, which has no effect: operators of one stage run in one task."""
        return self._configuration.get(options.CHAINING_OF_DIFFERENT_MAX_PARALLELISM)

    # -- code and files ----------------------------------------------------------------------

    def set_python_executable(self, python_exec: str) -> Self:
        """Set the Python of the workers; by default that of this process."""
        self._configuration.set(options.PYTHON_EXECUTABLE, str(python_exec))
        return self

    def add_python_file(self, file_path: str) -> Self:
        """Ship a module, package or archive to the workers and put it on their path."""
        files = self._configuration.get(options.PYTHON_FILES)
        added = f"{files},{file_path}" if files else str(file_path)
        self._configuration.set(options.PYTHON_FILES, added)
        return self

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> Self:
        """Have packages installed where tasks run, by pip, once per machine.

        Args:
            requirements_file_path: a ``requirements.txt``.
            requirements_cache_dir: a directory of their wheels and source distributions, from
                which alone they are installed then, as on machines without network.
        """
        given = str(requirements_file_path)
        if requirements_cache_dir is not None:
            given = f"{given}#{requirements_cache_dir}"
        self._configuration.set(options.PYTHON_REQUIREMENTS, given)
        return self

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> Self:
        """Ship an archive to the workers and extract it in the directory that functions run in.

        Functions open what is in it by relative paths: ``open("data.zip/words.txt")``.

        Args:
            archive_path: a zip or tar archive, or a directory.
            target_dir: the name of the directory that it is extracted into; that of the archive
                unless given.
        """
        given = str(archive_path) if target_dir is None else f"{archive_path}#{target_dir}"
        archives = self._configuration.get(options.PYTHON_ARCHIVES)
        self._configuration.set(
            options.PYTHON_ARCHIVES, f"{archives},{given}" if archives else given
        )
        return self

    def register_cached_file(
        self,
        file_path: str,
        name: str,
        executable: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        """Ship a file or directory to the workers, where functions find it by its name.

        ``runtime_context.get_distributed_cache().get_file(name)`` is its path there.

        Args:
            file_path: a path or a ``file:`` URI.
            name: what functions call it.
            executable: whether it can be run.
        """
        files = self._configuration.get(options.CACHED_FILES)
        entry = cached_file_entry(str(file_path), name, executable=executable)
        self._configuration.set(options.CACHED_FILES, f"{files};{entry}" if files else entry)

    def add_jars(self, *jars_path: str) -> None:
        """Leave jars out, and say so once: connectors and formats are Python here.

        Programs of PyFlink name the jars of their connectors with it.
        """
        accept("add_jars()", f"Millstream needs no jars: {', '.join(jars_path)}")

    def add_classpaths(self, *classpaths: str) -> None:
        """Leave Java's classes out, and say so once."""
        accept("add_classpaths()", f"there is no JVM of Flink: {', '.join(classpaths)}")
