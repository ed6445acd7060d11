"""ExecutionConfig: PyFlink's ``env.get_config()`` over the keys of the configuration.

Settings of the JVM and of Flink's internals are kept and logged once as having no effect.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final, Self

from millstream.configuration import options
from millstream.configuration.option import parse_map, parse_string
from millstream.configuration.resources import (
    available_cores,
    check_max_parallelism,
    check_parallelism,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from millstream.configuration.configuration import Configuration


_CLOSURE_CLEANER: Final = "pipeline.closure-cleaner-level"


def _accept(key: str, value: str) -> Callable[[ExecutionConfig], ExecutionConfig]:
    """Return a method that keeps a value that has no effect."""

    def method(self: ExecutionConfig) -> ExecutionConfig:
        """Accept it, without effect."""
        self._configuration.set_string(key, value)
        return self

    return method


def _flag(key: str) -> Callable[[ExecutionConfig], bool]:
    """Return a method that reads a value that has no effect."""

    def method(self: ExecutionConfig) -> bool:
        """Return what was set; False before."""
        return self._configuration.get_boolean(key, default_value=False)

    return method


def _number(key: str, default: int) -> Callable[[ExecutionConfig], int]:
    """Return a method that reads a number that has no effect."""

    def method(self: ExecutionConfig) -> int:
        """Return what was set; Flink's default before."""
        return self._configuration.get_integer(key, default)

    return method


