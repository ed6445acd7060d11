"""Methods of expressions that are JSON.

What it is: PyFlink's names over functions of SQL, whose reference says what they do.
What it is not: the functions (``expressions/functions/json.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from millstream.sql.parser import nodes
from millstream.table.expression_nodes import BaseExpression, as_node
from millstream.table.expression_units import (
    JsonExistsOnError,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
)
from millstream.types.logical_types import VarCharType

if TYPE_CHECKING:
    from typing import Self

    from millstream.types.logical_types import LogicalType

__all__ = ["JsonMethods"]

_WRAPPERS: Final = {
    JsonQueryWrapper.WITHOUT_ARRAY: "WITHOUT",
    JsonQueryWrapper.CONDITIONAL_ARRAY: "CONDITIONAL",
    JsonQueryWrapper.UNCONDITIONAL_ARRAY: "UNCONDITIONAL",
}


class JsonMethods(BaseExpression):
    """What can be made of JSON."""

    def is_json(self, json_type: JsonType | None = None) -> Self:
        """Whether it is JSON, of a kind."""
        kind = JsonType.VALUE if json_type is None else json_type
        return self._of(nodes.IsJson(self.node, kind.name))

    def json_exists(self, path: str, on_error: JsonExistsOnError | None = None) -> Self:
        """Whether there is something at a path."""
        behaviour = None if on_error is None else nodes.JsonBehavior(on_error.name)
        return self._of(nodes.JsonExists(self.node, as_node(path), behaviour))

    def json_value(
        self,
        path: str,
        returning_type: LogicalType = VarCharType(),  # noqa: B008 - frozen
        on_empty: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_empty: Any = None,
        on_error: JsonValueOnEmptyOrError = JsonValueOnEmptyOrError.NULL,
        default_on_error: Any = None,
    ) -> Self:
        """The plain value at a path.

        Args:
            path: of JSON.
            returning_type: of the result.
            on_empty: what is given if there is nothing.
            default_on_empty: the value then, for DEFAULT.
            on_error: what is given if there is no plain value, or no JSON.
            default_on_error: the value then, for DEFAULT.
        """
        return self._of(
            nodes.JsonValue(
                self.node,
                as_node(path),
                returning_type,
                _value_behaviour(on_empty, default_on_empty),
                _value_behaviour(on_error, default_on_error),
            )
        )

    def json_query(
        self,
        path: str,
        wrapping_behavior: JsonQueryWrapper = JsonQueryWrapper.WITHOUT_ARRAY,
        on_empty: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
        on_error: JsonQueryOnEmptyOrError = JsonQueryOnEmptyOrError.NULL,
    ) -> Self:
        """The object or array at a path, as text.

        Args:
            path: of JSON.
            wrapping_behavior: when an array is put around it.
            on_empty: what is given if there is nothing.
            on_error: what is given if there is a plain value, or no JSON.
        """
        return self._of(
            nodes.JsonQuery(
                self.node,
                as_node(path),
                wrapper=_WRAPPERS[wrapping_behavior],
                on_empty=nodes.JsonBehavior(on_empty.name.replace("_", " ")),
                on_error=nodes.JsonBehavior(on_error.name.replace("_", " ")),
            )
        )

    def json_quote(self) -> Self:
        """As a text of JSON, in quotes."""
        return self._call("JSON_QUOTE")

    def json_unquote(self) -> Self:
        """What a text of JSON writes, without quotes."""
        return self._call("JSON_UNQUOTE")


def _value_behaviour(kind: JsonValueOnEmptyOrError, default: Any) -> nodes.JsonBehavior:
    if kind is JsonValueOnEmptyOrError.DEFAULT:
        return nodes.JsonBehavior("DEFAULT", as_node(default))
    return nodes.JsonBehavior(kind.name)
