"""The catalog in a directory: what later sessions, and other processes, find in it."""

from __future__ import annotations

import contextlib
import json
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.errors import CatalogError, ValidationError
from millstream.sql.catalog.catalog import Catalog, GenericInMemoryCatalog
from millstream.sql.catalog.file_catalog import FileCatalog
from millstream.sql.catalog.identifiers import ObjectPath
from millstream.sql.catalog.objects import CatalogDatabase, CatalogFunction, CatalogTable
from millstream.sql.catalog.schema import PhysicalColumn, ResolvedSchema
from millstream.table.udf import udf
from millstream.types.logical_types import IntType

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

_TABLE = """
    CREATE TABLE `a.b/ü "c"` (
        id INT NOT NULL COMMENT 'the key',
        price DECIMAL(10, 2),
        things ARRAY<ROW<x INT, y MAP<STRING, TIMESTAMP_LTZ(3)>>>,
        ts TIMESTAMP(3),
        twice AS price * 2,
        size BIGINT METADATA FROM 'file.size' VIRTUAL,
        WATERMARK FOR ts AS ts - INTERVAL '5' SECOND,
        PRIMARY KEY (id) NOT ENFORCED
    ) COMMENT 'prices' WITH ('connector' = 'filesystem', 'path' = '/nowhere', 'format' = 'json')
"""


def session(path: Path) -> TableEnvironment:
    env = environment(1)
    env.execute_sql(f"CREATE CATALOG c WITH ('type' = 'filesystem', 'path' = '{path}')")
    env.execute_sql("USE CATALOG c")
    return env


def shown(env: TableEnvironment, statement: str) -> list[tuple[Any, ...]]:
    found: Any = env.execute_sql(statement)
    with found.collect() as rows:
        return [tuple(row) for row in rows]


def test_a_later_session_finds_everything(tmp_path: Path) -> None:
    first = session(tmp_path / "catalog")
    first.execute_sql(_TABLE)
    first.execute_sql("CREATE DATABASE more COMMENT 'x' WITH ('k' = 'v')")
    first.execute_sql("""
        CREATE VIEW more.cheap AS SELECT id, ts FROM `a.b/ü "c"` WHERE price < 5""")
    first.execute_sql("CREATE FUNCTION Shout AS 'os.path.join' LANGUAGE PYTHON")
    first.execute_sql("CREATE TEMPORARY VIEW passing AS SELECT 1 AS x")
    second = session(tmp_path / "catalog")
    for statement in (
        """SHOW CREATE TABLE `a.b/ü "c"`""",
        """DESCRIBE `a.b/ü "c"`""",
        "SHOW CREATE VIEW more.cheap",
        "SHOW DATABASES",
        "DESCRIBE DATABASE more",
        "SHOW USER FUNCTIONS",
        "EXPLAIN SELECT * FROM more.cheap",
    ):
        assert shown(second, statement) == shown(first, statement)
    assert shown(second, "SHOW TABLES") == [('a.b/ü "c"',)]
    assert shown(second, "DESCRIBE CATALOG c")[1] == ("type", "filesystem")
    second.execute_sql("""ALTER TABLE `a.b/ü "c"` RENAME TO plain""")
    second.execute_sql("ALTER TABLE plain SET ('path' = '/elsewhere')")
    second.execute_sql("DROP FUNCTION shout")
    assert shown(first, "SHOW TABLES") == [("passing",), ("plain",)]
    assert "/elsewhere" in str(shown(first, "SHOW CREATE TABLE plain"))
    with pytest.raises(CatalogError, match="is not empty"):
        first.execute_sql("DROP DATABASE more RESTRICT")
    first.execute_sql("DROP DATABASE more CASCADE")
    assert shown(second, "SHOW DATABASES") == [("default",)]


def _table(number: int) -> CatalogTable:
    schema = ResolvedSchema((PhysicalColumn("a", IntType()),))
    return CatalogTable(schema=schema, options={"number": str(number)})


