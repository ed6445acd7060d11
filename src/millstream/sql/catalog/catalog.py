"""Catalogs and the catalog manager, which resolves names and holds temporary objects."""

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
    ValidationError,
)
from millstream.sql.catalog.identifiers import ObjectIdentifier, ObjectPath
from millstream.sql.catalog.objects import CatalogBaseTable, CatalogDatabase, CatalogFunction
from millstream.sql.catalog.options import text
from millstream.sql.catalog.partitions_and_statistics import FactsOfTables, TableFacts
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

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


_FULL: Final = 3


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table or view with its full name."""

    identifier: ObjectIdentifier
    table: CatalogBaseTable
    is_temporary: bool


@dataclass(frozen=True, slots=True)
class CatalogDescription:
    """What a statement has said of a catalog."""

    kind: str | None
    #: Without its type.
    options: Mapping[str, str]
    comment: str | None


class CatalogManager:
    """The catalogs of a session."""

    def __init__(
        self, catalog: str = "default_catalog", database: str = "default_database"
    ) -> None:
        """Begin with one catalog in memory, with one database."""
        self._catalogs: dict[str, Catalog] = {catalog: GenericInMemoryCatalog(catalog, database)}
        #: Of those that statements have made.
        self._described: dict[str, CatalogDescription] = {}
        self.current_catalog: str | None = catalog
        self.current_database: str | None = database
        self._temporary: dict[ObjectIdentifier, CatalogBaseTable] = {}
        self._temporary_functions: dict[ObjectIdentifier, CatalogFunction] = {}
        #: Found by their name alone, in any database.
        self._system_functions: dict[str, CatalogFunction] = {}

    # -- catalogs and databases ------------------------------------------------------------------

    def catalog_names(self) -> list[str]:
        """The names of all catalogs."""
        return sorted(self._catalogs)

    def has_catalog(self, name: str) -> bool:
        """Whether there is a catalog of that name."""
        return name in self._catalogs

    def catalog(self, name: str) -> Catalog:
        """A catalog; CatalogError if there is none of that name."""
        found = self._catalogs.get(name)
        if found is None:
            hint = did_you_mean(name, self._catalogs)
            known = listed(self.catalog_names())
            message = f"Catalog '{name}' does not exist.{hint} There are: {known}."
            raise CatalogError(message)
        return found

    def register(
        self, name: str, catalog: Catalog, described: CatalogDescription | None = None
    ) -> None:
        """Add a catalog; CatalogError if the name is taken."""
        if name in self._catalogs:
            message = f"Catalog '{name}' already exists."
            raise CatalogError(message)
        catalog.open()
        self._catalogs[name] = catalog
        if described is not None:
            self._described[name] = described

    def description(self, name: str) -> CatalogDescription | None:
        """What a statement has said of a catalog; None: a program has registered it."""
        return self._described.get(name)

    def describe(self, name: str, described: CatalogDescription) -> None:
        """Say something else of a catalog."""
        self._described[name] = described

    def exchange(self, name: str, catalog: Catalog) -> None:
        """Put another catalog in the place of one."""
        catalog.open()
        self._catalogs[name].close()
        self._catalogs[name] = catalog

    def unregister(self, name: str, *, if_exists: bool) -> None:
        """Let go of a catalog, which must not be the current one."""
        if name not in self._catalogs and if_exists:
            return
        found = self.catalog(name)
        if name == self.current_catalog:
            message = "Cannot drop a catalog which is currently in use."
            raise CatalogError(message)
        found.close()
        del self._catalogs[name]
        self._described.pop(name, None)

    def use_catalog(self, name: str) -> None:
        """Go to a catalog and its default database."""
        found = self.catalog(name)
        self.current_catalog = name
        self.current_database = found.get_default_database()

    def use_database(self, name: str, catalog: str | None = None) -> None:
        """Go to a database of a catalog, by default of the current one."""
        home = catalog or self._current()[0]
        found = self.catalog(home)
        if not found.database_exists(name):
            hint = did_you_mean(name, found.list_databases())
            message = f"A database with name '{name}' does not exist in the catalog '{home}'.{hint}"
            raise CatalogError(message)
        self.current_catalog, self.current_database = home, name

    def _current(self) -> tuple[str, str]:
        if self.current_catalog is None or self.current_database is None:
            message = "A current catalog and database has not been set; run USE CATALOG first."
            raise CatalogError(message)
        return self.current_catalog, self.current_database

    # -- names -----------------------------------------------------------------------------------

    def qualify(self, parts: Sequence[str]) -> ObjectIdentifier:
        """The full name that one to three parts stand for, seen from the current database."""
        if not 0 < len(parts) <= _FULL:
            message = f"A name has one to three parts: '{'.'.join(parts)}' has {len(parts)}."
            raise ValidationError(message)
        missing = _FULL - len(parts)
        current = self._current() if missing else ()
        return ObjectIdentifier(*current[:missing], *parts)

    def find_table(self, parts: Sequence[str]) -> FoundTable | None:
        """The table or view of that name; None if there is none.  Temporary ones win."""
        identifier = self.qualify(parts)
        temporary = self._temporary.get(identifier)
        if temporary is not None:
            return FoundTable(identifier, temporary, is_temporary=True)
        catalog = self._catalogs.get(identifier.catalog_name)
        if catalog is None or not catalog.table_exists(identifier.path):
            return None
        return FoundTable(identifier, catalog.get_table(identifier.path), is_temporary=False)

    def suggest_table(self, parts: Sequence[str]) -> str:
        """What to add to "not found" of a table."""
        if len(parts) == 1:
            return did_you_mean(parts[0], self.table_names())
        names = self.table_names(*self.qualify(parts).parts[:2])
        return did_you_mean(parts[-1], names)

    # -- tables ----------------------------------------------------------------------------------

    def create_table(
        self,
        identifier: ObjectIdentifier,
        table: CatalogBaseTable,
        *,
        temporary: bool,
        ignore_if_exists: bool,
    ) -> None:
        """Make a table or view."""
        if not temporary:
            catalog = self.catalog(identifier.catalog_name)
            catalog.create_table(identifier.path, table, ignore_if_exists)
            return
        if identifier in self._temporary:
            if ignore_if_exists:
                return
            message = f"Temporary table '{identifier}' already exists"
            raise CatalogError(message)
        self._temporary[identifier] = table

    def has_table(self, identifier: ObjectIdentifier, *, temporary: bool) -> bool:
        """Whether there is a temporary, or a permanent, table or view of exactly that name."""
        if temporary:
            return identifier in self._temporary
        return self.catalog(identifier.catalog_name).table_exists(identifier.path)

    def drop_table(
        self, identifier: ObjectIdentifier, *, temporary: bool, view: bool, if_exists: bool
    ) -> bool:
        """Drop a table, or a view.

        Returns:
            Whether there was one.

        Raises:
            CatalogError: there is none, or a temporary one hides it.
        """
        kind = "view" if view else "table"
        held = self._temporary.get(identifier)
        if held is not None and held.is_view == view:
            if not temporary:
                message = (
                    f"Temporary {kind} with identifier '{identifier}' exists. "
                    f"Drop it first before removing the permanent {kind}."
                )
                raise CatalogError(message)
            del self._temporary[identifier]
            return True
        catalog = self._catalogs.get(identifier.catalog_name)
        there = catalog is not None and catalog.table_exists(identifier.path)
        if (
            not temporary
            and catalog is not None
            and there
            and catalog.get_table(identifier.path).is_view == view
        ):
            catalog.drop_table(identifier.path, ignore_if_not_exists=False)
            return True
        if if_exists:
            return False
        shown = f"{'Temporary ' if temporary else ''}{kind}"
        shown = shown[0].upper() + shown[1:]
        hint = self.suggest_table(identifier.parts)
        message = (
            f"{shown} with identifier '{identifier.as_summary_string()}' does not exist.{hint}"
        )
        raise CatalogError(message)

    def alter_table(self, identifier: ObjectIdentifier, table: CatalogBaseTable) -> None:
        """Put another table in the place of one, temporary or not."""
        if identifier in self._temporary:
            self._temporary[identifier] = table
            return
        catalog = self.catalog(identifier.catalog_name)
        catalog.alter_table(identifier.path, table, ignore_if_not_exists=False)

    def rename_table(self, identifier: ObjectIdentifier, name: str) -> None:
        """Give a permanent table another name in its database."""
        if identifier in self._temporary:
            message = (
                f"Temporary table '{identifier}' cannot be renamed; drop it and create it again."
            )
            raise CatalogError(message)
        catalog = self.catalog(identifier.catalog_name)
        catalog.rename_table(identifier.path, name, ignore_if_not_exists=False)

    def table_names(self, catalog: str | None = None, database: str | None = None) -> list[str]:
        """The tables and views of a database, by default the current one, temporary ones too."""
        return sorted({*self._permanent(catalog, database), *self.temporary(catalog, database)})

    def view_names(self, catalog: str | None = None, database: str | None = None) -> list[str]:
        """Those that are views."""
        home = self._home(catalog, database)
        return [
            name
            for name in self.table_names(*home)
            if (found := self.find_table((*home, name))) is not None and found.table.is_view
        ]

    def temporary(
        self,
        catalog: str | None = None,
        database: str | None = None,
        *,
        views_only: bool = False,
    ) -> list[str]:
        """The names of temporary tables and views of a database."""
        home = self._home(catalog, database)
        return sorted(
            identifier.object_name
            for identifier, table in self._temporary.items()
            if identifier.parts[:2] == home and (table.is_view or not views_only)
        )

    def _permanent(self, catalog: str | None, database: str | None) -> list[str]:
        home = self._home(catalog, database)
        found = self._catalogs.get(home[0])
        if found is None or not found.database_exists(home[1]):
            return []
        return found.list_tables(home[1])

    def _home(self, catalog: str | None, database: str | None) -> tuple[str, str]:
        if catalog is not None and database is not None:
            return catalog, database
        current = self._current()
        return catalog or current[0], database or current[1]

    # -- functions -------------------------------------------------------------------------------

    def system_function(self, name: str) -> CatalogFunction | None:
        """Return the temporary system function of a simple name; it hides a built-in one."""
        return self._system_functions.get(name.lower())

    def find_function(self, parts: Sequence[str]) -> CatalogFunction | None:
        """A function of the user; None if there is none of that name."""
        system = self.system_function(parts[0]) if len(parts) == 1 else None
        if system is not None:
            return system
        identifier = _lower(self.qualify(parts))
        found = self._temporary_functions.get(identifier)
        if found is not None:
            return found
        catalog = self._catalogs.get(identifier.catalog_name)
        if catalog is None or not catalog.function_exists(identifier.path):
            return None
        return catalog.get_function(identifier.path)

    def place_of_function(self, parts: Sequence[str]) -> tuple[bool, bool]:
        """Whether a function that is there is found from any database, and whether temporary."""
        if len(parts) == 1 and parts[0].lower() in self._system_functions:
            return True, True
        return False, self.has_temporary_function(parts)

    def has_temporary_function(self, parts: Sequence[str]) -> bool:
        """Check for a temporary function of a catalog by this name."""
        return _lower(self.qualify(parts)) in self._temporary_functions

    def functions(self) -> Iterator[tuple[tuple[str, ...], CatalogFunction]]:
        """All functions of users, each with a name by which ``find_function`` finds it."""
        for name, function in self._system_functions.items():
            yield (name,), function
        for identifier, function in self._temporary_functions.items():
            yield identifier.parts, function
        for home, catalog in self._catalogs.items():
            for database in catalog.list_databases():
                for name in catalog.list_functions(database):
                    found = (home, database, name)
                    if _lower(ObjectIdentifier(*found)) not in self._temporary_functions:
                        yield found, catalog.get_function(ObjectPath(database, name))

    def create_function(
        self,
        parts: Sequence[str],
        function: CatalogFunction,
        *,
        temporary: bool = False,
        system: bool = False,
        ignore_if_exists: bool = False,
    ) -> None:
        """Make a function: permanent, temporary, or temporary and found from anywhere."""
        if not temporary and not system:
            identifier = self.qualify(parts)
            catalog = self.catalog(identifier.catalog_name)
            catalog.create_function(identifier.path, function, ignore_if_exists)
            return
        if system:
            key = parts[-1].lower()
            if self._may_not_make(key in self._system_functions, key, ignore=ignore_if_exists):
                return
            self._system_functions[key] = function
            return
        name = _lower(self.qualify(parts))
        known = name in self._temporary_functions
        if self._may_not_make(known, str(name), ignore=ignore_if_exists):
            return
        self._temporary_functions[name] = function

    @staticmethod
    def _may_not_make(known: bool, name: str, *, ignore: bool) -> bool:  # noqa: FBT001 - named
        if known and not ignore:
            message = (
                f"Could not register temporary function. A function '{name}' does already exist."
            )
            raise CatalogError(message)
        return known

    def drop_function(
        self,
        parts: Sequence[str],
        *,
        temporary: bool = False,
        system: bool = False,
        if_exists: bool = False,
    ) -> bool:
        """Drop a function; whether there was one."""
        if system:
            found = self._system_functions.pop(parts[-1].lower(), None) is not None
        elif temporary:
            name = _lower(self.qualify(parts))
            found = self._temporary_functions.pop(name, None) is not None
        else:
            identifier = self.qualify(parts)
            catalog = self.catalog(identifier.catalog_name)
            found = catalog.function_exists(identifier.path)
            if found:
                catalog.drop_function(identifier.path, ignore_if_not_exists=False)
        if not found and not if_exists:
            hint = did_you_mean(parts[-1], self.function_names())
            message = f"Function '{'.'.join(parts)}' does not exist.{hint}"
            raise CatalogError(message)
        return found

    def function_names(self, catalog: str | None = None, database: str | None = None) -> list[str]:
        """The functions of users that a database has, by default the current one, or the system.

        A name twice: a temporary system function hides one of the database.
        """
        home = self._home(catalog, database)
        found = self._catalogs.get(home[0])
        is_there = found is not None and found.database_exists(home[1])
        permanent = found.list_functions(home[1]) if found is not None and is_there else []
        temporary = {
            identifier.object_name
            for identifier in self._temporary_functions
            if identifier.parts[:2] == home
        }
        return sorted([*{*permanent, *temporary}, *self._system_functions])


def _lower(identifier: ObjectIdentifier) -> ObjectIdentifier:
    return ObjectIdentifier(
        identifier.catalog_name, identifier.database_name, identifier.object_name.lower()
    )
