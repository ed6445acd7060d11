"""StreamExecutionEnvironment: the sources and settings of a program, and ``execute``."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, cast

import pyarrow as pa

from millstream.configuration import options
from millstream.configuration.configuration import Configuration
from millstream.configuration.execution_config import ExecutionConfig
from millstream.configuration.flink_options import accept
from millstream.configuration.resources import check_parallelism
from millstream.configuration.state_backends import state_backend_of
from millstream.contracts.source import Source
from millstream.datastream.checkpoint_config import CheckpointConfig
from millstream.datastream.data_stream import DataStream
from millstream.datastream.running_jobs import (
    RunningJobs,
    note_job,
    note_operator,
    note_use,
    wait_for,
)
from millstream.datastream.type_choice import check_strategy
from millstream.engines import registry
from millstream.errors import ConfigurationError, ProgramError
from millstream.execution.job_client import JobClient
from millstream.functions.functions import SourceFunction
from millstream.functions.watermark_strategy import TimeOrigin, WatermarkStrategy, field_timestamps
from millstream.graph.explain import execution_plan
from millstream.graph.job_files import cached_file_entry
from millstream.graph.model import caller_location
from millstream.graph.transformation import DEAD_LETTER_TAG, SourceTransformation
from millstream.graph.translate import translate
from millstream.object_stores import StoreOptions
from millstream.types.type_information import check_type_argument
from millstream.types.types import Types, from_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from millstream.configuration.execution_config import RuntimeExecutionMode
    from millstream.configuration.options import CheckpointingMode
    from millstream.configuration.resources import SlotSharingGroup
    from millstream.configuration.restart_strategies import RestartStrategyConfiguration
    from millstream.configuration.state_backends import StateBackend
    from millstream.execution.job_client import JobExecutionResult, JobHandle
    from millstream.graph.model import JobGraph
    from millstream.graph.transformation import PhysicalTransformation
    from millstream.types.types import TypeInformation


class Submitter(Protocol):
    """Starts a job; ``millstream.engines.registry.submit`` is one."""

    def __call__(self, job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle:
        """Check and start the job."""


class ProgramAbortError(BaseException):
    """Ends a program at ``execute``, once its job has been caught.

    Not an Exception, so that a program's own ``except Exception`` does not keep it.
    """


@dataclass(slots=True)
class ExecutionContext:
    """Defaults of the process."""

    #: Configuration keys and values that programs may override.
    defaults: dict[str, str] = field(default_factory=dict)
    #: Starts jobs; None: the engine that the job names.
    submitter: Submitter | None = None


_current = ExecutionContext()


def current_context() -> ExecutionContext:
    """The context in force."""
    return _current


@contextlib.contextmanager
def execution_context(
    defaults: dict[str, str] | None = None, submitter: Submitter | None = None
) -> Iterator[ExecutionContext]:
    """Run programs with other defaults or another way to start jobs.

    Args:
        defaults: configuration keys and values that programs may override.
        submitter: starts jobs; by default the engine that the job names.
    """
    global _current  # noqa: PLW0603 - one per process, as the environment needs to find it
    before = _current
    _current = ExecutionContext(dict(defaults or {}), submitter)
    try:
        yield _current
    finally:
        _current = before


@contextlib.contextmanager
def capture_job_graphs(defaults: dict[str, str] | None = None) -> Iterator[list[JobGraph]]:
    """Catch the job of a program instead of running it.

    The program ends at its first ``execute``; the list given then holds that job's graph.

    Args:
        defaults: configuration keys and values that programs may override.
    """
    caught: list[JobGraph] = []
    note_use()  # whoever captures says himself that nothing was executed

    def catch(job_graph: JobGraph, *, spark_dataframes: list[object]) -> JobHandle:
        del spark_dataframes
        caught.append(job_graph)
        raise ProgramAbortError

    with execution_context(defaults, catch), contextlib.suppress(ProgramAbortError):
        yield caught


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
        """Return what a record counts for after a failure."""
        return self.get_checkpoint_config().get_checkpointing_mode()

    def get_checkpointing_consistency_mode(self) -> CheckpointingMode:
        """Return what a record counts for after a failure (Flink 2's name)."""
        return self.get_checkpointing_mode()

    def is_unaligned_checkpoints_enabled(self) -> bool:
        """Return whether barriers may overtake records; with epochs there are none."""
        return self.get_checkpoint_config().is_unaligned_checkpoints_enabled()

    def is_force_unaligned_checkpoints(self) -> bool:
        """Return whether they may also with ``partition_custom()``."""
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
        """Return what was set, which has no effect; None if nothing was."""
        if not self._configuration.contains(options.CHANGELOG_ENABLED):
            return None
        return self._configuration.get(options.CHANGELOG_ENABLED)

    def set_default_savepoint_directory(self, directory: str) -> Self:
        """Set where savepoints are written if no directory is given with the request."""
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

    get_default_local_parallelism = get_parallelism
    set_default_local_parallelism = set_parallelism

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
        """Return what was set, in milliseconds; -1: none."""
        if not self._configuration.get(options.BUFFER_TIMEOUT_ENABLED):
            return -1
        return self._configuration.get(options.BUFFER_TIMEOUT)

    def disable_operator_chaining(self) -> Self:
        """Accept it: operators of one stage run in one task, results are the same."""
        self._configuration.set(options.OPERATOR_CHAINING, False)  # noqa: FBT003
        return self

    def is_chaining_enabled(self) -> bool:
        """Return whether ``disable_operator_chaining`` has not been called."""
        return self._configuration.get(options.OPERATOR_CHAINING)

    def is_chaining_of_operators_with_different_max_parallelism_enabled(self) -> bool:
        """Return what was set, which has no effect: operators of one stage run in one task."""
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


#: Where Spark notes ``withWatermark`` in the metadata of the event-time column.
_WATERMARK_DELAY: Final = "spark.watermarkDelayMs"

_SIMPLE: Final[dict[str, pa.DataType]] = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}


