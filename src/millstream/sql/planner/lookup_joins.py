"""Lookup joins: each row with the rows of a table outside as it is now."""

from __future__ import annotations

from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from millstream.connectors.formats.row_format import row_of_columns
from millstream.errors import ValidationError
from millstream.expressions.nodes import Call, InputReference
from millstream.runtime.operators.table.lookup_join import LookupJoinFactory, LookupPolicy
from millstream.sql.planner import logical as lp
from millstream.sql.planner import physical as pp
from millstream.sql.planner.calcs import (
    Converts,
    calc,
    conjunction,
    conjuncts,
    exchange,
    is_deterministic,
    plain,
    reads_once,
    substituted,
)
from millstream.sql.planner.formatting import expression_text

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.expressions.nodes import Expression
    from millstream.graph.transformation import Transformation
    from millstream.sql.catalog.connectors import TableLookup
    from millstream.sql.catalog.identifiers import ObjectIdentifier
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.types.logical_types import LogicalType, RowType


class LookupJoin(pp.PhysicalNode):
    """Each row of the left with the rows of a table outside as it is now."""

    join: lp.JoinType
    identifier: ObjectIdentifier
    table: CatalogTable
    lookup: TableLookup
    #: The columns that the table gives, and those that it is asked by.
    table_row: RowType
    names: tuple[str, ...]
    #: The columns of the left with the values.
    keys: pp.Columns
    #: What the keys are, for people.
    texts: tuple[str, ...]
    #: Over the columns of the table: the columns of the right, and which rows count.
    right_row: RowType
    projections: tuple[Expression, ...]
    table_condition: Expression | None
    #: Over both sides, beside the keys.
    condition: pp.Condition
    #: Whether there is at most one row for a key.
    is_one_row: bool
    hint: lp.LookupHint = field(default=lp.LookupHint())

    passes_changes = True
    is_pruned = True

    def details(self) -> str:
        pairs = zip(self.names, self.texts, strict=True)
        path = self.identifier.as_summary_string()
        if len(self.table_row) < len(self.table.schema.stored):
            path += f", project=[{', '.join(self.table_row.names)}]"
        parts = [
            f"table=[{path}]",
            f"joinType=[{self.join.value}]",
            f"lookup=[{', '.join(f'{name}={text}' for name, text in pairs)}]",
        ]
        if self.table_condition is not None:
            parts.append(f"where=[{expression_text(self.table_condition)}]")
        if self.condition is not None:
            parts.append(f"joinCondition=[{expression_text(self.condition)}]")
        return ", ".join([*parts, f"select=[{self.fields_text()}]"]) + self.hint.text

    def narrowed(
        self, wanted: set[int], narrow: Callable[[pp.PhysicalNode], pp.Narrowed]
    ) -> pp.Narrowed:
        """The node with what is read alone, of the table, too."""
        width = len(self.input.row)
        below, lefts = narrow(self.input)
        read = wanted if self.condition is None else wanted | pp.columns_of(self.condition)
        rights = sorted(each - width for each in read if each >= width)
        held = {self.table_row.index_of(name) for name in self.names}
        if not rights:
            # Rather one that is asked for anyway.
            told = [at for at, each in enumerate(self.projections) if pp.columns_of(each) <= held]
            row = pp.some_fields(self.right_row, told) if told else self.right_row
            (cheapest,) = row_of_columns(row, ()).names
            rights = [self.right_row.index_of(cheapest)]
        projections = tuple(self.projections[each] for each in rights)
        held = held.union(*map(pp.columns_of, projections))
        if self.table_condition is not None:
            held |= pp.columns_of(self.table_condition)
        asked, kept = sorted(held), [*lefts, *(each + width for each in rights)]
        if len(asked) == len(self.table_row) and len(kept) == len(self.row):
            return replace(self, inputs=(below,), kinds=None), kept
        made = replace(
            self,
            row=pp.some_fields(self.row, kept),
            inputs=(below,),
            lookup=self.lookup.with_columns([self.table_row.names[each] for each in asked]),
            table_row=pp.some_fields(self.table_row, asked),
            keys=pp.with_columns(self.keys, lefts.index),
            right_row=pp.some_fields(self.right_row, rights),
            projections=pp.with_columns(projections, asked.index),
            table_condition=pp.with_columns(self.table_condition, asked.index),
            condition=pp.with_columns(self.condition, kept.index),
            kinds=None,
        )
        return made, kept

    def keeps_time(self, column: int) -> bool:
        return column < len(self.input.row) and self.input.keeps_time(column)

    def unique_keys(self) -> pp.Keys:
        return self.input.unique_keys() if self.is_one_row else pp.NO_KEYS

    def planned(self, planner: pp.PlansChanges, required: str) -> pp.PhysicalNode | None:
        # An update replaces the row before it where each row comes out as one.
        keeps_each = self.join is lp.JoinType.LEFT and self.is_one_row
        if required == pp.AFTER and not keeps_each:
            return None
        return super().planned(planner, required)

    def words(self, origins: pp.Origins) -> str:
        below, names = origins.columns(self.input), self.table_row.names
        inside = [f"{self.identifier}.{name}" for name in names]
        keys = ", ".join(below[key] for key in self.keys)
        condition = origins.text(self.table_condition, inside)
        both = origins.text(self.condition, self.made_of(origins))
        asked = f"{self.identifier} {self.names} [{keys}] [{condition}] [{both}]"
        return f"{self.kind} {self.join.name} {asked}"

    def made_of(self, origins: pp.Origins) -> list[str]:
        inside = [f"{self.identifier}.{name}" for name in self.table_row.names]
        right = (origins.text(each, inside) for each in self.projections)
        return [*origins.columns(self.input), *right]

    def operator(self, lowering: pp.Lowers) -> Transformation:
        hint, lookup = self.hint, self.lookup
        factory = lowering.factory(
            LookupJoinFactory,
            self,
            table_type=self.table_row,
            right_type=self.right_row,
            source=lookup.source,
            table=self.identifier.as_summary_string(),
            caching=lookup.caching,
            asking=LookupPolicy(
                max_retries=lookup.max_retries,
                miss_attempts=hint.max_attempts,
                miss_delay=hint.retry_delay,
                capacity=hint.capacity if hint.is_async else 0,
                unordered=hint.is_unordered,
                timeout=hint.timeout,
            ),
        )
        return lowering.one(self.kind, factory, lowering.stream(self.input), self.row, ticks=True)


