"""A catalog that is a directory: tables, views and functions are kept for later sessions.

What it is: a directory per database, with a file per object.  Files are replaced as a whole, and
who changes something holds the lock of the catalog, so that several processes may use one.  A
table that another process has changed since it was read here is not replaced.
What it is not: for file systems of the network, whose locks may not hold.

Read next: ``sql/catalog/stored_objects.py``.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from millstream.directories.durable import sync_directory
from millstream.errors import CatalogError
from millstream.sql.catalog.catalog import DEFAULT_DATABASE, FUNCTION, TABLE, CreatedCatalog
from millstream.sql.catalog.objects import CatalogDatabase
from millstream.sql.catalog.options import text
from millstream.sql.catalog.stored_objects import read_object, text_of
from millstream.sql.catalog.table_facts import TableFacts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.sql.catalog.identifiers import ObjectPath
    from millstream.sql.catalog.objects import CatalogBaseTable, CatalogFunction

__all__ = ["FileCatalog"]

_TABLES: Final = "tables"
_FUNCTIONS: Final = "functions"
#: What is known of tables, in files of the tables' names; made when there is something to keep.
_FACTS: Final = "facts"
_DATABASE: Final = "database.json"
_LOCK: Final = ".lock"
_SUFFIX: Final = ".json"
_KINDS: Final = {_TABLES: TABLE, _FUNCTIONS: FUNCTION}


def _encoded(name: str) -> str:
    """A name as that of a file."""
    return quote(name, safe="").replace(".", "%2E")


class FileCatalog(CreatedCatalog):
    """A catalog in a directory.  Names of tables heed case, of functions not.

    Args:
        name: of the catalog in its session.
        path: the directory, on a local file system; it is made if it is not there.
        default_database: the database that a session uses first, made if it is not there.

    Raises:
        CatalogError: the path is none of a local file system.
    """

    OPTIONS = (text("path", required=True), DEFAULT_DATABASE)

    @classmethod
    def from_options(cls, name: str, options: Mapping[str, str]) -> FileCatalog:
        return cls(name, options["path"], options.get(DEFAULT_DATABASE.key, "default"))

    def __init__(self, name: str, path: str, default_database: str = "default") -> None:
        super().__init__(name, default_database)
        local = path.removeprefix("file://")
        if not local or "://" in local:
            message = f"Catalog '{name}' is kept in a local directory, which {path!r} is not."
            raise CatalogError(message)
        self._root = Path(local).absolute()
        #: File -> its text when it was last read.
        self._seen: dict[Path, str] = {}

    def open(self) -> None:
        """Make what is missing; raises CatalogError if the directory cannot be used."""
        try:
            self._root.mkdir(parents=True, exist_ok=True)
            with self._locked():
                if not self.database_exists(self.default_database):
                    self._make_database(self.default_database, CatalogDatabase())
        except OSError as error:
            message = f"Catalog '{self.name}' cannot be kept in {self._root}: {error}"
            raise CatalogError(message) from error

    # -- files -----------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        with (self._root / _LOCK).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _write(self, file: Path, text: str) -> None:
        """Replace a file as a whole, so that it survives a crash of the machine."""
        number, name = tempfile.mkstemp(dir=self._root, prefix=".new-")
        try:
            with os.fdopen(number, "w", encoding="utf-8") as made:
                made.write(text)
                made.flush()
                os.fsync(made.fileno())
            Path(name).replace(file)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
        sync_directory(file.parent)
        self._seen[file] = text

    def _read(self, file: Path) -> Any:
        """The object in a file; None if there is none."""
        try:
            text = file.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        self._seen[file] = text
        return read_object(text, str(file))

    def _names(self, directory: Path) -> list[str]:
        found = (each.name for each in directory.glob(f"*{_SUFFIX}"))
        return sorted(unquote(name.removesuffix(_SUFFIX)) for name in found)

    # -- databases -------------------------------------------------------------------------------

    def _home(self, database_name: str) -> Path:
        home = self._root / _encoded(database_name)
        if not (home / _DATABASE).is_file():
            raise self._no_such_database(database_name)
        return home

    def _make_database(self, name: str, database: CatalogDatabase) -> None:
        home = self._root / _encoded(name)
        for each in (_TABLES, _FUNCTIONS):
            (home / each).mkdir(parents=True, exist_ok=True)
        self._write(home / _DATABASE, text_of(database, name))
        sync_directory(self._root)

    def list_databases(self) -> list[str]:
        return sorted(unquote(each.parent.name) for each in self._root.glob(f"*/{_DATABASE}"))

    def get_database(self, database_name: str) -> CatalogDatabase:
        found: CatalogDatabase = self._read(self._home(database_name) / _DATABASE)
        return found

    def create_database(
        self,
        name: str,
        database: CatalogDatabase,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        with self._locked():
            if not self.database_exists(name):
                self._make_database(name, database)
            elif not ignore_if_exists:
                raise self._database_taken(name)

    def alter_database(
        self,
        name: str,
        new_database: CatalogDatabase,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        with self._locked():
            if ignore_if_not_exists and not self.database_exists(name):
                return
            home = self._home(name)
            self._replace(home / _DATABASE, text_of(new_database, name), name)

    def drop_database(
        self,
        name: str,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
        cascade: bool = False,  # noqa: FBT001, FBT002 - PyFlink's
    ) -> None:
        with self._locked():
            if ignore_if_exists and not self.database_exists(name):
                return
            home = self._home(name)
            if not cascade and any(self._names(home / each) for each in (_TABLES, _FUNCTIONS)):
                raise self._database_in_use(name)
            # Without its description it is no database, whatever is left of it.
            (home / _DATABASE).unlink()
            for each in (_TABLES, _FUNCTIONS, _FACTS):
                if (home / each).is_dir():
                    shutil.rmtree(home / each)
            # Files of others, as of tables whose 'path' is in there, stay.
            with contextlib.suppress(OSError):
                home.rmdir()
            sync_directory(self._root)

    # -- objects ---------------------------------------------------------------------------------

    def _file(self, path: ObjectPath, kind: str) -> Path:
        name = path.object_name.lower() if kind == _FUNCTIONS else path.object_name
        return self._home(path.database_name) / kind / f"{_encoded(name)}{_SUFFIX}"

    def _get(self, path: ObjectPath, kind: str) -> Any:
        there = self.database_exists(path.database_name)
        found = self._read(self._file(path, kind)) if there else None
        if found is None:
            raise self._no_such(path, _KINDS[kind])
        return found

    def _exists(self, path: ObjectPath, kind: str) -> bool:
        return self.database_exists(path.database_name) and self._file(path, kind).is_file()

    def _create(self, path: ObjectPath, kind: str, text: str, *, ignore: bool) -> None:
        with self._locked():
            file = self._file(path, kind)
            if not file.is_file():
                if kind == _TABLES:
                    # Of another table of this name, if whoever dropped it died meanwhile.
                    self._file(path, _FACTS).unlink(missing_ok=True)
                self._write(file, text)
            elif not ignore:
                raise self._taken(path, _KINDS[kind])

    def _drop(self, path: ObjectPath, kind: str, *, ignore: bool) -> None:
        with self._locked():
            if self._exists(path, kind):
                file = self._file(path, kind)
                file.unlink()
                sync_directory(file.parent)
                if kind == _TABLES:
                    self._file(path, _FACTS).unlink(missing_ok=True)
            elif not ignore:
                raise self._no_such(path, _KINDS[kind])

    def _replace(self, file: Path, text: str, name: str) -> None:
        """Write over what was read; within the lock."""
        if file.read_text(encoding="utf-8") != self._seen.get(file):
            message = (
                f"'{name}' was changed by another session since this one has read it; look at it, "
                "and say the statement again."
            )
            raise CatalogError(message)
        self._write(file, text)

    def list_tables(self, database_name: str) -> list[str]:
        return self._names(self._home(database_name) / _TABLES)

    def get_table(self, table_path: ObjectPath) -> CatalogBaseTable:
        found: CatalogBaseTable = self._get(table_path, _TABLES)
        return found

    def table_exists(self, table_path: ObjectPath) -> bool:
        return self._exists(table_path, _TABLES)

    def create_table(
        self,
        table_path: ObjectPath,
        table: CatalogBaseTable,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        text = text_of(table, str(table_path))
        self._create(table_path, _TABLES, text, ignore=ignore_if_exists)

    def alter_table(
        self,
        table_path: ObjectPath,
        new_table: CatalogBaseTable,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        text = text_of(new_table, str(table_path))
        with self._locked():
            if self.table_exists(table_path):
                file = self._file(table_path, _TABLES)
                # Not by get_table(): the session has not seen what another one wrote meanwhile.
                old_table = read_object(file.read_text(encoding="utf-8"), str(file))
                self._check_same_kind(table_path, old_table, new_table)
                self._replace(file, text, str(table_path))
            elif not ignore_if_not_exists:
                raise self._no_such(table_path)

    def drop_table(
        self,
        table_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        self._drop(table_path, _TABLES, ignore=ignore_if_not_exists)

    def rename_table(
        self,
        table_path: ObjectPath,
        new_table_name: str,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        with self._locked():
            if not self.table_exists(table_path):
                if ignore_if_not_exists:
                    return
                raise self._no_such(table_path)
            new_path = type(table_path)(table_path.database_name, new_table_name)
            if self.table_exists(new_path):
                raise self._taken(new_path)
            # First, for nothing may be known of a table that is still another's.
            facts, new_facts = self._file(table_path, _FACTS), self._file(new_path, _FACTS)
            new_facts.unlink(missing_ok=True)
            if facts.is_file():
                facts.rename(new_facts)
                sync_directory(facts.parent)
            file = self._file(new_path, _TABLES)
            self._file(table_path, _TABLES).rename(file)
            sync_directory(file.parent)

    def facts_of(self, table_path: ObjectPath) -> TableFacts:
        found: TableFacts | None = self._read(self._file(table_path, _FACTS))
        return found or TableFacts()

    def change_facts(
        self, table_path: ObjectPath, change: Callable[[TableFacts], TableFacts]
    ) -> None:
        with self._locked():
            if not self.table_exists(table_path):
                raise self._no_such(table_path)
            file = self._file(table_path, _FACTS)
            if not file.parent.is_dir():
                file.parent.mkdir()
                sync_directory(file.parent.parent)
            self._write(file, text_of(change(self.facts_of(table_path)), str(table_path)))

    def list_functions(self, database_name: str) -> list[str]:
        return self._names(self._home(database_name) / _FUNCTIONS)

    def get_function(self, function_path: ObjectPath) -> CatalogFunction:
        found: CatalogFunction = self._get(function_path, _FUNCTIONS)
        return found

    def function_exists(self, function_path: ObjectPath) -> bool:
        return self._exists(function_path, _FUNCTIONS)

    def create_function(
        self,
        function_path: ObjectPath,
        function: CatalogFunction,
        ignore_if_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        text = text_of(function, str(function_path))
        self._create(function_path, _FUNCTIONS, text, ignore=ignore_if_exists)

    def alter_function(
        self,
        function_path: ObjectPath,
        new_function: CatalogFunction,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        text = text_of(new_function, str(function_path))
        with self._locked():
            if self.function_exists(function_path):
                self._replace(self._file(function_path, _FUNCTIONS), text, str(function_path))
            elif not ignore_if_not_exists:
                raise self._no_such(function_path, FUNCTION)

    def drop_function(
        self,
        function_path: ObjectPath,
        ignore_if_not_exists: bool,  # noqa: FBT001 - PyFlink's
    ) -> None:
        self._drop(function_path, _FUNCTIONS, ignore=ignore_if_not_exists)
