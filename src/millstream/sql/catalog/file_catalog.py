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
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote

from millstream.directories import sync_directory
from millstream.errors import CatalogError, MillstreamError, SqlParserError
from millstream.sql.catalog.catalog import DEFAULT_DATABASE, FUNCTION, TABLE, CreatedCatalog
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
    Column,
    ComputedColumn,
    MetadataColumn,
    PhysicalColumn,
    PrimaryKey,
    ResolvedSchema,
    WatermarkSpec,
)
from millstream.sql.parser.parser import parse_type

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from millstream.sql.catalog.identifiers import ObjectPath
    from millstream.sql.catalog.objects import CatalogBaseTable


#: Of the format; others are refused.
VERSION: Final = 1
_STORED_OBJECTS_KINDS: Final[dict[type[Column], str]] = {
    PhysicalColumn: "physical",
    ComputedColumn: "computed",
    MetadataColumn: "metadata",
}


def text_of(
    stored: CatalogBaseTable | CatalogFunction | CatalogDatabase | TableFacts, name: str
) -> str:
    """An object as text.

    Raises:
        CatalogError: it is made of objects of the program, which no text says.
    """
    try:
        return json.dumps({"version": VERSION, **_content(stored, name)}, indent=2) + "\n"
    except TypeError as error:
        message = f"Statistics and comments of '{name}' cannot be kept in files: {error}"
        raise CatalogError(message) from error


def _content(stored: Any, name: str) -> dict[str, Any]:
    if isinstance(stored, TableFacts):
        return {"kind": "facts", **_facts(stored)}
    if isinstance(stored, CatalogDatabase):
        return {
            "kind": "database",
            "properties": dict(stored.properties),
            "comment": stored.comment,
        }
    if isinstance(stored, CatalogFunction):
        if not isinstance(stored.implementation, str):
            message = (
                f"Function '{name}' is an object of the program and cannot be kept in files; name "
                "it by CREATE FUNCTION ... AS 'module.name' LANGUAGE PYTHON, or make it temporary."
            )
            raise CatalogError(message)
        return {
            "kind": "function",
            "implementation": stored.implementation,
            "language": stored.language,
        }
    if type(stored) not in {CatalogTable, CatalogView}:
        message = f"'{name}' is made of objects of the program and cannot be kept in files."
        raise CatalogError(message)
    shared = {"comment": stored.comment, **_schema(stored.schema, name)}
    if isinstance(stored, CatalogView):
        queries = {"original": stored.original_query, "expanded": stored.expanded_query}
        return {"kind": "view", **shared, "query": queries}
    return {
        "kind": "table",
        **shared,
        "options": dict(stored.options),
        "partitioned_by": list(stored.partition_keys),
    }


def _facts(facts: TableFacts) -> dict[str, Any]:
    kinds = (facts.partitions, facts.partition_statistics, facts.partition_columns)
    specs = {spec: None for kind in kinds for spec in kind}
    return {
        "statistics": _of_rows(facts.statistics),
        "columns": _of_columns(facts.columns),
        "partitions": [
            {
                "spec": dict(spec.values),
                "said": _of_partition(facts.partitions.get(spec)),
                "statistics": _of_rows(facts.partition_statistics.get(spec)),
                "columns": _of_columns(facts.partition_columns.get(spec)),
            }
            for spec in specs
        ],
    }


