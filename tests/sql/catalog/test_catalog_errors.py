"""What catalogs raise for objects that are missing or exist already, by PyFlink's classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.errors import CatalogError, ValidationError
from millstream.sql.catalog.file_catalog import FileCatalog
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment, TableSchema
from millstream.table.catalog import (
    Catalog,
    CatalogBaseTable,
    CatalogDatabase,
    CatalogFunction,
    CatalogPartition,
    CatalogPartitionSpec,
    GenericInMemoryCatalog,
    ObjectPath,
)
from millstream.util.exceptions import (
    CatalogException,
    DatabaseAlreadyExistException,
    DatabaseNotEmptyException,
    DatabaseNotExistException,
    FunctionAlreadyExistException,
    FunctionNotExistException,
    PartitionAlreadyExistsException,
    PartitionNotExistException,
    PartitionSpecInvalidException,
    TableAlreadyExistException,
    TableException,
    TableNotExistException,
    TableNotPartitionedException,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = TableSchema(["a", "b", "c"], [DataTypes.STRING(), DataTypes.INT(), DataTypes.STRING()])
HERE = ObjectPath("d", "here")
MISSING = ObjectPath("d", "missing")
NOWHERE = ObjectPath("nowhere", "missing")
DAY = CatalogPartitionSpec({"b": "1", "c": "x"})


def table(*keys: str) -> CatalogBaseTable:
    return CatalogBaseTable.create_table(COLUMNS, keys, {"connector": "datagen"})


def view() -> CatalogBaseTable:
    return CatalogBaseTable.create_view("SELECT 1", "SELECT 1", COLUMNS, {})


@pytest.fixture(params=["memory", "files"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    """A catalog with a database that has a table, a partitioned table, a view and a function."""
    in_memory = request.param == "memory"
    made = GenericInMemoryCatalog("c") if in_memory else FileCatalog("c", str(tmp_path), "default")
    made.open()
    made.create_database("d", CatalogDatabase(), ignore_if_exists=False)
    made.create_table(HERE, table(), ignore_if_exists=False)
    made.create_table(ObjectPath("d", "parts"), table("b", "c"), ignore_if_exists=False)
    made.create_table(ObjectPath("d", "shown"), view(), ignore_if_exists=False)
    made.create_function(HERE, CatalogFunction.create_instance("m.f"), ignore_if_exists=False)
    return made


Case = tuple[type[Exception], "Callable[[Catalog, bool], Any]"]
#: What ``ignore`` makes a call do nothing.
IGNORABLE: list[Case] = [
    (DatabaseAlreadyExistException, lambda c, i: c.create_database("d", CatalogDatabase(), i)),
    (DatabaseNotExistException, lambda c, i: c.drop_database("nowhere", i)),
    (DatabaseNotExistException, lambda c, i: c.alter_database("nowhere", CatalogDatabase(), i)),
    (TableAlreadyExistException, lambda c, i: c.create_table(HERE, view(), i)),
    (TableNotExistException, lambda c, i: c.drop_table(MISSING, i)),
    (TableNotExistException, lambda c, i: c.drop_table(NOWHERE, i)),
    (TableNotExistException, lambda c, i: c.alter_table(MISSING, table(), i)),
    (TableNotExistException, lambda c, i: c.alter_table(NOWHERE, table(), i)),
    (TableNotExistException, lambda c, i: c.rename_table(NOWHERE, "other", i)),
    (
        FunctionAlreadyExistException,
        lambda c, i: c.create_function(HERE, CatalogFunction.create_instance("m.g"), i),
    ),
    (FunctionNotExistException, lambda c, i: c.drop_function(NOWHERE, i)),
    (
        FunctionNotExistException,
        lambda c, i: c.alter_function(NOWHERE, CatalogFunction.create_instance("m.g"), i),
    ),
    (PartitionNotExistException, lambda c, i: c.drop_partition(NOWHERE, DAY, i)),
    (PartitionNotExistException, lambda c, i: c.drop_partition(HERE, DAY, i)),
    (PartitionNotExistException, lambda c, i: c.drop_partition(ObjectPath("d", "parts"), DAY, i)),
    (
        PartitionNotExistException,
        lambda c, i: c.alter_partition(NOWHERE, DAY, CatalogPartition(), i),
    ),
    (
        PartitionNotExistException,
        lambda c, i: c.alter_partition(ObjectPath("d", "parts"), DAY, CatalogPartition(), i),
    ),
]
ALWAYS: list[tuple[type[Exception], Callable[[Catalog], Any]]] = [
    (DatabaseNotExistException, lambda c: c.get_database("nowhere")),
    (DatabaseNotExistException, lambda c: c.list_tables("nowhere")),
    (DatabaseNotExistException, lambda c: c.list_functions("nowhere")),
    (DatabaseNotExistException, lambda c: c.create_table(NOWHERE, table(), True)),
    (
        DatabaseNotExistException,
        lambda c: c.create_function(NOWHERE, CatalogFunction.create_instance("m.f"), True),
    ),
    (DatabaseNotEmptyException, lambda c: c.drop_database("d", True)),
    (TableNotExistException, lambda c: c.get_table(MISSING)),
    (TableNotExistException, lambda c: c.get_table(NOWHERE)),
    (TableAlreadyExistException, lambda c: c.rename_table(HERE, "shown", True)),
    (FunctionNotExistException, lambda c: c.get_function(MISSING)),
    (FunctionNotExistException, lambda c: c.get_function(NOWHERE)),
    (TableNotExistException, lambda c: c.list_partitions(MISSING)),
    (TableNotPartitionedException, lambda c: c.list_partitions(HERE)),
    (
        TableNotPartitionedException,
        lambda c: c.create_partition(HERE, DAY, CatalogPartition(), True),
    ),
    (
        PartitionSpecInvalidException,
        lambda c: c.create_partition(
            ObjectPath("d", "parts"),
            CatalogPartitionSpec({"c": "x"}),
            CatalogPartition(),
            True,
        ),
    ),
    (PartitionNotExistException, lambda c: c.get_partition(NOWHERE, DAY)),
    (PartitionNotExistException, lambda c: c.get_partition(HERE, DAY)),
    (PartitionNotExistException, lambda c: c.get_partition_statistics(HERE, DAY)),
]


@pytest.mark.parametrize(("wanted", "call"), IGNORABLE)
def test_errors_that_can_be_ignored(
    catalog: Catalog, wanted: type[Exception], call: Callable[[Catalog, bool], Any]
) -> None:
    before = catalog.list_tables("d"), catalog.list_functions("d"), catalog.list_databases()
    call(catalog, True)
    assert before == (
        catalog.list_tables("d"),
        catalog.list_functions("d"),
        catalog.list_databases(),
    )
    with pytest.raises(wanted):
        call(catalog, False)


@pytest.mark.parametrize(("wanted", "call"), ALWAYS)
def test_errors_that_cannot_be_ignored(
    catalog: Catalog, wanted: type[Exception], call: Callable[[Catalog], Any]
) -> None:
    with pytest.raises(wanted):
        call(catalog)


def test_a_partition_is_made_once(catalog: Catalog) -> None:
    path = ObjectPath("d", "parts")
    catalog.create_partition(path, DAY, CatalogPartition.create_instance({"k": "v"}), False)
    catalog.create_partition(path, DAY, CatalogPartition(), True)
    assert catalog.get_partition(path, DAY).get_properties() == {"k": "v"}
    with pytest.raises(PartitionAlreadyExistsException, match="already exists"):
        catalog.create_partition(path, DAY, CatalogPartition(), False)


def test_a_view_does_not_become_a_table(catalog: Catalog) -> None:
    with pytest.raises(CatalogException, match=r"'d\.shown' is 'VIEW' and new table is 'TABLE'"):
        catalog.alter_table(ObjectPath("d", "shown"), table(), False)
    assert catalog.list_views("d") == ["shown"]


def test_all_are_errors_of_catalogs_and_tables() -> None:
    for each in {wanted for wanted, _ in [*IGNORABLE, *ALWAYS]}:
        assert issubclass(each, CatalogException)
        assert issubclass(each, TableException)
    assert CatalogException is CatalogError


def test_columns_of_tables_in_catalogs(catalog: Catalog) -> None:
    kept = catalog.get_table(HERE).get_schema()
    assert isinstance(kept, TableSchema)
    assert kept == COLUMNS
    assert catalog.get_table(ObjectPath("d", "shown")).get_schema() == COLUMNS


def test_functions_in_other_languages_are_kept_but_not_called() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    catalog = GenericInMemoryCatalog("c")
    made = CatalogFunction.create_instance("org.example.Upper", "Java")
    catalog.create_function(ObjectPath("default", "f"), made, ignore_if_exists=False)
    assert catalog.get_function(ObjectPath("default", "f")).get_function_language() == "JAVA"
    env.register_catalog("c", catalog)
    env.use_catalog("c")
    with pytest.raises(ValidationError, match=r"Function org.example.Upper is in JAVA, and only"):
        env.sql_query("SELECT f(1)")


def test_paths_compare_with_paths_alone() -> None:
    path = ObjectPath("d", "a")
    assert path == ObjectPath.from_string("d.a")
    with pytest.raises(TypeError, match=r"can be compared with another one, not with 'd\.a'"):
        path.compare_to("d.a")  # type: ignore[arg-type]
