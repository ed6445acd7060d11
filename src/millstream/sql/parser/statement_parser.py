"""Statements: each by its first word.

Read next: ``parser.py``, which is what others call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from millstream.sql.parser.expression_nodes import FunctionCall
from millstream.sql.parser.show_parser import ShowParser
from millstream.sql.parser.statement_nodes import (
    AlterCatalog,
    AlterDatabase,
    AlterFunction,
    AnalyzeTable,
    Assignment,
    Call,
    CompileAndExecutePlan,
    CompilePlan,
    CreateCatalog,
    CreateDatabase,
    CreateFunction,
    Delete,
    DropCatalog,
    DropDatabase,
    DropFunction,
    Execute,
    ExecutePlan,
    Insert,
    LoadModule,
    ResetOption,
    SetOption,
    StatementSet,
    StopJob,
    TruncateTable,
    UnloadModule,
    Update,
    UseCatalog,
    UseDatabase,
    UseModules,
)
from millstream.sql.parser.table_nodes import (
    DropTable,
    DropView,
    ResetOptions,
    SetComment,
    SetOptions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.sql.parser.syntax import Identifier, Name, Statement
    from millstream.sql.parser.table_nodes import AlterAction

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

    def _create_function(self, start: int, *, temporary: bool, system: bool) -> CreateFunction:
        if_not_exists = self.if_not_exists()
        name = self.identifier()
        path, language = self._implementation()
        if self.at("USING"):
            self.unsupported(
                f"USING {self.peek()}", "functions are Python's: LANGUAGE PYTHON, files by options"
            )
        options = self.with_options()
        return CreateFunction(
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
            return CreateCatalog(name, comment, options, if_not_exists, position=self.span(start))
        database = self.identifier()
        comment, options = self.comment(), self.with_options()
        return CreateDatabase(database, comment, options, if_not_exists, position=self.span(start))

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
            return DropCatalog(self.name(), if_exists, position=self.span(start))
        name = self.identifier()
        if kind == "DATABASE":
            cascade = self.accept_any("RESTRICT", "CASCADE") == "CASCADE"
            return DropDatabase(name, if_exists, cascade, position=self.span(start))
        position = self.span(start)
        if kind == "FUNCTION":
            return DropFunction(name, temporary, system, if_exists, position=position)
        made = DropTable if kind == "TABLE" else DropView
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
                return AlterCatalog(name, action, position=self.span(start))
            case _:
                database = self.identifier()
                self.expect("SET")
                return AlterDatabase(database, self.options(), position=self.span(start))

    def _alter_function(self, start: int) -> AlterFunction:
        temporary = self.accept("TEMPORARY")
        system = temporary and self.accept("SYSTEM")
        self.expect("FUNCTION")
        if_exists = self.if_exists()
        name = self.identifier()
        path, language = self._implementation()
        return AlterFunction(
            name, path, language, temporary, system, if_exists, position=self.span(start)
        )

    def _catalog_action(self) -> AlterAction:
        start = self.index
        match self.expect_any("SET", "RESET", "COMMENT"):
            case "SET":
                return SetOptions(self.options(), position=self.span(start))
            case "RESET":
                return ResetOptions(self.option_keys(), position=self.span(start))
            case _:
                return SetComment(self.string(), position=self.span(start))

    # --- writing

    def _insert(self, start: int) -> Insert:
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
        return Insert(
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

    def one_insert(self) -> Insert:
        """Take an INSERT."""
        start = self.index
        if self.at("UPSERT"):
            self._upsert(start)
        self.expect("INSERT")
        return self._insert(start)

    def _inserts(self) -> tuple[Insert, ...]:
        """Take INSERTs, a semicolon behind each, and END."""
        inserts: list[Insert] = []
        while not inserts or not self.accept("END"):
            inserts.append(self.one_insert())
            self.expect(";")
            while self.accept(";"):
                pass
        return tuple(inserts)

    def statement_set(self) -> StatementSet:
        """Take ``STATEMENT SET BEGIN ... END``."""
        start = self.index
        self.expect("STATEMENT", "SET", "BEGIN")
        return StatementSet(self._inserts(), position=self.span(start))

    def _begin(self, start: int) -> StatementSet:
        self.expect("STATEMENT", "SET", ";")
        return StatementSet(self._inserts(), position=self.span(start))

    def _execute(self, start: int) -> Statement:
        if self.accept("PLAN"):
            return ExecutePlan(self.string(), position=self.span(start))
        if self.at("STATEMENT"):
            inserts = self.statement_set()
            return StatementSet(inserts.statements, position=self.span(start))
        return Execute(self._insert_or_query(), position=self.span(start))

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
            return CompileAndExecutePlan(path, statement, position=position)
        return CompilePlan(path, statement, if_not_exists, position=position)

    def _truncate(self, start: int) -> TruncateTable:
        self.expect("TABLE")
        return TruncateTable(self.identifier(), position=self.span(start))

    def _delete(self, start: int) -> Delete:
        self.expect("FROM")
        table = self.identifier()
        alias = self._alias()
        where = self.expression() if self.accept("WHERE") else None
        return Delete(table, where, alias, position=self.span(start))

    def _alias(self) -> Name | None:
        return self.name() if self.accept("AS") or self.at_name() else None

    def _update(self, start: int) -> Update:
        table = self.identifier()
        alias = self._alias()
        self.expect("SET")
        assignments = self.listed(self._assignment)
        where = self.expression() if self.accept("WHERE") else None
        return Update(table, assignments, where, alias, position=self.span(start))

    def _assignment(self) -> Assignment:
        start = self.index
        column = self.name()
        self.expect("=")
        return Assignment(column, self.expression(), position=self.span(start))

    def _merge(self, start: int) -> Statement:
        self.index = start
        self.unsupported("MERGE", "INSERT INTO a table with a primary key updates it")

    def _call(self, start: int) -> Call:
        begin = self.index
        name = self.identifier()
        if not self.at("("):
            self.tried("(")
            self.fail()
        call = self.call(name, begin)
        plain = FunctionCall(call.name, call.arguments)
        if plain != call:
            self.refuse_token(begin, "a procedure takes arguments and nothing else")
        return Call(call, position=self.span(start))

    def _analyze(self, start: int) -> AnalyzeTable:
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
        return AnalyzeTable(name, partition, columns, all_columns, position=self.span(start))

    # --- the session

    def _use(self, start: int) -> Statement:
        if self.accept("CATALOG"):
            return UseCatalog(self.name(), position=self.span(start))
        if self.accept("MODULES"):
            return UseModules(self.listed(self.name), position=self.span(start))
        return UseDatabase(self.identifier(), position=self.span(start))

    def _set(self, start: int) -> SetOption:
        if not self.at_string():
            self._no_bare_key()
            return SetOption(position=self.span(start))
        key = self.string()
        self.expect("=")
        return SetOption(key, self.string(), position=self.span(start))

    def _reset(self, start: int) -> ResetOption:
        if not self.at_string():
            self._no_bare_key()
            return ResetOption(position=self.span(start))
        return ResetOption(self.string(), position=self.span(start))

    def _no_bare_key(self) -> None:
        if not self.at_end() and not self.at(";"):
            self.refuse("keys and values of options are strings: SET 'key' = 'value'")

    def _load(self, start: int) -> LoadModule:
        self.expect("MODULE")
        name = self.name()
        return LoadModule(name, self.with_options(), position=self.span(start))

    def _unload(self, start: int) -> UnloadModule:
        self.expect("MODULE")
        return UnloadModule(self.name(), position=self.span(start))

    def _jar(self, start: int) -> Statement:
        self.index = start
        word = self.words[start]
        self.unsupported(f"{word} JAR", "files of Python go by the options python.files")

    def _stop(self, start: int) -> StopJob:
        self.expect("JOB")
        job_id = self.string()
        with_savepoint = self.accept("WITH", "SAVEPOINT")
        with_drain = with_savepoint and self.accept("WITH", "DRAIN")
        if self.at("WITH", "DRAIN"):
            self.refuse("WITH DRAIN stands behind WITH SAVEPOINT")
        return StopJob(job_id, with_savepoint, with_drain, position=self.span(start))
