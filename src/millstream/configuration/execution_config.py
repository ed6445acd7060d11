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
    from collections.abc import Mapping

    from millstream.configuration.configuration import Configuration


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

    # -- kept without effect -------------------------------------------------------------------

    def enable_closure_cleaner(self) -> Self:
        """Accept it: functions are pickled with what they use of their surroundings."""
        return self._keep("pipeline.closure-cleaner-level", "RECURSIVE")

    def disable_closure_cleaner(self) -> Self:
        """Accept it, without effect."""
        return self._keep("pipeline.closure-cleaner-level", "NONE")

    def is_closure_cleaner_enabled(self) -> bool:
        """What was set; True before."""
        key = "pipeline.closure-cleaner-level"
        return self._configuration.get_string(key, "RECURSIVE").upper() != "NONE"

    def set_latency_tracking_interval(self, interval: int) -> Self:
        """Accept it, without effect."""
        return self._keep("metrics.latency.interval", interval)

    def get_latency_tracking_interval(self) -> int:
        """What was set; 0 before."""
        return self._configuration.get_integer("metrics.latency.interval", 0)

    def set_task_cancellation_interval(self, interval: int) -> Self:
        """Accept it, without effect."""
        return self._keep("task.cancellation.interval", interval)

    def get_task_cancellation_interval(self) -> int:
        """What was set; Flink's 30,000 before."""
        return self._configuration.get_integer("task.cancellation.interval", 30_000)

    def set_task_cancellation_timeout(self, timeout: int) -> Self:
        """Accept it, without effect."""
        return self._keep("task.cancellation.timeout", timeout)

    def get_task_cancellation_timeout(self) -> int:
        """What was set; Flink's 180,000 before."""
        return self._configuration.get_integer("task.cancellation.timeout", 180_000)

    def enable_force_kryo(self) -> Self:
        """Accept it: there is no Kryo here."""
        return self._keep("pipeline.force-kryo", value=True)

    def disable_force_kryo(self) -> Self:
        """Accept it, without effect."""
        return self._keep("pipeline.force-kryo", value=False)

    def is_force_kryo_enabled(self) -> bool:
        """What was set; False before."""
        return self._configuration.get_boolean("pipeline.force-kryo", default_value=False)

    def enable_force_avro(self) -> Self:
        """Accept it: types say how values are written."""
        return self._keep("pipeline.force-avro", value=True)

    def disable_force_avro(self) -> Self:
        """Accept it, without effect."""
        return self._keep("pipeline.force-avro", value=False)

    def is_force_avro_enabled(self) -> bool:
        """What was set; False before."""
        return self._configuration.get_boolean("pipeline.force-avro", default_value=False)

    def enable_generic_types(self) -> Self:
        """Accept it, without effect."""
        return self._keep("pipeline.generic-types", value=True)

    def disable_generic_types(self) -> Self:
        """Accept it: Flink would refuse types of Java that go through Kryo."""
        return self._keep("pipeline.generic-types", value=False)

    def has_generic_types_disabled(self) -> bool:
        """What was set; False before."""
        return not self._configuration.get_boolean("pipeline.generic-types", default_value=True)

    def enable_object_reuse(self) -> Self:
        """Accept it: records are never copied between operators of a stage."""
        return self._keep("pipeline.object-reuse", value=True)

    def disable_object_reuse(self) -> Self:
        """Accept it, without effect."""
        return self._keep("pipeline.object-reuse", value=False)

    def is_object_reuse_enabled(self) -> bool:
        """What was set; False before."""
        return self._configuration.get_boolean("pipeline.object-reuse", default_value=False)

    def set_use_snapshot_compression(self, use_snapshot_compression: bool) -> Self:  # noqa: FBT001 - PyFlink's
        """Accept it, without effect."""
        key = "execution.checkpointing.snapshot-compression"
        return self._keep(key, value=use_snapshot_compression)

    def is_use_snapshot_compression(self) -> bool:
        """What was set; False before."""
        key = "execution.checkpointing.snapshot-compression"
        return self._configuration.get_boolean(key, default_value=False)

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
