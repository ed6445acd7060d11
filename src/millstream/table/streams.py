"""Conversion of streams to tables and back: ``from_data_stream``, ``to_changelog_stream`` etc."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.datastream.data_stream import DataStream
from millstream.errors import ProgramError, ValidationError
from millstream.graph.model import caller_location
from millstream.graph.transformation import OneInputTransformation
from millstream.runtime.operators.table.calc import ConformFactory
from millstream.sql.binder import calls
from millstream.sql.binder.binding import fitted, with_metadata
from millstream.sql.binder.expressions import ExpressionBinder
from millstream.sql.binder.relations import watermarked
from millstream.sql.binder.scope import Scope
from millstream.sql.catalog.connectors import INSERT_ONLY, TableSink
from millstream.sql.catalog.identifiers import ObjectIdentifier, quoted
from millstream.sql.catalog.objects import CatalogTable
from millstream.sql.catalog.schema import ComputedColumn
from millstream.sql.lowering.lowering import parallelism_of
from millstream.sql.parser import nodes
from millstream.sql.parser.parser import parse_expression
from millstream.sql.planner.logical import StreamScanNode, project, row_of
from millstream.sql.planner.sinks import SinkNode
from millstream.sql.stream_types import external_type, logical_row, stream_type
from millstream.table.building import WindowProperty, column_of
from millstream.table.schema import resolved
from millstream.types.logical_types import LocalZonedTimestampType
from millstream.types.row import Row
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.contracts.sink import Sink
    from millstream.datastream.environment import StreamExecutionEnvironment
    from millstream.sql.catalog.schema import ResolvedSchema
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session
    from millstream.table.schema import Schema
    from millstream.types.logical_types import RowType
    from millstream.types.types import TypeInformation


#: Of streams of any values: one column of objects.
_UNTYPED: Final = Types.ROW_NAMED(["f0"], [Types.PICKLED_BYTE_ARRAY()])
_ALL: Final = frozenset({"I", "UB", "UA", "D"})
#: The only metadata of a stream, and the column that has it.
_ROWTIME: Final = "rowtime"
_TIME: Final = "$rowtime"
#: As plans and errors name streams that tables become.
_SINK: Final = "*anonymous_datastream_sink$1*"


def read_stream(
    session: Session,
    stream: DataStream,
    schema: Schema | None = None,
    *,
    changelog: bool = False,
    mode: Any = None,
) -> LogicalNode:
    """The plan of a stream.

    Raises:
        ProgramError: the stream is untyped, and the schema has columns.
    """
    kind = stream.get_type()
    if kind.arrow_schema is None and schema is None:
        stream = stream.map(_as_only_field, output_type=_UNTYPED)
        kind = _UNTYPED
    if kind.arrow_schema is None:
        message = (
            "from_data_stream() needs a stream whose type is known; give the operator before it "
            f"an output_type, such as Types.ROW_NAMED([...], [...]) ({kind} has no columns)"
        )
        raise ProgramError(message)
    row = logical_row(kind)
    declared = None if schema is None else resolved(schema, session.context(None), row)
    if declared is not None:
        row = _physical(row, declared, kind.arrow_schema.names)
    given = stream._transformation  # noqa: SLF001 - the facade beside it
    known = kind.arrow_schema.names
    by_name = set(row.names) <= set(known)
    names = tuple(row.names) if by_name else None
    if names is None and len(row) != len(known):
        message = f"the schema has columns {list(row.names)}, the stream {known}"
        raise ProgramError(message)
    with_time = declared is not None and _asks_for_time(declared)
    if with_time:
        row = row_of([*row.names, _TIME], [*row.children, LocalZonedTimestampType(3)])
    made = OneInputTransformation(
        id=session.program.next_id(),
        location=caller_location(),
        output_type=stream_type(row),
        name="DataStreamScan",
        kind_name="DataStreamScan",
        input=given,
        parallelism=parallelism_of(given)[0],
        non_parallel=parallelism_of(given)[1],
        factory=ConformFactory(names, table="the stream", with_time=with_time),
    )
    key: tuple[int, ...] = ()
    if declared is not None:
        key = tuple(row.index_of(name) for name in declared.key_columns)
    kinds = _kinds(mode) if changelog else INSERT_ONLY
    plan: LogicalNode = StreamScanNode(
        row=row,
        transformation=made,
        name=f"Unregistered_DataStream_{given.id}",
        changelog=kinds,
        key=key,
    )
    if declared is None:
        return plan
    context = session.context(None)
    if not all(each.is_physical() for each in declared.columns):
        plan = _computed(ExpressionBinder(context, Scope.of(row)), plan, declared)
    return watermarked(context, plan, declared)


def _as_only_field(value: Any) -> Row:
    return Row(value)


def _physical(row: RowType, declared: ResolvedSchema, known: Sequence[str]) -> RowType:
    """Return the columns to read: declared ones, and those that others are computed of."""
    read = [each for each in declared.columns if each.is_physical()]
    names = {each.name for each in read}
    pairs = [(each.name, each.type) for each in read]
    if any(each.is_computed() for each in declared.columns) and names <= set(known):
        pairs += [(each.name, each.type) for each in row.fields if each.name not in names]
    return row_of([name for name, _ in pairs], [type_ for _, type_ in pairs])


def _asks_for_time(declared: ResolvedSchema) -> bool:
    """Return whether a column takes the timestamps of the records.

    Raises:
        ValidationError: a column is of other metadata, which streams have not.
    """
    asked = [each for each in declared.columns if each.is_metadata()]
    for each in asked:
        if each.key != _ROWTIME:
            message = (
                f"Invalid metadata key '{each.key}' in column '{each.name}' of a stream, which has "
                f"'{_ROWTIME}', the timestamps of its records, and no other."
            )
            raise ValidationError(message)
    return bool(asked)


def _computed(binder: ExpressionBinder, plan: LogicalNode, declared: ResolvedSchema) -> LogicalNode:
    expressions = []
    for each in declared.columns:
        text = quoted(_TIME if each.is_metadata() else each.name)
        if isinstance(each, ComputedColumn):
            text = each.expression
        made = binder.bind(parse_expression(text))
        expressions.append(calls.cast(made, each.type) if each.is_metadata() else made)
    return project(plan, expressions, declared.names)


def with_fields(table: Any, fields: Sequence[Any]) -> Any:
    """The table of a stream with columns as ``from_data_stream`` names them.

    Args:
        table: all columns of the stream.
        fields: columns of the stream by their names, or new names by position.

    Raises:
        ProgramError: a field is no column, or there are too many.
    """
    items = [
        nodes.SelectItem(nodes.identifier(e)) if isinstance(e, str) else e.select_item()
        for e in fields
    ]
    if any(isinstance(each.expression, WindowProperty) for each in items):
        message = "rowtime and proctime of fields are not in this release; take a Schema"
        raise ProgramError(message)
    columns = [column_of(each) for each in items]
    known = table.plan.row.names
    if any(name in known for name in columns) or any(each.alias for each in items):
        return table.select(*fields)
    if len(columns) > len(known):
        message = f"{len(columns)} names for the {len(known)} columns of the stream: {columns}"
        raise ProgramError(message)
    return table.select(*known[: len(columns)]).alias(*columns)


def _kinds(mode: Any) -> frozenset[str]:
    return _ALL if mode is None else frozenset(mode.kinds)


class _StreamSink(TableSink):
    """A stream of the program as the end of a plan."""

    def __init__(self, taken: frozenset[str]) -> None:
        self._taken = taken

    def accepts(self, given: frozenset[str]) -> frozenset[str]:
        return self._taken if self._taken != _ALL else given

    def create(self) -> Sink:
        message = "a stream is no sink"
        raise ProgramError(message)


def write_stream(
    session: Session,
    environment: StreamExecutionEnvironment,
    plan: LogicalNode,
    *,
    changelog: bool,
    mode: Any = None,
    type_info: TypeInformation | None = None,
    schema: Schema | None = None,
) -> DataStream:
    """Return a plan as a stream of rows.

    Args:
        session: of the plan.
        environment: of the stream.
        plan: the query.
        changelog: whether rows have kinds.
        mode: which kinds are wanted; None: all.
        type_info: of the rows, whose fields take the columns by position.
        schema: the columns of the rows, which take those of the query by position; one of metadata
            becomes the timestamps.

    Raises:
        ProgramError: the type does not have as many fields as there are columns.
        ValidationError: rows are updated that the stream does not take, or columns do not fit.
    """
    taken = _kinds(mode) if changelog else INSERT_ONLY
    factory = ConformFactory(None, table="the table")
    row = plan.row
    if schema is not None:
        plan, factory = _fitted(session, plan, schema)
        assert factory.columns is not None  # noqa: S101 - made so
        kinds = {each.name: each.type for each in plan.row.fields}
        row = row_of(factory.columns, [kinds[name] for name in factory.columns])
    below = session.converter().convert(plan)
    (node,) = session.planned(
        SinkNode(row=below.row, inputs=(below,), name=_SINK, sink=_StreamSink(taken))
    )
    lowering = session.lowering()
    made = lowering.stream(node.input)
    out = external_type(row) if type_info is None else type_info
    width = -1 if out.arrow_schema is None else len(out.arrow_schema)
    if width != len(row):
        message = f"{type_info} does not have {len(row)} fields: {', '.join(row.names)}"
        raise ProgramError(message)
    conform = OneInputTransformation(
        id=session.program.next_id(),
        location=caller_location(),
        output_type=out,
        name="TableToDataStream",
        kind_name="TableToDataStream",
        input=made,
        parallelism=parallelism_of(made)[0],
        non_parallel=parallelism_of(made)[1],
        factory=factory,
    )
    return DataStream(environment, conform)


def _fitted(
    session: Session, plan: LogicalNode, schema: Schema
) -> tuple[LogicalNode, ConformFactory]:
    """The plan with the columns of a schema, and what makes a stream of it."""
    context = session.context(None)
    declared = resolved(schema, context)
    _asks_for_time(declared)
    table = CatalogTable(schema=declared)
    identifier = ObjectIdentifier("default_catalog", "default_database", _SINK)
    fit = fitted(context, plan, identifier, table)
    fit = with_metadata(fit, table, {_ROWTIME: LocalZonedTimestampType(3)})
    times = [each.name for each in declared.persisted if each.is_metadata()]
    physical = [each for each in declared.persisted if each.is_physical()]
    not_null = [at for at, each in enumerate(physical) if not each.type.is_nullable]
    return fit, ConformFactory(
        tuple(each.name for each in physical),
        tuple(not_null),
        table="the table",
        time_column=times[0] if times else "",
    )
