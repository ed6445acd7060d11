"""The functions of JSON, whose clauses are a grammar of their own.

Read next: ``function_parser.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from millstream.sql.parser.expression_nodes import (
    JsonArray,
    JsonBehavior,
    JsonExists,
    JsonObject,
    JsonQuery,
    JsonValue,
)
from millstream.sql.parser.operand_parser import OperandParser

if TYPE_CHECKING:
    from millstream.sql.parser.expression_nodes import SortItem
    from millstream.sql.parser.syntax import Expression
    from millstream.types.logical_types import LogicalType


class JsonParser(OperandParser):
    """JSON_EXISTS, JSON_VALUE, JSON_QUERY, JSON_OBJECT, JSON_ARRAY and the two aggregates.

    Each method is called behind the opening parenthesis and takes the closing one.
    """

    __slots__ = ()

    def _operand_and_path(self) -> tuple[Expression, Expression]:
        operand = self._json_value()
        self.expect(",")
        return operand, self.expression()

    def _json_value(self) -> Expression:
        value = self.expression()
        if self.at("FORMAT", "JSON"):
            self.unsupported("FORMAT JSON", "take JSON(...)")
        return value

    def json_exists(self, start: int, _word: str) -> Expression:
        """Take JSON_EXISTS."""
        operand, path = self._operand_and_path()
        on_error = None
        begin = self.index
        if kind := self.accept_any("TRUE", "FALSE", "UNKNOWN", "ERROR"):
            self.expect("ON", "ERROR")
            on_error = JsonBehavior(kind, position=self.span(begin))
        self.expect(")")
        return JsonExists(operand, path, on_error, position=self.span(start))

    def _returning(self) -> LogicalType | None:
        return self.type_without_nullability() if self.accept("RETURNING") else None

    def json_value(self, start: int, _word: str) -> Expression:
        """Take JSON_VALUE."""
        operand, path = self._operand_and_path()
        returning = self._returning()
        on_empty, on_error = self._behaviors(arrays=False)
        self.expect(")")
        return JsonValue(operand, path, returning, on_empty, on_error, position=self.span(start))

    def json_query(self, start: int, _word: str) -> Expression:
        """Take JSON_QUERY."""
        operand, path = self._operand_and_path()
        returning = self._returning()
        wrapper = self._wrapper()
        on_empty, on_error = self._behaviors(arrays=True)
        self.expect(")")
        return JsonQuery(
            operand, path, returning, wrapper, on_empty, on_error, position=self.span(start)
        )

    def _wrapper(self) -> str | None:
        if self.accept("WITHOUT"):
            kind = "WITHOUT"
        elif self.accept("WITH"):
            kind = self.accept_any("CONDITIONAL", "UNCONDITIONAL") or "UNCONDITIONAL"
        else:
            return None
        self.accept("ARRAY")
        self.expect("WRAPPER")
        return kind

    def _behaviors(self, *, arrays: bool) -> tuple[JsonBehavior | None, JsonBehavior | None]:
        """What stands before ON EMPTY, and before ON ERROR: in any order, the last one counts."""
        found: dict[str, JsonBehavior] = {}
        while (behavior := self._behavior(arrays=arrays)) is not None:
            self.expect("ON")
            found[self.expect_any("EMPTY", "ERROR")] = behavior
        return found.get("EMPTY"), found.get("ERROR")

    def _behavior(self, *, arrays: bool) -> JsonBehavior | None:
        start = self.index
        if kind := self.accept_any("NULL", "ERROR"):
            return JsonBehavior(kind, position=self.span(start))
        if arrays and self.accept("EMPTY"):
            kind = f"EMPTY {self.expect_any('ARRAY', 'OBJECT')}"
            return JsonBehavior(kind, position=self.span(start))
        if not arrays and self.accept("DEFAULT"):
            return JsonBehavior("DEFAULT", self.expression(), position=self.span(start))
        return None

    # --- constructors

    def _absent_on_null(self) -> bool | None:
        if not (word := self.accept_any("ABSENT", "NULL")):
            return None
        self.expect("ON", "NULL")
        return word == "ABSENT"

    def _at_on_null(self) -> bool:
        return self.words[self.index] in {"ABSENT", "NULL"} and self.peek() == "ON"

    def _entry(self) -> tuple[Expression, Expression]:
        if self.words[self.index] == "KEY" and self.peek() not in {"VALUE", ":", ".", "("}:
            self.accept("KEY")
        key = self.expression()
        self.expect_any("VALUE", ":")
        return key, self._json_value()

    def json_object(self, start: int, _word: str) -> Expression:
        """Take JSON_OBJECT."""
        empty = self.at(")") or self._at_on_null()
        entries = () if empty else self.listed(self._entry)
        absent = self._absent_on_null()
        self.expect(")")
        return JsonObject(entries, absent, position=self.span(start))

    def json_array(self, start: int, _word: str) -> Expression:
        """Take JSON_ARRAY."""
        empty = self.at(")") or self._at_on_null()
        elements = () if empty else self.listed(self._json_value)
        absent = self._absent_on_null()
        self.expect(")")
        return JsonArray(elements, absent, position=self.span(start))

    def json_objectagg(self, start: int, _word: str) -> Expression:
        """Take JSON_OBJECTAGG."""
        entry = self._entry()
        absent = self._absent_on_null()
        self.expect(")")
        return JsonObject(
            (entry,),
            absent,
            aggregate=True,
            position=self.span(start),
        )

    def json_arrayagg(self, start: int, _word: str) -> Expression:
        """Take JSON_ARRAYAGG."""
        element = self._json_value()
        order_by: tuple[SortItem, ...] = ()
        if self.accept("ORDER"):
            self.expect("BY")
            order_by = self.order_by()
        absent = self._absent_on_null()
        self.expect(")")
        return JsonArray(
            (element,),
            absent,
            aggregate=True,
            order_by=order_by,
            position=self.span(start),
        )