def nullable(kind: LogicalType) -> LogicalType:
    """The type of a column of a side that may be missing."""
    return plain(kind).with_nullability(True)  # noqa: FBT003


def lookup_join(converter: Converts, node: Any) -> pp.PhysicalNode:
    """Each row of the left with the rows of the right as they are now.

    Raises:
        ValidationError: the right cannot be asked for rows, or not by these columns.
    """
    scan, projections, conditions = _looked_up(node.right)
    left = converter.convert(node.left)
    width = len(left.row)
    keys, rest = _keys(conjuncts(node.condition), width, projections, scan)
    if not keys:
        shown = scan.identifier.as_summary_string()
        message = (
            f"Temporal table join requires an equality condition on fields of table [{shown}], as "
            "they are, with a column of the left table or a constant."
        )
        raise ValidationError(message)
    lookup = scan.source.lookup(list(keys))
    if lookup is None:
        raise ValidationError(_no_lookup(scan))
    inputs, columns = _asking(left, list(keys.values()))
    if node.lookup.is_shuffled and pp.kinds_of(left) == pp.INSERTS:
        inputs = exchange(inputs, tuple(columns))
    shift = len(inputs.row) - width
    keeps = node.kind is lp.JoinType.LEFT
    right = [nullable(each) if keeps else plain(each) for each in node.right.row.children]
    row = lp.row_of([*inputs.row.names, *node.right.row.names], [*inputs.row.children, *right])
    primary = scan.table.schema.key_columns
    made: pp.PhysicalNode = LookupJoin(
        row=row,
        inputs=(inputs,),
        join=node.kind,
        identifier=scan.identifier,
        table=scan.table,
        lookup=lookup,
        table_row=scan.row,
        names=tuple(keys),
        keys=tuple(columns),
        texts=tuple(expression_text(each) for each in keys.values()),
        right_row=lp.row_of(node.right.row.names, [each.type for each in projections]),
        projections=tuple(projections),
        table_condition=conjunction(conditions),
        condition=_behind(conjunction(rest), lp.references(row), width, shift),
        # What answers by one connection alone is not asked side by side, whatever the hint says.
        hint=node.lookup if lookup.has_connections else replace(node.lookup, is_async=False),
        is_one_row=bool(primary) and set(primary) <= set(keys),
    )
    every = lp.references(made.row)
    shown_columns = [*every[:width], *every[width + shift :]]
    return calc(
        made, shown_columns, lp.row_of(node.row.names, [each.type for each in shown_columns])
    )


