"""Parse function calls, their clauses, and functions with a grammar of their own.

``EXTRACT(DAY FROM x)`` and the like become calls with positional arguments and a `Symbol` for each
keyword among them.
"""

from __future__ import annotations

from abc import abstractmethod
from string import hexdigits
from typing import TYPE_CHECKING, Final

from millstream.sql.parser import nodes as n
from millstream.sql.parser.tokens import (
    A_NAME,
    A_STRING,
    BINARY,
    COLUMN_WORDS,
    ENCODED,
    NILADIC_FUNCTIONS,
    NUMBER,
    QUERY_STARTS,
    STRING,
    WORD,
    encoded_value,
)
from millstream.sql.parser.type_parser import TypeParser, interval_value, numeric_literal, temporal
from millstream.types.logical_types import BinaryType, BooleanType, CharType, NullType

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.logical_types import LogicalType


_BOOLEAN: Final = BooleanType(nullable=False)
_WORDS: Final[dict[str, tuple[bool | None, BooleanType | NullType]]] = {
    "TRUE": (True, _BOOLEAN),
    "FALSE": (False, _BOOLEAN),
    "UNKNOWN": (None, BooleanType()),
    "NULL": (None, NullType()),
}
_ODBC: Final = {"D": "DATE", "T": "TIME", "TS": "TIMESTAMP"}
_TEMPORAL: Final = frozenset({"DATE", "TIME", "TIMESTAMP"})


