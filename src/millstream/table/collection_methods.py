"""Methods of expressions that are arrays, maps or objects."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import ProgramError
from millstream.sql.binder.calls import InlineCall
from millstream.sql.parser import nodes
from millstream.table.building import WindowProperty
from millstream.table.expression_nodes import (
    BaseExpression,
    FunctionProperty,
    JsonExistsOnError,
    JsonQueryOnEmptyOrError,
    JsonQueryWrapper,
    JsonType,
    JsonValueOnEmptyOrError,
    as_node,
)
from millstream.types.logical_types import VarCharType

if TYPE_CHECKING:
    from typing import Self

    from millstream.types.logical_types import LogicalType


class CollectionMethods(BaseExpression):
    """What can be made of arrays, maps and objects."""

    def object_update(self, *kv: Any) -> Self:
        """The object with other values of fields: names and values in turns."""
        return self._call("OBJECT_UPDATE", *kv)

    cardinality = FunctionProperty("CARDINALITY", "How many elements it has.")
    element = FunctionProperty("ELEMENT", "The only element.")
    map_keys = FunctionProperty("MAP_KEYS", "The keys of a map.")
    map_values = FunctionProperty("MAP_VALUES", "The values of a map.")
    map_entries = FunctionProperty("MAP_ENTRIES", "The entries of a map, as rows.")

    def array_append(self, addition: Any) -> Self:
        """With a further element at the end."""
        return self._call("ARRAY_APPEND", addition)

    def array_contains(self, needle: Any) -> Self:
        """Whether a value is in it."""
        return self._call("ARRAY_CONTAINS", needle)

    def array_distinct(self) -> Self:
        """Each element once."""
        return self._call("ARRAY_DISTINCT")

    def array_position(self, needle: Any) -> Self:
        """Where a value first stands, from 1; 0 if nowhere."""
        return self._call("ARRAY_POSITION", needle)

    def array_prepend(self, addition: Any) -> Self:
        """With a further element at the beginning."""
        return self._call("ARRAY_PREPEND", addition)

    def array_remove(self, needle: Any) -> Self:
        """Without a value."""
        return self._call("ARRAY_REMOVE", needle)

    def array_reverse(self) -> Self:
        """The other way round."""
        return self._call("ARRAY_REVERSE")

    def array_slice(self, start_offset: Any, end_offset: Any = None) -> Self:
        """A part, from a position (from 1) to another."""
        return self._call("ARRAY_SLICE", start_offset, end_offset)

    def array_union(self, array: Any) -> Self:
        """The elements of both, each once."""
        return self._call("ARRAY_UNION", array)

    def array_max(self) -> Self:
        """The greatest element."""
        return self._call("ARRAY_MAX")

    def array_min(self) -> Self:
        """The least element."""
        return self._call("ARRAY_MIN")

    def array_join(self, delimiter: Any, null_replacement: Any = None) -> Self:
        """The elements as one text."""
        return self._call("ARRAY_JOIN", delimiter, null_replacement)

    def array_except(self, array: Any) -> Self:
        """The elements that are not in another array."""
        return self._call("ARRAY_EXCEPT", array)

    def array_intersect(self, array: Any) -> Self:
        """The elements that are in both."""
        return self._call("ARRAY_INTERSECT", array)

    def array_sort(self, ascending_order: Any = None, null_first: Any = None) -> Self:
        """In order."""
        return self._call("ARRAY_SORT", ascending_order, null_first)

    def array_concat(self, *arrays: Any) -> Self:
        """The elements of this array and of others."""
        return self._call("ARRAY_CONCAT", *arrays)

    def map_union(self, *maps: Any) -> Self:
        """The entries of this map and of others; the last of a key counts."""
        return self._call("MAP_UNION", *maps)


class BitmapMethods(BaseExpression):
    """What can be made of bitmaps, and of what bitmaps are made of."""

    def bitmap_build(self) -> Self:
        """The bitmap of the integers of an array."""
        return self._call("BITMAP_BUILD")

    def bitmap_from_bytes(self) -> Self:
        """The bitmap of bytes in the portable format of Roaring bitmaps."""
        return self._call("BITMAP_FROM_BYTES")

    def bitmap_and(self, bitmap2: Any) -> Self:
        """What is in both."""
        return self._call("BITMAP_AND", bitmap2)

    def bitmap_andnot(self, bitmap2: Any) -> Self:
        """What is not in the other one."""
        return self._call("BITMAP_ANDNOT", bitmap2)

    def bitmap_or(self, bitmap2: Any) -> Self:
        """What is in either."""
        return self._call("BITMAP_OR", bitmap2)

    def bitmap_xor(self, bitmap2: Any) -> Self:
        """What is in just one of the two."""
        return self._call("BITMAP_XOR", bitmap2)

    def bitmap_cardinality(self) -> Self:
        """How many integers it has."""
        return self._call("BITMAP_CARDINALITY")

    def bitmap_to_array(self) -> Self:
        """Its integers as an array."""
        return self._call("BITMAP_TO_ARRAY")

    def bitmap_to_bytes(self) -> Self:
        """Its bytes in the portable format of Roaring bitmaps."""
        return self._call("BITMAP_TO_BYTES")

    def bitmap_to_string(self) -> Self:
        """Its integers as text, without a sign."""
        return self._call("BITMAP_TO_STRING")

    def bitmap_build_agg(self) -> Self:
        """The bitmap of all integers."""
        return self._call("BITMAP_BUILD_AGG")

    def bitmap_build_cardinality_agg(self) -> Self:
        """How many different integers there are."""
        return self._call("BITMAP_BUILD_CARDINALITY_AGG")

    def bitmap_and_agg(self) -> Self:
        """What is in all bitmaps."""
        return self._call("BITMAP_AND_AGG")

    def bitmap_and_cardinality_agg(self) -> Self:
        """How many integers are in all bitmaps."""
        return self._call("BITMAP_AND_CARDINALITY_AGG")

    def bitmap_or_agg(self) -> Self:
        """What is in one of the bitmaps."""
        return self._call("BITMAP_OR_AGG")

    def bitmap_or_cardinality_agg(self) -> Self:
        """How many integers are in one of the bitmaps."""
        return self._call("BITMAP_OR_CARDINALITY_AGG")

    def bitmap_xor_agg(self) -> Self:
        """What is in an odd number of the bitmaps."""
        return self._call("BITMAP_XOR_AGG")

    def bitmap_xor_cardinality_agg(self) -> Self:
        """How many integers are in an odd number of the bitmaps."""
        return self._call("BITMAP_XOR_CARDINALITY_AGG")


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


class AggregateMethods(BaseExpression):
    """What can be made of the values of several rows, and of windows."""

    sum = FunctionProperty("SUM", "The sum; NULL of no rows.")
    sum0 = FunctionProperty("$SUM0", "The sum; 0 of no rows.")
    avg = FunctionProperty("AVG", "The average.")
    min = FunctionProperty("MIN", "The least.")
    max = FunctionProperty("MAX", "The greatest.")
    count = FunctionProperty("COUNT", "How many are not NULL.")
    first_value = FunctionProperty("FIRST_VALUE", "The first.")
    last_value = FunctionProperty("LAST_VALUE", "The last.")
    stddev_pop = FunctionProperty("STDDEV_POP", "The standard deviation of all.")
    stddev_samp = FunctionProperty("STDDEV_SAMP", "The standard deviation of a sample.")
    var_pop = FunctionProperty("VAR_POP", "The variance of all.")
    var_samp = FunctionProperty("VAR_SAMP", "The variance of a sample.")
    collect = FunctionProperty("COLLECT", "All values, as a multiset.")
    array_agg = FunctionProperty("ARRAY_AGG", "All values, as an array.")

    @property
    def count_distinct(self) -> Self:
        """How many different ones there are."""
        return self._call("COUNT").distinct

    def list_agg(self, separator: Any = None) -> Self:
        """All texts as one, with separators."""
        return self._call("LISTAGG", separator)

    def percentile(self, percentage: Any, frequency: Any = None) -> Self:
        """The value below which a part of all lies."""
        return self._call("PERCENTILE", percentage, frequency)

    @property
    def distinct(self) -> Self:
        """An aggregate over different values only: ``col("a").sum.distinct``.

        Raises:
            ProgramError: it is no aggregate.
        """
        if not isinstance(self.node, nodes.FunctionCall | InlineCall):
            message = "distinct is for aggregates: col('a').sum.distinct"
            raise ProgramError(message)
        return self._of(replace(self.node, distinct=True))

    def over(self, alias: Any) -> Self:
        """An aggregate over the window of a name, which ``over_window`` has given.

        Args:
            alias: the name, or ``col(name)``.

        Raises:
            ProgramError: it is no aggregate, or ``alias`` no name.
        """
        name = as_node(alias)
        if isinstance(alias, str):
            name = nodes.identifier(alias)
        is_call = isinstance(self.node, nodes.FunctionCall | InlineCall)
        if not is_call or not isinstance(name, nodes.Identifier):
            message = "over() is for aggregates, and takes the name of a window: over(col('w'))"
            raise ProgramError(message)
        return self._of(replace(self.node, over=nodes.Name(name.last)))

    # -- windows ---------------------------------------------------------------------------------

    @property
    def start(self) -> Self:
        """When the window begins."""
        return self._of(WindowProperty(self.node, "window_start"))

    @property
    def end(self) -> Self:
        """When the window ends; that moment is not in it."""
        return self._of(WindowProperty(self.node, "window_end"))

    @property
    def rowtime(self) -> Self:
        """The window's event time: the last millisecond that is in it."""
        return self._of(WindowProperty(self.node, "rowtime"))

    @property
    def proctime(self) -> Self:
        """The window's processing time."""
        return self._of(WindowProperty(self.node, "proctime"))
