"""TableEnvironment and StreamTableEnvironment: entry points of Table API programs.

A TableEnvironment runs on this machine (``execution.target: local``) unless its configuration says
otherwise; a StreamTableEnvironment runs where its StreamExecutionEnvironment does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.configuration import options
from millstream.configuration.configuration import Configuration
from millstream.datastream.data_stream import DataStream
from millstream.datastream.environment import StreamExecutionEnvironment
from millstream.errors import CatalogError, ProgramError, ValidationError
from millstream.sql.catalog.catalog import CatalogManager
from millstream.sql.catalog.objects import CatalogFunction
from millstream.sql.parser import nodes
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.parser.parser import parse_identifier, parse_statement
from millstream.sql.statements import plans
from millstream.sql.statements.dispatch import execute, run
from millstream.sql.statements.session import JobResult, Session, SessionJobs
from millstream.table.compiled_plan import CompiledPlan
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.explain_detail import detail_names
from millstream.table.expression import Expression
from millstream.table.plan_reference import FilePlanReference, JsonContentPlanReference
from millstream.table.schema import Schema
from millstream.table.statement_set import StatementSet
from millstream.table.streams import read_stream, with_fields, write_stream
from millstream.table.table import PlanView, Table, scanned
from millstream.table.table_config import TableConfig
from millstream.table.table_result import TableResult
from millstream.table.udf import registered
from millstream.types.composite_types import TupleTypeInfo
from millstream.types.row import RowKind
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from millstream.sql.catalog.catalog import Catalog
    from millstream.sql.parser.nodes import Query
    from millstream.table.catalog import CatalogDescriptor
    from millstream.table.module import Module, ModuleEntry
    from millstream.table.plan_reference import PlanReference
    from millstream.table.table_descriptor import TableDescriptor
    from millstream.types.logical_types import LogicalType
    from millstream.types.types import TypeInformation


class FrameSources:
    """Tables of rows of pandas, Arrow and Spark."""

    _session: Session

    @property
    def session(self) -> Session:
        """The session behind the environment."""
        return self._session

    def from_pandas(self, pdf: Any, schema: Any = None, splits_num: int = 1) -> Table:
        """A table of a pandas DataFrame.

        Args:
            pdf: the DataFrame.
            schema: names, or ``DataTypes.ROW([...])``.
            splits_num: taken; there is one split.
        """
        del splits_num
        from millstream.table.elements import plan_of_frame

        return Table(self, plan_of_frame(pdf, schema))

    def from_arrow(self, data: pa.Table | pa.RecordBatch, schema: Any = None) -> Table:
        """A table of rows that Arrow holds.

        Args:
            data: the rows.
            schema: names, or ``DataTypes.ROW([...])``.

        Raises:
            ProgramError: it is no table and no batch of Arrow.
        """
        from millstream.table.elements import plan_of_arrow

        return Table(self, plan_of_arrow(data, schema))

    def from_spark(self, dataframe: Any, schema: Any = None) -> Table:
        """A table of a DataFrame of Spark.

        Args:
            dataframe: one whose rows are there; they go through this process.
            schema: names, or ``DataTypes.ROW([...])``.

        Raises:
            ProgramError: it is no DataFrame, or a streaming one.
        """
        from millstream.table.elements import plan_of_spark

        if getattr(dataframe, "isStreaming", False):
            message = (
                "from_spark() of tables takes a DataFrame whose rows are there; read a streaming "
                "one as a stream, StreamExecutionEnvironment.from_spark(), and make a table of it "
                "by StreamTableEnvironment.from_data_stream()"
            )
            raise ProgramError(message)
        return Table(self, plan_of_spark(dataframe, schema))


class TableEnvironment(FrameSources):
    """Runs statements, and makes tables of the Table API."""

    def __init__(
        self, environment: StreamExecutionEnvironment, settings: EnvironmentSettings
    ) -> None:
        """Use ``create``."""
        self._environment = environment
        self._session = Session(environment.get_configuration(), environment)
        self._session.catalogs = CatalogManager(
            settings.get_built_in_catalog_name(), settings.get_built_in_database_name()
        )

    @staticmethod
    def create(environment_settings: EnvironmentSettings | Configuration) -> TableEnvironment:
        """Make an environment of its own.

        Args:
            environment_settings: settings, or a configuration alone.
        """
        settings = _settings(environment_settings)
        environment = StreamExecutionEnvironment.get_execution_environment(
            settings.get_configuration()
        )
        configuration = environment.get_configuration()
        if not configuration.contains(options.TARGET):
            configuration.set_string(options.TARGET.key, "local")
        return TableEnvironment(environment, settings)

    # -- statements ------------------------------------------------------------------------------

    def execute_sql(self, stmt: str) -> TableResult:
        """Run one statement; of INSERT and SELECT the job runs on in the background.

        Args:
            stmt: the statement.

        Raises:
            SqlParserError: it is no statement.
            ValidationError: it makes no sense; has line, column and caret.
        """
        return TableResult(execute(self._session, stmt))

    def start_sql(self, stmt: str) -> TableResult:
        """Run one statement; of INSERT the job runs on in the background, whatever the options.

        With ``table.dml-sync``, ``execute_sql`` waits for the job, so that nobody could cancel it.

        Args:
            stmt: the statement.

        Raises:
            SqlParserError: it is no statement.
            ValidationError: it makes no sense; has line, column and caret.
        """
        result = execute(self._session, stmt)
        if isinstance(result, JobResult):
            result = replace(result, waits=False)
        return TableResult(result)

    def share_jobs(self, jobs: SessionJobs) -> None:
        """Keep the jobs of INSERT in a list that other environments share, for SHOW JOBS.

        Args:
            jobs: the list.
        """
        self._session.jobs = SessionJobs(jobs)

    def sql_query(self, query: str) -> Table:
        """The table that a query gives.

        Args:
            query: SELECT, VALUES and the like.

        Raises:
            ValidationError: it is no query, or makes no sense.
        """
        statement = parse_statement(query)
        if not isinstance(statement, nodes.Query):
            message = (
                "Unsupported SQL query! sql_query() only accepts a single SQL query of type "
                "SELECT, UNION, INTERSECT, EXCEPT, VALUES, WITH, ORDER BY."
            )
            raise ValidationError(message)
        return Table(self, self._session.bind(statement, query))

    def explain_sql(self, stmt: str, *extra_details: Any) -> str:
        """The plan of a statement.

        Args:
            stmt: a query, INSERT, or a statement set.
            extra_details: ExplainDetail.CHANGELOG_MODE and others.
        """
        node = syntax.Explain(parse_statement(stmt), detail_names(extra_details))
        result: Any = run(self._session, node, stmt)
        return str(result.rows[0][0])

    def create_statement_set(self) -> StatementSet:
        """Several INSERTs that become one job."""
        return StatementSet(self)

    # -- compiled plans --------------------------------------------------------------------------

    def compile_plan_sql(self, stmt: str) -> CompiledPlan:
        """Plan an INSERT, or a statement set, to be kept and run later.

        Args:
            stmt: the statement.

        Raises:
            ValidationError: it is something else, or made of something that no text says.
        """
        node = parse_statement(stmt)
        parts = node.statements if isinstance(node, syntax.StatementSet) else (node,)
        targets = []
        for each in parts:
            if not isinstance(each, syntax.Insert):
                message = "compile_plan_sql() takes an INSERT or a STATEMENT SET."
                raise ValidationError(message)
            targets.append(self._session.target(each, stmt))
        return CompiledPlan(plans.compiled(self._session, targets), self)

    def load_plan(self, plan_reference: PlanReference) -> CompiledPlan:
        """The plan that a reference stands for.

        Args:
            plan_reference: ``PlanReference.from_file`` or ``.from_json_string``.

        Raises:
            ValidationError: it is none, or does not fit the catalogs.
        """
        if isinstance(plan_reference, FilePlanReference):
            return CompiledPlan(plans.read_plan(self._session, plan_reference.path), self)
        if isinstance(plan_reference, JsonContentPlanReference):
            found = plans.loaded(self._session, plan_reference.get_content(), "the text")
            return CompiledPlan(found, self)
        message = f"load_plan() takes a PlanReference, not {plan_reference!r}"
        raise ProgramError(message)

    def execute_plan(self, plan_reference: PlanReference) -> TableResult:
        """Start the job of the plan that a reference stands for."""
        return self.load_plan(plan_reference).execute()

    # -- tables ----------------------------------------------------------------------------------

    def from_path(self, path: str) -> Table:
        """The table of a path.

        Args:
            path: ``table``, ``database.table`` or ``catalog.database.table``.
        """
        name = parse_identifier(path)
        query: Query = nodes.TableQuery(name)
        return Table(self, self._session.bind(query, path))

    def from_descriptor(self, descriptor: TableDescriptor) -> Table:
        """The table of a descriptor, which gets no name.

        Args:
            descriptor: connector, options and columns.
        """
        return Table(self, scanned(self._session, descriptor))

    def from_elements(
        self,
        elements: Iterable[Any],
        schema: Any = None,
        verify_schema: bool = True,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> Table:
        """A table of values of the program.

        Args:
            elements: rows: tuples, lists, Rows, dicts, expressions such as ``row(1, "a")``, or
                plain values of one column.
            schema: names of the columns, or ``DataTypes.ROW([...])``; types are inferred without.
            verify_schema: whether values must fit the types. Otherwise, as in Flink, text is made
                of any value, numbers are cut to the width of an integer, and what is of another
                type is NULL; lengths are still checked.
        """
        from millstream.table.elements import plan_of_elements, plan_of_expressions

        rows = list(elements)
        if any(isinstance(each, Expression) for each in rows):
            return Table(self, plan_of_expressions(self._session, rows, schema))
        return Table(self, plan_of_elements(rows, schema, verify_schema=verify_schema))

    def create_temporary_view(
        self, view_path: str, table_or_data_stream: Table | DataStream, *fields_or_schema: Any
    ) -> None:
        """Put a table, or a stream, under a name of the session.

        Args:
            view_path: the name.
            table_or_data_stream: what it names.
            fields_or_schema: of a stream: as for ``from_data_stream``.
        """
        table = table_or_data_stream
        if isinstance(table, DataStream):
            table = self._of_stream(table, fields_or_schema)
        identifier = self._session.catalogs.qualify(parse_identifier(view_path).names)
        self._session.catalogs.create_table(
            identifier, PlanView.of(table.plan), temporary=True, ignore_if_exists=False
        )

    def _of_stream(self, stream: DataStream, fields: Sequence[Any]) -> Table:
        schema = fields[0] if len(fields) == 1 and isinstance(fields[0], Schema) else None
        table = Table(self, read_stream(self._session, stream, schema))
        return table if schema is not None or not fields else with_fields(table, fields)

    def create_view(
        self,
        view_path: str,
        table: Table,
        ignore_if_exists: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        """Put a table under a name of a catalog, as long as this session has it."""
        identifier = self._session.catalogs.qualify(parse_identifier(view_path).names)
        self._session.catalogs.create_table(
            identifier, PlanView.of(table.plan), temporary=False, ignore_if_exists=ignore_if_exists
        )

    def create_temporary_table(
        self,
        path: str,
        descriptor: TableDescriptor,
        ignoreIfExists: bool | None = False,  # noqa: FBT001, FBT002, N803 - PyFlink's
    ) -> None:
        """Make a table of the session."""
        self._create(path, descriptor, temporary=True, ignore=bool(ignoreIfExists))

    def create_table(
        self,
        path: str,
        descriptor: TableDescriptor,
        ignoreIfExists: bool | None = False,  # noqa: FBT001, FBT002, N803 - PyFlink's
    ) -> None:
        """Make a table in a catalog."""
        self._create(path, descriptor, temporary=False, ignore=bool(ignoreIfExists))

    def _create(
        self, path: str, descriptor: TableDescriptor, *, temporary: bool, ignore: bool
    ) -> None:
        identifier = self._session.catalogs.qualify(parse_identifier(path).names)
        table = descriptor.to_catalog_table(self._session.context(None))
        self._session.catalogs.create_table(
            identifier, table, temporary=temporary, ignore_if_exists=ignore
        )

    def drop_temporary_view(self, view_path: str) -> bool:
        """Drop a view of the session; whether there was one."""
        return self._drop(view_path, temporary=True, view=True)

    def drop_view(self, view_path: str, ignore_if_not_exists: bool = True) -> bool:  # noqa: FBT001, FBT002
        """Drop a view; whether there was one."""
        return self._drop(view_path, temporary=False, view=True, if_exists=ignore_if_not_exists)

    def drop_temporary_table(self, table_path: str) -> bool:
        """Drop a table of the session; whether there was one."""
        return self._drop(table_path, temporary=True, view=False)

    def drop_table(self, table_path: str, ignore_if_not_exists: bool = True) -> bool:  # noqa: FBT001, FBT002
        """Drop a table; whether there was one."""
        return self._drop(table_path, temporary=False, view=False, if_exists=ignore_if_not_exists)

    def _drop(self, path: str, *, temporary: bool, view: bool, if_exists: bool = True) -> bool:
        identifier = self._session.catalogs.qualify(parse_identifier(path).names)
        return self._session.catalogs.drop_table(
            identifier, temporary=temporary, view=view, if_exists=if_exists
        )

    # -- what there is ---------------------------------------------------------------------------

    def list_catalogs(self) -> list[str]:
        """The names of the catalogs."""
        return self._session.catalogs.catalog_names()

    def list_databases(self) -> list[str]:
        """The databases of the current catalog."""
        return self._current_catalog().list_databases()

    def _current_catalog(self) -> Catalog:
        return self._session.catalogs.catalog(self._session.catalogs.current_catalog or "")

    def list_tables(self) -> list[str]:
        """The tables and views of the current database, temporary ones too."""
        return self._session.catalogs.table_names()

    def list_views(self) -> list[str]:
        """The views of the current database, temporary ones too."""
        return self._session.catalogs.view_names()

    def list_materialized_tables(self) -> list[str]:
        """None: there are no materialised tables."""
        return []

    def list_modules(self) -> list[str]:
        """The modules that are used, in their order."""
        return list(self._session.modules.used)

    def list_full_modules(self) -> list[ModuleEntry]:
        """The modules that are loaded, and whether they are used."""
        return self._session.modules.entries()

    def load_module(self, module_name: str, module: Module) -> None:
        """Load a module; there is ``core`` alone."""
        del module
        self._session.modules.load(module_name)

    def unload_module(self, module_name: str) -> None:
        """Let go of a module."""
        self._session.modules.unload(module_name)

    def use_modules(self, *module_names: str) -> None:
        """Use some modules, in this order, and no other."""
        self._session.modules.use(module_names)

    def list_temporary_tables(self) -> list[str]:
        """The temporary tables and views of the current database."""
        return self._session.catalogs.temporary()

    def list_temporary_views(self) -> list[str]:
        """The temporary views of the current database."""
        return self._session.catalogs.temporary(views_only=True)

    def create_temporary_function(self, path: str, function: Any) -> None:
        """Register a function under a path of a catalog.

        Args:
            path: the path.
            function: as ``udf`` and its sisters make it, or an AggregateFunction or
                TableAggregateFunction, whose ``get_result_type`` says the type.

        Raises:
            CatalogError: there is one already.
        """
        self._create_function(path, function, system=False)

    def create_temporary_system_function(self, name: str, function: Any) -> None:
        """Register a function that is found from any catalog.

        Args:
            name: its name.
            function: as for ``create_temporary_function``.

        Raises:
            CatalogError: there is one already.
        """
        self._create_function(name, function, system=True)

    def _create_function(self, path: str, function: Any, *, system: bool) -> None:
        self._session.catalogs.create_function(
            parse_identifier(path).names,
            CatalogFunction(implementation=registered(function)),
            temporary=True,
            system=system,
        )

    def drop_temporary_function(self, path: str) -> bool:
        """Drop a temporary function; whether there was one."""
        return self._session.catalogs.drop_function(
            parse_identifier(path).names, temporary=True, if_exists=True
        )

    def drop_temporary_system_function(self, name: str) -> bool:
        """Drop a temporary system function; whether there was one."""
        return self._session.catalogs.drop_function(
            parse_identifier(name).names, temporary=True, system=True, if_exists=True
        )

    def drop_function(self, path: str) -> bool:
        """Drop a function of a catalog; whether there was one.

        Raises:
            CatalogError: a temporary function has that path, and must be dropped first.
        """
        names = parse_identifier(path).names
        catalogs = self._session.catalogs
        if catalogs.has_temporary_function(names):
            message = (
                "Could not drop catalog function. A temporary function "
                f"'{catalogs.qualify(names)}' does already exist. Please drop it first."
            )
            raise CatalogError(message)
        return catalogs.drop_function(names, if_exists=True)

    def list_user_defined_functions(self) -> list[str]:
        """The functions of users that can be named."""
        return self._session.catalogs.function_names()

    def list_functions(self) -> list[str]:
        """All functions that can be named."""
        result: Any = execute(self._session, "SHOW FUNCTIONS")
        return [str(row[0]) for row in result.rows]

    def create_catalog(self, catalog_name: str, catalog_descriptor: CatalogDescriptor) -> None:
        """Make a catalog, as ``CREATE CATALOG`` does.

        Args:
            catalog_name: its name in this session.
            catalog_descriptor: its type and options.
        """
        execute(self._session, catalog_descriptor.statement(catalog_name))

    def register_catalog(self, catalog_name: str, catalog: Catalog) -> None:
        """Add a catalog."""
        self._session.catalogs.register(catalog_name, catalog)

    def get_catalog(self, catalog_name: str) -> Catalog | None:
        """The catalog of that name; None if there is none."""
        found = self._session.catalogs
        return found.catalog(catalog_name) if found.has_catalog(catalog_name) else None

    def use_catalog(self, catalog_name: str) -> None:
        """Go to a catalog and its default database."""
        self._session.catalogs.use_catalog(catalog_name)

    def use_database(self, database_name: str) -> None:
        """Go to a database of the current catalog."""
        self._session.catalogs.use_database(database_name)

    def get_current_catalog(self) -> str:
        """The name of the current catalog."""
        return self._session.catalogs.current_catalog or ""

    def get_current_database(self) -> str:
        """The name of the current database."""
        return self._session.catalogs.current_database or ""

    def get_config(self) -> TableConfig:
        """The options of the session."""
        return TableConfig(self._session.configuration)

    # -- code and files --------------------------------------------------------------------------

    def add_python_file(self, file_path: str) -> None:
        """Ship a module, package or archive to the workers and put it on their path."""
        self._environment.add_python_file(file_path)

    def set_python_requirements(
        self, requirements_file_path: str, requirements_cache_dir: str | None = None
    ) -> None:
        """Have packages installed where tasks run, by pip; see the StreamExecutionEnvironment."""
        self._environment.set_python_requirements(requirements_file_path, requirements_cache_dir)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Ship an archive to the workers; see the StreamExecutionEnvironment."""
        self._environment.add_python_archive(archive_path, target_dir)


