"""CREATE, DROP and ALTER of tables, views, functions and databases; USE, SET and RESET."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

from millstream.configuration.options import LOCAL_TIME_ZONE, RUNTIME_MODE
from millstream.configuration.redaction import redacted_options
from millstream.errors import CatalogError, UnsupportedSqlError, ValidationError
from millstream.expressions.java.calendars import zone_of
from millstream.sql.binder.binding import query_binder
from millstream.sql.binder.queries import repeated_name
from millstream.sql.catalog.objects import (
    CatalogDatabase,
    CatalogFunction,
    CatalogTable,
    CatalogView,
)
from millstream.sql.catalog.schema import PhysicalColumn, ResolvedSchema
from millstream.sql.parser import nodes
from millstream.sql.parser import statement_nodes as syntax
from millstream.sql.parser.nodes import Node, identifier
from millstream.sql.parser.parser import parse_query
from millstream.sql.parser.unparser import unparse
from millstream.sql.statements.alter import altered, schema_of, source_text
from millstream.sql.statements.session import OK, JobResult, RowsResult, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.binder.scope import BindingContext
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.parser.nodes import Query
    from millstream.sql.planner.logical import LogicalNode
    from millstream.sql.statements.session import Session


def expanded_view(
    session: Session, name: ObjectIdentifier, query: Query, text: str | None
) -> tuple[LogicalNode, str]:
    """The plan of the query of a view, and its text with all names in full.

    Args:
        session: where it is defined.
        name: of the view, which cannot read itself.
        query: its query.
        text: of the statement.

    Raises:
        ValidationError: the query makes no sense, or reads the view.
    """
    context = replace(session.context(text), stars={})
    if session.catalogs.find_table(name.parts) is not None:
        context = replace(context, views=(name.parts,))
    plan = query_binder(context).bind(query)
    expanded = unparse(_Qualified(context, expands=True).node(query, frozenset()))
    if not _means(context, expanded, plan):
        # Columns of ``*`` may hide others, or move those that have no name of their own.
        expanded = unparse(_Qualified(context, expands=False).node(query, frozenset()))
    return plan, expanded


def _means(context: BindingContext, text: str, plan: LogicalNode) -> bool:
    """Return whether a text gives columns of the same types."""
    try:
        found = query_binder(replace(context, text=text, stars=None)).bind(parse_query(text))
    except ValidationError:
        return False
    return list(found.row.children) == list(plan.row.children)


class _Qualified:
    """Makes a query with names in full."""

    def __init__(self, context: BindingContext, *, expands: bool) -> None:
        """Take the surroundings, and whether ``*`` becomes columns."""
        self._context = context
        self._expands = expands

    def node(self, node: Any, common: frozenset[str]) -> Any:
        """The node with the names of tables in full, but those of WITH."""
        if isinstance(node, nodes.WithQuery):
            return self._with(node, common)
        if isinstance(node, nodes.TableReference | nodes.TableQuery):
            node = replace(node, name=self._name(node.name, common))
        elif isinstance(node, nodes.TableArgument) and isinstance(node.table, nodes.Identifier):
            node = replace(node, table=self._name(node.table, common))
        elif isinstance(node, nodes.Select) and self._expands:
            node = replace(node, items=tuple(self._items(node.items)))
        changed = {}
        for each in fields(node):
            before = getattr(node, each.name)
            after = self._inside(before, common)
            if after is not before:
                changed[each.name] = after
        return replace(node, **changed) if changed else node

    def _inside(self, value: Any, common: frozenset[str]) -> Any:
        if isinstance(value, Node):
            return self.node(value, common)
        if isinstance(value, tuple):
            after = tuple(self._inside(each, common) for each in value)
            same = all(one is other for one, other in zip(value, after, strict=True))
            return value if same else after
        return value

    def _with(self, node: nodes.WithQuery, common: frozenset[str]) -> nodes.WithQuery:
        tables = []
        for each in node.tables:
            tables.append(replace(each, query=self.node(each.query, common)))
            common |= {each.name.value}
        return replace(node, tables=tuple(tables), query=self.node(node.query, common))

    def _name(self, name: nodes.Identifier, common: frozenset[str]) -> nodes.Identifier:
        is_own = len(name.names) == 1 and (
            name.names[0] in common or name.names[0] in self._context.inline
        )
        found = None if is_own else self._context.catalogs.find_table(name.names)
        return name if found is None else identifier(*found.identifier.parts)

    def _items(self, items: Any) -> Any:
        for item in items:
            columns = (self._context.stars or {}).get(id(item.expression))
            if columns is None:
                yield item
            else:
                yield from (nodes.SelectItem(identifier(*parts)) for parts in columns)


# -- tables --------------------------------------------------------------------------------------


def _create_table(session: Session, node: Any, text: str | None) -> RowsResult | JobResult:
    context = session.context(text)
    identifier = session.catalogs.qualify(node.name.names)
    if node.replace:
        raise context.error(node, "REPLACE TABLE is not in this release.")
    if node.distribution is not None:
        raise context.error(node.distribution, "DISTRIBUTED BY is not in this release.")
    options = {each.key: each.value for each in node.options}
    base, keys = None, tuple(each.value for each in node.partitioned_by)
    if node.like is not None:
        base, inherited, more = _like(session, node.like, text)
        options = {**inherited, **options}
        keys = keys or more
    plan = None if node.query is None else session.bind(node.query, text)
    schema = schema_of(context, node.columns, node.watermark, node.primary_key, base)
    if plan is not None:
        schema = _selected(context, node, schema, plan)
    if not schema.columns:
        raise context.error(node, "A table needs at least one column.")
    for key in keys:
        if key not in schema.names:
            message = f"Partition column '{key}' is not a column of the table."
            raise context.error(node, message)
    table = CatalogTable(schema=schema, comment=node.comment, options=options, partition_keys=keys)
    # A table that is there already is neither filled nor, if that fails, dropped.
    exists = session.catalogs.has_table(identifier, temporary=node.temporary)
    session.catalogs.create_table(
        identifier, table, temporary=node.temporary, ignore_if_exists=node.if_not_exists
    )
    if plan is None or exists:
        return OK
    return _fill(session, identifier, table, plan, node, text)


def _fill(
    session: Session,
    identifier: ObjectIdentifier,
    table: CatalogTable,
    plan: LogicalNode,
    node: Any,
    text: str | None,
) -> JobResult:
    from millstream.sql.binder.binding import fitted
    from millstream.sql.statements.session import Target

    try:
        fit = fitted(session.context(text), plan, identifier, table, node=node)
        return session.insert([Target(identifier, table, fit)])
    except Exception:
        # What cannot be filled is not there, as in Flink's atomic form.
        session.catalogs.drop_table(
            identifier, temporary=node.temporary, view=False, if_exists=True
        )
        raise


def _selected(context: Any, node: Any, schema: ResolvedSchema, plan: LogicalNode) -> ResolvedSchema:
    """The schema of AS SELECT: the query's columns, and what the statement adds."""
    if node.query_columns:
        raise context.error(node, "Column names alone before AS SELECT are not in this release.")
    from millstream.sql.binder.calls import plain_type

    selected = [PhysicalColumn(each.name, plain_type(each.type)) for each in plan.row.fields]
    if schema.columns or schema.watermark is not None:
        message = "Columns or WATERMARK with AS SELECT are not in this release."
        raise context.error(node, message)
    made = ResolvedSchema(selected)
    if node.primary_key is not None:
        from millstream.sql.statements.alter import with_key

        made = with_key(made, [each.value for each in node.primary_key.columns])
    return made


