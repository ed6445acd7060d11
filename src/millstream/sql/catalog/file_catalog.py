"""A catalog that is stored in a directory.

Each database is a directory with one file per object.  Files are replaced as a whole, and writers
hold the lock of the catalog, so that several processes may use one; the locks of network file
systems may not hold.  A table that another process has changed since it was read here is not
replaced.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from millstream.directories import sync_directory
from millstream.errors import CatalogError, MillstreamError, SqlParserError
from millstream.sql.catalog.catalog import DEFAULT_DATABASE, FACTS, FUNCTIONS, TABLES, KeptCatalog
from millstream.sql.catalog.identifiers import CatalogPartitionSpec
from millstream.sql.catalog.objects import (
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
    CatalogTable,
    CatalogView,
)
from millstream.sql.catalog.options import text
from millstream.sql.catalog.partitions_and_statistics import (
    CatalogColumnStatistics,
    CatalogTableStatistics,
    TableFacts,
)
from millstream.sql.catalog.schema import (
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKey,
    ResolvedSchema,
    WatermarkSpec,
)
from millstream.sql.parser.parser import parse_type
from millstream.types.logical_types import LogicalType

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.sql.catalog.identifiers import ObjectPath
    from millstream.sql.catalog.objects import CatalogBaseTable


#: Of the format; others are refused.
VERSION: Final = 1
#: The classes whose objects are kept, by what files call them.
_CLASSES: Final[dict[str, type]] = {
    "database": CatalogDatabase,
    "table": CatalogTable,
    "view": CatalogView,
    "function": CatalogFunction,
    "facts": TableFacts,
    "schema": ResolvedSchema,
    "physical": PhysicalColumn,
    "computed": ComputedColumn,
    "metadata": MetadataColumn,
    "watermark": WatermarkSpec,
    "primary key": PrimaryKey,
    "spec": CatalogPartitionSpec,
    "partition": CatalogPartition,
    "statistics": CatalogTableStatistics,
    "columns": CatalogColumnStatistics,
}
_NAMES: Final = {each: name for name, each in _CLASSES.items()}
#: What makes those whose arguments are not their fields.
_MAKERS: Final[dict[str, Callable[..., Any]]] = {
    **_CLASSES,
    "schema": lambda columns, watermark, primary_key: ResolvedSchema(
        columns, [] if watermark is None else [watermark], primary_key
    ),
    "spec": lambda values: CatalogPartitionSpec(dict(values)),
}


def text_of(
    stored: CatalogBaseTable | CatalogFunction | CatalogDatabase | TableFacts, name: str
) -> str:
    """An object as text.

    Raises:
        CatalogError: it is made of objects of the program, which no text says.
    """
    if isinstance(stored, CatalogFunction) and not isinstance(stored.implementation, str):
        message = (
            f"Function '{name}' is an object of the program and cannot be kept in files; name "
            "it by CREATE FUNCTION ... AS 'module.name' LANGUAGE PYTHON, or make it temporary."
        )
        raise CatalogError(message)
    if type(stored) not in _NAMES:
        message = f"'{name}' is made of objects of the program and cannot be kept in files."
        raise CatalogError(message)
    try:
        return json.dumps({"version": VERSION, **_content(stored, name)}, indent=2) + "\n"
    except TypeError as error:
        message = f"Statistics and comments of '{name}' cannot be kept in files: {error}"
        raise CatalogError(message) from error


def _content(value: Any, name: str) -> Any:
    """A value as JSON: an object by its fields, a mapping by its entries, a type by its SQL."""
    kind = _NAMES.get(type(value))
    if kind is not None:
        kept = {each.name: getattr(value, each.name) for each in fields(value) if each.compare}
        return {"kind": kind, **{key: _content(each, name) for key, each in kept.items()}}
    if isinstance(value, LogicalType):
        return {"type": _type_text(value, name)}
    if isinstance(value, Mapping):
        return {"map": [[_content(k, name), _content(v, name)] for k, v in value.items()]}
    return [_content(each, name) for each in value] if isinstance(value, tuple) else value


def _type_text(kind: LogicalType, name: str) -> str:
    text = kind.as_serializable_string()
    try:
        parse_type(text)
    except MillstreamError as error:
        message = f"a column of '{name}' is {text}, which cannot be kept in files."
        raise CatalogError(message) from error
    return text


def read_object(text: str, place: str) -> Any:
    """The object that a text says.

    Args:
        text: as ``text_of`` made it.
        place: where it was, for errors.

    Raises:
        CatalogError: it is none, or of a version that is not known.
    """
    try:
        content = json.loads(text)
        version = content.pop("version")
        if version != VERSION:
            message = f"{place} is of version {version}; this release reads version {VERSION}."
            raise CatalogError(message)
        return _made(content)
    except SqlParserError as error:
        message = f"{place} has a type that this release does not know: {error}"
        raise CatalogError(message) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{place} does not describe an object of a catalog: {error!r}"
        raise CatalogError(message) from error


def _made(content: Any) -> Any:
    if isinstance(content, list):
        return tuple(map(_made, content))
    if not isinstance(content, dict):
        return content
    if "map" in content:
        return {_made(key): _made(value) for key, value in content["map"]}
    if "kind" not in content:
        return parse_type(content["type"])
    return _MAKERS[content.pop("kind")](**{key: _made(each) for key, each in content.items()})


_DATABASE: Final = "database.json"
_LOCK: Final = ".lock"
_SUFFIX: Final = ".json"


def _encoded(name: str) -> str:
    """A name as that of a file."""
    return quote(name, safe="").replace(".", "%2E")


class FileCatalog(KeptCatalog):
    """A catalog in a directory.

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
                    self._put_database(self.default_database, CatalogDatabase(), again=False)
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

    # -- databases -------------------------------------------------------------------------------

    def _home(self, database_name: str) -> Path:
        home = self._root / _encoded(database_name)
        if not (home / _DATABASE).is_file():
            raise self._no_such_database(database_name)
        return home

    def list_databases(self) -> list[str]:
        return sorted(unquote(each.parent.name) for each in self._root.glob(f"*/{_DATABASE}"))

    def get_database(self, database_name: str) -> CatalogDatabase:
        found: CatalogDatabase = self._read(self._home(database_name) / _DATABASE)
        return found

    def _put_database(self, name: str, database: CatalogDatabase, *, again: bool) -> None:
        home, text = self._root / _encoded(name), text_of(database, name)
        if again:
            self._replace(home / _DATABASE, text, name)
            return
        for each in (TABLES, FUNCTIONS):
            (home / each).mkdir(parents=True, exist_ok=True)
        self._write(home / _DATABASE, text)
        sync_directory(self._root)

    def _delete_database(self, name: str) -> None:
        home = self._home(name)
        # Without its description it is no database, whatever is left of it.
        (home / _DATABASE).unlink()
        for each in (TABLES, FUNCTIONS, FACTS):
            if (home / each).is_dir():
                shutil.rmtree(home / each)
        # Files of others, as of tables whose 'path' is in there, stay.
        with contextlib.suppress(OSError):
            home.rmdir()
        sync_directory(self._root)

    # -- objects ---------------------------------------------------------------------------------

    def _file(self, kind: str, path: ObjectPath) -> Path:
        name = _encoded(self._key(kind, path))
        return self._home(path.database_name) / kind / f"{name}{_SUFFIX}"

    def _names(self, kind: str, database_name: str) -> list[str]:
        found = (self._home(database_name) / kind).glob(f"*{_SUFFIX}")
        return sorted(unquote(each.name.removesuffix(_SUFFIX)) for each in found)

    def _has(self, kind: str, path: ObjectPath) -> bool:
        return self.database_exists(path.database_name) and self._file(kind, path).is_file()

    def _get(self, kind: str, path: ObjectPath) -> Any:
        return self._read(self._file(kind, path))

    def _peek(self, path: ObjectPath) -> CatalogBaseTable:
        # Not by _read(): the session has not seen what another one wrote meanwhile.
        file = self._file(TABLES, path)
        found: CatalogBaseTable = read_object(file.read_text(encoding="utf-8"), str(file))
        return found

    def _put(self, kind: str, path: ObjectPath, kept: Any, *, again: bool = False) -> None:
        file, text = self._file(kind, path), text_of(kept, str(path))
        if again:
            self._replace(file, text, str(path))
            return
        if not file.parent.is_dir():  # as long as nothing is known of any table
            file.parent.mkdir()
            sync_directory(file.parent.parent)
        self._write(file, text)

    def _replace(self, file: Path, text: str, name: str) -> None:
        """Write over what was read; within the lock."""
        if file.read_text(encoding="utf-8") != self._seen.get(file):
            message = (
                f"'{name}' was changed by another session since this one has read it; check it, "
                "and run the statement again."
            )
            raise CatalogError(message)
        self._write(file, text)

    def _delete(self, kind: str, path: ObjectPath) -> None:
        file = self._file(kind, path)
        if file.is_file():
            file.unlink()
            sync_directory(file.parent)

    def _rename(self, path: ObjectPath, new_path: ObjectPath) -> None:
        # First, for nothing may be known of a table that is still another's.
        self._delete(FACTS, new_path)
        for kind in (FACTS, TABLES):
            file = self._file(kind, path)
            if file.is_file():
                file.rename(self._file(kind, new_path))
                sync_directory(file.parent)
