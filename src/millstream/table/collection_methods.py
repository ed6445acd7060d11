"""Methods of expressions that are arrays, maps or objects.

What it is: PyFlink's names over functions of SQL, whose reference says what they do.
What it is not: the functions (``expressions/functions/``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.table.expression_nodes import BaseExpression

if TYPE_CHECKING:
    from typing import Self

__all__ = ["CollectionMethods"]


class CollectionMethods(BaseExpression):
    """What can be made of arrays, maps and objects."""

    def object_update(self, *kv: Any) -> Self:
        """The object with other values of fields: names and values in turns."""
        return self._call("OBJECT_UPDATE", *kv)

    @property
    def cardinality(self) -> Self:
        """How many elements it has."""
        return self._call("CARDINALITY")

    @property
    def element(self) -> Self:
        """The only element."""
        return self._call("ELEMENT")

    @property
    def map_keys(self) -> Self:
        """The keys of a map."""
        return self._call("MAP_KEYS")

    @property
    def map_values(self) -> Self:
        """The values of a map."""
        return self._call("MAP_VALUES")

    @property
    def map_entries(self) -> Self:
        """The entries of a map, as rows."""
        return self._call("MAP_ENTRIES")

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