class StreamTableEnvironment(TableEnvironment):
    """A TableEnvironment beside a program of streams."""

    @staticmethod
    def create(  # type: ignore[override] # as in PyFlink
        stream_execution_environment: StreamExecutionEnvironment | None = None,
        environment_settings: EnvironmentSettings | None = None,
    ) -> StreamTableEnvironment:
        """Make one for a program.

        Args:
            stream_execution_environment: of the program; a new one if None.
            environment_settings: further settings.
        """
        settings = environment_settings or EnvironmentSettings.in_streaming_mode()
        environment = stream_execution_environment
        if environment is None:
            environment = StreamExecutionEnvironment.get_execution_environment()
        environment.get_configuration().add_all(settings.get_configuration())
        return StreamTableEnvironment(environment, settings)

    def from_data_stream(self, data_stream: DataStream, *fields_or_schema: Schema | Any) -> Table:
        """A table whose rows are the records of a stream.

        Args:
            data_stream: of rows, tuples, or plain values; an untyped one has one column of any
                objects, ``f0``.
            fields_or_schema: a Schema: names and types of the columns, and event time; or columns:
                some of the stream's (``col("a")``, ``col("a").alias("b")``), or, if none of the
                names is the stream's, new names by position; without them they are the stream's.
        """
        return self._of_stream(data_stream, fields_or_schema)

    def from_changelog_stream(
        self, data_stream: DataStream, schema: Schema | None = None, changelog_mode: Any = None
    ) -> Table:
        """A table that is made of the changes in a stream of rows with kinds.

        Args:
            data_stream: of rows.
            schema: as for ``from_data_stream``.
            changelog_mode: which kinds come; all of them if None.
        """
        plan = read_stream(self._session, data_stream, schema, changelog=True, mode=changelog_mode)
        return Table(self, plan)

    def to_data_stream(
        self, table: Table, target_data_type: LogicalType | None = None
    ) -> DataStream:
        """The rows of a table that is only added to.

        Args:
            table: the table.
            target_data_type: not taken in this release.

        Raises:
            ValidationError: the table is updated; names the node that does it.
        """
        if target_data_type is not None:
            message = "to_data_stream(target_data_type) is not in this release."
            raise ProgramError(message)
        return write_stream(self._session, self._environment, table.plan, changelog=False)

    def to_changelog_stream(
        self, table: Table, target_schema: Schema | None = None, changelog_mode: Any = None
    ) -> DataStream:
        """The changes of a table, as rows with kinds.

        Args:
            table: the table.
            target_schema: names and types of the fields, to which the columns of the table are
                cast by position.  A metadata column ``rowtime`` becomes the timestamp of the record
                and no field; computed columns are left out.
            changelog_mode: which kinds are wanted; all of them if None.

        Raises:
            ValidationError: the columns do not fit, or rows are updated without updates in the
                mode.
        """
        return write_stream(
            self._session,
            self._environment,
            table.plan,
            changelog=True,
            mode=changelog_mode,
            schema=target_schema,
        )

    def to_append_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The rows of a table that is only added to, in a type.

        Args:
            table: the table.
            type_info: of a row or tuple, whose fields take the columns by position.

        Raises:
            ValidationError: the table is updated; names the node that does it.
        """
        return write_stream(
            self._session, self._environment, table.plan, changelog=False, type_info=type_info
        )

    def to_retract_stream(self, table: Table, type_info: TypeInformation) -> DataStream:
        """The changes of a table: True with a row that is added, False with one that goes.

        Args:
            table: the table.
            type_info: of a row or tuple, whose fields take the columns by position.
        """
        # Tuples have no kind of change, rows have.
        rows = Types.ROW(type_info.types) if isinstance(type_info, TupleTypeInfo) else type_info
        changes = write_stream(
            self._session, self._environment, table.plan, changelog=True, type_info=rows
        )
        retraction = _retraction if rows is type_info else _retraction_of_tuples
        return changes.map(retraction, output_type=Types.TUPLE([Types.BOOLEAN(), type_info]))


def _retraction(row: Any) -> tuple[bool, Any]:
    added = row.get_row_kind() in {RowKind.INSERT, RowKind.UPDATE_AFTER}
    row.set_row_kind(RowKind.INSERT)
    return added, row


def _retraction_of_tuples(row: Any) -> tuple[bool, tuple[Any, ...]]:
    added, values = _retraction(row)
    return added, tuple(values)


def _settings(given: Any) -> EnvironmentSettings:
    if isinstance(given, EnvironmentSettings):
        return given
    if isinstance(given, Configuration):
        return EnvironmentSettings.new_instance().with_configuration(given).build()
    message = f"TableEnvironment.create() takes EnvironmentSettings, not {given!r}"
    raise ProgramError(message)
