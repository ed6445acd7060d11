"""The catalog manager: catalogs of a session, where it is in them, and temporary objects.

What it is: how a name with one, two or three parts becomes an identifier and an object.  Temporary
objects are the session's own, under the same names, and hide permanent ones.
What it is not: a catalog.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from millstream.errors import CatalogError, ValidationError
from millstream.sql.catalog.catalog import Catalog, GenericInMemoryCatalog
from millstream.sql.catalog.identifiers import ObjectIdentifier, ObjectPath
from millstream.sql.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from millstream.sql.catalog.objects import CatalogBaseTable, CatalogFunction


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
            message = "A current catalog and database has not been set; say USE CATALOG first."
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
            message = f"Temporary table '{identifier}' cannot be renamed; drop it and make it anew."
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
