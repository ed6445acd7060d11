"""SHOW, DESCRIBE and EXPLAIN."""

from __future__ import annotations

import re
import tempfile
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration import options
from millstream.configuration.redaction import masked_statement, redacted_options
from millstream.errors import CatalogError, UnsupportedSqlError
from millstream.expressions.functions.definition import FunctionKind
from millstream.expressions.functions.registry import built_in_functions
from millstream.sql.binder.calls import AGGREGATES, RANKS, user_definition, user_function
from millstream.sql.catalog.identifiers import quoted
from millstream.sql.catalog.modules import CORE
from millstream.sql.catalog.objects import CatalogTable, CatalogView
from millstream.sql.parser import nodes
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.planner.explain import advice_on, explain_logical, explain_physical
from millstream.sql.planner.logical import row_of
from millstream.sql.planner.physical import nodes_of
from millstream.sql.planner.scans import TableSourceScan
from millstream.sql.statements.catalogs import (
    describe_catalog,
    describe_job,
    show_create_catalog,
    show_jobs,
)
from millstream.sql.statements.session import RowsResult, texts
from millstream.sql.suggestions import did_you_mean
from millstream.types.logical_types import BooleanType, VarCharType

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from millstream.expressions.functions.definition import FunctionDefinition
    from millstream.graph.transformation import Transformation
    from millstream.sql.catalog.catalog import FoundTable
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.schema import ResolvedSchema
    from millstream.sql.planner.physical import PhysicalNode
    from millstream.sql.planner.sinks import SinkNode
    from millstream.sql.statements.session import Session


def describe_function(session: Session, node: Any, text: str | None) -> RowsResult:
    """The rows of DESCRIBE FUNCTION.

    Raises:
        ValidationError: there is no such function.
    """
    names: tuple[str, ...] = node.name.names
    own = user_function(session.context(text), node)
    if own is not None:
        is_system, is_temporary = session.catalogs.place_of_function(names)
        rows = [_said("is system function", is_system), _said("is temporary", is_temporary)]
        if not is_temporary:
            rows += [["class name", own.get_class_name()]]
            rows += [["function language", own.get_function_language()]]
        if node.extended:
            rows += _extended(user_definition(session.context(text), node.name, own), names[-1])
        return texts(["info name", "info value"], rows)
    built_in = built_in_functions()
    definition = built_in.get(names[0].upper()) if len(names) == 1 else None
    if definition is None:
        hint = did_you_mean(names[-1].upper(), [*built_in, *_upper(session)])
        message = f"Function with the identifier '{node.name}' doesn't exist.{hint}"
        raise session.context(text).error(node.name, message)
    rows = [_said("is system function", True), _said("is temporary", False)]  # noqa: FBT003
    if node.extended:
        rows += _extended(definition, definition.name)
    return texts(["info name", "info value"], rows)


def _upper(session: Session) -> Sequence[str]:
    return [each.upper() for each in session.catalogs.function_names()]


def _said(name: str, value: bool) -> list[str]:  # noqa: FBT001 - what is said
    return [name, "true" if value else "false"]


def _extended(definition: FunctionDefinition, name: str) -> list[list[str]]:
    return [
        ["kind", definition.kind.name],
        ["requirements", "[]"],
        _said("is deterministic", definition.deterministic),
        _said("supports constant folding", definition.is_foldable),
        ["signature", _signatures(definition, name)],
    ]


def _signatures(definition: FunctionDefinition, name: str) -> str:
    """One line for each way to call it, with what the arguments may be."""
    if definition.syntax is not None and definition.kind is FunctionKind.SCALAR:
        return definition.syntax  # as no call is written
    lines = []
    for signature in definition.signatures:
        shown = [f"<{argument.text}>" for argument in signature.arguments]
        for count in range(len(shown) - signature.optional, len(shown) + 1):
            more = ["..."] if signature.repeats and count == len(shown) else []
            lines.append(f"{name}({', '.join([*shown[:count], *more])})")
    return "\n".join(dict.fromkeys(lines)) or f"{name}(*)"


def set_known_rows(session: Session, plans: Sequence[PhysicalNode]) -> None:
    """Set the row counts of scans that the statistics of catalogs contain."""
    for node in nodes_of(plans):
        if isinstance(node, TableSourceScan):
            node.known_rows = _rows_of(session, node.identifier)


