"""Parse CREATE, ALTER and DROP of tables and views."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from millstream.sql.parser import statement_nodes as s
from millstream.sql.parser.query_parser import QueryParser
from millstream.sql.parser.tokens import NUMBER

if TYPE_CHECKING:
    from millstream.sql.parser.nodes import Expression, Name
    from millstream.types.logical_types import LogicalType

_FEATURES: Final = (
    "ALL",
    "CONSTRAINTS",
    "DISTRIBUTION",
    "GENERATED",
    "METADATA",
    "OPTIONS",
    "PARTITIONS",
    "WATERMARKS",
)


@dataclass(slots=True)
class _Schema:
    """The columns and constraints of a table that have been read so far."""

    columns: list[s.ColumnChange] = field(default_factory=list)
    #: Names without a type, of AS SELECT.
    names: list[Name] = field(default_factory=list)
    watermark: s.Watermark | None = None
    primary_key: s.PrimaryKey | None = None
    distribution: s.Distribution | None = None


class TableParser(QueryParser):
    """Statements of tables and views."""

    __slots__ = ()

    # --- parts that others use as well

    def if_exists(self) -> bool:
        """Take ``IF EXISTS`` if it comes next."""
        return self.accept("IF", "EXISTS")

    def if_not_exists(self) -> bool:
        """Take ``IF NOT EXISTS`` if it comes next."""
        return self.accept("IF", "NOT", "EXISTS")

    def comment(self) -> str | None:
        """Take ``COMMENT '...'`` if it comes next."""
        return self.string() if self.accept("COMMENT") else None

    def with_options(self) -> tuple[s.Option, ...]:
        """Take ``WITH ('key' = 'value')`` if it comes next."""
        return self.options() if self.accept("WITH") else ()

    def options(self) -> tuple[s.Option, ...]:
        """Take ``('key' = 'value', ...)``."""
        self.expect("(")
        if self.accept(")"):
            return ()
        options = self.listed(self._option)
        self.expect(")")
        return options

    def _option(self) -> s.Option:
        start = self.index
        key = self.string()
        self.expect("=")
        return s.Option(key, self.string(), position=self.span(start))

    def partition(self, *, dynamic: bool = False) -> tuple[s.PartitionValue, ...]:
        """Take ``(day = '2024-01-31', ...)``.

        Args:
            dynamic: Whether a column may have no value.
        """

        def value() -> s.PartitionValue:
            start = self.index
            column = self.name()
            if dynamic and not self.at("="):
                self.tried("=")
                return s.PartitionValue(column, position=self.span(start))
            self.expect("=")
            return s.PartitionValue(column, self._signed_literal(), position=self.span(start))

        return self.parenthesized(value)

    def _signed_literal(self) -> Expression:
        if self.at("-") and self.peek_kind() == NUMBER:
            return self.operand(80)
        literal = self.literal()
        if literal is None:
            self.fail_for("a literal")
        return literal

    # --- CREATE TABLE

    def create_table(self, start: int, *, temporary: bool, replace_: bool) -> s.CreateTable:
        """Take what stands behind TABLE."""
        if_not_exists = self.if_not_exists()
        name = self.identifier()
        schema = _Schema()
        begin = self.index
        if self.accept("("):
            self._columns(schema)
            self.expect(")")
        columns = self.span(begin) if self.index > begin else None
        comment = self.comment()
        distribution = self._distribution() if self.accept("DISTRIBUTED") else None
        partitioned_by: tuple[Name, ...] = ()
        if self.accept("PARTITIONED"):
            self.expect("BY")
            partitioned_by = self.parenthesized(self.name)
        options = self.with_options()
        like = self._like() if not replace_ and self.accept("LIKE") else None
        query = self.query() if like is None and self.accept("AS") else None
        if query is None and replace_:
            self.tried("AS")
            self.refuse("REPLACE TABLE takes its rows from a query: AS SELECT ... is missing")
        if query is None and schema.names and columns is not None:
            self.refuse_span(columns, "columns without a type are for CREATE TABLE ... AS SELECT")
        return s.CreateTable(
            name,
            tuple(change.column for change in schema.columns),
            schema.watermark,
            schema.primary_key,
            comment,
            partitioned_by,
            distribution,
            options,
            like,
            query,
            tuple(schema.names),
            temporary,
            if_not_exists,
            replace_,
            position=self.span(start),
        )

    def replace_table(self, start: int) -> s.CreateTable:
        """Take what stands behind REPLACE."""
        temporary = self.accept("TEMPORARY")
        self.expect("TABLE")
        table = self.create_table(start, temporary=temporary, replace_=True)
        return replace(table, create=False)

    def _columns(self, schema: _Schema) -> None:
        if self.at_name() and self.peek() in {",", ")"}:
            schema.names = list(self.listed(self.name))
            return
        self._schema_element(schema)
        while self.accept(","):
            self._schema_element(schema)

    def _schema_element(self, schema: _Schema, *, altered: bool = False) -> None:
        start = self.index
        if self.accept("WATERMARK"):
            if schema.watermark is not None:
                self.refuse_token(start, "a table has one watermark")
            self.expect("FOR")
            column = self.identifier()
            self.expect("AS")
            expression = self.expression()
            schema.watermark = s.Watermark(column, expression, position=self.span(start))
        elif self.words[start] in {"CONSTRAINT", "PRIMARY", "UNIQUE"}:
            self._constraint(schema, None)
        else:
            if not self.at_name():
                self.tried("PRIMARY KEY")
            change = self._column(schema)
            schema.columns.append(self._placed(change, start) if altered else change)

    def _column(self, schema: _Schema) -> s.ColumnChange:
        start = self.index
        name = self.name()
        if self.at("."):
            self.unsupported("a field of a row as a column", "name the whole column")
        column: s.Column
        if self.accept("AS"):
            expression = self.expression()
            comment = self.comment()
            column = s.ComputedColumn(name, expression, comment, position=self.span(start))
        else:
            self.tried("AS")
            type_ = self.type()
            if self.accept("METADATA"):
                column = self._metadata(name, type_, start)
            else:
                if self.words[self.index] in {"CONSTRAINT", "PRIMARY", "UNIQUE"}:
                    self._constraint(schema, name)
                    if self.at("METADATA"):
                        self.refuse("a METADATA column is not part of a key")
                comment = self.comment()
                column = s.PhysicalColumn(name, type_, comment, position=self.span(start))
        return s.ColumnChange(column, position=self.span(start))

    def _metadata(self, name: Name, type_: LogicalType, start: int) -> s.MetadataColumn:
        key = self.string() if self.accept("FROM") else None
        virtual = self.accept("VIRTUAL")
        comment = self.comment()
        return s.MetadataColumn(name, type_, key, virtual, comment, position=self.span(start))

    def _constraint(self, schema: _Schema, column: Name | None) -> None:
        start = self.index
        name = self.name() if self.accept("CONSTRAINT") else None
        if self.at("UNIQUE"):
            self.unsupported("UNIQUE", "take PRIMARY KEY ... NOT ENFORCED")
        self.expect("PRIMARY", "KEY")
        columns = self.parenthesized(self.name) if column is None else (column,)
        if self.at("ENFORCED") or not self.accept("NOT"):
            self.tried("NOT ENFORCED")
            reason = "a key is not enforced here: write NOT ENFORCED after it"
            self.refuse_span(self.span(start), reason)
        self.expect("ENFORCED")
        position = self.span(start)
        if schema.primary_key is not None:
            self.refuse_span(position, "a table has one primary key")
        schema.primary_key = s.PrimaryKey(columns, name, position=position)

    def _distribution(self) -> s.Distribution:
        start = self.index
        kind: str | None = None
        columns: tuple[Name, ...] = ()
        if self.accept("BY"):
            kind = self.accept_any("HASH", "RANGE") or None
            columns = self.parenthesized(self.name)
        elif not self.at("INTO"):
            self.tried("BY")
            self.tried("INTO")
            self.fail()
        buckets = None
        if self.accept("INTO"):
            buckets = self.integer()
            if buckets == 0:
                self.refuse_token(self.index - 1, "there is at least 1 bucket")
            self.expect("BUCKETS")
        return s.Distribution(kind, columns, buckets, position=self.span(start))

    def _like(self) -> s.LikeClause:
        start = self.index
        table = self.identifier()
        options: list[s.LikeOption] = []
        if self.accept("("):
            while not options or not self.accept(")"):
                begin = self.index
                strategy = self.expect_any("INCLUDING", "EXCLUDING", "OVERWRITING")
                feature = self.expect_any(*_FEATURES)
                option = s.LikeOption(
                    s.MergingStrategy(strategy), feature, position=self.span(begin)
                )
                options.append(option)
        return s.LikeClause(table, tuple(options), position=self.span(start))

    # --- ALTER TABLE

    def alter_table(self, start: int) -> s.AlterTable:
        """Take what stands behind ALTER TABLE."""
        if_exists = self.if_exists()
        name = self.identifier()
        action = self._table_action()
        return s.AlterTable(name, action, if_exists, position=self.span(start))

    def _table_action(self) -> s.AlterAction:
        start = self.index
        word = self.expect_any("RENAME", "SET", "RESET", "ADD", "MODIFY", "DROP")
        if word == "RENAME":
            return self._rename(start)
        if word == "SET":
            return s.SetOptions(self.options(), position=self.span(start))
        if word == "RESET":
            return s.ResetOptions(self._reset_keys(), position=self.span(start))
        if word == "DROP":
            return self._drop(start)
        if word == "ADD" and (self.at("PARTITION") or self.at("IF", "NOT", "EXISTS")):
            return self._add_partitions(start)
        return self._change_schema(start, modify=word == "MODIFY")

    def option_keys(self) -> tuple[str, ...]:
        """Take ``('key', ...)``."""
        self.expect("(")
        if self.accept(")"):
            return ()
        keys = self.listed(self.string)
        self.expect(")")
        return keys

    def _reset_keys(self) -> tuple[str, ...]:
        """Take the keys of RESET, of which there is at least one, and ``connector`` none."""
        start = self.index
        keys = self.option_keys()
        if not keys:
            self.refuse_span(self.span(start), "ALTER TABLE RESET does not support empty key")
        if "connector" in keys:
            message = "ALTER TABLE RESET does not support changing 'connector'"
            self.refuse_span(self.span(start), message)
        return keys

    def _rename(self, start: int) -> s.AlterAction:
        if self.accept("TO"):
            return s.Rename(self.identifier(), position=self.span(start))
        column = self.identifier()
        self.expect("TO")
        to = self.name()
        return s.RenameColumn(column, to, position=self.span(start))

    def _change_schema(self, start: int, *, modify: bool) -> s.ChangeSchema:
        schema = _Schema()
        if self.accept("("):
            self._schema_element(schema, altered=True)
            while self.accept(","):
                self._schema_element(schema, altered=True)
            self.expect(")")
        elif self.accept("DISTRIBUTION"):
            schema.distribution = self._distribution()
        else:
            self._schema_element(schema, altered=True)
        return s.ChangeSchema(
            modify,
            tuple(schema.columns),
            schema.watermark,
            schema.primary_key,
            schema.distribution,
            position=self.span(start),
        )

    def _placed(self, change: s.ColumnChange, start: int) -> s.ColumnChange:
        if self.accept("FIRST"):
            return s.ColumnChange(change.column, first=True, position=self.span(start))
        if self.accept("AFTER"):
            return s.ColumnChange(change.column, after=self.name(), position=self.span(start))
        return change

    def _add_partitions(self, start: int) -> s.AddPartitions:
        if_not_exists = self.if_not_exists()
        partitions: list[s.AddedPartition] = []
        while not partitions or self.at("PARTITION"):
            begin = self.index
            self.expect("PARTITION")
            values = self.partition()
            options = self.with_options()
            partitions.append(s.AddedPartition(values, options, position=self.span(begin)))
        return s.AddPartitions(tuple(partitions), if_not_exists, position=self.span(start))

    def _drop(self, start: int) -> s.AlterAction:
        if self.at("PARTITION") or self.at("IF", "EXISTS"):
            if_exists = self.if_exists()

            def dropped() -> tuple[s.PartitionValue, ...]:
                self.expect("PARTITION")
                return self.partition()

            partitions = self.listed(dropped)
            return s.DropPartitions(partitions, if_exists, position=self.span(start))
        if self.accept("PRIMARY"):
            self.expect("KEY")
            return s.DropPrimaryKey(position=self.span(start))
        if self.accept("CONSTRAINT"):
            return s.DropConstraint(self.name(), position=self.span(start))
        if self.accept("WATERMARK"):
            return s.DropWatermark(position=self.span(start))
        if self.accept("DISTRIBUTION"):
            return s.DropDistribution(position=self.span(start))
        several = self.at("(")
        columns = self.parenthesized(self.identifier) if several else (self.identifier(),)
        return s.DropColumns(columns, position=self.span(start))

    # --- views

    def create_view(self, start: int, *, temporary: bool) -> s.CreateView:
        """Take what stands behind VIEW."""
        if_not_exists = self.if_not_exists()
        name = self.identifier()
        columns = self.parenthesized(self._view_column) if self.at("(") else ()
        comment = self.comment()
        self.expect("AS")
        query = self.query()
        return s.CreateView(
            name, query, columns, comment, temporary, if_not_exists, position=self.span(start)
        )

    def _view_column(self) -> s.ViewColumn:
        start = self.index
        return s.ViewColumn(self.name(), position=self.span(start))

    def alter_view(self, start: int) -> s.AlterView:
        """Take what stands behind ALTER VIEW."""
        name = self.identifier()
        begin = self.index
        action: s.AlterAction
        if self.expect_any("RENAME", "AS") == "AS":
            action = s.AlterViewQuery(self.query(), position=self.span(begin))
        else:
            self.expect("TO")
            action = s.Rename(self.identifier(), position=self.span(begin))
        return s.AlterView(name, action, position=self.span(start))