def _looked_up(node: lp.LogicalNode) -> tuple[lp.ScanNode, list[Expression], list[Expression]]:
    """The table below projections and filters, the columns over it, and the filters."""
    steps: list[Any] = []
    below = node
    while isinstance(below, lp.ProjectNode | lp.FilterNode | lp.WatermarkNode):
        steps.append(below)
        below = below.input
    if not isinstance(below, lp.ScanNode):
        message = (
            "Processing-time temporal join is not supported yet: FOR SYSTEM_TIME AS OF a "
            "processing time takes a table whose connector can look rows up, and views that "
            "filter and compute over it."
        )
        raise ValidationError(message)
    columns: list[Expression] = list(lp.references(below.row))
    conditions: list[Expression] = []
    for each in reversed(steps):
        _check_reads(each, columns)
        if isinstance(each, lp.FilterNode):
            conditions.append(substituted(each.condition, columns))
        elif isinstance(each, lp.ProjectNode):
            columns = [substituted(one, columns) for one in each.expressions]
    if any(column.is_metadata() for column in below.table.schema.columns):
        shown = below.identifier.as_summary_string()
        message = f"Table '{shown}' has METADATA columns, which rows that are looked up have not."
        raise ValidationError(message)
    return below, columns, conditions


def _check_reads(step: Any, columns: list[Expression]) -> None:
    """Refuse what would compute a column of the table once for each who reads it.

    Raises:
        ValidationError: such a column is not deterministic.
    """
    is_filter = isinstance(step, lp.FilterNode)
    readers = [step.condition] if is_filter else getattr(step, "expressions", ())
    if not reads_once(readers, columns, most=0 if is_filter else 1):
        message = (
            "A column over a table that is looked up which is not deterministic and read in "
            "several places is not in this release; compute it after the join."
        )
        raise ValidationError(message)


def _no_lookup(scan: lp.ScanNode) -> str:
    name = scan.table.options.get("connector")
    return (
        f"Table '{scan.identifier.as_summary_string()}': connector '{name}' cannot look rows up by "
        "keys, which FOR SYSTEM_TIME AS OF a processing time needs."
    )


def _keys(
    parts: list[Expression], width: int, projections: list[Expression], scan: lp.ScanNode
) -> tuple[dict[str, Expression], list[Expression]]:
    """For columns of the table what they are equal to, and what is left of the condition."""
    keys: dict[str, Expression] = {}
    rest = []
    for part in parts:
        found = _key(part, width, projections)
        if found is not None:
            column, value = found
            field = scan.row.fields[column]
            same = field.type.to_arrow() == value.type.to_arrow()
            # A lookup finds no rows for NULL.
            has_null = field.type.is_nullable and field.name not in scan.table.schema.key_columns
            decides = _is_equality(part) or not (has_null and value.type.is_nullable)
            if field.name not in keys and same and decides:
                keys[field.name] = value
                continue
        rest.append(part)
    return keys, rest


def _key(
    part: Expression, width: int, projections: list[Expression]
) -> tuple[int, Expression] | None:
    if not isinstance(part, Call) or part.function not in {"=", "IS NOT DISTINCT FROM"}:
        return None
    one, other = part.arguments
    for column, value in ((one, other), (other, one)):
        if not isinstance(column, InputReference) or column.index < width:
            continue
        origin = projections[column.index - width]
        from_left = all(each < width for each in pp.columns_of(value)) and is_deterministic(value)
        if isinstance(origin, InputReference) and from_left:
            return origin.index, value
    return None


def _is_equality(part: Expression) -> bool:
    return isinstance(part, Call) and part.function == "="


def _asking(left: pp.PhysicalNode, values: list[Expression]) -> tuple[pp.PhysicalNode, list[int]]:
    """The left with the values that are asked for, and where they stand."""
    columns: list[Expression] = list(lp.references(left.row))
    places = []
    for value in values:
        if value not in columns:
            columns.append(value)
        places.append(columns.index(value))
    extra = len(columns) - len(left.row)
    if not extra:
        return left, places
    names = [*left.row.names, *(f"$k{number}" for number in range(extra))]
    return calc(left, columns, lp.row_of(names, [each.type for each in columns])), places


def _behind(
    condition: Expression | None, columns: list[InputReference], width: int, shift: int
) -> Expression | None:
    """A condition over both sides, with the computed keys of the left between them."""
    if condition is None:
        return None
    return substituted(condition, [*columns[:width], *columns[width + shift :]])
