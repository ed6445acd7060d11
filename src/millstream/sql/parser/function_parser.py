"""Calls: arguments, what stands behind the parentheses, and functions with a grammar of their own.

``EXTRACT(DAY FROM x)`` and its like become calls with positional arguments, keywords among them as
`Symbol`.  Read next: ``json_parser.py``, ``expression_parser.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.sql.parser.expression_nodes import (
    BinaryOperation,
    Cast,
    DefaultArgument,
    Descriptor,
    FunctionCall,
    NamedArgument,
    ScalarQuery,
    Star,
    Symbol,
    TableArgument,
)
from millstream.sql.parser.json_parser import JsonParser
from millstream.sql.parser.keywords import COLUMN_WORDS, NILADIC_FUNCTIONS
from millstream.sql.parser.lexer import WORD
from millstream.sql.parser.syntax import Identifier, Name, Query
from millstream.sql.parser.token_stream import A_NAME

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.parser.expression_nodes import SortItem, WindowSpecification
    from millstream.sql.parser.syntax import Expression

_NULLS_INSIDE: Final = frozenset({"ARRAY_AGG", "ARRAY_CONCAT_AGG", "LISTAGG"})
_SIDES: Final = ("BOTH", "LEADING", "TRAILING")
#: What EXTRACT, FLOOR, CEIL, TIMESTAMPADD and TIMESTAMPDIFF take; which of them, their types say.
_UNITS: Final = (
    "YEAR",
    "QUARTER",
    "MONTH",
    "WEEK",
    "DAY",
    "HOUR",
    "MINUTE",
    "SECOND",
    "MILLISECOND",
    "MICROSECOND",
    "NANOSECOND",
    "EPOCH",
    "DOW",
    "DOY",
    "ISODOW",
    "ISOYEAR",
    "DECADE",
    "CENTURY",
    "MILLENNIUM",
)
#: ODBC's units of intervals -> those of SQL.
_ODBC_UNITS: Final = {
    "FRAC_SECOND": "NANOSECOND",
    "SQL_TSI_FRAC_SECOND": "NANOSECOND",
    **{f"SQL_TSI_{unit}": unit for unit in (*_UNITS[: _UNITS.index("SECOND") + 1], "MICROSECOND")},
}
#: Functions with a grammar of their own -> the method that takes what is in the parentheses.
_FORMS: Final = {
    "CAST": "_cast",
    "TRY_CAST": "_cast",
    "EXTRACT": "_extract",
    "TRIM": "_trim",
    "SUBSTRING": "_substring",
    "OVERLAY": "_overlay",
    "POSITION": "_position",
    "CEIL": "_rounded",
    "FLOOR": "_rounded",
    "TIMESTAMPADD": "_with_unit",
    "TIMESTAMPDIFF": "_with_unit",
    "TRANSLATE": "_translate",
    "CONVERT": "_convert",
    "JSON_EXISTS": "json_exists",
    "JSON_VALUE": "json_value",
    "JSON_QUERY": "json_query",
    "JSON_OBJECT": "json_object",
    "JSON_ARRAY": "json_array",
    "JSON_OBJECTAGG": "json_objectagg",
    "JSON_ARRAYAGG": "json_arrayagg",
}


#: Functions of ODBC that Flink evaluates -> their names here.
_ODBC_FUNCTIONS: Final = {
    **{
        name: name
        for name in """
        ABS ACOS ASIN ATAN ATAN2 COS COT DEGREES EXP FLOOR LOCATE LOG10 LTRIM MOD PI POWER RADIANS
        RTRIM SIGN SIN SQRT TAN TIMESTAMPADD TIMESTAMPDIFF YEAR QUARTER MONTH WEEK DAYOFYEAR
        DAYOFMONTH DAYOFWEEK HOUR MINUTE SECOND
        """.split()  # noqa: SIM905 - in groups
    },
    "CEILING": "CEIL",
    "IFNULL": "COALESCE",
    "INSERT": "OVERLAY",
    "LCASE": "LOWER",
    "LENGTH": "CHAR_LENGTH",
    "LOG": "LN",
    "UCASE": "UPPER",
}
#: How many arguments those have that take more of them under their names here.
_ODBC_ARGUMENTS: Final = {"CONCAT": 2, "IFNULL": 2, "INSERT": 4, "LTRIM": 1, "RTRIM": 1}


class FunctionParser(JsonParser):
    """Calls of functions."""

    __slots__ = ()

    def special_form(self) -> Expression | None:
        """Take a call with a grammar of its own if one comes next."""
        start = self.index
        word = self.words[start]
        if self.kinds[start] != WORD:
            return None
        method = _FORMS.get(word)
        if method is not None and self.peek() == "(":
            return self._form(word, method)
        if word in COLUMN_WORDS and self.peek() != "(":
            return Identifier((self.any_name(),), position=self.span(start))
        if word in NILADIC_FUNCTIONS and self.peek() != "(":
            name = Identifier((self.any_name(),), position=self.span(start))
            return FunctionCall(name, niladic=True, position=self.span(start))
        return None

    def _form(self, word: str, method: str) -> Expression:
        start = self.index
        name = Identifier((self.any_name(),), position=self.span(start))
        self.expect("(")
        take: Callable[[int, str], Expression | tuple[Expression, ...]] = getattr(self, method)
        taken = take(start, word)
        if not isinstance(taken, tuple):
            return taken
        self.expect(")")
        return FunctionCall(name, taken, position=self.span(start))

    # --- calls of ODBC

    def odbc_call(self) -> Expression | None:
        """Take ``{fn UCASE('a')}`` if it comes next."""
        start = self.index
        if self.words[start + 1] != "FN":
            return None
        self.index += 2
        at = self.index
        word = self.any_name().value
        self.expect("(")
        if word == "CONVERT":
            operand = self.expression()
            self.expect(",")
            call: Expression = Cast(operand, self.odbc_type(), position=self.span(start))
        else:
            call = self._odbc_function(word, at)
        self.expect(")", "}")
        return call

    def _odbc_function(self, word: str, at: int) -> Expression:
        name = _ODBC_FUNCTIONS.get(word)
        if name is None and word != "CONCAT":
            self.refuse_token(at, f"function '{{fn {word}}}' is not defined")
        if word.startswith("TIMESTAMP"):
            arguments = self._with_unit(at, word)
        else:
            arguments = () if self.at(")") else self.listed(self.expression)
        position = self.span(at)
        count = _ODBC_ARGUMENTS.get(word, len(arguments))
        if len(arguments) != count:
            self.refuse_span(position, f"{{fn {word}}} takes {count} arguments")
        if name is None:
            return BinaryOperation("||", *arguments, position=position)
        if word == "INSERT":
            text, first, length, inserted = arguments
            arguments = (text, inserted, first, length)
        called = Identifier((Name(name, position=position),), position=position)
        return FunctionCall(called, arguments, position=position)

    # --- ordinary calls

    def call(self, name: Identifier, start: int) -> FunctionCall:
        """Take what follows the name of a function.

        Args:
            name: The name, already taken.
            start: The index of its first token.
        """
        self.expect("(")
        distinct = self.accept_any("DISTINCT", "ALL") == "DISTINCT"
        arguments: tuple[Expression, ...] = ()
        order_by: tuple[SortItem, ...] = ()
        ignore_nulls = None
        star = self.index
        if self.accept("*"):
            arguments = (Star(position=self.span(star)),)
        elif distinct or not self.at(")"):
            arguments = self.listed(self.argument)
            if name.last.upper() in _NULLS_INSIDE:
                ignore_nulls = self._null_treatment()
            if self.accept("ORDER"):
                self.expect("BY")
                order_by = self.order_by()
        self.expect(")")
        if ignore_nulls is None:
            ignore_nulls = self._null_treatment()
        within_group: tuple[SortItem, ...] = ()
        if self.accept("WITHIN"):
            self.expect("GROUP", "(", "ORDER", "BY")
            within_group = self.order_by()
            self.expect(")")
        condition = self.filter_clause()
        over = self.over_clause()
        return FunctionCall(
            name,
            arguments,
            distinct,
            order_by,
            ignore_nulls,
            within_group,
            condition,
            over,
            position=self.span(start),
        )

    def _null_treatment(self) -> bool | None:
        word = self.accept_any("IGNORE", "RESPECT")
        if not word:
            return None
        self.expect("NULLS")
        return word == "IGNORE"

    def filter_clause(self) -> Expression | None:
        """Take ``FILTER (WHERE ...)`` if it comes next."""
        if not self.accept("FILTER"):
            return None
        self.expect("(", "WHERE")
        condition = self.expression()
        self.expect(")")
        return condition

    def over_clause(self) -> WindowSpecification | Name | None:
        """Take ``OVER (...)`` or ``OVER w`` if it comes next."""
        if not self.accept("OVER"):
            return None
        if self.at_name():
            return self.name()
        if not self.at("("):
            self.tried(A_NAME)
        return self.window()

    # --- arguments

    def argument(self) -> Expression:
        """Take one argument, with its name if it has one."""
        start = self.index
        if self.kinds[start] != WORD and not self.at_name():
            return self._value()
        if self.peek() != "=>":
            return self._value()
        name = self.name()
        self.expect("=>")
        return NamedArgument(name, self._value(), position=self.span(start))

    def _value(self) -> Expression:
        start = self.index
        word, next_ = self.words[start], self.peek()
        if word == "DESCRIPTOR" and next_ == "(":
            self.index += 1
            return Descriptor(self.parenthesized(self.name), position=self.span(start))
        if word == "TABLE":
            return self._table_argument()
        if word == "DEFAULT":
            self.index += 1
            return DefaultArgument(position=self.span(start))
        if word == "MODEL" and self.at_name(1):
            self.unsupported("a model as an argument (ML_PREDICT and similar functions)")
        bare = word in {"SELECT", "VALUES", "WITH"}
        value = ScalarQuery(self.query()) if bare else self.expression()
        if self.words[self.index] in {"PARTITION", "ORDER"}:
            if isinstance(value, ScalarQuery):
                return self._partitioned(value.query, start)
            if isinstance(value, Identifier) and self.at("PARTITION"):
                return self._partitioned(value, start)
        return value

    def _table_argument(self) -> TableArgument:
        start = self.index
        self.expect("TABLE")
        in_parentheses = self.accept("(")
        table = self.identifier()
        if in_parentheses:
            self.expect(")")
        return self._partitioned(table, start)

    def _partitioned(self, table: Identifier | Query, start: int) -> TableArgument:
        partition_by: tuple[Expression, ...] = ()
        order_by: tuple[SortItem, ...] = ()
        if self.accept("PARTITION"):
            self.expect("BY")
            several = self.at("(")
            partition_by = self.expressions_in_parentheses() if several else (self.expression(),)
        if self.accept("ORDER"):
            self.expect("BY")
            several = self.at("(")
            order_by = self.parenthesized(self.sort_item) if several else (self.sort_item(),)
        return TableArgument(table, partition_by, order_by, position=self.span(start))

    # --- functions with a grammar of their own

    def _cast(self, start: int, word: str) -> Expression:
        operand = self.expression()
        self.expect("AS")
        interval = self.accept("INTERVAL")
        type_ = self.interval_type() if interval else self.type_without_nullability()
        if self.at("NOT", "NULL"):
            self.refuse(f"{word} to a type NOT NULL is not possible: the value may be NULL")
        self.expect(")")
        return Cast(operand, type_, word == "TRY_CAST", position=self.span(start))

    def _interval_symbol(self) -> Symbol:
        """Take a unit of TIMESTAMPADD and TIMESTAMPDIFF, which have ODBC's names for them, too."""
        start = self.index
        unit = _ODBC_UNITS.get(self.words[start]) if self.kinds[start] == WORD else None
        if unit is None:
            return self._symbol()
        self.index += 1
        return Symbol(unit, position=self.span(start))

    def _symbol(self) -> Symbol:
        start = self.index
        unit = self.accept_any(*_UNITS)
        if not unit:
            self.fail()
        return Symbol(unit, position=self.span(start))

    def _extract(self, _start: int, _word: str) -> tuple[Expression, ...]:
        unit = self._symbol()
        self.expect("FROM")
        return unit, self.expression()

    def _trim(self, _start: int, _word: str) -> tuple[Expression, ...]:
        begin = self.index
        side = self.accept_any(*_SIDES)
        if not side:
            operand = self.expression()
            if not self.accept("FROM"):
                return (operand,)
            return Symbol("BOTH"), operand, self.expression()
        symbol = Symbol(side, position=self.span(begin))
        if self.accept("FROM"):
            return symbol, self.expression()
        characters = self.expression()
        if not self.accept("FROM"):
            return symbol, characters  # what is trimmed: TRIM(BOTH s)
        return symbol, characters, self.expression()

    def _substring(self, _start: int, _word: str) -> tuple[Expression, ...]:
        arguments = [self.expression()]
        self.expect_any("FROM", ",")
        arguments.append(self.expression())
        if self.accept_any("FOR", ","):
            arguments.append(self.expression())
        return tuple(arguments)

    def _overlay(self, _start: int, _word: str) -> tuple[Expression, ...]:
        arguments = [self.expression()]
        for word in ("PLACING", "FROM"):
            self.expect(word)
            arguments.append(self.expression())
        if self.accept("FOR"):
            arguments.append(self.expression())
        return tuple(arguments)

    def _position(self, _start: int, _word: str) -> tuple[Expression, ...]:
        # Tighter than IN, which stands between the two.
        arguments = [self.operand(32)]
        self.expect("IN")
        arguments.append(self.expression())
        if self.accept("FROM"):
            arguments.append(self.expression())
        return tuple(arguments)

    def _rounded(self, _start: int, _word: str) -> tuple[Expression, ...]:
        operand = self.expression()
        if self.accept("TO"):
            return operand, self._symbol()
        return (operand, self.expression()) if self.accept(",") else (operand,)

    def _with_unit(self, _start: int, _word: str) -> tuple[Expression, ...]:
        unit = self._interval_symbol()
        self.expect(",")
        first = self.expression()
        self.expect(",")
        return unit, first, self.expression()

    def _convert(self, start: int, _word: str) -> Expression:
        """Take ``CONVERT(INT, x)``; the style behind them changes nothing, as in Flink."""
        interval = self.accept("INTERVAL")
        type_ = self.interval_type() if interval else self.type_without_nullability()
        self.expect(",")
        operand = self.expression()
        if self.accept(",") and not self.accept("NULL"):
            self.integer()
        self.expect(")")
        return Cast(operand, type_, position=self.span(start))

    def _translate(self, _start: int, _word: str) -> tuple[Expression, ...]:
        operand = self.expression()
        if self.at("USING"):
            self.unsupported("TRANSLATE ... USING", "take ENCODE or DECODE")
        self.expect(",")
        arguments = self.listed(self.expression)
        return operand, *arguments
