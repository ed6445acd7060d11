"""Parse statements, queries and expressions: the entry points of the parser.

A text that fails is parsed a second time by a parser that records the expected tokens, so that
error messages cost nothing until there is an error.
"""

from __future__ import annotations

import difflib
from abc import abstractmethod
from typing import TYPE_CHECKING, Final, NoReturn, TypeVar

from millstream.errors import SqlParserError
from millstream.sql.parser import statement_nodes as s
from millstream.sql.parser.nodes import FunctionCall, Identifier, Name
from millstream.sql.parser.table_parser import TableParser
from millstream.sql.parser.tokens import (
    A_NAME,
    A_QUERY,
    A_STRING,
    AN_EXPRESSION,
    CATEGORIES,
    RESERVED,
    THE_END,
    WORD,
    parser_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.parser.nodes import Expression, Query, Statement
    from millstream.types.logical_types import LogicalType


_DETAILS: Final = ("CHANGELOG_MODE", "ESTIMATED_COST", "JSON_EXECUTION_PLAN", "PLAN_ADVICE")
#: Kinds that take neither FROM nor LIKE.
_BARE: Final = frozenset(
    {
        s.ShowKind.CURRENT_CATALOG,
        s.ShowKind.CURRENT_DATABASE,
        s.ShowKind.MODULES,
        s.ShowKind.FULL_MODULES,
        s.ShowKind.JARS,
        s.ShowKind.JOBS,
    }
)
_ILIKE: Final = frozenset(
    {
        s.ShowKind.CATALOGS,
        s.ShowKind.DATABASES,
        s.ShowKind.FUNCTIONS,
        s.ShowKind.USER_FUNCTIONS,
        s.ShowKind.PROCEDURES,
    }
)
_DESCRIBED: Final = ("CATALOG", "DATABASE", "FUNCTION", "MODEL", "CONNECTION", "JOB")


class ShowParser(TableParser):
    """SHOW, DESCRIBE and EXPLAIN, their first word already taken."""

    __slots__ = ()

    @abstractmethod
    def explained(self) -> Statement:
        """Take what EXPLAIN may explain."""

    def show(self, start: int) -> Statement:
        """Take SHOW."""
        if self.accept("CREATE"):
            return self._show_create(start)
        if self.accept("PARTITIONS"):
            table = self.identifier()
            partition = self.partition() if self.accept("PARTITION") else ()
            return s.ShowPartitions(table, partition, position=self.span(start))
        kind = self._show_kind()
        scope = pattern = None
        if kind is s.ShowKind.COLUMNS:
            self.expect_any("FROM", "IN")
            scope = self.identifier()
        elif (
            kind not in _BARE and kind is not s.ShowKind.CATALOGS and self.accept_any("FROM", "IN")
        ):
            scope = self.identifier()
        if kind not in _BARE:
            pattern = self._pattern(ignore_case=kind in _ILIKE)
        return s.Show(kind, scope, pattern, position=self.span(start))

    def _show_kind(self) -> s.ShowKind:
        for kind in s.ShowKind:
            if self.accept(*kind.value.split()):
                return kind
        for word in ("CREATE", "PARTITIONS"):
            self.tried(word)
        return self.fail()

    def _pattern(self, *, ignore_case: bool) -> s.NamePattern | None:
        start = self.index
        negated = self.accept("NOT")
        words = ("LIKE", "ILIKE") if ignore_case else ("LIKE",)
        word = self.expect_any(*words) if negated else self.accept_any(*words)
        if not word:
            return None
        return s.NamePattern(self.string(), negated, word == "ILIKE", position=self.span(start))

    def _show_create(self, start: int) -> s.ShowCreate:
        kind = self.expect_any("TABLE", "VIEW", "CATALOG", "MODEL", "CONNECTION", "MATERIALIZED")
        if kind in {"MODEL", "CONNECTION", "MATERIALIZED"}:
            self.index -= 1
            self.unsupported(f"a {kind}{' TABLE' * (kind == 'MATERIALIZED')}")
        if kind == "CATALOG":
            begin = self.index
            name = Identifier((self.name(),), position=self.span(begin))
        else:
            name = self.identifier()
        return s.ShowCreate(kind, name, position=self.span(start))

    def describe(self, start: int) -> s.Describe:
        """Take DESCRIBE."""
        kind = "TABLE"
        word = self.words[self.index]
        if word == "JOB" and self.peek_kind() and self.peek() not in {".", ";"}:
            self.index += 1
            begin = self.index
            name = Name(self.string(), quoted=True, position=self.span(begin))
            return s.Describe("JOB", Identifier((name,)), position=self.span(start))
        if word in _DESCRIBED and (self.at_name(1) or self.peek() == "EXTENDED"):
            kind = word
            self.index += 1
        elif word == "TABLE":
            self.index += 1
        if kind in {"MODEL", "CONNECTION"}:
            self.index -= 1
            self.unsupported(f"a {kind}")
        extended = self.accept("EXTENDED")
        return s.Describe(kind, self.identifier(), extended, position=self.span(start))

    def explain(self, start: int) -> s.Explain:
        """Take EXPLAIN."""
        details: list[str] = []
        if not self.accept("PLAN", "FOR"):
            while word := self.accept_any(*_DETAILS):
                if word in details:
                    self.refuse_token(self.index - 1, f"{word} stands here twice")
                details.append(word)
                if not self.accept(","):
                    break
                if self.words[self.index] not in _DETAILS:
                    self.expect_any(*_DETAILS)
        return s.Explain(self.explained(), tuple(details), position=self.span(start))


#: First word -> the method that takes the statement, the word already taken.
_STATEMENTS: Final = {
    "CREATE": "_create",
    "REPLACE": "replace_table",
    "DROP": "_drop_object",
    "ALTER": "_alter",
    "INSERT": "_insert",
    "UPSERT": "_upsert",
    "EXECUTE": "_execute",
    "BEGIN": "_begin",
    "COMPILE": "_compile",
    "USE": "_use",
    "SHOW": "show",
    "DESCRIBE": "describe",
    "DESC": "describe",
    "EXPLAIN": "explain",
    "SET": "_set",
    "RESET": "_reset",
    "LOAD": "_load",
    "UNLOAD": "_unload",
    "ANALYZE": "_analyze",
    "TRUNCATE": "_truncate",
    "CALL": "_call",
    "DELETE": "_delete",
    "UPDATE": "_update",
    "MERGE": "_merge",
    "ADD": "_jar",
    "REMOVE": "_jar",
    "STOP": "_stop",
}
_FIRST_WORDS: Final = frozenset(_STATEMENTS) | {"SELECT", "WITH", "VALUES"}
_OBJECTS: Final = ("TABLE", "VIEW", "FUNCTION", "CATALOG", "DATABASE")
#: What Flink can create, drop and alter as well.
_NO_OBJECTS: Final = {
    "MATERIALIZED": (
        "a MATERIALIZED TABLE",
        "INSERT INTO a table with a primary key keeps it up to date",
    ),
    "MODEL": ("a MODEL", "call the model in a function: CREATE FUNCTION ... LANGUAGE PYTHON"),
    "CONNECTION": ("a CONNECTION", "options of a connector stand in WITH of its tables"),
}


class StatementParser(ShowParser):
    """All statements."""

    __slots__ = ()

    def statement(self) -> Statement:
        """Take one statement, without the semicolon."""
        start = self.index
        method = _STATEMENTS.get(self.words[start])
        if method is None:
            if not self.at_query() and not self.at("("):
                self.suggest(_FIRST_WORDS)
                self.fail_for("a statement")
            return self.query()
        self.index += 1
        take: Callable[[int], Statement] = getattr(self, method)
        return take(start)

    # --- CREATE, DROP, ALTER

    def _object(self) -> str:
        word = self.words[self.index]
        if word in _NO_OBJECTS:
            self.unsupported(*_NO_OBJECTS[word])
        return self.expect_any(*_OBJECTS)

    def _create(self, start: int) -> Statement:
        replace = self.accept("OR", "REPLACE")
        if self.at("OR", "ALTER"):
            self.unsupported(*_NO_OBJECTS["MATERIALIZED"])
        temporary = self.accept("TEMPORARY")
        system = self.accept("SYSTEM")
        at = self.index
        kind = "FUNCTION" if system and self.accept("FUNCTION") else self._object()
        if replace and kind != "TABLE":
            self.refuse_token(at, f"CREATE OR REPLACE is for tables: DROP the {kind.lower()} first")
        if system and kind != "FUNCTION":
            self.refuse_token(at - 1, "SYSTEM is for functions")
        if system and not temporary:
            self.refuse_token(at - 1, "a SYSTEM FUNCTION is TEMPORARY: the word is missing")
        match kind:
            case "TABLE":
                return self.create_table(start, temporary=temporary, replace_=replace)
            case "VIEW":
                return self.create_view(start, temporary=temporary)
            case "FUNCTION":
                return self._create_function(start, temporary=temporary, system=system)
            case _:
                if temporary:
                    self.refuse_token(at - 1, f"a {kind} is not TEMPORARY")
                return self._create_space(start, kind)

    def _create_function(self, start: int, *, temporary: bool, system: bool) -> s.CreateFunction:
        if_not_exists = self.if_not_exists()
        name = self.identifier()
        path, language = self._implementation()
        if self.at("USING"):
            self.unsupported(
                f"USING {self.peek()}", "functions are Python's: LANGUAGE PYTHON, files by options"
            )
        options = self.with_options()
        return s.CreateFunction(
            name,
            path,
            language,
            options,
            temporary,
            system,
            if_not_exists,
            position=self.span(start),
        )

    def _implementation(self) -> tuple[str, str | None]:
        self.expect("AS")
        path = self.string()
        language = None
        if self.accept("LANGUAGE"):
            language = self.expect_any("PYTHON", "JAVA", "SCALA", "SQL")
        return path, language

    def _create_space(self, start: int, kind: str) -> Statement:
        if_not_exists = self.if_not_exists()
        if kind == "CATALOG":
            name = self.name()
            comment, options = self.comment(), self.with_options()
            return s.CreateCatalog(name, comment, options, if_not_exists, position=self.span(start))
        database = self.identifier()
        comment, options = self.comment(), self.with_options()
        return s.CreateDatabase(
            database, comment, options, if_not_exists, position=self.span(start)
        )

    def _drop_object(self, start: int) -> Statement:
        temporary = self.accept("TEMPORARY")
        system = self.accept("SYSTEM")
        at = self.index
        kind = "FUNCTION" if system and self.accept("FUNCTION") else self._object()
        if system and kind != "FUNCTION":
            self.refuse_token(at - 1, "SYSTEM is for functions")
        if temporary and kind in {"CATALOG", "DATABASE"}:
            self.refuse_token(at - 1, f"a {kind} is not TEMPORARY")
        if_exists = self.if_exists()
        if kind == "CATALOG":
            return s.DropCatalog(self.name(), if_exists, position=self.span(start))
        name = self.identifier()
        if kind == "DATABASE":
            cascade = self.accept_any("RESTRICT", "CASCADE") == "CASCADE"
            return s.DropDatabase(name, if_exists, cascade, position=self.span(start))
        position = self.span(start)
        if kind == "FUNCTION":
            return s.DropFunction(name, temporary, system, if_exists, position=position)
        made = s.DropTable if kind == "TABLE" else s.DropView
        return made(name, temporary, if_exists, position=position)

    def _alter(self, start: int) -> Statement:
        if self.at("TEMPORARY") or self.at("FUNCTION"):
            return self._alter_function(start)
        match self._object():
            case "TABLE":
                return self.alter_table(start)
            case "VIEW":
                return self.alter_view(start)
            case "CATALOG":
                name = self.name()
                action = self._catalog_action()
                return s.AlterCatalog(name, action, position=self.span(start))
            case _:
                database = self.identifier()
                self.expect("SET")
                return s.AlterDatabase(database, self.options(), position=self.span(start))

    def _alter_function(self, start: int) -> s.AlterFunction:
        temporary = self.accept("TEMPORARY")
        system = temporary and self.accept("SYSTEM")
        self.expect("FUNCTION")
        if_exists = self.if_exists()
        name = self.identifier()
        path, language = self._implementation()
        return s.AlterFunction(
            name, path, language, temporary, system, if_exists, position=self.span(start)
        )

    def _catalog_action(self) -> s.AlterAction:
        start = self.index
        match self.expect_any("SET", "RESET", "COMMENT"):
            case "SET":
                return s.SetOptions(self.options(), position=self.span(start))
            case "RESET":
                return s.ResetOptions(self.option_keys(), position=self.span(start))
            case _:
                return s.SetComment(self.string(), position=self.span(start))

    # --- writing

    def _insert(self, start: int) -> s.Insert:
        overwrite = self.expect_any("INTO", "OVERWRITE") == "OVERWRITE"
        table = self.identifier()
        hints = self.hints()
        partition = self.partition() if self.accept("PARTITION") else ()
        columns: tuple[Identifier, ...] = ()
        if self.at("(") and self.at_name(1):
            columns = self.parenthesized(self.identifier)
            if self.at("PARTITION"):
                self.refuse("PARTITION stands before the columns")
        query = self.query()
        on_conflict = None
        if self.accept("ON"):
            self.expect("CONFLICT", "DO")
            on_conflict = self.expect_any("ERROR", "NOTHING", "DEDUPLICATE")
        return s.Insert(
            table,
            query,
            columns,
            partition,
            overwrite,
            hints,
            on_conflict,
            position=self.span(start),
        )

    def _upsert(self, start: int) -> Statement:
        self.index = start
        self.unsupported("UPSERT", "INSERT INTO a table with a primary key updates it")

    def one_insert(self) -> s.Insert:
        """Take an INSERT."""
        start = self.index
        if self.at("UPSERT"):
            self._upsert(start)
        self.expect("INSERT")
        return self._insert(start)

    def _inserts(self) -> tuple[s.Insert, ...]:
        """Take INSERTs, a semicolon behind each, and END."""
        inserts: list[s.Insert] = []
        while not inserts or not self.accept("END"):
            inserts.append(self.one_insert())
            self.expect(";")
            while self.accept(";"):
                pass
        return tuple(inserts)

    def statement_set(self) -> s.StatementSet:
        """Take ``STATEMENT SET BEGIN ... END``."""
        start = self.index
        self.expect("STATEMENT", "SET", "BEGIN")
        return s.StatementSet(self._inserts(), position=self.span(start))

    def _begin(self, start: int) -> s.StatementSet:
        self.expect("STATEMENT", "SET", ";")
        return s.StatementSet(self._inserts(), position=self.span(start))

    def _execute(self, start: int) -> Statement:
        if self.accept("PLAN"):
            return s.ExecutePlan(self.string(), position=self.span(start))
        if self.at("STATEMENT"):
            inserts = self.statement_set()
            return s.StatementSet(inserts.statements, position=self.span(start))
        return s.Execute(self._insert_or_query(), position=self.span(start))

    def _insert_or_query(self) -> Statement:
        if self.at("INSERT") or self.at("UPSERT"):
            return self.one_insert()
        self.tried("STATEMENT SET")
        self.tried("INSERT")
        return self.query()

    def explained(self) -> Statement:
        """Take what EXPLAIN may explain."""
        start = self.index
        if self.at("STATEMENT"):
            return self.statement_set()
        if self.accept("EXECUTE"):
            if self.at("STATEMENT"):
                return self.statement_set()
            return self._insert_or_query()
        if self.at("CREATE") or self.at("REPLACE"):
            statement = self.statement()
            if getattr(statement, "query", None) is None or not hasattr(statement, "like"):
                self.refuse_token(start, "EXPLAIN needs a query: CREATE TABLE ... AS SELECT")
            return statement
        return self._insert_or_query()

    def _compile(self, start: int) -> Statement:
        both = self.accept("AND")
        if both:
            self.expect("EXECUTE")
        self.expect("PLAN")
        path = self.string()
        if_not_exists = not both and self.if_not_exists()
        self.expect("FOR")
        statement = self.statement_set() if self.at("STATEMENT") else self.one_insert()
        position = self.span(start)
        if both:
            return s.CompileAndExecutePlan(path, statement, position=position)
        return s.CompilePlan(path, statement, if_not_exists, position=position)

    def _truncate(self, start: int) -> s.TruncateTable:
        self.expect("TABLE")
        return s.TruncateTable(self.identifier(), position=self.span(start))

    def _delete(self, start: int) -> s.Delete:
        self.expect("FROM")
        table = self.identifier()
        alias = self._alias()
        where = self.expression() if self.accept("WHERE") else None
        return s.Delete(table, where, alias, position=self.span(start))

    def _alias(self) -> Name | None:
        return self.name() if self.accept("AS") or self.at_name() else None

    def _update(self, start: int) -> s.Update:
        table = self.identifier()
        alias = self._alias()
        self.expect("SET")
        assignments = self.listed(self._assignment)
        where = self.expression() if self.accept("WHERE") else None
        return s.Update(table, assignments, where, alias, position=self.span(start))

    def _assignment(self) -> s.Assignment:
        start = self.index
        column = self.name()
        self.expect("=")
        return s.Assignment(column, self.expression(), position=self.span(start))

    def _merge(self, start: int) -> Statement:
        self.index = start
        self.unsupported("MERGE", "INSERT INTO a table with a primary key updates it")

    def _call(self, start: int) -> s.Call:
        begin = self.index
        name = self.identifier()
        if not self.at("("):
            self.tried("(")
            self.fail()
        call = self.call(name, begin)
        plain = FunctionCall(call.name, call.arguments)
        if plain != call:
            self.refuse_token(begin, "a procedure takes arguments and nothing else")
        return s.Call(call, position=self.span(start))

    def _analyze(self, start: int) -> s.AnalyzeTable:
        self.expect("TABLE")
        name = self.identifier()
        partition = self.partition(dynamic=True) if self.accept("PARTITION") else ()
        self.expect("COMPUTE", "STATISTICS")
        columns: tuple[Name, ...] = ()
        all_columns = False
        if self.accept("FOR"):
            all_columns = self.accept("ALL")
            self.expect("COLUMNS")
            columns = () if all_columns else self.listed(self.name)
        return s.AnalyzeTable(name, partition, columns, all_columns, position=self.span(start))

    # --- the session

    def _use(self, start: int) -> Statement:
        if self.accept("CATALOG"):
            return s.UseCatalog(self.name(), position=self.span(start))
        if self.accept("MODULES"):
            return s.UseModules(self.listed(self.name), position=self.span(start))
        return s.UseDatabase(self.identifier(), position=self.span(start))

    def _set(self, start: int) -> s.SetOption:
        if not self.at_string():
            self._no_bare_key()
            return s.SetOption(position=self.span(start))
        key = self.string()
        self.expect("=")
        return s.SetOption(key, self.string(), position=self.span(start))

    def _reset(self, start: int) -> s.ResetOption:
        if not self.at_string():
            self._no_bare_key()
            return s.ResetOption(position=self.span(start))
        return s.ResetOption(self.string(), position=self.span(start))

    def _no_bare_key(self) -> None:
        if not self.at_end() and not self.at(";"):
            self.refuse("keys and values of options are strings: SET 'key' = 'value'")

    def _load(self, start: int) -> s.LoadModule:
        self.expect("MODULE")
        name = self.name()
        return s.LoadModule(name, self.with_options(), position=self.span(start))

    def _unload(self, start: int) -> s.UnloadModule:
        self.expect("MODULE")
        return s.UnloadModule(self.name(), position=self.span(start))

    def _jar(self, start: int) -> Statement:
        self.index = start
        word = self.words[start]
        self.unsupported(f"{word} JAR", "files of Python go by the options python.files")

    def _stop(self, start: int) -> s.StopJob:
        self.expect("JOB")
        job_id = self.string()
        with_savepoint = self.accept("WITH", "SAVEPOINT")
        with_drain = with_savepoint and self.accept("WITH", "DRAIN")
        if self.at("WITH", "DRAIN"):
            self.refuse("WITH DRAIN stands behind WITH SAVEPOINT")
        return s.StopJob(job_id, with_savepoint, with_drain, position=self.span(start))


_T = TypeVar("_T")
#: More are not listed in an error.
_MOST_EXPECTED: Final = 9
#: So few words that signs are listed beside them.
_FEW_EXPECTED: Final = 4
_SIGNS: Final = "(),:=<>[]"
#: Shorter reserved words are like too many others to be misspelt ones.
_SHORT: Final = 5
#: How alike a word and a keyword are for "did you mean".
_ALIKE: Final = 0.7
#: Reserved words that nobody means as a name.
_CLAUSES: Final = frozenset(
    """
    SELECT FROM WHERE GROUP HAVING ORDER LIMIT OFFSET FETCH UNION INTERSECT EXCEPT JOIN ON USING AND
    OR NOT THEN ELSE WHEN END WITH WINDOW AS INTO BY SET IS IN LIKE BETWEEN QUALIFY
    PARTITION
    """.split()  # noqa: SIM905 - in the order of the grammar
)


def parse_statements(text: str) -> tuple[Statement, ...]:
    """Parse a script: statements with semicolons between them.

    Args:
        text: The script; empty statements and comments are skipped.

    Returns:
        The statements, in order.

    Raises:
        SqlParserError: The text is not in the dialect.
        UnsupportedSqlError: It has a statement or clause of Flink's that Millstream has not.
    """
    return _parse(text, _script)


def parse_statement(text: str) -> Statement:
    """Parse one statement, with or without a semicolon behind it.

    Args:
        text: The statement.

    Raises:
        SqlParserError: The text is not in the dialect, or is not one statement.
        UnsupportedSqlError: It is a statement of Flink's that Millstream has not, or has a clause
            of that kind.
    """
    return _parse(text, _one_statement)


def parse_query(text: str) -> Query:
    """Parse a query.

    Args:
        text: The query, without a semicolon.

    Raises:
        SqlParserError: The text is no query.
        UnsupportedSqlError: It has a clause of Flink's that Millstream has not.
    """
    return _parse(text, lambda parser: parser.query())


def parse_expression(text: str) -> Expression:
    """Parse an expression, as of a computed column.

    Args:
        text: The expression.

    Raises:
        SqlParserError: The text is no expression.
        UnsupportedSqlError: It has a form of Flink's that Millstream has not.
    """
    return _parse(text, lambda parser: parser.expression())


def parse_type(text: str) -> LogicalType:
    """Parse a type: ``ROW<a INT NOT NULL, b STRING>``.

    Args:
        text: The type.

    Raises:
        SqlParserError: The text is no type.
        UnsupportedSqlError: It is a type of Flink's that Millstream has not.
    """

    def take(parser: StatementParser) -> LogicalType:
        return parser.interval_type() if parser.accept("INTERVAL") else parser.type()

    return _parse(text, take)


def parse_identifier(text: str) -> Identifier:
    """Parse a path as the Table API has it: reserved words are names there.

    Args:
        text: ``table``, ``database.table`` or ``catalog.database.table``; parts may stand in
            backticks.

    Raises:
        SqlParserError: The text is no such path.
    """
    return _parse(text, _path)


def _path(parser: StatementParser) -> Identifier:

    start = parser.index
    parts = [parser.any_name()]
    while parser.accept("."):
        parts.append(parser.any_name())
    return Identifier(tuple(parts), position=parser.span(start))


def _script(parser: StatementParser) -> tuple[Statement, ...]:
    statements: list[Statement] = []
    while True:
        while parser.accept(";"):
            pass
        if parser.at_end():
            return tuple(statements)
        statements.append(parser.statement())
        if not parser.at_end():
            parser.expect(";")


def _one_statement(parser: StatementParser) -> Statement:
    statement = parser.statement()
    while parser.accept(";"):
        pass
    return statement


def _parse(text: str, take: Callable[[StatementParser], _T]) -> _T:
    try:
        return _taken(StatementParser(text), take)
    except SqlParserError as error:
        plain = error
    # Fails where the first one did, and knows what it expected there.
    _taken(_RecordingParser(text), take)
    raise plain


def _taken(parser: StatementParser, take: Callable[[StatementParser], _T]) -> _T:
    try:
        result = take(parser)
    except RecursionError:
        # Deeper than Python's stack: nobody writes that, and a generator of texts can flatten it.
        parser.refuse("too many parentheses or queries in one another")
    if not parser.at_end():
        parser.fail_for(THE_END)
    return result


class _RecordingParser(StatementParser):
    """A parser that remembers what it tried where, to say what was expected."""

    __slots__ = ("expected", "likely")

    def __init__(self, text: str) -> None:
        super().__init__(text)
        #: Index of a token -> what was tried there, in order.
        self.expected: dict[int, dict[str, None]] = {}
        #: The same for words that are only suggested.
        self.likely: dict[int, set[str]] = {}

    def accept(self, *words: str) -> bool:
        for distance, word in enumerate(words):
            if self.peek(distance) != word:
                phrase = word if distance else " ".join(words)
                self.expected.setdefault(self.index + distance, {})[phrase] = None
                break
        return super().accept(*words)

    def accept_any(self, *words: str) -> str:
        taken = super().accept_any(*words)
        if not taken:
            self.expected.setdefault(self.index, {}).update(dict.fromkeys(words))
        return taken

    def tried(self, what: str) -> None:
        self.expected.setdefault(self.index, {})[what] = None

    def suggest(self, words: frozenset[str]) -> None:
        self.likely.setdefault(self.index, set()).update(words)

    def fail(self) -> NoReturn:
        # A phrase of which the first words came is why the text fails, though the parser went on.
        index = max([self.index, *self.expected])
        tokens = self.tokens
        what = f"found {self.described(index)}{self._expectation(index)}{self._advice(index)}"
        raise parser_error(tokens.text, tokens.starts[index], tokens.ends[index], what)

    def _expectation(self, index: int) -> str:
        tried = list(self.expected.get(index, {}))
        words = [each for each in tried if each in CATEGORIES or each[0].isalpha()]
        signs = [f"'{each}'" for each in tried if each not in CATEGORIES and each[0] in _SIGNS]
        few = len(words) <= _FEW_EXPECTED
        shown = (signs if few else [each for each in signs if each == "')'"]) + words
        shown = shown or [f"'{each}'" for each in tried]
        shown.sort(key=lambda each: (each == THE_END, each not in CATEGORIES))
        if not shown:
            return ""
        if len(shown) > _MOST_EXPECTED:
            shown = [*shown[:_MOST_EXPECTED], "something else"]
        *first, last = shown
        return f", expected {', '.join(first)} or {last}" if first else f", expected {last}"

    def _advice(self, index: int) -> str:
        for near in (index, index - 1):
            if near >= 0 and self.kinds[near] == WORD:
                word = self._meant(near)
                if word and near == index:
                    return f". Did you mean {word}?"
                if word:
                    return f". Did you mean {word} instead of {self.described(near)}?"
        word = self.words[index]
        expected = self.expected.get(index, {})
        wants_name = A_NAME in expected or AN_EXPRESSION in expected
        sure = self.words[index - 1 : index] == ["."] or self.words[index + 1 :][:1] == ["=>"]
        if wants_name and word in RESERVED and (sure or word not in _CLAUSES):
            return f". {word} is a reserved word; as a name it stands in backticks"
        if self.tokens.text[self.tokens.starts[index] :].startswith('"') and A_STRING in expected:
            return ". A string stands in single quotes"
        return ""

    def _meant(self, index: int) -> str:
        """The keyword that could have stood there and is much like the word that does."""
        tried = {each.split()[0] for each in self.expected.get(index, {}) if each.isupper()}
        tried |= self.likely.get(index, set())
        if A_QUERY in self.expected.get(index, {}):
            tried |= {"SELECT", "VALUES", "WITH"}
        word = self.words[index]
        if word in RESERVED and len(word) < _SHORT:
            return ""
        found = difflib.get_close_matches(word, sorted(tried - {word}), n=1, cutoff=_ALIKE)
        return found[0] if found and word not in tried else ""
