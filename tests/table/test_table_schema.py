"""TableSchema: the older description of columns, of programs and of tables."""

from __future__ import annotations

import pytest

from millstream.errors import ValidationError
from millstream.table import (
    DataTypes,
    EnvironmentSettings,
    FormatDescriptor,
    ResolvedSchema,
    Schema,
    TableDescriptor,
    TableEnvironment,
    TableSchema,
)
from millstream.table.catalog import ObjectPath, UniqueConstraint
from millstream.table.expressions import call_sql

NAMES = ["a", "b"]
TYPES = [DataTypes.INT(), DataTypes.STRING().not_null()]


def test_columns_are_read_by_name_and_position() -> None:
    schema = TableSchema(NAMES, TYPES)
    assert schema.get_field_count() == 2
    assert schema.get_field_names() == NAMES
    assert schema.get_field_data_types() == TYPES
    assert schema.get_field_data_type("b") == schema.get_field_data_type(1) == TYPES[1]
    assert schema.get_field_name(0) == "a"
    assert [schema.get_field_name(at) for at in (2, -1)] == [None, None]
    assert [schema.get_field_data_type(at) for at in ("c", 2, -1)] == [None, None, None]
    with pytest.raises(TypeError, match="by its position or its name, not by None"):
        schema.get_field_data_type(None)  # type: ignore[arg-type]


def test_equal_schemas() -> None:
    schema = TableSchema(NAMES, TYPES)
    built = TableSchema.builder().field("a", TYPES[0]).field("b", TYPES[1]).build()
    assert schema == built == schema.copy()
    assert hash(schema) == hash(built)
    assert schema != TableSchema(NAMES, [DataTypes.INT(), DataTypes.STRING()])
    assert TableSchema() == TableSchema.builder().build()


def test_the_row_of_a_schema_is_never_null() -> None:
    row = TableSchema(NAMES, TYPES).to_row_data_type()
    fields = [DataTypes.FIELD("a", TYPES[0]), DataTypes.FIELD("b", TYPES[1])]
    assert row == DataTypes.ROW(fields, nullable=False)


def test_names_and_types_must_fit() -> None:
    with pytest.raises(ValidationError, match="Number of names is 2, number of data types is 1"):
        TableSchema(NAMES, TYPES[:1])
    with pytest.raises(ValidationError, match="named 'a' already exists"):
        TableSchema(["a", "a"], TYPES)


def test_schemas_are_printed() -> None:
    schema = TableSchema(NAMES, TYPES)
    assert str(schema) == repr(schema) == "root\n |-- a: INT\n |-- b: STRING NOT NULL\n"


def test_schemas_of_tables_and_results() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    table = env.from_elements([(1, "x")], ["a", "b"])
    wanted = TableSchema(NAMES, [DataTypes.BIGINT(), DataTypes.STRING()])
    assert table.get_schema() == wanted
    assert isinstance(table.get_schema(), ResolvedSchema)
    assert env.execute_sql("SHOW TABLES").get_table_schema().get_field_names() == ["table name"]


def test_all_parts_of_a_schema_are_printed() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    env.execute_sql(
        "CREATE TABLE t (id INT NOT NULL, twice AS id * 2, ts TIMESTAMP(3), "
        "at_ TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL, "
        "WATERMARK FOR ts AS ts - INTERVAL '5' SECOND, PRIMARY KEY (id) NOT ENFORCED) "
        "WITH ('connector' = 'datagen')"
    )
    catalog = env.get_catalog("default_catalog")
    assert catalog is not None
    shown = str(catalog.get_table(ObjectPath("default_database", "t")).get_schema())
    assert shown.splitlines() == [
        "root",
        " |-- id: INT NOT NULL",
        " |-- twice: INT NOT NULL AS id * 2",
        " |-- ts: TIMESTAMP(3)",
        " |-- at_: TIMESTAMP_LTZ(3) METADATA FROM 'timestamp' VIRTUAL",
        " |-- WATERMARK FOR ts: TIMESTAMP(3) AS ts - INTERVAL '5' SECOND",
        " |-- CONSTRAINT PK_id PRIMARY KEY (id)",
    ]


def test_a_schema_that_is_not_resolved_is_printed() -> None:
    first = Schema.new_builder().column("a", "ROW<x INT>").column("b", TYPES[1]).build()
    schema = (
        Schema.new_builder()
        .from_schema(first)
        .primary_key_named("by_b", "b")
        .column_by_metadata("m", DataTypes.STRING(), None, is_virtual=True)
        .column_by_metadata("n", DataTypes.STRING(), "other")
        .column_by_expression("c", "b || 'x'")
        .column_by_expression("d", call_sql("a.x  + 1"))
        .column("ts", DataTypes.TIMESTAMP(3))
        .watermark("ts", "ts - INTERVAL '5' SECOND")
        .build()
    )
    assert str(schema).splitlines() == [
        "(",
        "  `a` [ROW<x INT>],",
        "  `b` STRING NOT NULL,",
        "  `m` METADATA VIRTUAL,",
        "  `n` METADATA FROM 'other',",
        "  `c` AS [b || 'x'],",
        "  `d` AS [a.x  + 1],",
        "  `ts` TIMESTAMP(3),",
        "  WATERMARK FOR `ts` AS [ts - INTERVAL '5' SECOND],",
        "  CONSTRAINT `by_b` PRIMARY KEY (`b`) NOT ENFORCED",
        ")",
    ]


def test_the_name_of_a_primary_key_is_kept() -> None:
    env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    builder = Schema.new_builder().column("a", DataTypes.INT().not_null())
    schema = builder.primary_key_named("by_a", "a").build()
    env.create_table("t", TableDescriptor.for_connector("datagen").schema(schema).build())
    with env.execute_sql("SHOW CREATE TABLE t").collect() as rows:
        assert "CONSTRAINT `by_a` PRIMARY KEY (`a`) NOT ENFORCED" in str(list(rows))
    copied = Schema.new_builder().from_resolved_schema(schema.resolved()).build()
    assert copied == schema
    assert builder.primary_key("a").build().resolved().primary_key == UniqueConstraint(
        "PK_a", ("a",)
    )


def test_a_format_is_printed_with_its_options() -> None:
    made = FormatDescriptor.for_format("json").option("a", "x").option("b", "y").build()
    assert str(made) == "json[{a=x, b=y}]"
