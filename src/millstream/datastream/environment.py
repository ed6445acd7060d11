"""StreamExecutionEnvironment: where a program begins, and what runs it.

What it is: the sources of a program, and ``execute``; ``datastream/job_settings.py`` has what can
be set.
What it is not: the running; an engine does that, and is imported only then
(``engines/registry.py``).

Read next: ``datastream/data_stream.py``, ``graph/translate.py``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.configuration import options
from millstream.configuration.configuration import Configuration
from millstream.contracts.source import Source
from millstream.datastream.context import current_context
from millstream.datastream.data_stream import DataStream
from millstream.datastream.job_settings import JobSettings
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
from millstream.graph.explain import execution_plan
from millstream.graph.model import caller_location
from millstream.graph.transformation import DEAD_LETTER_TAG, SourceTransformation
from millstream.graph.translate import translate
from millstream.types.type_information import check_type_argument
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.execution.job_client import JobExecutionResult
    from millstream.functions.watermark_strategy import WatermarkStrategy
    from millstream.graph.model import JobGraph
    from millstream.graph.transformation import PhysicalTransformation
    from millstream.types.types import TypeInformation

__all__ = ["StreamExecutionEnvironment"]

_DEFAULT_NAME: Final = "Millstream Streaming Job"


class InputFormat(Protocol):
    """What ``create_input`` reads."""

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
        from millstream.connectors.basic.number_sequence import (
            NumberSequenceSource,
        )

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
            from millstream.datastream.spark_schema import type_of_spark

            type_info = type_of_spark(schema.jsonValue())
        if watermark_strategy is not None:
            from millstream.datastream.spark_schema import strategy_of_spark

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