def _rows_of(session: Session, identifier: ObjectIdentifier) -> int | None:
    """The rows of a table; those of its partitions together, if they are known of each."""
    found = session.catalogs.find_table(identifier.parts)
    if found is None or found.is_temporary:
        return None
    catalog, path = session.catalogs.catalog(identifier.catalog_name), identifier.path
    rows = catalog.get_table_statistics(path).get_row_count()
    if rows >= 0:
        return rows
    table = found.table
    if not isinstance(table, CatalogTable) or not table.partition_keys:
        return None
    if not catalog.facts_of(path).partition_statistics:
        return None  # and its directories need not be looked at
    parts = [
        each.get_row_count()
        for each in catalog.bulk_get_partition_statistics(path, catalog.list_partitions(path))
    ]
    return sum(parts) if parts and min(parts) >= 0 else None


# -- SHOW ----------------------------------------------------------------------------------------


def _matching(names: Sequence[str], pattern: Any) -> list[str]:
    if pattern is None:
        return list(names)
    flags = re.IGNORECASE if pattern.ignore_case else 0
    escaped = re.escape(pattern.pattern).replace("%", ".*").replace("_", ".")
    wanted = re.compile(escaped, flags)
    return [name for name in names if (wanted.fullmatch(name) is not None) != pattern.negated]


def _show(session: Session, node: Any, text: str | None) -> RowsResult:
    kind = node.kind
    if kind is syntax.ShowKind.COLUMNS:
        return _show_columns(session, node, text)
    if kind is syntax.ShowKind.FULL_MODULES:
        entries = [(each.name(), each.used()) for each in session.modules.entries()]
        types = [VarCharType(), BooleanType()]
        return RowsResult(row_of(("module name", "used"), types), entries)
    if kind is syntax.ShowKind.JOBS:
        return show_jobs(session)
    shown = _LISTS.get(kind)
    if shown is None:
        reason = _REASONS.get(kind, "")
        message = f"SHOW {kind.value} is not in this release{reason}."
        raise UnsupportedSqlError(str(session.context(text).error(node, message)))
    title, names = shown
    found = _matching(names(session, node), node.pattern)
    return texts([title], [[name] for name in found])


def _scope(session: Session, node: Any) -> tuple[str | None, str | None]:
    names = () if node.scope is None else node.scope.names
    if not names:
        return None, None
    catalog, database = (None, names[0]) if len(names) == 1 else (names[0], names[1])
    home = catalog or session.catalogs.current_catalog or ""
    if not session.catalogs.catalog(home).database_exists(database):
        message = f"Database {database} does not exist in Catalog {home}."
        raise CatalogError(message)
    return home, database


def _databases(session: Session, node: Any) -> list[str]:
    name = node.scope.last if node.scope is not None else session.catalogs.current_catalog
    return session.catalogs.catalog(name or "").list_databases()


def _user_functions(session: Session, node: Any) -> list[str]:
    # Unlike with tables, Flink takes a database that does not exist for an empty one.
    names = () if node.scope is None else node.scope.names
    return session.catalogs.function_names(*(None, None, *names)[-2:])


def _functions(session: Session, node: Any) -> list[str]:
    if CORE not in session.modules.used:
        return _user_functions(session, node)
    words = [name.lower() for name in built_in_functions() if name[0].isalpha() and " " not in name]
    names = {*words, *(name.lower() for name in (*AGGREGATES, *RANKS) if name[0] != "$")}
    return sorted(names | set(_user_functions(session, node)))


_LISTS: Final[dict[Any, tuple[str, Callable[[Session, Any], list[str]]]]] = {
    syntax.ShowKind.CATALOGS: (
        "catalog name",
        lambda session, _: session.catalogs.catalog_names(),
    ),
    syntax.ShowKind.CURRENT_CATALOG: (
        "current catalog name",
        lambda session, _: [session.catalogs.current_catalog or ""],
    ),
    syntax.ShowKind.DATABASES: ("database name", _databases),
    syntax.ShowKind.CURRENT_DATABASE: (
        "current database name",
        lambda session, _: [session.catalogs.current_database or ""],
    ),
    syntax.ShowKind.TABLES: (
        "table name",
        lambda session, node: session.catalogs.table_names(*_scope(session, node)),
    ),
    syntax.ShowKind.VIEWS: (
        "view name",
        lambda session, node: session.catalogs.view_names(*_scope(session, node)),
    ),
    syntax.ShowKind.FUNCTIONS: ("function name", _functions),
    syntax.ShowKind.USER_FUNCTIONS: ("function name", _user_functions),
    syntax.ShowKind.MODULES: (
        "module name",
        lambda session, _: list(session.modules.used),
    ),
    # There are none, as in a session of Flink that has made none.
    syntax.ShowKind.MATERIALIZED_TABLES: ("materialized table name", lambda *_: []),
    syntax.ShowKind.MODELS: ("model name", lambda *_: []),
    syntax.ShowKind.JARS: ("jars", lambda *_: []),
}
_REASONS: Final[dict[Any, str]] = {
    syntax.ShowKind.PROCEDURES: "; there are no procedures",
    syntax.ShowKind.CONNECTIONS: "; options of a connector stand in WITH of its tables",
}