def type_of_spark(schema: dict[str, object]) -> TypeInformation:
    """The ROW type of ``df.schema.jsonValue()``."""
    return from_arrow_schema(arrow_schema_of_spark(schema))


def arrow_schema_of_spark(schema: dict[str, object]) -> pa.Schema:
    """The Arrow schema of ``df.schema.jsonValue()``; types without a match become strings."""
    return pa.schema(_fields(schema))


def strategy_of_spark(schema: dict[str, object], strategy: WatermarkStrategy) -> WatermarkStrategy:
    """The strategy with which a DataFrame is read.

    Args:
        schema: ``df.schema.jsonValue()``.
        strategy: the user's; one that preserves is turned into that of ``withWatermark``.

    Raises:
        ProgramError: the DataFrame has no watermark to preserve, or sources are to be aligned.
    """
    if strategy.alignment is not None:
        message = (
            "with_watermark_alignment() cannot be used with from_spark(): Spark reads its sources "
            "by itself and does not wait; limit what they read (maxFilesPerTrigger, "
            "maxOffsetsPerTrigger) instead"
        )
        raise ProgramError(message)
    if strategy.origin is not TimeOrigin.PRESERVED:
        return strategy
    for column in cast("list[dict[str, object]]", schema["fields"]):
        metadata = cast("dict[str, object]", column.get("metadata") or {})
        if _WATERMARK_DELAY in metadata:
            delay = cast("int", metadata[_WATERMARK_DELAY])
            made = WatermarkStrategy.for_bounded_out_of_orderness(delay)
            assigner = strategy.timestamp_assigner or field_timestamps(str(column["name"]))
            made = made.with_timestamp_assigner(assigner)
            if strategy.idle_timeout is not None:
                made = made.with_idleness(strategy.idle_timeout)
            return made
    message = (
        "WatermarkStrategy.preserve() needs a DataFrame with a watermark: call "
        'withWatermark("column", "delay") before from_spark()'
    )
    raise ProgramError(message)