class OperandParser(TypeParser):
    """Literals, ORDER BY and windows; expressions and queries by those above it."""

    __slots__ = ()

    # --- hooks

    @abstractmethod
    def expression(self) -> n.Expression:
        """Take an expression."""

    @abstractmethod
    def operand(self, power: int) -> n.Expression:
        """Take an expression of operators that bind more tightly than ``power``."""

    @abstractmethod
    def query(self) -> n.Query:
        """Take a query, with its WITH, ORDER BY and LIMIT."""

    def at_query(self) -> bool:
        """Return whether a query begins here, rather than an expression or a relation."""
        return self.words[self.index] in QUERY_STARTS

    def parenthesized_query(self) -> n.Query:
        """Take a query in parentheses."""
        self.expect("(")
        query = self.query()
        self.expect(")")
        return query

    # --- literals

    def literal(self) -> n.Expression | None:
        """Take a literal if one comes next."""
        start = self.index
        kind, word = self.kinds[start], self.words[start]
        if kind == NUMBER:
            self.index += 1
            try:
                return numeric_literal(self.tokens.source(start), self.span(start))
            except ValueError as error:
                self.refuse_token(start, str(error))
        if self.at_string():
            text = self.string()
            return n.Literal(text, CharType(len(text), nullable=False), position=self.span(start))
        if kind in {BINARY, ENCODED}:
            return self._bytes(start) if kind == BINARY else self._encoded(start)
        if word in _WORDS:
            self.index += 1
            value, type_ = _WORDS[word]
            return n.Literal(value, type_, position=self.span(start))
        if word in _TEMPORAL:
            return self._temporal(word)
        return self._interval() if word == "INTERVAL" else None

    def _encoded(self, start: int) -> n.Literal:
        self.index += 1
        try:
            text = encoded_value(self.tokens.source(start))
        except ValueError as error:
            self.refuse_token(start, str(error))
        return n.Literal(text, CharType(len(text), nullable=False), position=self.span(start))

    def _bytes(self, start: int) -> n.Literal:
        digits = self.tokens.source(start)[2:-1]
        self.index += 1
        if len(digits) % 2 or not set(digits) <= set(hexdigits):
            self.refuse_token(start, "X'...' takes an even number of hexadecimal digits")
        value = bytes.fromhex(digits)
        type_ = BinaryType(len(value), nullable=False)
        return n.Literal(value, type_, position=self.span(start))

    def _temporal(self, word: str) -> n.TemporalLiteral | None:
        start = self.index
        if self.peek_kind() == STRING:
            self.index += 1
        elif self.words[start + 1 : start + 5] == ["WITH", "LOCAL", "TIME", "ZONE"]:
            self.index += 5
            word = "TIMESTAMP_LTZ" if word == "TIMESTAMP" else self.fail()
        else:
            return None
        at = self.index
        try:
            text, type_ = temporal(word, self.string())
        except ValueError as error:
            self.refuse_token(at, str(error))
        return n.TemporalLiteral(text, type_, position=self.span(start))

    def odbc_literal(self) -> n.TemporalLiteral | None:
        """Take ``{d '...'}``, ``{t '...'}`` or ``{ts '...'}``, ODBC's literals, if one comes."""
        start = self.index
        word = _ODBC.get(self.words[start + 1])
        if word is None or self.peek_kind(2) != STRING:
            return None
        self.index += 1
        literal = self._temporal(word)
        self.expect("}")
        return literal

    def _interval(self) -> n.Expression:
        start = self.index
        self.expect("INTERVAL")
        sign = self.accept_any("+", "-")
        at = self.index
        if not self.at_string():
            return self._computed_interval(start, sign)
        text = self.string()
        qualifier = self.interval_qualifier()
        try:
            value = interval_value(text, qualifier)
        except ValueError as error:
            self.refuse_token(at, str(error))
        return n.IntervalLiteral(
            text,
            qualifier,
            -value if sign == "-" else value,
            sign == "-",
            position=self.span(start),
        )

    def _computed_interval(self, start: int, sign: str) -> n.Expression:
        """``INTERVAL 3 DAY``, ``INTERVAL x DAY``: so many times one day."""
        if sign:
            self.fail_for(A_STRING)
        if self.accept("("):
            amount = self.expression()
            self.expect(")")
        else:
            amount = self.operand(80)
        qualifier = self.interval_qualifier()
        if qualifier.end is not None:
            self.refuse_token(start, "an interval of several units takes a string")
        one = n.IntervalLiteral("1", qualifier, interval_value("1", qualifier))
        return n.BinaryOperation("*", amount, one, position=self.span(start))

    # --- ORDER BY and windows

    def expressions_in_parentheses(self) -> tuple[n.Expression, ...]:
        """Take ``(a, b)``."""
        return self.parenthesized(self.expression)

    def order_by(self) -> tuple[n.SortItem, ...]:
        """Take what stands behind ORDER BY."""
        return self.listed(self.sort_item)

    def sort_item(self) -> n.SortItem:
        """Take ``x DESC NULLS LAST``."""
        start = self.index
        expression = self.expression()
        descending = self.accept_any("ASC", "DESC") == "DESC"
        nulls_first = None
        if self.accept("NULLS"):
            nulls_first = self.expect_any("FIRST", "LAST") == "FIRST"
        return n.SortItem(expression, descending, nulls_first, position=self.span(start))

    def window(self) -> n.WindowSpecification:
        """Take what stands in the parentheses of OVER, and these."""
        start = self.index
        self.expect("(")
        base: n.Name | None = self.name() if self.at_name() else None
        partition_by = self.by("PARTITION", self.expression)
        order_by = self.by("ORDER", self.sort_item)
        unit = self.accept_any("ROWS", "RANGE")
        frame = self._frame(unit) if unit else None
        self.expect(")")
        return n.WindowSpecification(base, partition_by, order_by, frame, position=self.span(start))

    def _frame(self, unit: str) -> n.WindowFrame:
        start = self.index - 1
        if self.accept("BETWEEN"):
            first = self._bound()
            self.expect("AND")
            last = self._bound()
        else:
            first, last = self._bound(), n.FrameBound("CURRENT ROW")
            if first.direction == "FOLLOWING" and first.offset is not None:
                first, last = last, first  # as Flink reads it
        return n.WindowFrame(unit, first, last, position=self.span(start))

    def _bound(self) -> n.FrameBound:
        start = self.index
        if self.accept("CURRENT"):
            self.expect("ROW")
            return n.FrameBound("CURRENT ROW", position=self.span(start))
        offset = None if self.accept("UNBOUNDED") else self.expression()
        direction = self.expect_any("PRECEDING", "FOLLOWING")
        return n.FrameBound(direction, offset, position=self.span(start))