def _like(
    session: Session, node: Any, text: str | None
) -> tuple[ResolvedSchema, dict[str, str], tuple[str, ...]]:
    """Return what LIKE takes from the other table."""
    found = session.catalogs.find_table(node.table.names)
    if found is None or not isinstance(found.table, CatalogTable):
        hint = session.catalogs.suggest_table(node.table.names)
        message = f"Source table '{node.table}' of the LIKE clause not found.{hint}"
        raise session.context(text).error(node.table, message)
    other = found.table
    excluded = {each.feature for each in node.options if each.strategy.value == "EXCLUDING"}
    if "ALL" in excluded:
        included = {each.feature for each in node.options if each.strategy.value != "EXCLUDING"}
        excluded |= {
            "CONSTRAINTS",
            "GENERATED",
            "METADATA",
            "OPTIONS",
            "PARTITIONS",
            "WATERMARKS",
        } - included
    schema = other.schema
    columns = tuple(
        each
        for each in schema.columns
        if not (each.is_computed() and "GENERATED" in excluded)
        and not (each.is_metadata() and "METADATA" in excluded)
    )
    kept = ResolvedSchema(
        columns,
        [] if "WATERMARKS" in excluded else schema.get_watermark_specs(),
        None if "CONSTRAINTS" in excluded else schema.primary_key,
    )
    options = {} if "OPTIONS" in excluded else dict(other.options)
    return kept, options, () if "PARTITIONS" in excluded else other.partition_keys


