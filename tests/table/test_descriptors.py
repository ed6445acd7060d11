"""The deprecated descriptors give the properties that those of Flink 2.3.0 give."""

from __future__ import annotations

import re

import pytest

from millstream.errors import ProgramError, SqlParserError, ValidationError
from millstream.table import DataTypes, TableSchema
from millstream.table.descriptors import Rowtime, Schema

DATA_TYPE = "schema.0.data-type"


def test_event_time_is_described() -> None:
    rowtime = Rowtime().timestamps_from_field("at").watermarks_periodic_bounded(5000)
    schema = Schema(fields={"a": "INT"}).field("t", DataTypes.BIGINT()).rowtime(rowtime)
    assert schema.to_properties() == {
        "schema.0.name": "a",
        "schema.0.data-type": "INT",
        "schema.1.name": "t",
        "schema.1.data-type": "BIGINT",
        "schema.1.rowtime.timestamps.type": "from-field",
        "schema.1.rowtime.timestamps.from": "at",
        "schema.1.rowtime.watermarks.type": "periodic-bounded",
        "schema.1.rowtime.watermarks.delay": "5000",
    }
    kept = Rowtime().timestamps_from_source().watermarks_from_source().to_properties()
    assert kept == {
        "rowtime.timestamps.type": "from-source",
        "rowtime.watermarks.type": "from-source",
    }
    ascending = Rowtime().watermarks_periodic_ascending()
    assert ascending.to_properties() == {"rowtime.watermarks.type": "periodic-ascending"}


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (DataTypes.STRING(), "VARCHAR(2147483647)"),
        (DataTypes.INT().not_null(), "INT NOT NULL"),
        (DataTypes.ROW([DataTypes.FIELD("x", DataTypes.INT())]), "ROW<`x` INT>"),
        ("VARCHAR", "VARCHAR"),
        ("DECIMAL(5,2)", "DECIMAL(5,2)"),
        ("LONG", "BIGINT"),
        ("SQL_TIMESTAMP", "TIMESTAMP(3)"),
        ("SQL_TIME", "TIME(0)"),
    ],
)
def test_types_of_fields(given: object, shown: str) -> None:
    schema = Schema().field("a", given)  # type: ignore[arg-type]
    assert schema.to_properties()[DATA_TYPE] == shown


def test_a_schema_replaces_the_fields() -> None:
    columns = TableSchema(["c"], [DataTypes.INT()])
    schema = Schema().field("a", "INT").field("b", "INT").schema(columns).field("d", "DATE")
    assert schema.to_properties() == {
        "schema.0.name": "c",
        "schema.0.data-type": "INT",
        "schema.1.name": "d",
        "schema.1.data-type": "DATE",
    }


def test_the_last_field_is_described_once() -> None:
    schema = Schema().field("a", "INT").from_origin_field("x").field("p", "DATE").proctime()
    found = schema.to_properties()
    assert (found["schema.0.from"], found["schema.1.proctime"]) == ("x", "true")
    for again in (schema.proctime, lambda: schema.from_origin_field("y"), Schema().proctime):
        with pytest.raises(ValidationError, match="No field defined previously"):
            again()


def test_wrong_descriptions_are_refused() -> None:
    with pytest.raises(ValidationError, match="Duplicate field name a"):
        Schema().field("a", "INT").field("a", "BIGINT")
    with pytest.raises(SqlParserError, match="expected a type"):
        Schema().field("a", "nope")
    with pytest.raises(TypeError, match="A field needs a type of DataTypes"):
        Schema().field("a", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="fields must be stored in a dict"):
        Schema(fields=[("a", "INT")])  # type: ignore[arg-type]
    with pytest.raises(ValidationError, match=re.escape("already present: rowtime.timestamps.ty")):
        Rowtime().timestamps_from_field("a").timestamps_from_source()
    for refuse in (Rowtime().timestamps_from_extractor, Rowtime().watermarks_from_strategy):
        with pytest.raises(ProgramError, match=r"'org\.Custom' is a class of Java"):
            refuse("org.Custom")
