"""What ORDER BY may go by.

What it is: the refusal of types whose values have no order, where the statement says them.
What it is not: the order of values (``runtime/columnar/row_codec.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.types.type_roots import TypeRoot

if TYPE_CHECKING:
    from millstream.sql.binder.context import BindingContext
    from millstream.sql.parser.nodes import Node
    from millstream.types.logical_types import LogicalType

__all__ = ["check_orderable"]

#: As in Flink, and those that it orders item by item, which this release does not.
_UNORDERED: Final = frozenset(
    {
        TypeRoot.ARRAY,
        TypeRoot.BITMAP,
        TypeRoot.MAP,
        TypeRoot.MULTISET,
        TypeRoot.ROW,
        TypeRoot.VARIANT,
    }
)


def check_orderable(context: BindingContext, node: Node, kind: LogicalType) -> None:
    """Refuse to order by values of a type that has no order.

    Args:
        context: of the statement.
        node: what it orders by.
        kind: the type of that.

    Raises:
        ValidationError: its values have no order.
    """
    if kind.root in _UNORDERED:
        text = kind.as_summary_string()
        message = f"ORDER BY does not go by {text}: its values have no order."
        raise context.error(node, message)