def _drop_table(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    identifier = session.catalogs.qualify(node.name.names)
    session.catalogs.drop_table(
        identifier, temporary=node.temporary, view=False, if_exists=node.if_exists
    )
    return OK


def _alter_table(session: Session, node: Any, text: str | None) -> RowsResult:
    found = session.catalogs.find_table(node.name.names)
    if found is None and node.if_exists:
        return OK
    if found is None or not isinstance(found.table, CatalogTable):
        hint = session.catalogs.suggest_table(node.name.names)
        raise session.context(text).error(node.name, f"Table '{node.name}' not found.{hint}")
    if isinstance(node.action, syntax.Rename):
        session.catalogs.rename_table(found.identifier, node.action.to.last)
        return OK
    if isinstance(node.action, syntax.AddPartitions | syntax.DropPartitions):
        from millstream.sql.statements.alter import alter_partitions

        return alter_partitions(session, found, node.action, text)
    table = altered(session.context(text), found.table, node.action)
    session.catalogs.alter_table(found.identifier, table)
    return OK


# -- views ---------------------------------------------------------------------------------------


def _view(
    session: Session,
    identifier: ObjectIdentifier,
    query: Query,
    columns: Any,
    comment: str | None,
    text: str | None,
    node: Any,
) -> CatalogView:
    plan, expanded = expanded_view(session, identifier, query, text)
    names = [each.name.value for each in columns] or list(plan.row.names)
    twice = None if columns else repeated_name(query)
    if twice is not None:
        message = f"A column with the same name '{twice}' has been defined; give a column list."
        raise session.context(text).error(query, message)
    if len(names) != len(plan.row):
        message = f"{len(names)} names for {len(plan.row)} columns."
        raise session.context(text).error(node, message)
    pairs = zip(names, plan.row.fields, strict=True)
    schema = ResolvedSchema([PhysicalColumn(name, field.type) for name, field in pairs])
    original = source_text(text, query)
    return CatalogView(
        schema=schema, comment=comment, original_query=original, expanded_query=expanded
    )


def _create_view(session: Session, node: Any, text: str | None) -> RowsResult:
    identifier = session.catalogs.qualify(node.name.names)
    view = _view(session, identifier, node.query, node.columns, node.comment, text, node)
    session.catalogs.create_table(
        identifier, view, temporary=node.temporary, ignore_if_exists=node.if_not_exists
    )
    return OK


def _alter_view(session: Session, node: Any, text: str | None) -> RowsResult:
    found = session.catalogs.find_table(node.name.names)
    if found is None or not isinstance(found.table, CatalogView):
        hint = session.catalogs.suggest_table(node.name.names)
        raise session.context(text).error(node.name, f"View '{node.name}' not found.{hint}")
    if isinstance(node.action, syntax.Rename):
        session.catalogs.rename_table(found.identifier, node.action.to.last)
        return OK
    query, comment = node.action.query, found.table.comment
    view = _view(session, found.identifier, query, (), comment, text, node)
    session.catalogs.alter_table(found.identifier, view)
    return OK


def _drop_view(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    identifier = session.catalogs.qualify(node.name.names)
    session.catalogs.drop_table(
        identifier, temporary=node.temporary, view=True, if_exists=node.if_exists
    )
    return OK


# -- functions -----------------------------------------------------------------------------------


def _create_function(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    _require_python(node, "CREATE")
    session.catalogs.create_function(
        node.name.names,
        CatalogFunction(implementation=node.path),
        temporary=node.temporary,
        system=node.system,
        ignore_if_exists=node.if_not_exists,
    )
    return OK


def _alter_function(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    if node.temporary or node.system:
        kind = "system" if node.system else "catalog"
        message = f"Alter temporary {kind} function is not supported; drop it and create another."
        raise UnsupportedSqlError(message)
    _require_python(node, "ALTER")
    identifier = session.catalogs.qualify(node.name.names)
    catalog = session.catalogs.catalog(identifier.catalog_name)
    changed = CatalogFunction(implementation=node.path)
    catalog.alter_function(identifier.path, changed, node.if_exists)
    return OK


def _require_python(node: Any, verb: str) -> None:
    if node.language != "PYTHON":
        message = (
            f"Function '{node.name}' is in {node.language or 'JAVA'}; functions are in Python: "
            f"{verb} FUNCTION {node.name} AS 'module.name' LANGUAGE PYTHON."
        )
        raise UnsupportedSqlError(message)


def _drop_function(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    session.catalogs.drop_function(
        node.name.names, temporary=node.temporary, system=node.system, if_exists=node.if_exists
    )
    return OK


# -- databases ----------------------------------------------------------------------


def _place(session: Session, names: tuple[str, ...]) -> tuple[str, str]:
    """Catalog and database of a name of one or two parts."""
    if len(names) > 2:  # noqa: PLR2004 - catalog and database
        message = f"A database has one or two names: '{'.'.join(names)}' has {len(names)}."
        raise ValidationError(message)
    home = session.catalogs.current_catalog
    if len(names) == 1 and home is None:
        message = "A current catalog has not been set; run USE CATALOG first."
        raise CatalogError(message)
    return (str(home), names[0]) if len(names) == 1 else (names[0], names[1])


def _create_database(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    catalog, database = _place(session, node.name.names)
    properties = {each.key: each.value for each in node.options}
    made = CatalogDatabase(properties=properties, comment=node.comment)
    session.catalogs.catalog(catalog).create_database(database, made, node.if_not_exists)
    return OK


def _alter_database(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    catalog, database = _place(session, node.name.names)
    found = session.catalogs.catalog(catalog)
    before = found.get_database(database)
    properties = {**before.properties, **{each.key: each.value for each in node.options}}
    changed = replace(before, properties=properties)
    found.alter_database(database, changed, False)  # noqa: FBT003 - it must be there
    return OK


def _drop_database(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    catalog, database = _place(session, node.name.names)
    if (catalog, database) == (session.catalogs.current_catalog, session.catalogs.current_database):
        message = "Cannot drop a database which is currently in use."
        raise CatalogError(message)
    session.catalogs.catalog(catalog).drop_database(database, node.if_exists, node.cascade)
    return OK


def _use_database(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    catalog, database = _place(session, node.name.names)
    session.catalogs.use_database(database, catalog)
    return OK


# -- options -------------------------------------------------------------------------------------


def _set(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    configuration = session.configuration
    if node.key is None:
        pairs = sorted(redacted_options(configuration.to_dict()).items())
        return texts(["key", "value"], [list(pair) for pair in pairs])
    _check_setting(node.key, node.value)
    known = configuration.to_dict().get(node.key)
    session.before.setdefault(node.key, None if known is None else str(known))
    configuration.set_string(node.key, node.value)
    session.settings[node.key] = node.value
    return OK


def _check_setting(key: str, value: str) -> None:
    """Refuse a value that could not be honoured.

    Raises:
        UnsupportedSqlError: neither batch nor streaming mode.
        ValidationError: there is no such time zone.
    """
    if key == RUNTIME_MODE.key and value.strip().lower() not in {"batch", "streaming"}:
        message = (
            f"Unsupported mode '{value}' for 'execution.runtime-mode'. Only an explicit BATCH mode "
            "or STREAMING mode is supported in Table API."
        )
        raise UnsupportedSqlError(message)
    if key == LOCAL_TIME_ZONE.key:
        try:
            zone_of(LOCAL_TIME_ZONE.read(value))
        except ValueError as error:
            message = f"{key}: {error}; it is one as 'Europe/Berlin' or '+02:00'."
            raise ValidationError(message) from error


def _reset(session: Session, node: Any, text: str | None) -> RowsResult:
    del text
    keys = list(session.settings) if node.key is None else [node.key]
    for key in keys:
        before = session.before.pop(key, None)
        session.settings.pop(key, None)
        session.configuration.remove_config(key)
        if before is not None:
            session.configuration.set_string(key, before)
    return OK


HANDLERS: Final[dict[type, Callable[[Any, Any, str | None], RowsResult | JobResult]]] = {
    syntax.CreateTable: _create_table,
    syntax.DropTable: _drop_table,
    syntax.AlterTable: _alter_table,
    syntax.CreateView: _create_view,
    syntax.AlterView: _alter_view,
    syntax.DropView: _drop_view,
    syntax.CreateFunction: _create_function,
    syntax.AlterFunction: _alter_function,
    syntax.DropFunction: _drop_function,
    syntax.CreateDatabase: _create_database,
    syntax.AlterDatabase: _alter_database,
    syntax.DropDatabase: _drop_database,
    syntax.UseDatabase: _use_database,
    syntax.SetOption: _set,
    syntax.ResetOption: _reset,
}