def _of_partition(said: CatalogPartition | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {"properties": said.get_properties(), "comment": said.comment}


def _of_rows(said: CatalogTableStatistics | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {
        "rows": said.row_count,
        "files": said.field_count,
        "size": said.total_size,
        "raw_size": said.raw_data_size,
        "properties": said.get_properties(),
    }


def _of_columns(said: CatalogColumnStatistics | None) -> dict[str, Any] | None:
    if said is None:
        return None
    return {"columns": said.get_column_statistics_data(), "properties": said.get_properties()}


def _schema(schema: ResolvedSchema, name: str) -> dict[str, Any]:
    key, watermark = schema.primary_key, schema.watermark
    return {
        "columns": [_column(each, name) for each in schema.columns],
        "watermark": None
        if watermark is None
        else {"column": watermark.rowtime, "expression": watermark.expression},
        "primary_key": None if key is None else {"name": key.name, "columns": list(key.columns)},
    }


def _column(column: Column, name: str) -> dict[str, Any]:
    kind = column.type.as_serializable_string()
    try:
        parse_type(kind)
    except MillstreamError as error:
        message = f"column '{column.name}' of '{name}' is {kind}, which cannot be kept in files."
        raise CatalogError(message) from error
    return {
        "name": column.name,
        "type": kind,
        "kind": _STORED_OBJECTS_KINDS[type(column)],
        "expression": column.expression if isinstance(column, ComputedColumn) else None,
        "metadata_key": column.metadata_key if isinstance(column, MetadataColumn) else None,
        "virtual": isinstance(column, MetadataColumn) and column.virtual,
        "comment": column.comment,
    }


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
        version = content["version"]
        if version != VERSION:
            message = f"{place} is of version {version}; this release reads version {VERSION}."
            raise CatalogError(message)
        return _READERS[content["kind"]](content)
    except SqlParserError as error:
        message = f"{place} has a type that this release does not know: {error}"
        raise CatalogError(message) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        message = f"{place} does not describe an object of a catalog: {error!r}"
        raise CatalogError(message) from error


def _read_column(said: Mapping[str, Any]) -> Column:
    name, kind, comment = said["name"], parse_type(said["type"]), said["comment"]
    made: dict[str, Column] = {
        "physical": PhysicalColumn(name, kind, comment=comment),
        "computed": ComputedColumn(name, kind, said["expression"], comment=comment),
        "metadata": MetadataColumn(
            name, kind, said["metadata_key"], virtual=said["virtual"], comment=comment
        ),
    }
    return made[said["kind"]]


def _read_schema(content: Mapping[str, Any]) -> ResolvedSchema:
    columns = [_read_column(each) for each in content["columns"]]
    watermark, key = content["watermark"], content["primary_key"]
    return ResolvedSchema(
        columns,
        [] if watermark is None else [WatermarkSpec(watermark["column"], watermark["expression"])],
        None if key is None else PrimaryKey(key["name"], tuple(key["columns"])),
    )


def _read_table(content: Mapping[str, Any]) -> CatalogTable:
    return CatalogTable(
        schema=_read_schema(content),
        comment=content["comment"],
        options=dict(content["options"]),
        partition_keys=tuple(content["partitioned_by"]),
    )


def _read_view(content: Mapping[str, Any]) -> CatalogView:
    return CatalogView(
        schema=_read_schema(content),
        comment=content["comment"],
        original_query=content["query"]["original"],
        expanded_query=content["query"]["expanded"],
    )


def _read_function(content: Mapping[str, Any]) -> CatalogFunction:
    return CatalogFunction(implementation=content["implementation"], language=content["language"])


def _read_database(content: Mapping[str, Any]) -> CatalogDatabase:
    return CatalogDatabase(properties=content["properties"], comment=content["comment"])


def _read_facts(content: Mapping[str, Any]) -> TableFacts:
    listed = [(CatalogPartitionSpec(each["spec"]), each) for each in content["partitions"]]
    said = {spec: each["said"] for spec, each in listed if each["said"] is not None}
    rows = {spec: _read_rows(each["statistics"]) for spec, each in listed}
    columns = {spec: _read_columns(each["columns"]) for spec, each in listed}
    return TableFacts(
        _read_rows(content["statistics"]),
        _read_columns(content["columns"]),
        {
            spec: CatalogPartition(properties=each["properties"], comment=each["comment"])
            for spec, each in said.items()
        },
        {spec: each for spec, each in rows.items() if each is not None},
        {spec: each for spec, each in columns.items() if each is not None},
    )


def _read_rows(said: Mapping[str, Any] | None) -> CatalogTableStatistics | None:
    if said is None:
        return None
    return CatalogTableStatistics(
        said["rows"], said["files"], said["size"], said["raw_size"], said["properties"] or None
    )


def _read_columns(said: Mapping[str, Any] | None) -> CatalogColumnStatistics | None:
    return (
        None
        if said is None
        else CatalogColumnStatistics(said["columns"] or None, said["properties"] or None)
    )


_READERS: Final = {
    "facts": _read_facts,
    "table": _read_table,
    "view": _read_view,
    "function": _read_function,
    "database": _read_database,
}


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
                f"'{name}' was changed by another session since this one has read it; check it, "
                "and run the statement again."
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