# -- DESCRIBE ------------------------------------------------------------------------------------


def _table(session: Session, node: Any, text: str | None) -> FoundTable:
    found = session.catalogs.find_table(node.names)
    if found is None:
        hint = session.catalogs.suggest_table(node.names)
        shown = session.catalogs.qualify(node.names).as_summary_string()
        message = f"Tables or views with the identifier '{shown}' doesn't exist.{hint}"
        raise session.context(text).error(node, message)
    return found


def _described(schema: ResolvedSchema) -> list[tuple[object, ...]]:
    rows: list[tuple[object, ...]] = []
    for column in schema.columns:
        kind = column.type
        attribute = ""
        if schema.watermark is not None and schema.watermark.rowtime == column.name:
            attribute = " *ROWTIME*"
        nullable = kind.is_nullable
        shown = kind.with_nullability(True).as_summary_string() + attribute  # noqa: FBT003
        names = ", ".join(schema.key_columns)
        key = f"PRI({names})" if column.name in schema.key_columns else None
        watermark = None
        if schema.watermark is not None and schema.watermark.rowtime == column.name:
            watermark = schema.watermark.expression
        rows.append((column.name, shown, nullable, key, column.explain_extras(), watermark))
    return rows


_DESCRIPTION: Final = ("name", "type", "null", "key", "extras", "watermark")


def _description(schema: ResolvedSchema, pattern: Any = None) -> RowsResult:
    rows = _described(schema)
    kept = set(_matching([str(row[0]) for row in rows], pattern))
    types = [VarCharType(), VarCharType(), BooleanType(), *[VarCharType()] * 3]
    return RowsResult(row_of(_DESCRIPTION, types), [row for row in rows if row[0] in kept])


def _show_columns(session: Session, node: Any, text: str | None) -> RowsResult:
    return _description(_table(session, node.scope, text).table.schema, node.pattern)


def _describe(session: Session, node: Any, text: str | None) -> RowsResult:
    if node.kind == "TABLE":
        return _description(_table(session, node.name, text).table.schema)
    if node.kind == "CATALOG":
        return describe_catalog(session, node, text)
    if node.kind == "DATABASE":
        names = node.name.names
        home = session.catalogs.current_catalog if len(names) == 1 else names[0]
        database = session.catalogs.catalog(home or "").get_database(names[-1])
        rows = [
            ["catalog name", home or ""],
            ["database name", names[-1]],
            ["comment", database.comment or ""],
        ]
        if node.extended:
            properties = sorted(database.properties.items())
            rows += [[f"property:{key}", value] for key, value in properties]
        return texts(["info name", "info value"], rows)
    if node.kind == "FUNCTION":
        return describe_function(session, node, text)
    return describe_job(session, node, text)


def _show_partitions(session: Session, node: Any, text: str | None) -> RowsResult:
    from millstream.sql.statements.alter import show_partitions

    return show_partitions(session, node, text)


def _show_create(session: Session, node: Any, text: str | None) -> RowsResult:
    if node.kind == "CATALOG":
        return show_create_catalog(session, node, text)
    found = _table(session, node.name, text)
    if found.table.is_view != (node.kind == "VIEW"):
        is_, other = ("view", "VIEW") if found.table.is_view else ("table", "TABLE")
        message = f"'{node.name}' is a {is_}; use SHOW CREATE {other}."
        raise session.context(text).error(node.name, message)
    return texts(["result"], [[_created(found)]])


