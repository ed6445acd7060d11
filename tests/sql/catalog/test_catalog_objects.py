"""What stands in catalogs, under PyFlink's names."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from millstream.common import Configuration
from millstream.errors import CatalogError, MillstreamError
from millstream.sql.catalog.file_catalog import FileCatalog
from millstream.table import DataTypes, EnvironmentSettings, Schema, TableEnvironment
from millstream.table.catalog import (
    Catalog,
    CatalogBaseTable,
    CatalogDatabase,
    CatalogDescriptor,
    CatalogFunction,
    Column,
    ComputedColumn,
    Constraint,
    GenericInMemoryCatalog,
    MetadataColumn,
    ObjectIdentifier,
    ObjectPath,
    PhysicalColumn,
    ResolvedSchema,
    UniqueConstraint,
    WatermarkSpec,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_paths_and_identifiers() -> None:
    one, other = ObjectPath("d", "a"), ObjectPath.from_string("d.b")
    assert one < other
    assert one <= ObjectPath("d", "a") >= one
    assert other > one
    assert (one.compare_to(other), other.compare_to(one), one.compare_to(one)) == (-1, 1, 0)
    with pytest.raises(CatalogError, match="the name of a database and its own"):
        ObjectPath()
    identifier = ObjectIdentifier.of("c", "d", "a")
    assert identifier.to_object_path() == one
    assert identifier.to_list() == ["c", "d", "a"]
    names = identifier.get_catalog_name(), identifier.get_database_name()
    assert (*names, identifier.get_object_name()) == ("c", "d", "a")


@pytest.fixture(params=["memory", "files"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    if request.param == "memory":
        return GenericInMemoryCatalog("c")
    return FileCatalog("c", str(tmp_path), "default")


def test_databases_and_functions_are_altered(catalog: Catalog) -> None:
    database = CatalogDatabase.create_instance({"a": "1"}, "mine")
    catalog.create_database("d", database, ignore_if_exists=False)
    assert catalog.get_database("d") == database.copy()
    found = catalog.get_database("d")
    assert (found.get_properties(), found.get_comment()) == ({"a": "1"}, "mine")
    assert found.get_description() == found.get_detailed_description() == "mine"
    catalog.alter_database("d", CatalogDatabase.create_instance({}), ignore_if_not_exists=False)
    assert catalog.get_database("d").get_properties() == {}
    catalog.alter_database("e", database, ignore_if_not_exists=True)
    assert catalog.list_materialized_tables("d") == []
    with pytest.raises(CatalogError, match="e does not exist"):
        catalog.list_materialized_tables("e")
    with pytest.raises(CatalogError, match="e does not exist"):
        catalog.alter_database("e", database, ignore_if_not_exists=False)
    path = ObjectPath("d", "f")
    function = CatalogFunction.create_instance("module.one")
    with pytest.raises(CatalogError, match=r"d\.f does not exist"):
        catalog.alter_function(path, function, ignore_if_not_exists=False)
    catalog.alter_function(path, function, ignore_if_not_exists=True)
    catalog.create_function(path, function, ignore_if_exists=False)
    other = CatalogFunction.create_instance("module.two")
    catalog.alter_function(path, other, ignore_if_not_exists=False)
    kept = catalog.get_function(path)
    assert kept.copy().get_class_name() == "module.two"
    assert (kept.get_function_language(), kept.get_options()) == ("PYTHON", {})
    assert CatalogFunction.create_instance("a.B", "Java").get_function_language() == "JAVA"


def test_catalogs_of_descriptors(tmp_path: Path) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    configuration = Configuration()
    configuration.set_string("type", "filesystem").set_string("path", f"{tmp_path}/it's")
    env.create_catalog("odd`name", CatalogDescriptor.of("x", configuration, "one's own"))
    env.use_catalog("odd`name")
    env.execute_sql("CREATE TABLE t (a INT COMMENT 'x') COMMENT 'y' WITH ('connector' = 'datagen')")
    found = env.get_catalog("odd`name")
    assert found is not None
    table = found.get_table(ObjectPath("default", "t"))
    assert table.get_options() == {"connector": "datagen"}
    assert (table.get_comment(), table.get_description()) == ("y", "y")
    assert table.copy() == table
    assert (tmp_path / "it's").is_dir()
    nothing = CatalogDescriptor.of("y", Configuration())
    with pytest.raises(MillstreamError, match="option 'type' of a catalog"):
        env.create_catalog("y", nothing)


def test_schemas_and_their_parts() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.execute_sql(
        "CREATE TABLE t (a INT NOT NULL COMMENT 'key', b AS a + 1, c STRING METADATA FROM 'k' "
        "VIRTUAL, ts TIMESTAMP(3), WATERMARK FOR ts AS ts, CONSTRAINT pk PRIMARY KEY (a) "
        "NOT ENFORCED) WITH ('connector' = 'datagen')"
    )
    catalog = env.get_catalog("default_catalog")
    assert catalog is not None
    schema = catalog.get_table(ObjectPath("default_database", "t")).schema
    assert list(map(str, schema.get_columns())) == [
        "`a` INT NOT NULL COMMENT 'key'",
        "`b` INT NOT NULL AS a + 1",
        "`c` STRING METADATA FROM 'k' VIRTUAL",
        "`ts` TIMESTAMP(3)",
    ]
    (a, b, c, _) = schema.get_columns()
    assert schema.get_column(0) == schema.get_column("a") == a
    assert schema.get_column(9) is schema.get_column(-1) is schema.get_column("z") is None
    assert (a.get_name(), a.get_comment(), a.explain_extras()) == ("a", "key", None)
    assert b.explain_extras() == "AS a + 1"
    changed = a.with_comment("it's").copy(DataTypes.STRING()).rename("z")
    assert str(changed) == "`z` STRING COMMENT 'it''s'"
    assert str(changed.with_comment(None)) == "`z` STRING"
    assert (c.rename("d").key, c.rename("d").name) == ("k", "d")
    assert isinstance(a, PhysicalColumn)
    assert isinstance(b, ComputedColumn)
    assert isinstance(c, MetadataColumn)
    assert b == Column.computed("b", b.get_expression())
    assert c == Column.metadata("c", DataTypes.STRING(), "k", is_virtual=True)
    assert (c.is_virtual(), c.get_metadata_key(), c.is_persisted()) == (True, "k", False)
    assert [each.is_physical() for each in schema.columns] == [True, False, False, True]
    assert [each.is_persisted() for each in schema.columns] == [True, False, False, True]
    (watermark,) = schema.get_watermark_specs()
    expression = watermark.get_watermark_expression()
    assert WatermarkSpec.of("ts", expression) == watermark
    assert expression.get_output_data_type() == DataTypes.TIMESTAMP(3)
    assert str(expression) == expression.as_serializable_string() == "ts"
    assert str(watermark) == "WATERMARK FOR `ts`: TIMESTAMP(3) AS ts"
    assert watermark.get_rowtime_attribute() == "ts"
    key = schema.get_primary_key()
    assert key == UniqueConstraint.primary_key("pk", ["a"])
    assert key is not None
    assert key.as_summary_string() == "CONSTRAINT `pk` PRIMARY KEY (`a`) NOT ENFORCED"
    assert (key.get_name(), key.get_columns(), key.is_enforced()) == ("pk", ["a"], False)
    assert key.get_type() is Constraint.ConstraintType.PRIMARY_KEY
    assert schema.get_primary_key_indexes() == [0]
    assert list(schema.to_source_row_data_type().names) == ["a", "b", "c", "ts"]
    assert list(schema.to_physical_row_data_type().names) == ["a", "ts"]
    assert list(schema.to_sink_row_data_type().names) == ["a", "ts"]
    assert ResolvedSchema(schema.columns, [watermark], key) == schema
    assert hash(ResolvedSchema(schema.columns, [watermark], key)) == hash(schema)
    assert str(schema).splitlines()[1:6:4] == [
        "  `a` INT NOT NULL COMMENT 'key',",
        "  WATERMARK FOR `ts`: TIMESTAMP(3) AS ts,",
    ]


def test_schemas_are_made_of_columns() -> None:
    a, b = Column.physical("a", DataTypes.INT()), Column.physical("b", DataTypes.STRING())
    schema = ResolvedSchema.of([a, b])
    assert schema == ResolvedSchema.physical(["a", "b"], [DataTypes.INT(), DataTypes.STRING()])
    assert str(schema) == "(\n  `a` INT,\n  `b` STRING\n)"
    assert schema != ResolvedSchema.of([a])
    calls: Any = [
        (lambda: ResolvedSchema.physical(["a"], []), "Mismatch between number of columns"),
        (lambda: ResolvedSchema.of([a, a]), "'a' already exists"),
        (lambda: ResolvedSchema([a], [WatermarkSpec("a", "a")] * 2), "Multiple watermark"),
        (
            lambda: ResolvedSchema([a], [], UniqueConstraint.primary_key("k", ["c"])),
            "'c' does not exist",
        ),
        (lambda: WatermarkSpec("a", "a").get_watermark_expression(), "'a' is not known"),
    ]
    for call, message in calls:
        with pytest.raises(MillstreamError, match=message):
            call()


def test_tables_and_views_are_made_by_programs(catalog: Catalog, tmp_path: Path) -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.register_catalog("mine", catalog)
    env.use_catalog("mine")
    described = (
        Schema.new_builder()
        .column("a", "INT NOT NULL")
        .column("ts", DataTypes.TIMESTAMP(3))
        .column_by_expression("b", "a * 2")
        .column_by_metadata("size", "BIGINT", "file.size", is_virtual=True)
        .watermark("ts", "ts - INTERVAL '5' SECOND")
        .primary_key("a")
        .build()
    )
    options = {"connector": "filesystem", "format": "json", "path": str(tmp_path / "t")}
    table = CatalogBaseTable.create_table(described, ["a"], options, "made")
    catalog.create_table(ObjectPath("default", "t"), table, ignore_if_exists=False)
    env.execute_sql(
        "CREATE TABLE s (a INT NOT NULL, ts TIMESTAMP(3), b AS a * 2, size BIGINT METADATA FROM "
        "'file.size' VIRTUAL, WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (a) NOT "
        "ENFORCED) COMMENT 'made' PARTITIONED BY (a) WITH ('connector' = 'filesystem', 'format' = "
        f"'json', 'path' = '{tmp_path / 't'}')"
    )
    made, said = (catalog.get_table(ObjectPath("default", each)) for each in "ts")
    assert made == said == made.copy()
    schema = made.get_unresolved_schema()
    assert schema == described
    # Flink shows types that are texts in brackets.
    assert str(schema) == str(described).replace("[INT NOT NULL]", "INT NOT NULL")
    assert CatalogBaseTable.create_table(schema, ["a"], options, "made") == made
    columns = Schema.new_builder().column("n", "INT NOT NULL").build()
    view = CatalogBaseTable.create_view("SELECT 1", "SELECT 1 AS n", columns, {}, "one")
    catalog.create_table(ObjectPath("default", "v"), view, ignore_if_exists=False)
    assert (view.get_comment(), view.get_options()) == ("one", {})
    assert catalog.list_views("default") == ["v"]
    assert "EXPR$0" in env.explain_sql("SELECT n + 1 FROM v")
    with pytest.raises(CatalogError, match="A view has no options; there are: x"):
        CatalogBaseTable.create_view("SELECT 1", "SELECT 1", columns, {"x": "y"})
    with pytest.raises(CatalogError, match="partitioned by 'z'"):
        CatalogBaseTable.create_table(columns, ["z"])
    unknown = Schema.new_builder().column("a", "INT").column_by_expression("b", "zz + 1").build()
    with pytest.raises(MillstreamError, match="'zz'"):
        CatalogBaseTable.create_table(unknown)
