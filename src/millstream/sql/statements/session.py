"""The session: catalogs, options, and the path of a statement from text to job."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from millstream.configuration import options
from millstream.configuration.flink_options import say_once
from millstream.connectors.basic.collect import CollectSink
from millstream.directories import run_directory
from millstream.errors import UnsupportedSqlError, ValidationError
from millstream.expressions.context import AsyncCalls
from millstream.graph.model import caller_location
from millstream.sql.binder.binding import (
    bound_insert,
    query_binder,
    static_partition,
    with_metadata,
)
from millstream.sql.binder.queries import table_options
from millstream.sql.binder.scope import BindingContext
from millstream.sql.catalog import connectors
from millstream.sql.catalog.catalog import CatalogManager
from millstream.sql.catalog.modules import Modules
from millstream.sql.catalog.objects import CatalogTable
from millstream.sql.lowering.lowering import Lowering
from millstream.sql.planner.conversion import Converter
from millstream.sql.planner.logical import row_of
from millstream.sql.planner.optimizer import optimize
from millstream.sql.planner.physical import LoweringOptions
from millstream.sql.planner.sinks import SinkNode
from millstream.sql.stream_types import external_type, stream_type
from millstream.types.logical_types import RowField, RowType, VarCharType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from millstream.configuration.configuration import Configuration
    from millstream.execution.job_client import JobClient, JobHandle
    from millstream.expressions.nodes import Literal
    from millstream.graph.model import JobGraph
    from millstream.graph.transformation import Transformation
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.parser.nodes import Query
    from millstream.sql.parser.statement_nodes import Insert
    from millstream.sql.planner.logical import LogicalNode


#: How many that have ended are remembered.
_ENDED: Final = 100


@dataclass(frozen=True)
class SessionJob:
    """A job that a statement has started."""

    name: str
    job: JobHandle
    started: dt.datetime
    #: Whether it collects the rows of a query, which are gone when it ends.
    is_query: bool = False

    def shown(self) -> tuple[str, str, str, str]:
        """Id, name, status and start (UTC), as SHOW JOBS has them."""
        start = self.started.isoformat(timespec="milliseconds")
        return self.job.get_job_id(), self.name, self.job.get_job_status().name, start


class SessionJobs:
    """The jobs of a session, the oldest first.

    Args:
        shared: INSERT jobs of all sessions of a SQL gateway, which outlive the session that started
            them; None: the session has its own.
    """

    def __init__(self, shared: SessionJobs | None = None) -> None:
        self._jobs: list[SessionJob] = []
        self._shared = shared
        self._lock = threading.Lock()

    def add(self, name: str, job: JobHandle, *, is_query: bool = False) -> None:
        """Remember a job."""
        if self._shared is not None and not is_query:
            self._shared.add(name, job)
            return
        now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
        with self._lock:
            ended = [each for each in self._jobs if each.job.get_job_status().is_terminal_state()]
            forgotten = ended[: max(len(ended) - _ENDED + 1, 0)]
            kept = [each for each in self._jobs if each not in forgotten]
            self._jobs = [*kept, SessionJob(name, job, now, is_query)]

    def all(self) -> list[SessionJob]:
        """Return those that run, and the latest INSERT jobs that have ended."""
        own = [
            each
            for each in self._jobs
            if not (each.is_query and each.job.get_job_status().is_terminal_state())
        ]
        shared = [] if self._shared is None else self._shared.all()
        return sorted([*shared, *own], key=lambda each: each.started)

    def find(self, job_id: str) -> SessionJob | None:
        """The latest job of an id; None if there is none."""
        found = [each for each in self._jobs if each.job.get_job_id() == job_id]
        if found:
            return found[-1]
        return None if self._shared is None else self._shared.find(job_id)


@dataclass(frozen=True)
class RowsResult:
    """Rows that are at hand."""

    row: RowType
    rows: Sequence[tuple[object, ...]] = field(default=())
    #: Whether the statement only says that it is done.
    is_ok: bool = False


@dataclass(frozen=True)
class JobResult:
    """A job that writes tables."""

    client: JobClient
    #: The tables it writes, in full.
    targets: tuple[str, ...]
    #: Whether the statement is done only when the job has ended.
    waits: bool = False


@dataclass(frozen=True)
class QueryResult:
    """A job that collects the rows of a query."""

    client: JobClient
    row: RowType
    #: Of the collect sink, which keeps columns.
    directory: str
    #: In which TIMESTAMP_LTZ is shown.
    time_zone: str
    #: Whether there are only the rows that are there at the end.
    is_batch: bool = False
    #: Most characters of a column that is printed.
    max_column_width: int = 30


def texts(names: Sequence[str], rows: Sequence[Sequence[str | None]]) -> RowsResult:
    """Rows of texts."""
    row = row_of(names, [VarCharType()] * len(names))
    return RowsResult(row, [tuple(each) for each in rows])


#: What DDL gives.
OK = RowsResult(row_of(["result"], [VarCharType()]), [("OK",)], is_ok=True)


def refuse_options(configuration: Configuration) -> None:
    """Check the options of a session (``configuration/flink_options.py`` lists those refused).

    Raises:
        UnsupportedSqlError: an option has a value that is not in this release.
    """
    refusal = configuration.refusal()
    if refusal is not None:
        raise UnsupportedSqlError(refusal)


class Program(Protocol):
    """Where the transformations of statements go."""

    def next_id(self) -> int:
        """A number for a new transformation."""

    def add_transformation(self, transformation: Any) -> None:
        """Take an end, to be started with the program."""

    def graph_of(self, transformations: Sequence[Any], job_name: str) -> JobGraph:
        """The job of some ends, without starting it."""

    def execute_transformations(self, transformations: Sequence[Any], job_name: str) -> JobClient:
        """Start a job of some ends."""


class Target:
    """A query and the table that it goes to."""

    def __init__(
        self,
        identifier: ObjectIdentifier,
        table: CatalogTable,
        plan: LogicalNode,
        overwrite: Mapping[str, Literal] | None = None,
        conflict: str | None = None,
    ) -> None:
        """Take the plan, whose columns are the table's.

        Args:
            identifier: the table's name.
            table: the table.
            plan: what is written.
            overwrite: of what is written over the partition, as far as it is said; None: rows are
                added.
            conflict: what ``ON CONFLICT DO`` says; None: nothing.
        """
        self.identifier = identifier
        self.table = table
        self.plan = plan
        self.overwrite = overwrite
        self.conflict = conflict


class Session:
    """Catalogs and options, and what statements do with them."""

    def __init__(self, configuration: Configuration, program: Program) -> None:
        self.configuration = configuration
        self.program = program
        self.catalogs: CatalogManager = CatalogManager()
        #: What the session has set itself, for SET and RESET.
        self.settings: dict[str, str] = {}
        #: What options were before the session set them.
        self.before: dict[str, str | None] = {}
        #: Rows of the Table API under made-up names.
        self.inline: dict[str, LogicalNode] = {}
        self.modules = Modules()
        #: What statements have started.
        self.jobs = SessionJobs()
        #: How many tables there are that only a descriptor describes.
        self.anonymous = 0

    def named(self, plan: LogicalNode) -> str:
        """A name by which statements of this session know a plan; each plan has one."""
        for name, known in self.inline.items():
            if known is plan:
                return name
        name = f"UnnamedTable${len(self.inline)}"
        self.inline[name] = plan
        return name

    def context(self, text: str | None) -> BindingContext:
        """Return what the binder knows."""
        return BindingContext(self.catalogs, self.configuration, text, self.inline)

    def bind(self, query: Query, text: str | None) -> LogicalNode:
        """The plan of a query."""
        return query_binder(self.context(text)).bind(query)

    # -- queries ---------------------------------------------------------------------------------

    def target(self, statement: Insert, text: str | None) -> Target:
        """The plan of an INSERT.

        Raises:
            ValidationError: the table is unknown, or the query's columns do not fit it.
        """
        context = self.context(text)
        found = self.catalogs.find_table(statement.table.names)
        if found is None:
            hint = self.catalogs.suggest_table(statement.table.names)
            message = f"Table '{statement.table}' not found.{hint}"
            raise context.error(statement.table, message)
        table = found.table
        if not isinstance(table, CatalogTable):
            message = f"'{statement.table}' is a view and cannot be written."
            raise context.error(statement.table, message)
        name = found.identifier.as_summary_string()
        static = static_partition(context, table, name, statement.partition)
        plan = bound_insert(context, statement, found.identifier, table, static)
        overrides = table_options(context, statement.hints)
        if overrides:
            table = table.copy({**table.options, **overrides})
        overwrite = static if statement.overwrite else None
        return Target(found.identifier, table, plan, overwrite, statement.on_conflict)

    def sink_plans(self, targets: Sequence[Target]) -> list[SinkNode]:
        """The physical plans of some targets; parts that they share are planned once.

        Raises:
            ValidationError: one replaces what another writes.
        """
        names = [each.identifier for each in targets]
        for each in targets:
            if each.overwrite is not None and names.count(each.identifier) > 1:
                message = (
                    f"INSERT OVERWRITE of '{each.identifier.as_summary_string()}' would delete "
                    "what another INSERT of the same job writes into it; run one after the other."
                )
                raise ValidationError(message)
        converter = self.converter()
        plans = []
        for target in targets:
            said = target.overwrite
            overwrite = None if said is None else tuple((k, v.value) for k, v in said.items())
            sink = connectors.table_sink(
                target.identifier, target.table, self.configuration, overwrite
            )
            below = converter.convert(with_metadata(target.plan, target.table, sink.metadata()))
            persisted = [column.name for column in target.table.schema.persisted]
            key = tuple(persisted.index(name) for name in target.table.schema.key_columns)
            name = target.identifier.as_summary_string()
            plans.append(
                SinkNode(
                    row=below.row,
                    inputs=(below,),
                    name=name,
                    sink=sink,
                    identifier=target.identifier,
                    table=target.table,
                    overwrite=overwrite,
                    key=key,
                    conflict=self._conflict(target),
                )
            )
        return self.planned(*plans)

    def _conflict(self, target: Target) -> str | None:
        if target.conflict is not None and self.is_batch:
            say_once("ON CONFLICT has no effect in batch mode, as in Flink: the last row stays.")
            return None
        return target.conflict

    def sinks(self, targets: Sequence[Target]) -> list[Transformation]:
        """The ends of a job that writes some targets."""
        return self.ends(self.sink_plans(targets), self.lowering())

    def ends(self, plans: Sequence[SinkNode], lowering: Lowering) -> list[Transformation]:
        """The ends of a job of some plans that write tables."""
        lowering.take(plans)
        made = []
        for node in plans:
            assert node.sink is not None  # noqa: S101 - it has a table
            assert node.table is not None  # noqa: S101
            columns = node.table.schema.persisted
            fields = tuple(RowField(each.name, each.type) for each in columns)
            row = RowType(fields, nullable=False)
            declared = node.sink.stream_type(external_type(row))
            made.append(lowering.sink(node, node.sink.create(), declared, row))
        return made

    def insert(self, targets: Sequence[Target]) -> JobResult:
        """Start a job that writes some targets."""
        names = [each.identifier.as_summary_string() for each in targets]
        return self.started(self.sinks(targets), names)

    def started(self, ends: Sequence[Transformation], names: Sequence[str]) -> JobResult:
        """Start a job of some ends, which write tables of these names."""
        name = self._job_name(names)
        client = self.program.execute_transformations(ends, name)
        self.jobs.add(name, client.job)
        return JobResult(client, tuple(names), waits=self.configuration.get(options.DML_SYNC))

    def _job_name(self, names: Sequence[str]) -> str:
        given = self.configuration.get(options.JOB_NAME)
        return given or f"insert-into_{','.join(names)}"

    def result_plan(self, plan: LogicalNode, name: str = "*anonymous_collect$1*") -> SinkNode:
        """The physical plan of a query whose rows go to the program."""
        below = self.converter().convert(plan)
        return self.planned(SinkNode(row=below.row, inputs=(below,), name=name, sink=None))[0]

    @property
    def is_batch(self) -> bool:
        """Whether queries give the rows that are there when all input is over.

        Raises:
            ValidationError: neither batch nor streaming mode is asked for.
        """
        mode = self.configuration.get(options.RUNTIME_MODE)
        if mode == "AUTOMATIC":
            message = (
                "Unsupported mode 'AUTOMATIC' for 'execution.runtime-mode'. Only an explicit BATCH "
                "mode or STREAMING mode is supported in Table API."
            )
            raise ValidationError(message)
        return mode == "BATCH"

    @property
    def mini_batches(self) -> bool:
        """Whether there is one change per key and batch: in batch mode nobody sees the others."""
        return self.is_batch or self.configuration.get(options.MINI_BATCH)

    def converter(self) -> Converter:
        """Return what makes physical plans of logical ones."""
        split = not self.is_batch and self.configuration.get(options.SPLIT_DISTINCT)
        buckets = self.configuration.get(options.DISTINCT_BUCKETS) if split else None
        zone = self.configuration.get(options.LOCAL_TIME_ZONE)
        return Converter(
            is_batch=self.is_batch,
            distinct_buckets=buckets,
            time_zone=zone,
            changes_repeat=self.configuration.get(options.CDC_EVENTS_DUPLICATE),
        )

    def planned(self, *sinks: SinkNode) -> list[SinkNode]:
        """Return the optimized plans.

        Raises:
            ValidationError: a sink does not take the changes.
        """
        return optimize(list(sinks), self.configuration, is_batch=self.is_batch)

    def query(self, plan: LogicalNode) -> QueryResult:
        """Start a job that collects the rows of a query."""
        directory = tempfile.mkdtemp(prefix="collect-", dir=run_directory().path)
        try:
            end = self.collected(plan, directory)
            client = self.program.execute_transformations([end], self._query_name())
        except BaseException:
            shutil.rmtree(directory, ignore_errors=True)
            raise
        self.jobs.add(self._query_name(), client.job, is_query=True)
        zone = self.configuration.get(options.LOCAL_TIME_ZONE)
        width = self.configuration.get(options.MAX_COLUMN_WIDTH)
        return QueryResult(client, plan.row, directory, zone, self.is_batch, width)

    def collected(self, plan: LogicalNode, directory: str) -> Transformation:
        """The end of a query whose rows are kept in files of a directory."""
        node = self.result_plan(plan)
        sink = CollectSink(directory, columns=external_type(node.row))
        made: Any = self.lowering().sink(node, sink, stream_type(node.row), node.row)
        made.parallelism = 1
        return made  # type: ignore[no-any-return]

    def _query_name(self) -> str:
        return self.configuration.get(options.JOB_NAME) or "collect"

    def lowering(self) -> Lowering:
        """Return what makes transformations, with the options of now."""
        chosen = self.lowering_options()
        return Lowering(self.program.next_id, caller_location(), chosen)

    def lowering_options(self) -> LoweringOptions:
        """The options of now.

        Raises:
            UnsupportedSqlError: one is not in this release.
        """
        refuse_options(self.configuration)
        get = self.configuration.get
        return LoweringOptions(
            time_zone=get(options.LOCAL_TIME_ZONE),
            state_ttl=0 if self.is_batch else get(options.STATE_TTL),
            mini_batch=self.mini_batches,
            query_start=time.time_ns() // 1_000_000 if self.is_batch else 0,
            idle_timeout=get(options.SOURCE_IDLE_TIMEOUT) or None,
            drop_nulls=get(options.NOT_NULL_ENFORCER) == "DROP",
            trim_pad=get(options.TYPE_LENGTH_ENFORCER) == "TRIM_PAD",
            job_parameters=get(options.GLOBAL_JOB_PARAMETERS),
            async_calls=self._async_calls(),
        )

    def _async_calls(self) -> AsyncCalls:
        get = self.configuration.get
        repeats = get(options.ASYNC_SCALAR_RETRY_STRATEGY) != "NO_RETRY"
        return AsyncCalls(
            concurrency=get(options.ASYNC_SCALAR_CONCURRENCY),
            timeout=get(options.ASYNC_SCALAR_TIMEOUT),
            retries=get(options.ASYNC_SCALAR_MAX_ATTEMPTS) if repeats else 0,
            retry_delay=get(options.ASYNC_SCALAR_RETRY_DELAY),
        )