def _created(found: FoundTable) -> str:
    table = found.table
    name = found.identifier.as_serializable_string()
    word = "TEMPORARY " if found.is_temporary else ""
    comment = f"COMMENT '{table.comment}'\n" if table.comment else ""
    if isinstance(table, CatalogView):
        columns = ", ".join(map(quoted, table.schema.names))
        query = masked_statement(table.expanded_query)  # hints have options
        return f"CREATE {word}VIEW {name} ({columns})\n{comment}AS {query}\n"
    assert isinstance(table, CatalogTable)  # noqa: S101 - the other kind
    schema = table.schema
    lines = [column.as_sql() for column in schema.columns]
    if schema.watermark is not None:
        time, expression = quoted(schema.watermark.rowtime), schema.watermark.expression
        lines.append(f"WATERMARK FOR {time} AS {expression}")
    if schema.primary_key is not None:
        columns = ", ".join(map(quoted, schema.key_columns))
        key = quoted(schema.primary_key.name)
        lines.append(f"CONSTRAINT {key} PRIMARY KEY ({columns}) NOT ENFORCED")
    body = ",\n".join(f"  {line}" for line in lines)
    shown = sorted(redacted_options(table.options).items())
    options = ",\n".join(f"  '{key}' = '{value}'" for key, value in shown)
    partitions = ""
    if table.partition_keys:
        partitions = f"PARTITIONED BY ({', '.join(map(quoted, table.partition_keys))})\n"
    return f"CREATE {word}TABLE {name} (\n{body}\n)\n{comment}{partitions}WITH (\n{options}\n)\n"


# -- EXPLAIN -------------------------------------------------------------------------------------


def _explain(session: Session, node: Any, text: str | None) -> RowsResult:
    statement = node.statement
    if isinstance(statement, nodes.Query):
        shown = explain(session, session.bind(statement, text), node.details)
    elif isinstance(statement, syntax.Insert | syntax.StatementSet):
        parts = statement.statements if isinstance(statement, syntax.StatementSet) else (statement,)
        targets = [session.target(each, text) for each in parts]
        shown = explain_targets(session, targets, node.details)
    else:
        message = f"EXPLAIN of {type(statement).__name__} is not in this release."
        raise UnsupportedSqlError(message)
    return texts(["result"], [[shown]])


def explain(session: Session, plan: Any, details: Sequence[str] = ()) -> str:
    """The plan of a query, as text."""
    _check_details(details)
    root: Any = session.result_plan(plan).input
    shown = _sections(session, explain_logical(plan), [root], details)
    if "JSON_EXECUTION_PLAN" in details:
        shown += _execution(session, [session.collected(plan, tempfile.gettempdir())])
    return shown


def explain_targets(session: Session, targets: Sequence[Any], details: Sequence[str] = ()) -> str:
    """The plans of several INSERTs, as text."""
    _check_details(details)
    asts = [
        explain_logical(target.plan, target.identifier.as_summary_string()) for target in targets
    ]
    shown = _sections(session, "\n".join(asts), session.sink_plans(targets), details)
    if "JSON_EXECUTION_PLAN" in details:
        shown += _execution(session, session.sinks(targets))
    return shown


def _sections(session: Session, ast: str, plans: Sequence[SinkNode], details: Sequence[str]) -> str:
    changes, title, behind = "CHANGELOG_MODE" in details, "Optimized Physical Plan", ""
    advice = None
    if "PLAN_ADVICE" in details:
        one_phase = session.configuration.get(options.AGG_PHASE_STRATEGY) == "ONE_PHASE"
        advice = advice_on(plans, mini_batch=session.mini_batches, one_phase=one_phase)
        title, behind = f"{title} With Advice", f"{advice.shown()}\n"
    told = None if advice is None else advice.nodes
    costs = "ESTIMATED_COST" in details
    if costs:
        set_known_rows(session, plans)
    physical = explain_physical(plans, with_changes=changes, with_costs=costs, advice=told)
    return (
        f"== Abstract Syntax Tree ==\n{ast}\n== {title} ==\n{physical}\n{behind}"
        f"== Optimized Execution Plan ==\n{explain_physical(plans, with_changes=False)}"
    )


def _execution(session: Session, ends: Sequence[Transformation]) -> str:
    """The job of some ends, as JSON."""
    from millstream.graph.explain import execution_plan

    graph = session.program.graph_of(ends, "explain")
    return f"\n== Physical Execution Plan ==\n{execution_plan(graph)}"


def _check_details(details: Sequence[str]) -> None:
    for each in details:
        if each not in _DETAILS:
            message = f"EXPLAIN {each} is not in this release; CHANGELOG_MODE is."
            raise UnsupportedSqlError(message)


_DETAILS: Final = ("CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
HANDLERS: Final[dict[type, Callable[[Any, Any, str | None], RowsResult]]] = {
    syntax.Show: _show,
    syntax.ShowCreate: _show_create,
    syntax.ShowPartitions: _show_partitions,
    syntax.Describe: _describe,
    syntax.Explain: _explain,
}