def _fields(schema: dict[str, object]) -> list[pa.Field]:
    fields = cast("list[dict[str, object]]", schema["fields"])
    return [
        pa.field(str(field["name"]), _arrow(field["type"]), nullable=bool(field["nullable"]))
        for field in fields
    ]


def _arrow(described: object) -> pa.DataType:
    if isinstance(described, str):
        if described.startswith("decimal("):
            precision, scale = described[len("decimal(") : -1].split(",")
            return pa.decimal128(int(precision), int(scale))
        return _SIMPLE.get(described, pa.string())
    nested = cast("dict[str, object]", described)
    if nested["type"] == "array":
        return pa.list_(_arrow(nested["elementType"]))
    if nested["type"] == "map":
        return pa.map_(_arrow(nested["keyType"]), _arrow(nested["valueType"]))
    if nested["type"] == "struct":
        return pa.struct(_fields(nested))
    return pa.string()


_DEFAULT_NAME: Final = "Millstream Streaming Job"


class InputFormat(Protocol):
    """An input of ``create_input``."""

    def create_source(self) -> Source:
        """The source that reads it."""


class StreamExecutionEnvironment(JobSettings):
    """A program under construction: its settings and the operators made so far."""

    def __init__(self, configuration: Configuration) -> None:
        """Use ``get_execution_environment``."""
        super().__init__(configuration)
        self._transformations: list[PhysicalTransformation] = []
        self._spark_dataframes: list[Any] = []
        self._last_id = 0
        self._jobs = RunningJobs()

    def __repr__(self) -> str:
        """How much the program has so far."""
        count = len(self._transformations)
        operators = f"{count} operator{'' if count == 1 else 's'}"
        return f"<{type(self).__name__} with {operators}, parallelism {self.get_parallelism()}>"

    @staticmethod
    def get_execution_environment(
        configuration: Configuration | None = None,
    ) -> StreamExecutionEnvironment:
        """Make an environment.

        Args:
            configuration: settings; copied.  They win over what the command line gives.
        """
        context = current_context()
        own = Configuration.from_environment()
        for key, value in context.defaults.items():
            own.set_string(key, value)
        if configuration is not None:
            own.add_all(configuration)
        return StreamExecutionEnvironment(own)

    # -- sources ---------------------------------------------------------------------------

    def from_source(
        self,
        source: Source,
        watermark_strategy: WatermarkStrategy | None,
        source_name: str,
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Read a source.

        Records that it could not parse, if its options say so, are on the side output
        ``OutputTag("dead-letter")`` as ROW(place, raw, error).

        Args:
            source: what to read.
            watermark_strategy: timestamps and watermarks; None: the source's timestamps, no
                watermarks.
            source_name: shown in plans, metrics and messages; identifies the source when the
                job restarts, unless it has a uid.
            type_info: the type of the records, if the source does not know it itself.
        """
        given: object = source  # what it really is, a type checker notwithstanding
        if not isinstance(given, Source):
            message = f"from_source() needs a Source, not {given!r}"
            raise ProgramError(message)
        # It may look into its files for their schema.
        source = source.opened_with(StoreOptions.of(self._configuration).access)
        return self._read(
            f"Source: {source_name}",
            type_info or source.produced_type,
            source=source,
            watermark_strategy=watermark_strategy,
        )

    def create_input(
        self, input_format: InputFormat, type_info: TypeInformation | None = None
    ) -> DataStream:
        """Read an input format, such as ``AvroInputFormat``; without watermarks.

        Args:
            input_format: what to read.
            type_info: the type of the records, if the format does not know it itself.
        """
        return self.from_source(input_format.create_source(), None, "Custom File Source", type_info)

    def from_collection(
        self, collection: Iterable[object], type_info: TypeInformation | None = None
    ) -> DataStream:
        """Read values of the program itself, with parallelism 1.

        Args:
            collection: the records, in order.
            type_info: their type; without it they are pickled.
        """
        from millstream.connectors.basic.collection import CollectionSource

        check_type_argument(type_info, "the type_info of from_collection()")
        given: object = collection  # what it really is, a type checker notwithstanding
        if not isinstance(given, Iterable):
            message = (
                f"from_collection() needs a list or another iterable of records, not {given!r}"
            )
            raise ProgramError(message)
        kind = type_info or Types.PICKLED_BYTE_ARRAY()
        source = CollectionSource(list(collection), kind)
        return self._read("Source: Collection Source", kind, source=source, non_parallel=True)

    def from_sequence(self, start: int, end: int) -> DataStream:
        """The numbers from ``start`` to ``end``, both included; in order per subtask."""
        from millstream.connectors.basic.data_generator import NumberSequenceSource

        source = NumberSequenceSource(start, end)
        return self._read("Source: Sequence Source", source.produced_type, source=source)

    def from_spark(
        self,
        dataframe: object,
        watermark_strategy: WatermarkStrategy | None = None,
        name: str = "Spark",
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """Read a Spark streaming DataFrame.

        Args:
            dataframe: ``spark.readStream...``; its rows become Rows.
            watermark_strategy: timestamps and watermarks.  ``WatermarkStrategy.preserve()`` takes
                the column and the delay that the DataFrame's ``withWatermark`` named.
            name: shown in plans, metrics and messages.
            type_info: the type of the records, by default made from the DataFrame's schema.

        Raises:
            ProgramError: it is not a streaming DataFrame; the strategy is to preserve the
                watermark of one that has none, or aligns sources, for Spark does not wait.
        """
        schema = getattr(dataframe, "schema", None)
        if schema is None or not getattr(dataframe, "isStreaming", False):
            message = (
                "from_spark() of streams needs a streaming DataFrame (spark.readStream...), not"
                f" {dataframe!r:.200}. TableEnvironment.from_spark() reads one whose rows are"
                " there; to_data_stream() makes a stream of that table"
            )
            raise ProgramError(message)
        if type_info is None:
            type_info = type_of_spark(schema.jsonValue())
        if watermark_strategy is not None:
            watermark_strategy = strategy_of_spark(schema.jsonValue(), watermark_strategy)
        self._spark_dataframes.append(dataframe)
        return self._read(
            f"Source: {name}",
            type_info,
            spark_index=len(self._spark_dataframes) - 1,
            watermark_strategy=watermark_strategy,
        )

    def add_source(
        self,
        source_func: SourceFunction | Source,
        source_name: str = "Custom Source",
        type_info: TypeInformation | None = None,
    ) -> DataStream:
        """The older name of ``from_source``, without watermarks."""
        source = source_func.source if isinstance(source_func, SourceFunction) else source_func
        return self.from_source(source, None, source_name, type_info)

    def _read(
        self,
        name: str,
        output_type: TypeInformation,
        *,
        source: Source | None = None,
        spark_index: int | None = None,
        watermark_strategy: WatermarkStrategy | None = None,
        non_parallel: bool = False,
    ) -> DataStream:
        check_type_argument(output_type, f"the type_info of '{name}'")
        if watermark_strategy is not None:
            check_strategy(watermark_strategy)
        text = Types.STRING()
        dead_letters = Types.ROW_NAMED(["place", "raw", "error"], [text, text, text])
        transformation = SourceTransformation(
            id=self.next_id(),
            location=caller_location(),
            output_type=output_type,
            name=name,
            kind_name=name,
            source=source,
            spark_index=spark_index,
            watermark_strategy=watermark_strategy,
            non_parallel=non_parallel,
            side_types={DEAD_LETTER_TAG: dead_letters},
        )
        # Not added: as in Flink, a source that nothing reads is not part of the job.
        return DataStream(self, transformation)

    # -- running ---------------------------------------------------------------------------

    def execute(self, job_name: str | None = None) -> JobExecutionResult:
        """Run the program and wait for its end.

        An interrupt (Ctrl-C, the stop button of a notebook) cancels the job and waits for that; a
        second one does not wait.

        Args:
            job_name: the name of the job; also set by ``pipeline.name``.

        Raises:
            ProgramError: the program cannot be run as written.
            JobError: the job failed, after the restarts that its strategy allows.
        """
        return wait_for(self.execute_async(job_name))

    def execute_async(self, job_name: str | None = None) -> JobClient:
        """Start the program.

        If the program ends before the job does, it waits for the job then, and says so.

        Args:
            job_name: the name of the job; also set by ``pipeline.name``.

        Returns:
            A handle on the job, which runs in the background of this process.
        """
        job_graph = self.get_job_graph(job_name)
        dataframes = self._spark_dataframes
        # As in Flink, the next execute() runs what is added from here on.
        self._transformations, self._spark_dataframes = [], []
        return self._submit(job_graph, dataframes)

    def execute_transformations(
        self, transformations: Sequence[PhysicalTransformation], job_name: str
    ) -> JobClient:
        """Start a job of some ends and what they read; the program's own stay to be executed.

        Args:
            transformations: sinks, as statements of SQL make them.
            job_name: the name of the job, where ``pipeline.name`` gives none.
        """
        graph = self.graph_of(transformations, job_name)
        return self._submit(graph, self._spark_dataframes)

    def _submit(self, job_graph: JobGraph, dataframes: list[Any]) -> JobClient:
        submit = current_context().submitter or registry.submit
        client = JobClient(submit(job_graph, spark_dataframes=dataframes))
        self._jobs.add(job_graph.job_name, client)
        note_job(job_graph.job_name, client)
        return client

    def get_jobs(self) -> list[JobClient]:
        """The jobs of this environment that have not ended, the oldest first."""
        return self._jobs.clients()

    def get_job_graph(self, job_name: str | None = None) -> JobGraph:
        """The job as it would run now: checked, with uids and stages.

        Raises:
            ProgramError: the program cannot be run as written.
        """
        return self.graph_of(self._transformations, job_name)

    def graph_of(
        self, transformations: Sequence[PhysicalTransformation], job_name: str | None = None
    ) -> JobGraph:
        """Return the job of some sinks and what they read.

        Raises:
            ConfigurationError: an option is set that would change results or recovery and is not in
                this release.
            ProgramError: the program cannot be run as written.
        """
        note_use()
        refusal = self._configuration.refusal()
        if refusal is not None:
            raise ConfigurationError(refusal)
        name = job_name or self._configuration.get(options.JOB_NAME) or _DEFAULT_NAME
        of_tables = self._configuration.get(options.TABLE_PARALLELISM)
        return translate(
            transformations,
            job_name=name,
            configuration=self._configuration.clone(),
            parallelism=of_tables if of_tables > 0 else self.get_parallelism(),
            runtime_mode=self._configuration.get(options.RUNTIME_MODE),
        )

    def get_execution_plan(self) -> str:
        """The plan as JSON, in Flink's form; ``millstream plan`` shows it for people."""
        return execution_plan(self.get_job_graph())

    def close(self) -> None:
        """Let go of results that are cached, of which there are none; jobs that run go on."""

    # -- for streams -----------------------------------------------------------------------

    def next_id(self) -> int:
        """A number for a new transformation."""
        self._last_id += 1
        return self._last_id

    def add_transformation(self, transformation: PhysicalTransformation) -> None:
        """Make an operator part of the job."""
        note_operator(transformation.location)
        self._transformations.append(transformation)
