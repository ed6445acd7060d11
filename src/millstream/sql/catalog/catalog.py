"""Catalogs and the catalog manager, which resolves names and holds temporary objects."""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeAlias

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
    from contextlib import AbstractContextManager

    from millstream.sql.catalog.options import Option


#: The database of a catalog that a session uses first.
DEFAULT_DATABASE: Final = text("default-database", "default")
#: What an error calls it -> its classes where it is missing, and where it exists already.
TABLE: Final = ("Table (or view)", TableNotExistError, TableAlreadyExistError)
FUNCTION: Final = ("Function", FunctionNotExistError, FunctionAlreadyExistError)
#: What a catalog keeps: tables and views, functions, and what is known of tables.
TABLES: Final = "tables"
FUNCTIONS: Final = "functions"
FACTS: Final = "facts"
_KINDS: Final = {TABLES: TABLE, FUNCTIONS: FUNCTION}
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
        """Return whether there is a database of that name."""
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
        """Return whether there is a table or view."""

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
        """Return whether there is a function."""

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


class KeptCatalog(CreatedCatalog):
    """A catalog whose objects are kept by kind, database and name.

    Names of tables heed case, of functions not.  A subclass says where objects are kept.
    """

    # -- where -----------------------------------------------------------------------------------

    def _locked(self) -> AbstractContextManager[None]:
        """Exclude other writers."""
        return contextlib.nullcontext()

    @abstractmethod
    def _put_database(self, name: str, database: CatalogDatabase, *, again: bool) -> None:
        """Keep a database; ``again``: in the place of another."""

    @abstractmethod
    def _delete_database(self, name: str) -> None:
        """Delete a database that is there, with all that is in it."""

    @abstractmethod
    def _names(self, kind: str, database_name: str) -> list[str]:
        """The names of the objects of a kind, sorted; CatalogError if there is no such database."""

    @abstractmethod
    def _has(self, kind: str, path: ObjectPath) -> bool:
        """Return whether there is an object."""

    @abstractmethod
    def _get(self, kind: str, path: ObjectPath) -> Any:
        """An object of a database that is there; None if there is none."""

    def _peek(self, path: ObjectPath) -> CatalogBaseTable:
        """The table that is to be replaced, without having it count as seen."""
        found: CatalogBaseTable = self._get(TABLES, path)
        return found

    @abstractmethod
    def _put(self, kind: str, path: ObjectPath, kept: Any, *, again: bool = False) -> None:
        """Keep an object; ``again``: in the place of another that was seen."""

    @abstractmethod
    def _delete(self, kind: str, path: ObjectPath) -> None:
        """Delete an object, if it is there."""

    @abstractmethod
    def _rename(self, path: ObjectPath, new_path: ObjectPath) -> None:
        """Give a table, and what is known of it, another name, which is free."""

    @staticmethod
    def _key(kind: str, path: ObjectPath) -> str:
        return path.object_name.lower() if kind == FUNCTIONS else path.object_name

    # -- databases -------------------------------------------------------------------------------

    def create_database(
        self,
        name: str,
        database: CatalogDatabase,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        with self._locked():
            if not self.database_exists(name):
                self._put_database(name, database, again=False)
            elif not ignore_if_exists:
                raise self._database_taken(name)

    def alter_database(
        self,
        name: str,
        new_database: CatalogDatabase,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        with self._locked():
            if self.database_exists(name):
                self._put_database(name, new_database, again=True)
            elif not ignore_if_not_exists:
                raise self._no_such_database(name)

    def drop_database(
        self,
        name: str,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
        cascade: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        with self._locked():
            if self.database_exists(name):
                if not cascade and any(self._names(kind, name) for kind in _KINDS):
                    raise self._database_in_use(name)
                self._delete_database(name)
            elif not ignore_if_exists:
                raise self._no_such_database(name)

    # -- tables, views and functions -------------------------------------------------------------

    def _find(self, kind: str, path: ObjectPath) -> Any:
        found = self._get(kind, path) if self.database_exists(path.database_name) else None
        if found is None:
            raise self._no_such(path, _KINDS[kind])
        return found

    def _create(self, kind: str, path: ObjectPath, kept: object, *, ignore: bool) -> None:
        with self._locked():
            if not self._has(kind, path):
                if kind == TABLES:
                    # Of another table of this name, if whoever dropped it died meanwhile.
                    self._delete(FACTS, path)
                self._put(kind, path, kept)
            elif not ignore:
                raise self._taken(path, _KINDS[kind])

    def _drop(self, kind: str, path: ObjectPath, *, ignore: bool) -> None:
        with self._locked():
            if self._has(kind, path):
                self._delete(kind, path)
                if kind == TABLES:
                    self._delete(FACTS, path)
            elif not ignore:
                raise self._no_such(path, _KINDS[kind])

    def list_tables(self, database_name: str) -> list[str]:
        return self._names(TABLES, database_name)

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        found: CatalogBaseTable = self._find(TABLES, table_path)
        return found

    def table_exists(self, table_path: ObjectPath) -> bool:
        return self._has(TABLES, table_path)

    def create_table(
        self,
        table_path: ObjectPath,
        table: CatalogBaseTable,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        self._create(TABLES, table_path, table, ignore=ignore_if_exists)

    def alter_table(
        self,
        table_path: ObjectPath,
        new_table: CatalogBaseTable,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        with self._locked():
            if self.table_exists(table_path):
                self._check_same_kind(table_path, self._peek(table_path), new_table)
                self._put(TABLES, table_path, new_table, again=True)
            elif not ignore_if_not_exists:
                raise self._no_such(table_path)

    def drop_table(
        self,
        table_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        self._drop(TABLES, table_path, ignore=ignore_if_not_exists)

    def rename_table(
        self,
        table_path: ObjectPath,
        new_table_name: str,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        new_path = type(table_path)(table_path.database_name, new_table_name)
        with self._locked():
            if self.table_exists(table_path):
                if self.table_exists(new_path):
                    raise self._taken(new_path)
                self._rename(table_path, new_path)
            elif not ignore_if_not_exists:
                raise self._no_such(table_path)

    def facts_of(self, table_path: ObjectPath) -> TableFacts:
        found: TableFacts | None = self._get(FACTS, table_path)
        return found or TableFacts()

    def change_facts(
        self, table_path: ObjectPath, change: Callable[[TableFacts], TableFacts]
    ) -> None:
        with self._locked():
            if not self.table_exists(table_path):
                raise self._no_such(table_path)
            self._put(FACTS, table_path, change(self.facts_of(table_path)))

    def list_functions(self, database_name: str) -> list[str]:
        return self._names(FUNCTIONS, database_name)

    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        found: CatalogFunction = self._find(FUNCTIONS, function_path)
        return found

    def function_exists(self, function_path: ObjectPath) -> bool:
        return self._has(FUNCTIONS, function_path)

    def create_function(
        self,
        function_path: ObjectPath,
        function: CatalogFunction,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        self._create(FUNCTIONS, function_path, function, ignore=ignore_if_exists)

    def alter_function(
        self,
        function_path: ObjectPath,
        new_function: CatalogFunction,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        with self._locked():
            if self.function_exists(function_path):
                self._put(FUNCTIONS, function_path, new_function, again=True)
            elif not ignore_if_not_exists:
                raise self._no_such(function_path, FUNCTION)

    def drop_function(
        self,
        function_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        self._drop(FUNCTIONS, function_path, ignore=ignore_if_not_exists)


@dataclass(slots=True)
class _Database:
    described: CatalogDatabase
    #: Kind -> name -> object.
    kept: dict[str, dict[str, Any]] = field(
        default_factory=lambda: {TABLES: {}, FUNCTIONS: {}, FACTS: {}}
    )


class GenericInMemoryCatalog(KeptCatalog):
    """A catalog that lives as long as its session."""

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

    def _put_database(self, name: str, database: CatalogDatabase, *, again: bool) -> None:
        if again:
            self._in(name).described = database
        else:
            self._databases[name] = _Database(database)

    def _delete_database(self, name: str) -> None:
        del self._databases[name]

    def _kept(self, kind: str, path: ObjectPath) -> dict[str, Any]:
        return self._in(path.database_name).kept[kind]

    def _names(self, kind: str, database_name: str) -> list[str]:
        return sorted(self._in(database_name).kept[kind])

    def _has(self, kind: str, path: ObjectPath) -> bool:
        held = self._databases.get(path.database_name)
        return held is not None and self._key(kind, path) in held.kept[kind]

    def _get(self, kind: str, path: ObjectPath) -> Any:
        return self._kept(kind, path).get(self._key(kind, path))

    def _put(self, kind: str, path: ObjectPath, kept: Any, *, again: bool = False) -> None:
        del again
        self._kept(kind, path)[self._key(kind, path)] = kept

    def _delete(self, kind: str, path: ObjectPath) -> None:
        self._kept(kind, path).pop(self._key(kind, path), None)

    def _rename(self, path: ObjectPath, new_path: ObjectPath) -> None:
        for kind in (TABLES, FACTS):
            kept = self._kept(kind, path)
            if path.object_name in kept:
                kept[new_path.object_name] = kept.pop(path.object_name)


_FULL: Final = 3


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table or view with its full name."""

    identifier: ObjectIdentifier
    table: CatalogBaseTable
    is_temporary: bool


@dataclass(frozen=True, slots=True)
class CatalogDescription:
    """A catalog as a statement has described it."""

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
        """Return whether there is a catalog of that name."""
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
        """Return what a statement has said of a catalog; None: a program has registered it."""
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
        """Return what to add to "not found" of a table."""
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
        """Make a table or view.

        Raises:
            CatalogError: there is one, or the catalog cannot make it.
        """
        if not temporary:
            catalog = self.catalog(identifier.catalog_name)
            try:
                catalog.create_table(identifier.path, table, ignore_if_exists)
            except CatalogError as error:
                message = f"Could not execute CreateTable in path {identifier}: {error}"
                raise type(error)(message) from error
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
