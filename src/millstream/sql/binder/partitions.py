"""PARTITION (column = value, ...): which columns of a partition a statement says, and as what.

What it is: names checked, values as constants of the columns' types.
What it is not: directories (``connectors/files/partitions.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.expressions.context import EvaluationContext
from millstream.expressions.folding import fold
from millstream.expressions.nodes import Literal
from millstream.sql.binder import calls
from millstream.sql.binder.binding import query_binder
from millstream.sql.parser import nodes
from millstream.sql.suggestions import did_you_mean, listed
from millstream.types.type_roots import TypeFamily

if TYPE_CHECKING:
    from collections.abc import Sequence

    from millstream.sql.binder.context import BindingContext
    from millstream.sql.catalog.objects import CatalogTable
    from millstream.sql.parser.nodes import PartitionValue

__all__ = ["static_partition"]


def static_partition(
    context: BindingContext, table: CatalogTable, name: str, values: Sequence[PartitionValue]
) -> dict[str, Literal]:
    """The columns of a partition that a statement says, in the table's order.

    Args:
        context: of the statement.
        table: the table.
        name: of the table, for errors.
        values: as they were parsed.

    Raises:
        ValidationError: the table has no such columns in PARTITIONED BY, one is said twice, or a
            value is none of its column's type.
    """
    keys = table.partition_keys
    found: dict[str, Literal] = {}
    for each in values:
        column = each.column.value
        if not keys:
            message = f"Table '{name}' is not partitioned: it has no PARTITIONED BY."
            raise context.error(each, message)
        if column not in keys:
            hint = did_you_mean(column, keys)
            message = (
                f"'{column}' does not partition table '{name}', which is by {listed(keys)}.{hint}"
            )
            raise context.error(each, message)
        if column in found:
            raise context.error(each, f"Partition column '{column}' is said more than once.")
        found[column] = _constant(context, table, each)
    return {key: found[key] for key in keys if key in found}


def _is_same(given: Any, made: Literal) -> bool:
    """Whether a constant is still what was said: it would be another partition's otherwise."""
    was = getattr(given, "value", None)
    if made.value is None:
        return was is None
    numbers = all(each.type.is_a(TypeFamily.NUMERIC) for each in (given, made))
    return not numbers or was is None or was == made.value


def _constant(context: BindingContext, table: CatalogTable, given: PartitionValue) -> Literal:
    wanted = table.schema.column(given.column.value).type
    select: Any = nodes.Select(items=(nodes.SelectItem(given.value),))  # type: ignore[arg-type]
    plan: Any = query_binder(context).bind(select)
    value = plan.expressions[0]
    cast = calls.coerced(value, wanted)
    if cast is None:
        cast = calls.cast(value, wanted)
    made = fold(cast, EvaluationContext())
    if not isinstance(made, Literal) or not _is_same(value, made):
        shown = getattr(value, "value", value)
        message = (
            f"Partition column '{given.column.value}' {wanted.as_summary_string()} cannot be "
            f"{shown!r}."
        )
        raise context.error(given, message)
    return made