class JsonParser(OperandParser):
    """JSON_EXISTS, JSON_VALUE, JSON_QUERY, JSON_OBJECT, JSON_ARRAY and the two aggregates.

    Each method is called behind the opening parenthesis and takes the closing one.
    """

    __slots__ = ()

    def _operand_and_path(self) -> tuple[n.Expression, n.Expression]:
        operand = self._json_value()
        self.expect(",")
        return operand, self.expression()

    def _json_value(self) -> n.Expression:
        value = self.expression()
        if self.at("FORMAT", "JSON"):
            self.unsupported("FORMAT JSON", "take JSON(...)")
        return value

    def json_exists(self, start: int, _word: str) -> n.Expression:
        """Take JSON_EXISTS."""
        operand, path = self._operand_and_path()
        on_error = None
        begin = self.index
        if kind := self.accept_any("TRUE", "FALSE", "UNKNOWN", "ERROR"):
            self.expect("ON", "ERROR")
            on_error = n.JsonBehavior(kind, position=self.span(begin))
        self.expect(")")
        return n.JsonExists(operand, path, on_error, position=self.span(start))

    def _returning(self) -> LogicalType | None:
        return self.type_without_nullability() if self.accept("RETURNING") else None

    def json_value(self, start: int, _word: str) -> n.Expression:
        """Take JSON_VALUE."""
        operand, path = self._operand_and_path()
        returning = self._returning()
        on_empty, on_error = self._behaviors(arrays=False)
        self.expect(")")
        return n.JsonValue(operand, path, returning, on_empty, on_error, position=self.span(start))

    def json_query(self, start: int, _word: str) -> n.Expression:
        """Take JSON_QUERY."""
        operand, path = self._operand_and_path()
        returning = self._returning()
        wrapper = self._wrapper()
        on_empty, on_error = self._behaviors(arrays=True)
        self.expect(")")
        return n.JsonQuery(
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

    def _behaviors(self, *, arrays: bool) -> tuple[n.JsonBehavior | None, n.JsonBehavior | None]:
        """What stands before ON EMPTY, and before ON ERROR: in any order, the last one counts."""
        found: dict[str, n.JsonBehavior] = {}
        while (behavior := self._behavior(arrays=arrays)) is not None:
            self.expect("ON")
            found[self.expect_any("EMPTY", "ERROR")] = behavior
        return found.get("EMPTY"), found.get("ERROR")

    def _behavior(self, *, arrays: bool) -> n.JsonBehavior | None:
        start = self.index
        if kind := self.accept_any("NULL", "ERROR"):
            return n.JsonBehavior(kind, position=self.span(start))
        if arrays and self.accept("EMPTY"):
            kind = f"EMPTY {self.expect_any('ARRAY', 'OBJECT')}"
            return n.JsonBehavior(kind, position=self.span(start))
        if not arrays and self.accept("DEFAULT"):
            return n.JsonBehavior("DEFAULT", self.expression(), position=self.span(start))
        return None

    # --- constructors

    def _absent_on_null(self) -> bool | None:
        if not (word := self.accept_any("ABSENT", "NULL")):
            return None
        self.expect("ON", "NULL")
        return word == "ABSENT"

    def _at_on_null(self) -> bool:
        return self.words[self.index] in {"ABSENT", "NULL"} and self.peek() == "ON"

    def _entry(self) -> tuple[n.Expression, n.Expression]:
        if self.words[self.index] == "KEY" and self.peek() not in {"VALUE", ":", ".", "("}:
            self.accept("KEY")
        key = self.expression()
        self.expect_any("VALUE", ":")
        return key, self._json_value()

    def json_object(self, start: int, _word: str) -> n.Expression:
        """Take JSON_OBJECT."""
        empty = self.at(")") or self._at_on_null()
        entries = () if empty else self.listed(self._entry)
        absent = self._absent_on_null()
        self.expect(")")
        return n.JsonObject(entries, absent, position=self.span(start))

    def json_array(self, start: int, _word: str) -> n.Expression:
        """Take JSON_ARRAY."""
        empty = self.at(")") or self._at_on_null()
        elements = () if empty else self.listed(self._json_value)
        absent = self._absent_on_null()
        self.expect(")")
        return n.JsonArray(elements, absent, position=self.span(start))

    def json_objectagg(self, start: int, _word: str) -> n.Expression:
        """Take JSON_OBJECTAGG."""
        entry = self._entry()
        absent = self._absent_on_null()
        self.expect(")")
        return n.JsonObject(
            (entry,),
            absent,
            aggregate=True,
            position=self.span(start),
        )

    def json_arrayagg(self, start: int, _word: str) -> n.Expression:
        """Take JSON_ARRAYAGG."""
        element = self._json_value()
        order_by = self.by("ORDER", self.sort_item)
        absent = self._absent_on_null()
        self.expect(")")
        return n.JsonArray(
            (element,),
            absent,
            aggregate=True,
            order_by=order_by,
            position=self.span(start),
        )


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

    def special_form(self) -> n.Expression | None:
        """Take a call with a grammar of its own if one comes next."""
        start = self.index
        word = self.words[start]
        if self.kinds[start] != WORD:
            return None
        method = _FORMS.get(word)
        if method is not None and self.peek() == "(":
            return self._form(word, method)
        if word in COLUMN_WORDS and self.peek() != "(":
            return n.Identifier((self.any_name(),), position=self.span(start))
        if word in NILADIC_FUNCTIONS and self.peek() != "(":
            name = n.Identifier((self.any_name(),), position=self.span(start))
            return n.FunctionCall(name, niladic=True, position=self.span(start))
        return None

    def _form(self, word: str, method: str) -> n.Expression:
        start = self.index
        name = n.Identifier((self.any_name(),), position=self.span(start))
        self.expect("(")
        take: Callable[[int, str], n.Expression | tuple[n.Expression, ...]] = getattr(self, method)
        taken = take(start, word)
        if not isinstance(taken, tuple):
            return taken
        self.expect(")")
        return n.FunctionCall(name, taken, position=self.span(start))

    # --- calls of ODBC

    def odbc_call(self) -> n.Expression | None:
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
            call: n.Expression = n.Cast(operand, self.odbc_type(), position=self.span(start))
        else:
            call = self._odbc_function(word, at)
        self.expect(")", "}")
        return call

    def _odbc_function(self, word: str, at: int) -> n.Expression:
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
            return n.BinaryOperation("||", *arguments, position=position)
        if word == "INSERT":
            text, first, length, inserted = arguments
            arguments = (text, inserted, first, length)
        called = n.Identifier((n.Name(name, position=position),), position=position)
        return n.FunctionCall(called, arguments, position=position)

    # --- ordinary calls

    def call(self, name: n.Identifier, start: int) -> n.FunctionCall:
        """Take what follows the name of a function.

        Args:
            name: The name, already taken.
            start: The index of its first token.
        """
        self.expect("(")
        distinct = self.accept_any("DISTINCT", "ALL") == "DISTINCT"
        arguments: tuple[n.Expression, ...] = ()
        order_by: tuple[n.SortItem, ...] = ()
        ignore_nulls = None
        star = self.index
        if self.accept("*"):
            arguments = (n.Star(position=self.span(star)),)
        elif distinct or not self.at(")"):
            arguments = self.listed(self.argument)
            if name.last.upper() in _NULLS_INSIDE:
                ignore_nulls = self._null_treatment()
            order_by = self.by("ORDER", self.sort_item)
        self.expect(")")
        if ignore_nulls is None:
            ignore_nulls = self._null_treatment()
        within_group: tuple[n.SortItem, ...] = ()
        if self.accept("WITHIN"):
            self.expect("GROUP", "(", "ORDER", "BY")
            within_group = self.order_by()
            self.expect(")")
        condition = self.filter_clause()
        over = self.over_clause()
        return n.FunctionCall(
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

    def filter_clause(self) -> n.Expression | None:
        """Take ``FILTER (WHERE ...)`` if it comes next."""
        if not self.accept("FILTER"):
            return None
        self.expect("(", "WHERE")
        condition = self.expression()
        self.expect(")")
        return condition

    def over_clause(self) -> n.WindowSpecification | n.Name | None:
        """Take ``OVER (...)`` or ``OVER w`` if it comes next."""
        if not self.accept("OVER"):
            return None
        if self.at_name():
            return self.name()
        if not self.at("("):
            self.tried(A_NAME)
        return self.window()

    # --- arguments

    def argument(self) -> n.Expression:
        """Take one argument, with its name if it has one."""
        start = self.index
        if self.kinds[start] != WORD and not self.at_name():
            return self._value()
        if self.peek() != "=>":
            return self._value()
        name = self.name()
        self.expect("=>")
        return n.NamedArgument(name, self._value(), position=self.span(start))

    def _value(self) -> n.Expression:
        start = self.index
        word, next_ = self.words[start], self.peek()
        if word == "DESCRIPTOR" and next_ == "(":
            self.index += 1
            return n.Descriptor(self.parenthesized(self.name), position=self.span(start))
        if word == "TABLE":
            return self._table_argument()
        if word == "DEFAULT":
            self.index += 1
            return n.DefaultArgument(position=self.span(start))
        if word == "MODEL" and self.at_name(1):
            self.unsupported("a model as an argument (ML_PREDICT and similar functions)")
        bare = word in {"SELECT", "VALUES", "WITH"}
        value = n.ScalarQuery(self.query()) if bare else self.expression()
        if self.words[self.index] in {"PARTITION", "ORDER"}:
            if isinstance(value, n.ScalarQuery):
                return self._partitioned(value.query, start)
            if isinstance(value, n.Identifier) and self.at("PARTITION"):
                return self._partitioned(value, start)
        return value

    def _table_argument(self) -> n.TableArgument:
        start = self.index
        self.expect("TABLE")
        in_parentheses = self.accept("(")
        table = self.identifier()
        if in_parentheses:
            self.expect(")")
        return self._partitioned(table, start)

    def _partitioned(self, table: n.Identifier | n.Query, start: int) -> n.TableArgument:
        partition_by: tuple[n.Expression, ...] = ()
        order_by: tuple[n.SortItem, ...] = ()
        if self.accept("PARTITION"):
            self.expect("BY")
            several = self.at("(")
            partition_by = self.expressions_in_parentheses() if several else (self.expression(),)
        if self.accept("ORDER"):
            self.expect("BY")
            several = self.at("(")
            order_by = self.parenthesized(self.sort_item) if several else (self.sort_item(),)
        return n.TableArgument(table, partition_by, order_by, position=self.span(start))

    # --- functions with a grammar of their own

    def _cast(self, start: int, word: str) -> n.Expression:
        operand = self.expression()
        self.expect("AS")
        interval = self.accept("INTERVAL")
        type_ = self.interval_type() if interval else self.type_without_nullability()
        if self.at("NOT", "NULL"):
            self.refuse(f"{word} to a type NOT NULL is not possible: the value may be NULL")
        self.expect(")")
        return n.Cast(operand, type_, word == "TRY_CAST", position=self.span(start))

    def _interval_symbol(self) -> n.Symbol:
        """Take a unit of TIMESTAMPADD and TIMESTAMPDIFF, which have ODBC's names for them, too."""
        start = self.index
        unit = _ODBC_UNITS.get(self.words[start]) if self.kinds[start] == WORD else None
        if unit is None:
            return self._symbol()
        self.index += 1
        return n.Symbol(unit, position=self.span(start))

    def _symbol(self) -> n.Symbol:
        start = self.index
        unit = self.accept_any(*_UNITS)
        if not unit:
            self.fail()
        return n.Symbol(unit, position=self.span(start))

    def _extract(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        unit = self._symbol()
        self.expect("FROM")
        return unit, self.expression()

    def _trim(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        begin = self.index
        side = self.accept_any(*_SIDES)
        if not side:
            operand = self.expression()
            if not self.accept("FROM"):
                return (operand,)
            return n.Symbol("BOTH"), operand, self.expression()
        symbol = n.Symbol(side, position=self.span(begin))
        if self.accept("FROM"):
            return symbol, self.expression()
        characters = self.expression()
        if not self.accept("FROM"):
            return symbol, characters  # what is trimmed: TRIM(BOTH s)
        return symbol, characters, self.expression()

    def _substring(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        arguments = [self.expression()]
        self.expect_any("FROM", ",")
        arguments.append(self.expression())
        if self.accept_any("FOR", ","):
            arguments.append(self.expression())
        return tuple(arguments)

    def _overlay(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        return self._with_words(self.expression(), ("PLACING", "FROM"), "FOR")

    def _position(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        # Tighter than IN, which stands between the two.
        return self._with_words(self.operand(32), ("IN",), "FROM")

    def _with_words(
        self, first: n.Expression, words: tuple[str, ...], last: str
    ) -> tuple[n.Expression, ...]:
        """Take arguments with words between them, the last of which may be missing."""
        arguments = [first]
        for word in words:
            self.expect(word)
            arguments.append(self.expression())
        return (*arguments, self.expression()) if self.accept(last) else tuple(arguments)

    def _rounded(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        operand = self.expression()
        if self.accept("TO"):
            return operand, self._symbol()
        return (operand, self.expression()) if self.accept(",") else (operand,)

    def _with_unit(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        unit = self._interval_symbol()
        self.expect(",")
        first = self.expression()
        self.expect(",")
        return unit, first, self.expression()

    def _convert(self, start: int, _word: str) -> n.Expression:
        """Take ``CONVERT(INT, x)``; the style behind them changes nothing, as in Flink."""
        interval = self.accept("INTERVAL")
        type_ = self.interval_type() if interval else self.type_without_nullability()
        self.expect(",")
        operand = self.expression()
        if self.accept(",") and not self.accept("NULL"):
            self.integer()
        self.expect(")")
        return n.Cast(operand, type_, position=self.span(start))

    def _translate(self, _start: int, _word: str) -> tuple[n.Expression, ...]:
        operand = self.expression()
        if self.at("USING"):
            self.unsupported("TRANSLATE ... USING", "take ENCODE or DECODE")
        self.expect(",")
        arguments = self.listed(self.expression)
        return operand, *arguments