class ExecutionConfig:
    """The settings of a program."""

    #: Takes a parallelism back that was set before.
    PARALLELISM_DEFAULT: Final = -1
    #: Leaves the parallelism as it is.
    PARALLELISM_UNKNOWN: Final = -2

    def __init__(self, configuration: Configuration) -> None:
        """Take the configuration to read and write."""
        self._configuration = configuration

    # -- with a meaning here -------------------------------------------------------------------

    def get_parallelism(self) -> int:
        """The parallelism of operators that have none of their own.

        Unless set, the number of processor cores that this process may use.
        """
        return self._configuration.get(options.PARALLELISM) or available_cores()

    def set_parallelism(self, parallelism: int) -> Self:
        """Set the parallelism of operators that have none of their own."""
        if parallelism == self.PARALLELISM_DEFAULT:
            self._configuration.remove_config(options.PARALLELISM.key)
        elif parallelism != self.PARALLELISM_UNKNOWN:
            self._configuration.set(options.PARALLELISM, check_parallelism(parallelism))
        return self

    def get_max_parallelism(self) -> int:
        """Return the number of key groups of operators that have none of their own.

        -1: derived from the parallelism of each operator.
        """
        return self._configuration.get(options.MAX_PARALLELISM)

    def set_max_parallelism(self, max_parallelism: int) -> Self:
        """Set the number of key groups; it cannot be changed while a job keeps its state."""
        self._configuration.set(options.MAX_PARALLELISM, check_max_parallelism(max_parallelism))
        return self

    def get_auto_watermark_interval(self) -> int:
        """Return the milliseconds between two periodic watermarks of a split; 0: there are none.

        It is 200 while it is not set; then there are also watermarks after every batch of records.
        """
        return self._configuration.get(options.AUTO_WATERMARK_INTERVAL)

    def set_auto_watermark_interval(self, interval: int) -> Self:
        """Set the time between two periodic watermarks in milliseconds; 0: none."""
        self._configuration.set(options.AUTO_WATERMARK_INTERVAL, interval)
        return self

    def get_global_job_parameters(self) -> dict[str, str]:
        """The program's own parameters; functions get them by ``get_job_parameter``."""
        return self._configuration.get(options.GLOBAL_JOB_PARAMETERS).copy()

    def set_global_job_parameters(self, global_job_parameters_dict: Mapping[str, object]) -> Self:
        """Set the program's own parameters in the place of those set before; values become text."""
        self._configuration.set(
            options.GLOBAL_JOB_PARAMETERS, parse_map(dict(global_job_parameters_dict))
        )
        return self

    def enable_auto_generated_uids(self) -> Self:
        """Let operators do without a uid, as they may unless this is disabled."""
        self._configuration.set(options.AUTO_GENERATE_UIDS, True)  # noqa: FBT003
        return self

    def disable_auto_generated_uids(self) -> Self:
        """Refuse a job in which an operator has no uid of its own."""
        self._configuration.set(options.AUTO_GENERATE_UIDS, False)  # noqa: FBT003
        return self

    def has_auto_generated_uids_enabled(self) -> bool:
        """Return whether operators may do without a uid."""
        return self._configuration.get(options.AUTO_GENERATE_UIDS)

    def set_latency_tracking_interval(self, interval: int) -> Self:
        """Set the milliseconds between two latency markers of a source; 0: none."""
        self._configuration.set(options.METRICS_LATENCY_INTERVAL, interval)
        return self

    def get_latency_tracking_interval(self) -> int:
        """Return the milliseconds between two latency markers of a source."""
        return self._configuration.get(options.METRICS_LATENCY_INTERVAL)

    # -- kept without effect -------------------------------------------------------------------

    enable_closure_cleaner = _accept(_CLOSURE_CLEANER, "RECURSIVE")
    disable_closure_cleaner = _accept(_CLOSURE_CLEANER, "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """Return what was set; True before."""
        return self._configuration.get_string(_CLOSURE_CLEANER, "RECURSIVE").upper() != "NONE"

    def set_task_cancellation_interval(self, interval: int) -> Self:
        """Accept it, without effect."""
        return self._keep("task.cancellation.interval", interval)

    get_task_cancellation_interval = _number("task.cancellation.interval", 30_000)

    def set_task_cancellation_timeout(self, timeout: int) -> Self:
        """Accept it, without effect."""
        return self._keep("task.cancellation.timeout", timeout)

    get_task_cancellation_timeout = _number("task.cancellation.timeout", 180_000)

    # There is no Kryo; types define how values are written.
    enable_force_kryo = _accept("pipeline.force-kryo", "true")
    disable_force_kryo = _accept("pipeline.force-kryo", "false")
    is_force_kryo_enabled = _flag("pipeline.force-kryo")
    enable_force_avro = _accept("pipeline.force-avro", "true")
    disable_force_avro = _accept("pipeline.force-avro", "false")
    is_force_avro_enabled = _flag("pipeline.force-avro")
    enable_generic_types = _accept("pipeline.generic-types", "true")
    disable_generic_types = _accept("pipeline.generic-types", "false")

    def has_generic_types_disabled(self) -> bool:
        """Return what was set; False before."""
        return not self._configuration.get_boolean("pipeline.generic-types", default_value=True)

    # Records are never copied between operators of a stage.
    enable_object_reuse = _accept("pipeline.object-reuse", "true")
    disable_object_reuse = _accept("pipeline.object-reuse", "false")
    is_object_reuse_enabled = _flag("pipeline.object-reuse")

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> Self:  # noqa: FBT001 - PyFlink's
        """Accept it, without effect."""
        return self._keep("execution.checkpointing.snapshot-compression", use_snapshot_compression)

    is_use_snapshot_compression = _flag("execution.checkpointing.snapshot-compression")

    def _keep(self, key: str, value: object) -> Self:
        self._configuration.set_string(key, parse_string(value))
        return self

    def __eq__(self, other: object) -> bool:
        """Return whether both are settings of equal configurations."""
        return isinstance(other, ExecutionConfig) and self._configuration == other._configuration

    def __hash__(self) -> int:
        """Equal settings have equal hashes."""
        return hash(self._configuration)


class RuntimeExecutionMode(Enum):
    """How bounded programs run."""

    #: Results as they come.
    STREAMING = 0
    #: Final results only; every source must be bounded.
    BATCH = 1
    #: BATCH if every source is bounded.
    AUTOMATIC = 2