@pytest.fixture(params=["memory", "files"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    made: Catalog = GenericInMemoryCatalog("c")
    if request.param == "files":
        made = FileCatalog("c", str(tmp_path / "catalog"))
    made.open()
    return made


def test_agree_catalogs_in_memory_and_in_files(catalog: Catalog) -> None:
    one, two = ObjectPath("default", "One"), ObjectPath("default", "one")
    catalog.create_table(one, _table(1), ignore_if_exists=False)
    catalog.create_table(one, _table(2), ignore_if_exists=True)
    with pytest.raises(CatalogError, match="already exists in Catalog c"):
        catalog.create_table(one, _table(2), ignore_if_exists=False)
    assert catalog.get_table(one) == _table(1)
    assert not catalog.table_exists(two)
    with pytest.raises(CatalogError, match="does not exist in Catalog c"):
        catalog.get_table(two)
    catalog.alter_table(one, _table(3), ignore_if_not_exists=False)
    catalog.alter_table(two, _table(3), ignore_if_not_exists=True)
    catalog.rename_table(one, "one", ignore_if_not_exists=False)
    assert catalog.list_tables("default") == ["one"]
    assert catalog.get_table(two) == _table(3)
    with pytest.raises(CatalogError, match="does not exist"):
        catalog.drop_table(one, ignore_if_not_exists=False)
    function = CatalogFunction(implementation="a.b")
    catalog.create_function(ObjectPath("default", "F"), function, ignore_if_exists=False)
    assert catalog.list_functions("default") == ["f"]
    assert catalog.get_function(ObjectPath("default", "f")) == function
    catalog.create_database("..", CatalogDatabase(), ignore_if_exists=False)
    assert catalog.list_databases() == ["..", "default"]
    assert not catalog.table_exists(ObjectPath("nowhere", "t"))
    with pytest.raises(CatalogError, match="Database nowhere does not exist"):
        catalog.list_tables("nowhere")


def test_sessions_do_not_write_over_each_other(tmp_path: Path) -> None:
    first, second = (FileCatalog("c", str(tmp_path)) for _ in range(2))
    first.open()
    second.open()
    path = ObjectPath("default", "t")
    first.create_table(path, _table(0), ignore_if_exists=False)
    second.get_table(path)
    first.alter_table(path, _table(1), ignore_if_not_exists=False)
    with pytest.raises(CatalogError, match="was changed by another session"):
        second.alter_table(path, _table(2), ignore_if_not_exists=False)
    assert second.get_table(path) == _table(1)
    second.alter_table(path, _table(2), ignore_if_not_exists=False)


def test_who_is_first_makes_a_table(tmp_path: Path) -> None:
    # The lock belongs to an opened file: threads have it from each other as processes do.
    def make() -> int:
        catalog = FileCatalog("c", str(tmp_path))
        catalog.open()
        made = 0
        for number in range(40):
            path = ObjectPath("default", str(number))
            with contextlib.suppress(CatalogError):
                catalog.create_table(path, _table(number), ignore_if_exists=False)
                made += 1
        return made

    with ThreadPoolExecutor(3) as pool:
        counts = [each.result() for each in [pool.submit(make) for _ in range(3)]]
    assert sum(counts) == 40
    assert len(FileCatalog("c", str(tmp_path)).list_tables("default")) == 40
    assert not list(tmp_path.glob(".new-*"))


def test_what_cannot_be_kept_and_what_is_no_object(tmp_path: Path) -> None:
    env = session(tmp_path)
    function = CatalogFunction(implementation=udf(lambda x: x, result_type="INT"))
    with pytest.raises(CatalogError, match="is an object of the program"):
        FileCatalog("c", str(tmp_path)).create_function(
            ObjectPath("default", "f"), function, ignore_if_exists=False
        )
    env.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'print')")
    file = tmp_path / "default" / "tables" / "t.json"
    content = json.loads(file.read_text())
    file.write_text(json.dumps({**content, "version": 7}))
    with pytest.raises(CatalogError, match="is of version 7; this release reads version 1"):
        env.execute_sql("DESCRIBE t")
    file.write_text("{")
    with pytest.raises(CatalogError, match=r"t\.json does not describe an object"):
        env.execute_sql("DESCRIBE t")
    for options, message in (
        ("'type' = 'filesystem'", "needs the option 'path'"),
        ("'type' = 'filesystem', 'paths' = '/x'", "Did you mean 'path'?"),
        ("'type' = 'hive'", "is one of 'generic_in_memory', 'filesystem'"),
    ):
        with pytest.raises(ValidationError) as raised:
            env.execute_sql(f"CREATE CATALOG d WITH ({options})")
        assert message in str(raised.value)


def test_a_dropped_database_leaves_the_files_of_others(tmp_path: Path) -> None:
    catalog = FileCatalog("c", str(tmp_path))
    catalog.open()
    for _ in range(2):
        catalog.create_database("d", CatalogDatabase(), ignore_if_exists=False)
        catalog.create_table(ObjectPath("d", "t"), _table(1), ignore_if_exists=False)
        (tmp_path / "d" / "rows").mkdir(exist_ok=True)
        (tmp_path / "d" / "rows" / "part-0.json").touch()
        catalog.drop_database("d", ignore_if_exists=False, cascade=True)
        assert catalog.list_databases() == ["default"]
        assert sorted(each.name for each in (tmp_path / "d").iterdir()) == ["rows"]
        assert (tmp_path / "d" / "rows" / "part-0.json").is_file()


@pytest.mark.parametrize("path", ["", "s3://bucket/c", "hdfs://host/c"])
def test_other_file_systems_are_refused(path: str) -> None:
    with pytest.raises(CatalogError, match="is kept in a local directory"):
        FileCatalog("c", path)


def test_a_type_of_a_later_release_is_said_with_its_file(tmp_path: Path) -> None:
    catalog = FileCatalog("c", str(tmp_path))
    catalog.open()
    catalog.create_table(ObjectPath("default", "t"), _table(1), ignore_if_exists=False)
    file = tmp_path / "default" / "tables" / "t.json"
    file.write_text(file.read_text().replace('"INT"', '"GEOMETRY"'))
    with pytest.raises(CatalogError, match=r"t\.json has a type that .* does not know.*GEOMETRY"):
        catalog.get_table(ObjectPath("default", "t"))
