"""Nodes to Flink's SQL: what SHOW CREATE prints, and what views are kept as.

The text is canonical: names in backticks, built-in functions as written, one space between words,
queries on one line, tables with a line for each column.  Parsed again it gives equal nodes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatchmethod
from typing import TYPE_CHECKING

from millstream.sql.parser import nodes as n
from millstream.sql.parser.expression_unparser import (
    identifier_text,
    name_text,
    names_text,
    type_text,
)
from millstream.sql.parser.query_unparser import QueryUnparser
from millstream.sql.parser.strings import quote

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["unparse"]


def unparse(node: n.Statement | n.Expression | n.Relation) -> str:
    """The canonical text of a statement, a query, an expression or a relation.

    Args:
        node: What to write.
    """
    if isinstance(node, n.Expression):
        return _UNPARSER.expression(node)
    return _UNPARSER.relation(node) if isinstance(node, n.Relation) else _UNPARSER.statement(node)


class _StatementUnparser(QueryUnparser):
    def statement(self, statement: n.Statement) -> str:
        """The text of a statement."""
        if isinstance(statement, n.Query):
            return self.query(statement)
        return " ".join(part for part in self._words(statement) if part)

    @singledispatchmethod
    def _words(self, statement: n.Statement) -> Iterable[str]:
        message = f"no statement of the parser's: {type(statement).__name__}"
        raise TypeError(message)

    # --- tables

    @_words.register
    def _of_create_table(self, table: n.CreateTable) -> Iterable[str]:
        verb = "CREATE OR REPLACE" if table.replace and table.create else "CREATE"
        yield verb if table.create else "REPLACE"
        yield "TEMPORARY" * table.temporary
        yield "TABLE"
        yield _if_not_exists(table.if_not_exists)
        yield "\n".join(self._table_parts(table))

    def _table_parts(self, table: n.CreateTable) -> Iterable[str]:
        elements = [self._column(column) for column in table.columns]
        elements += [name_text(name) for name in table.query_columns]
        elements += self._keys(table.watermark, table.primary_key)
        name = identifier_text(table.name)
        yield f"{name} {_lines(elements)}" if elements else name
        if table.comment is not None:
            yield f"COMMENT {quote(table.comment)}"
        if table.distribution is not None:
            yield f"DISTRIBUTED {_distribution(table.distribution)}"
        if table.partitioned_by:
            yield f"PARTITIONED BY {names_text(table.partitioned_by)}"
        if table.options:
            yield f"WITH {_options(table.options)}"
        if table.like is not None:
            yield _like(table.like)
        if table.query is not None:
            yield f"AS {self.query(table.query)}"

    def _column(self, column: n.Column) -> str:
        text = name_text(column.name)
        match column:
            case n.ComputedColumn():
                text += f" AS {self.expression(column.expression)}"
                comment = column.comment
            case n.MetadataColumn():
                text += f" {type_text(column.type)} METADATA"
                text += "" if column.key is None else f" FROM {quote(column.key)}"
                text += " VIRTUAL" * column.virtual
                comment = column.comment
            case n.PhysicalColumn():
                text += f" {type_text(column.type)}"
                comment = column.comment
            case _:
                message = f"no column of the parser's: {type(column).__name__}"
                raise TypeError(message)
        return text if comment is None else f"{text} COMMENT {quote(comment)}"

    def _keys(self, watermark: n.Watermark | None, key: n.PrimaryKey | None) -> Iterable[str]:
        if watermark is not None:
            column = identifier_text(watermark.column)
            yield f"WATERMARK FOR {column} AS {self.expression(watermark.expression)}"
        if key is not None:
            name = "" if key.name is None else f"CONSTRAINT {name_text(key.name)} "
            yield f"{name}PRIMARY KEY {names_text(key.columns)} NOT ENFORCED"

    @_words.register
    def _of_drop_table(self, drop: n.DropTable) -> Iterable[str]:
        yield "DROP"
        yield "TEMPORARY" * drop.temporary
        yield "TABLE"
        yield _if_exists(drop.if_exists)
        yield identifier_text(drop.name)

    @_words.register
    def _of_alter_table(self, alter: n.AlterTable) -> Iterable[str]:
        yield "ALTER TABLE"
        yield _if_exists(alter.if_exists)
        yield identifier_text(alter.name)
        yield self._action(alter.action)

    @singledispatchmethod
    def _action(self, action: n.AlterAction) -> str:
        message = f"no action of the parser's: {type(action).__name__}"
        raise TypeError(message)

    @_action.register
    def _of_rename(self, action: n.Rename) -> str:
        return f"RENAME TO {identifier_text(action.to)}"

    @_action.register
    def _of_rename_column(self, action: n.RenameColumn) -> str:
        return f"RENAME {identifier_text(action.column)} TO {name_text(action.to)}"

    @_action.register
    def _of_set_options(self, action: n.SetOptions) -> str:
        return f"SET {_options(action.options)}"

    @_action.register
    def _of_reset_options(self, action: n.ResetOptions) -> str:
        return f"RESET {_lines([quote(key) for key in action.keys])}"

    @_action.register
    def _of_set_comment(self, action: n.SetComment) -> str:
        return f"COMMENT {quote(action.comment)}"

    @_action.register
    def _of_change_schema(self, action: n.ChangeSchema) -> str:
        verb = "MODIFY" if action.modify else "ADD"
        if action.distribution is not None:
            return f"{verb} DISTRIBUTION {_distribution(action.distribution)}"
        elements = [self._change(change) for change in action.columns]
        elements += self._keys(action.watermark, action.primary_key)
        return f"{verb} {_lines(elements)}"

    def _change(self, change: n.ColumnChange) -> str:
        after = "" if change.after is None else f" AFTER {name_text(change.after)}"
        return f"{self._column(change.column)}{' FIRST' * change.first}{after}"

    @_action.register
    def _of_drop_columns(self, action: n.DropColumns) -> str:
        return f"DROP {_lines([identifier_text(each) for each in action.columns])}"

    @_action.register
    def _of_drop_primary_key(self, _action: n.DropPrimaryKey) -> str:
        return "DROP PRIMARY KEY"

    @_action.register
    def _of_drop_constraint(self, action: n.DropConstraint) -> str:
        return f"DROP CONSTRAINT {name_text(action.name)}"

    @_action.register
    def _of_drop_watermark(self, _action: n.DropWatermark) -> str:
        return "DROP WATERMARK"

    @_action.register
    def _of_drop_distribution(self, _action: n.DropDistribution) -> str:
        return "DROP DISTRIBUTION"

    @_action.register
    def _of_add_partitions(self, action: n.AddPartitions) -> str:
        texts = [f"ADD {_if_not_exists(action.if_not_exists)}".strip()]
        for added in action.partitions:
            options = f" WITH {_options(added.options)}" if added.options else ""
            texts.append(f"{self._partition(added.values)}{options}")
        return " ".join(texts)

    @_action.register
    def _of_drop_partitions(self, action: n.DropPartitions) -> str:
        partitions = ", ".join(map(self._partition, action.partitions))
        return f"DROP {_if_exists(action.if_exists)} {partitions}".replace("  ", " ", 1)

    @_action.register
    def _of_alter_view_query(self, action: n.AlterViewQuery) -> str:
        return f"AS {self.query(action.query)}"

    def _partition(self, values: Iterable[n.PartitionValue]) -> str:
        texts = (
            name_text(each.column)
            + ("" if each.value is None else f" = {self.expression(each.value)}")
            for each in values
        )
        return f"PARTITION ({', '.join(texts)})"

    # --- views

    @_words.register
    def _of_create_view(self, view: n.CreateView) -> Iterable[str]:
        yield "CREATE"
        yield "TEMPORARY" * view.temporary
        yield "VIEW"
        yield _if_not_exists(view.if_not_exists)
        yield identifier_text(view.name)
        if view.columns:
            yield names_text(column.name for column in view.columns)
        if view.comment is not None:
            yield f"COMMENT {quote(view.comment)}"
        yield f"AS {self.query(view.query)}"

    @_words.register
    def _of_alter_view(self, alter: n.AlterView) -> Iterable[str]:
        yield f"ALTER VIEW {identifier_text(alter.name)} {self._action(alter.action)}"

    @_words.register
    def _of_drop_view(self, drop: n.DropView) -> Iterable[str]:
        yield "DROP"
        yield "TEMPORARY" * drop.temporary
        yield "VIEW"
        yield _if_exists(drop.if_exists)
        yield identifier_text(drop.name)

    # --- functions, catalogs, databases

    @_words.register
    def _of_create_function(self, function: n.CreateFunction) -> Iterable[str]:
        yield "CREATE"
        yield "TEMPORARY" * function.temporary
        yield "SYSTEM" * function.system
        yield "FUNCTION"
        yield _if_not_exists(function.if_not_exists)
        yield identifier_text(function.name)
        yield _implementation(function.path, function.language)
        if function.options:
            yield f"WITH {_options(function.options)}"

    @_words.register
    def _of_alter_function(self, function: n.AlterFunction) -> Iterable[str]:
        yield "ALTER"
        yield "TEMPORARY" * function.temporary
        yield "SYSTEM" * function.system
        yield "FUNCTION"
        yield _if_exists(function.if_exists)
        yield identifier_text(function.name)
        yield _implementation(function.path, function.language)

    @_words.register
    def _of_drop_function(self, function: n.DropFunction) -> Iterable[str]:
        yield "DROP"
        yield "TEMPORARY" * function.temporary
        yield "SYSTEM" * function.system
        yield "FUNCTION"
        yield _if_exists(function.if_exists)
        yield identifier_text(function.name)

    @_words.register
    def _of_create_catalog(self, catalog: n.CreateCatalog) -> Iterable[str]:
        yield "CREATE CATALOG"
        yield _if_not_exists(catalog.if_not_exists)
        yield name_text(catalog.name)
        if catalog.comment is not None:
            yield f"COMMENT {quote(catalog.comment)}"
        if catalog.options:
            yield f"WITH {_options(catalog.options)}"

    @_words.register
    def _of_alter_catalog(self, alter: n.AlterCatalog) -> Iterable[str]:
        yield f"ALTER CATALOG {name_text(alter.name)} {self._action(alter.action)}"

    @_words.register
    def _of_drop_catalog(self, drop: n.DropCatalog) -> Iterable[str]:
        yield "DROP CATALOG"
        yield _if_exists(drop.if_exists)
        yield name_text(drop.name)

    @_words.register
    def _of_create_database(self, database: n.CreateDatabase) -> Iterable[str]:
        yield "CREATE DATABASE"
        yield _if_not_exists(database.if_not_exists)
        yield identifier_text(database.name)
        if database.comment is not None:
            yield f"COMMENT {quote(database.comment)}"
        if database.options:
            yield f"WITH {_options(database.options)}"

    @_words.register
    def _of_alter_database(self, alter: n.AlterDatabase) -> Iterable[str]:
        yield f"ALTER DATABASE {identifier_text(alter.name)} SET {_options(alter.options)}"

    @_words.register
    def _of_drop_database(self, drop: n.DropDatabase) -> Iterable[str]:
        yield "DROP DATABASE"
        yield _if_exists(drop.if_exists)
        yield identifier_text(drop.name)
        yield "CASCADE" * drop.cascade

    @_words.register
    def _of_use_catalog(self, use: n.UseCatalog) -> Iterable[str]:
        yield f"USE CATALOG {name_text(use.name)}"

    @_words.register
    def _of_use_database(self, use: n.UseDatabase) -> Iterable[str]:
        yield f"USE {identifier_text(use.name)}"

    @_words.register
    def _of_use_modules(self, use: n.UseModules) -> Iterable[str]:
        yield f"USE MODULES {', '.join(map(name_text, use.names))}"

    @_words.register
    def _of_load_module(self, load: n.LoadModule) -> Iterable[str]:
        yield f"LOAD MODULE {name_text(load.name)}"
        if load.options:
            yield f"WITH {_options(load.options)}"

    @_words.register
    def _of_unload_module(self, unload: n.UnloadModule) -> Iterable[str]:
        yield f"UNLOAD MODULE {name_text(unload.name)}"

    # --- writing

    @_words.register
    def _of_insert(self, insert: n.Insert) -> Iterable[str]:
        yield f"INSERT {'OVERWRITE' if insert.overwrite else 'INTO'}"
        yield identifier_text(insert.table)
        if insert.hints:
            yield self.hints(insert.hints)
        if insert.partition:
            yield self._partition(insert.partition)
        if insert.columns:
            yield f"({', '.join(map(identifier_text, insert.columns))})"
        yield self.query(insert.query)
        if insert.on_conflict is not None:
            yield f"ON CONFLICT DO {insert.on_conflict}"

    @_words.register
    def _of_statement_set(self, statements: n.StatementSet) -> Iterable[str]:
        yield f"EXECUTE {self._statement_set(statements)}"

    def _statement_set(self, statements: n.StatementSet) -> str:
        inserts = "".join(f"{self.statement(each)};\n" for each in statements.statements)
        return f"STATEMENT SET BEGIN\n{inserts}END"

    def _in_set(self, statement: n.Statement) -> str:
        """A statement where a set has no EXECUTE before it."""
        if isinstance(statement, n.StatementSet):
            return self._statement_set(statement)
        return self.statement(statement)

    @_words.register
    def _of_execute(self, execute: n.Execute) -> Iterable[str]:
        yield f"EXECUTE {self.statement(execute.statement)}"

    @_words.register
    def _of_compile_plan(self, plan: n.CompilePlan) -> Iterable[str]:
        yield f"COMPILE PLAN {quote(plan.path)}"
        yield _if_not_exists(plan.if_not_exists)
        yield f"FOR {self._in_set(plan.statement)}"

    @_words.register
    def _of_execute_plan(self, plan: n.ExecutePlan) -> Iterable[str]:
        yield f"EXECUTE PLAN {quote(plan.path)}"

    @_words.register
    def _of_compile_and_execute_plan(self, plan: n.CompileAndExecutePlan) -> Iterable[str]:
        yield f"COMPILE AND EXECUTE PLAN {quote(plan.path)} FOR {self._in_set(plan.statement)}"

    @_words.register
    def _of_delete(self, delete: n.Delete) -> Iterable[str]:
        alias = "" if delete.alias is None else f" AS {name_text(delete.alias)}"
        yield f"DELETE FROM {identifier_text(delete.table)}{alias}"  # noqa: S608 - a text, for people and for the parser
        if delete.where is not None:
            yield f"WHERE {self.expression(delete.where)}"

    @_words.register
    def _of_update(self, update: n.Update) -> Iterable[str]:
        alias = "" if update.alias is None else f" AS {name_text(update.alias)}"
        yield f"UPDATE {identifier_text(update.table)}{alias} SET"
        yield ", ".join(
            f"{name_text(each.column)} = {self.expression(each.value)}"
            for each in update.assignments
        )
        if update.where is not None:
            yield f"WHERE {self.expression(update.where)}"

    @_words.register
    def _of_truncate_table(self, truncate: n.TruncateTable) -> Iterable[str]:
        yield f"TRUNCATE TABLE {identifier_text(truncate.name)}"

    @_words.register
    def _of_analyze_table(self, analyze: n.AnalyzeTable) -> Iterable[str]:
        yield f"ANALYZE TABLE {identifier_text(analyze.name)}"
        if analyze.partition:
            yield self._partition(analyze.partition)
        yield "COMPUTE STATISTICS"
        yield "FOR ALL COLUMNS" * analyze.all_columns
        if analyze.columns:
            yield f"FOR COLUMNS {', '.join(map(name_text, analyze.columns))}"

    @_words.register
    def _of_call(self, call: n.Call) -> Iterable[str]:
        yield f"CALL {self.expression(call.call)}"

    # --- looking, and the session

    @_words.register
    def _of_show(self, show: n.Show) -> Iterable[str]:
        yield f"SHOW {show.kind}"
        if show.scope is not None:
            yield f"FROM {identifier_text(show.scope)}"
        if show.pattern is not None:
            like = "ILIKE" if show.pattern.ignore_case else "LIKE"
            yield f"{'NOT ' * show.pattern.negated}{like} {quote(show.pattern.pattern)}"

    @_words.register
    def _of_show_partitions(self, show: n.ShowPartitions) -> Iterable[str]:
        yield f"SHOW PARTITIONS {identifier_text(show.table)}"
        if show.partition:
            yield self._partition(show.partition)

    @_words.register
    def _of_show_create(self, show: n.ShowCreate) -> Iterable[str]:
        yield f"SHOW CREATE {show.kind} {identifier_text(show.name)}"

    @_words.register
    def _of_describe(self, describe: n.Describe) -> Iterable[str]:
        yield "DESCRIBE"
        if describe.kind == "JOB":
            yield f"JOB {quote(describe.name.last)}"
            return
        yield "" if describe.kind == "TABLE" else describe.kind
        yield "EXTENDED" * describe.extended
        yield identifier_text(describe.name)

    @_words.register
    def _of_explain(self, explain: n.Explain) -> Iterable[str]:
        yield "EXPLAIN"
        yield ", ".join(explain.details)
        yield self._in_set(explain.statement)

    @_words.register
    def _of_set_option(self, option: n.SetOption) -> Iterable[str]:
        yield "SET"
        if option.key is not None and option.value is not None:
            yield f"{quote(option.key)} = {quote(option.value)}"

    @_words.register
    def _of_reset_option(self, option: n.ResetOption) -> Iterable[str]:
        yield "RESET"
        yield "" if option.key is None else quote(option.key)

    @_words.register
    def _of_stop_job(self, stop: n.StopJob) -> Iterable[str]:
        yield f"STOP JOB {quote(stop.job_id)}"
        yield "WITH SAVEPOINT" * stop.with_savepoint
        yield "WITH DRAIN" * stop.with_drain


def _lines(elements: Sequence[str]) -> str:
    """Elements in parentheses, each on a line of its own."""
    return "(\n  " + ",\n  ".join(elements) + "\n)" if elements else "()"


def _options(options: Iterable[n.Option]) -> str:
    return _lines([f"{quote(option.key)} = {quote(option.value)}" for option in options])


def _distribution(distribution: n.Distribution) -> str:
    text = f"INTO {distribution.buckets} BUCKETS" if distribution.buckets is not None else ""
    if not distribution.columns:
        return text
    kind = distribution.kind or ""
    return f"BY {kind}{names_text(distribution.columns)} {text}".rstrip()


def _like(like: n.LikeClause) -> str:
    text = f"LIKE {identifier_text(like.table)}"
    options = [f"{option.strategy} {option.feature}" for option in like.options]
    return text + (" (\n  " + "\n  ".join(options) + "\n)" if options else "")


def _implementation(path: str, language: str | None) -> str:
    return f"AS {quote(path)}" + ("" if language is None else f" LANGUAGE {language}")


def _if_exists(if_exists: bool) -> str:  # noqa: FBT001
    return "IF EXISTS" * if_exists


def _if_not_exists(if_not_exists: bool) -> str:  # noqa: FBT001
    return "IF NOT EXISTS" * if_not_exists


_UNPARSER = _StatementUnparser()
