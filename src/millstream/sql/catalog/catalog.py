"""Catalogs: where tables, views and functions are kept under database and name.

What it is: the interface, with PyFlink's names, and the catalog in memory.
What it is not: the resolution of names of statements (``sql/catalog/manager.py``).
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias

from millstream.errors import (
    CatalogError,
    DatabaseAlreadyExistError,
    DatabaseNotEmptyError,
    DatabaseNotExistError,
    FunctionAlreadyExistError,
    FunctionNotExistError,
    TableAlreadyExistError,
    TableNotExistError,
)
from millstream.sql.catalog.objects import CatalogBaseTable, CatalogDatabase, CatalogFunction
from millstream.sql.catalog.options import text
from millstream.sql.catalog.partitions_and_statistics import FactsOfTables, TableFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from millstream.sql.catalog.identifiers import ObjectPath
    from millstream.sql.catalog.options import Option


#: The database of a catalog that a session uses first.
DEFAULT_DATABASE: Final = text("default-database", "default")
#: What an error calls it -> its classes where it is missing, and where it exists already.
TABLE: Final = ("Table (or view)", TableNotExistError, TableAlreadyExistError)
FUNCTION: Final = ("Function", FunctionNotExistError, FunctionAlreadyExistError)
_Kind: TypeAlias = tuple[str, type[CatalogError], type[CatalogError]]


class Catalog(FactsOfTables):
    """Tables, views and functions under database and name.

    Partitions and statistics have their methods in ``FactsOfTables``; a catalog that keeps what is
    said of them has ``facts_of`` and ``change_facts``.

    Contract:
      1. What was created is found by ``get_table`` until it is dropped, also by later sessions if
         the catalog keeps things.  (tests of each catalog)
      2. Methods raise the subclass of CatalogError for what does not exist or exists already, as
         ``TableNotExistError``, unless told to ignore it.  (tests of each catalog)
    """

    def __init__(self, name: str, default_database: str = "default") -> None:
        """Take the catalog's own name and the database that a session uses first."""
        self.name = name
        self.default_database = default_database

    def get_default_database(self) -> str:
        """The database that a session uses first."""
        return self.default_database

    @abstractmethod
    def list_databases(self) -> list[str]:
        """The names of all databases."""

    @abstractmethod
    def get_database(self, database_name: str) -> CatalogDatabase:
        """A database; CatalogError if there is none of that name."""

    def database_exists(self, database_name: str) -> bool:
        """Whether there is a database of that name."""
        return database_name in self.list_databases()

    @abstractmethod
    def create_database(
        self,
        name: str,
        database: CatalogDatabase,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Make a database."""

    @abstractmethod
    def drop_database(
        self,
        name: str,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
        cascade: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        """Drop a database; ``cascade``: with all that is in it."""

    def alter_database(
        self,
        name: str,
        new_database: CatalogDatabase,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Describe a database otherwise; CatalogError if the catalog cannot."""
        del name, new_database, ignore_if_not_exists
        message = f"Catalog '{self.name}' cannot alter databases."
        raise CatalogError(message)

    @abstractmethod
    def list_tables(self, database_name: str) -> list[str]:
        """The names of the tables and views of a database."""

    def list_views(self, database_name: str) -> list[str]:
        """The names of the views of a database."""
        names = self.list_tables(database_name)
        return [name for name in names if self._table(database_name, name).is_view]

    def list_materialized_tables(self, database_name: str) -> list[str]:
        """None: there are no materialised tables."""
        self.get_database(database_name)
        return []

    def _table(self, database_name: str, name: str) -> CatalogBaseTable:
        from millstream.sql.catalog.identifiers import ObjectPath

        return self.get_table(ObjectPath(database_name, name))

    @abstractmethod
    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        """A table or view; CatalogError if there is none."""

    @abstractmethod
    def table_exists(self, table_path: ObjectPath) -> bool:
        """Whether there is a table or view."""

    @abstractmethod
    def create_table(
        self,
        table_path: ObjectPath,
        table: CatalogBaseTable,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Make a table or view."""

    @abstractmethod
    def alter_table(
        self,
        table_path: ObjectPath,
        new_table: CatalogBaseTable,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Put another table in the place of one."""

    @abstractmethod
    def drop_table(
        self,
        table_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Drop a table or view."""

    @abstractmethod
    def rename_table(
        self,
        table_path: ObjectPath,
        new_table_name: str,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Give a table or view another name in its database."""

    @abstractmethod
    def list_functions(self, database_name: str) -> list[str]:
        """The names of the functions of a database."""

    @abstractmethod
    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        """A function; CatalogError if there is none."""

    @abstractmethod
    def function_exists(self, function_path: ObjectPath) -> bool:
        """Whether there is a function."""

    @abstractmethod
    def create_function(
        self,
        function_path: ObjectPath,
        function: CatalogFunction,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Make a function."""

    def alter_function(
        self,
        function_path: ObjectPath,
        new_function: CatalogFunction,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Put another function in the place of one; CatalogError if the catalog cannot."""
        del function_path, new_function, ignore_if_not_exists
        message = f"Catalog '{self.name}' cannot alter functions."
        raise CatalogError(message)

    @abstractmethod
    def drop_function(
        self,
        function_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        """Drop a function."""

    def open(self) -> None:
        """Called when a session registers the catalog."""

    def close(self) -> None:
        """Called when a session lets go of it."""

    # -- what catalogs raise ---------------------------------------------------------------------

    def _no_such(self, path: ObjectPath, kind: _Kind = TABLE) -> CatalogError:
        what, missing, _ = kind
        return missing(f"{what} {path} does not exist in Catalog {self.name}.")

    def _taken(self, path: ObjectPath, kind: _Kind = TABLE) -> CatalogError:
        what, _, exists = kind
        return exists(f"{what} {path} already exists in Catalog {self.name}.")

    def _no_such_database(self, name: str) -> CatalogError:
        return DatabaseNotExistError(f"Database {name} does not exist in Catalog {self.name}.")

    def _database_taken(self, name: str) -> CatalogError:
        message = f"Database {name} already exists in Catalog {self.name}."
        return DatabaseAlreadyExistError(message)

    def _database_in_use(self, name: str) -> CatalogError:
        return DatabaseNotEmptyError(f"Database {name} in catalog {self.name} is not empty.")

    @staticmethod
    def _check_same_kind(
        path: ObjectPath, old_table: CatalogBaseTable, new_table: CatalogBaseTable
    ) -> None:
        old, new = _kind_of(old_table), _kind_of(new_table)
        if old != new:
            message = (
                f"Table types don't match. Existing table '{path}' is '{old}' and new table is "
                f"'{new}'."
            )
            raise CatalogError(message)


def _kind_of(table: CatalogBaseTable) -> str:
    return "VIEW" if table.is_view else "TABLE"


@dataclass(slots=True)
class _Database:
    described: CatalogDatabase
    tables: dict[str, CatalogBaseTable] = field(default_factory=dict)
    #: By table; of those of which nothing is known there is none.
    facts: dict[str, TableFacts] = field(default_factory=dict)
    functions: dict[str, CatalogFunction] = field(default_factory=dict)


class CreatedCatalog(Catalog):
    """A catalog that CREATE CATALOG can make, by the name of its entry point.

    Contract:
      1. ``OPTIONS`` are all options that it takes beside ``type``; others, and missing required
         ones, are refused before ``from_options`` is called.  (the runtime)
      2. ALTER CATALOG makes it again with other options; what it describes must not be lost with
         the object.  (nobody)
    """

    OPTIONS: ClassVar[Sequence[Option]] = (DEFAULT_DATABASE,)

    @classmethod
    @abstractmethod
    def from_options(cls, name: str, options: Mapping[str, str]) -> CreatedCatalog:
        """Make a catalog of the options of a statement; ValidationError if it cannot be."""


class GenericInMemoryCatalog(CreatedCatalog):
    """A catalog that lives as long as its session.  Names of tables heed case, of functions not."""

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, str]) -> GenericInMemoryCatalog:
        return cls(name, options.get(DEFAULT_DATABASE.key, "default"))

    def __init__(self, name: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        self._databases = {default_database: _Database(CatalogDatabase())}

    def list_databases(self) -> list[str]:
        return sorted(self._databases)

    def get_database(self, database_name: str) -> CatalogDatabase:
        return self._in(database_name).described

    def _in(self, database_name: str) -> _Database:
        try:
            return self._databases[database_name]
        except KeyError:
            raise self._no_such_database(database_name) from None

    def create_database(
        self,
        name: str,
        database: CatalogDatabase,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if name in self._databases:
            if ignore_if_exists:
                return
            raise self._database_taken(name)
        self._databases[name] = _Database(database)

    def alter_database(
        self,
        name: str,
        new_database: CatalogDatabase,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if name in self._databases or not ignore_if_not_exists:
            self._in(name).described = new_database

    def drop_database(
        self,
        name: str,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
        cascade: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        if name not in self._databases and ignore_if_exists:
            return
        held = self._in(name)
        if not cascade and (held.tables or held.functions):
            raise self._database_in_use(name)
        del self._databases[name]

    def list_tables(self, database_name: str) -> list[str]:
        return sorted(self._in(database_name).tables)

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        if not self.table_exists(table_path):
            raise self._no_such(table_path)
        return self._tables(table_path)[table_path.object_name]

    def _tables(self, path: ObjectPath) -> dict[str, CatalogBaseTable]:
        return self._in(path.database_name).tables

    def table_exists(self, table_path: ObjectPath) -> bool:
        held = self._databases.get(table_path.database_name)
        return held is not None and table_path.object_name in held.tables

    def create_table(
        self,
        table_path: ObjectPath,
        table: CatalogBaseTable,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        tables = self._tables(table_path)
        if table_path.object_name in tables:
            if ignore_if_exists:
                return
            raise self._taken(table_path)
        tables[table_path.object_name] = table

    def alter_table(
        self,
        table_path: ObjectPath,
        new_table: CatalogBaseTable,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if self.table_exists(table_path):
            self._check_same_kind(table_path, self.get_table(table_path), new_table)
            self._tables(table_path)[table_path.object_name] = new_table
        elif not ignore_if_not_exists:
            raise self._no_such(table_path)

    def drop_table(
        self,
        table_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if self.table_exists(table_path):
            del self._tables(table_path)[table_path.object_name]
            self._in(table_path.database_name).facts.pop(table_path.object_name, None)
        elif not ignore_if_not_exists:
            raise self._no_such(table_path)

    def rename_table(
        self,
        table_path: ObjectPath,
        new_table_name: str,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if not self.table_exists(table_path):
            if ignore_if_not_exists:
                return
            raise self._no_such(table_path)
        tables = self._tables(table_path)
        if new_table_name in tables:
            new_path = type(table_path)(table_path.database_name, new_table_name)
            raise self._taken(new_path)
        tables[new_table_name] = tables.pop(table_path.object_name)
        facts = self._in(table_path.database_name).facts
        if table_path.object_name in facts:
            facts[new_table_name] = facts.pop(table_path.object_name)

    def facts_of(self, table_path: ObjectPath) -> TableFacts:
        held = self._in(table_path.database_name).facts
        return held.get(table_path.object_name, TableFacts())

    def change_facts(
        self, table_path: ObjectPath, change: Callable[[TableFacts], TableFacts]
    ) -> None:
        changed = change(self.facts_of(table_path))
        self._in(table_path.database_name).facts[table_path.object_name] = changed

    def list_functions(self, database_name: str) -> list[str]:
        return sorted(self._in(database_name).functions)

    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        if not self.function_exists(function_path):
            raise self._no_such(function_path, FUNCTION)
        functions = self._in(function_path.database_name).functions
        return functions[function_path.object_name.lower()]

    def function_exists(self, function_path: ObjectPath) -> bool:
        held = self._databases.get(function_path.database_name)
        return held is not None and function_path.object_name.lower() in held.functions

    def create_function(
        self,
        function_path: ObjectPath,
        function: CatalogFunction,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        functions = self._in(function_path.database_name).functions
        name = function_path.object_name.lower()
        if name in functions:
            if ignore_if_exists:
                return
            raise self._taken(function_path, FUNCTION)
        functions[name] = function

    def alter_function(
        self,
        function_path: ObjectPath,
        new_function: CatalogFunction,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if self.function_exists(function_path):
            functions = self._in(function_path.database_name).functions
            functions[function_path.object_name.lower()] = new_function
        elif not ignore_if_not_exists:
            raise self._no_such(function_path, FUNCTION)

    def drop_function(
        self,
        function_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        if self.function_exists(function_path):
            functions = self._in(function_path.database_name).functions
            del functions[function_path.object_name.lower()]
        elif not ignore_if_not_exists:
            raise self._no_such(function_path, FUNCTION)
