"""What the CSV writer writes the reader reads back as it was, whatever the special characters are.

And what PyFlink's builder says of headers, by position as in Flink.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.integration.job_runs import examples, temporary_directory

from millstream.common import Row, Types
from millstream.connectors.files.source import FileSource
from millstream.contracts.batch import Batch
from millstream.datastream.formats.csv import CsvBulkWriters, CsvReaderFormat, CsvSchema
from millstream.errors import ConfigurationError, SinkError, SourceError
from millstream.table import DataTypes
from millstream.testing.conformance import read_records

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.datastream.formats.csv import CsvSchemaBuilder

SPECIAL = "\"'|;,\\#~-. \t1a"
TEXT = st.one_of(
    st.sampled_from(["", "NULL", "na", "#", "#x", '"', "''", "\\", "\\n", "nan", "null", " "]),
    st.text(st.sampled_from(SPECIAL + "\nbcéß☃"), max_size=8),
)


@dataclass(frozen=True)
class Kind:
    """How the files are written."""

    delimiter: str
    quote: str
    escape: str | None
    null: str | None
    line_separator: str
    header: bool
    comments: bool
    separator: str

    def builder(self) -> CsvSchemaBuilder:
        builder = CsvSchema.builder()
        builder.add_string_column("text").add_number_column("n").add_boolean_column("yes")
        builder.add_number_column("x", Types.DOUBLE()).add_string_column("last, \"column'")
        builder.add_array_column("words", self.separator)
        builder.add_array_column("numbers", "/", Types.LONG())
        builder.set_column_separator(self.delimiter).set_quote_char(self.quote)
        builder.set_line_separator(self.line_separator).set_use_header(self.header)
        builder.set_strict_headers().set_allow_comments(self.comments)
        if self.escape is not None:
            builder.set_escape_char(self.escape)
        if self.null is not None:
            builder.set_null_value(self.null)
        return builder


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    delimiter = draw(st.sampled_from(",;|\t .-#:"))
    quote = draw(st.sampled_from([c for c in "\"'|~$#" if c != delimiter]))
    escape = draw(st.sampled_from([None, *(c for c in "\\^!" if c not in (delimiter, quote))]))
    null = draw(st.sampled_from([None, "", "NULL", "na", "5"]))
    return Kind(
        delimiter,
        quote,
        escape,
        null,
        draw(st.sampled_from(["\n", "\r\n"])),
        draw(st.booleans()),
        draw(st.booleans()) and "#" not in (delimiter, quote),
        draw(st.sampled_from(["/", "::"])),
    )


@st.composite
def records(draw: st.DrawFn) -> list[tuple[Any, ...]]:
    word = st.text(st.sampled_from("\"'|;,\\#ab1 é"), min_size=1, max_size=3)
    words = st.lists(word.filter(lambda text: text not in ("na", "NULL")), max_size=3)
    number = st.integers(-(10**12), 10**12)
    row = st.tuples(
        st.none() | TEXT,
        st.none() | number,
        st.none() | st.booleans(),
        st.none() | st.floats(allow_nan=False),
        st.none() | TEXT,
        st.none() | words,
        st.none() | st.lists(number, max_size=3),
    )
    return draw(st.lists(row, min_size=1, max_size=12))


def write(schema: CsvSchema, rows: list[tuple[Any, ...]], path: Path) -> None:
    kind = schema.get_type_info()
    with path.open("wb") as stream:
        writer = CsvBulkWriters.for_schema(schema).create(stream, kind)
        for at in range(0, len(rows), 5):
            values = [Row(*row) for row in rows[at : at + 5]]
            writer.write(Batch(kind, arrow=kind.to_arrow(values)))
        writer.finish()


def read(schema: CsvSchema, path: Path, cut: int = 1 << 40) -> list[tuple[Any, ...]]:
    stream_format = CsvReaderFormat.for_schema(schema)
    source = FileSource.for_record_stream_format(stream_format, str(path)).build()
    found: list[tuple[Any, ...]] = []
    for split in source.discover(frozenset()):
        at, end = 0, source.end_offset(split)
        while at < end:
            stop = source.next_stop(split, at, cut, end)
            found += [
                tuple(row) for row in cast("list[Any]", read_records(source, split, at, stop))
            ]
            at = stop
    return found


def after(kind: Kind, row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What Flink's CSV keeps: without a text for null, it has none for strings and lists."""
    text, n, yes, x, last, words, numbers = row
    if kind.null is None:
        text, last, words, numbers = text or "", last or "", words or [], numbers or []
    return text, n, yes, x, last, words, numbers


@examples(40)
@given(kind=kinds(), rows=records(), cut=st.integers(1, 200))
def test_what_is_written_is_read_back(kind: Kind, rows: list[tuple[Any, ...]], cut: int) -> None:
    schema = kind.builder().build()
    if kind.null == "5":  # no list element that could be told from it
        rows = [(*row[:5], row[5], [n for n in row[6] or [] if n != 5]) for row in rows]
    with temporary_directory() as directory:
        path = directory / "file.csv"
        write(schema, rows, path)
        assert read(schema, path) == [after(kind, row) for row in rows]
        assert read(schema, path, cut) == [after(kind, row) for row in rows]


@pytest.mark.parametrize("escape", [None, "\\"])
@pytest.mark.parametrize("null", [None, "NULL"])
def test_without_quotes(tmp_path: Path, escape: str | None, null: str | None) -> None:
    builder = CsvSchema.builder().add_string_column("a").add_string_column("b").disable_quote_char()
    builder = builder if null is None else builder.set_null_value(null)
    schema = (builder if escape is None else builder.set_escape_char(escape)).build()
    fine: list[tuple[Any, ...]] = [
        ('5" pipe', "it's"),
        ("x", ""),
        *([("a,b", "\\")] if escape else []),
    ]
    fine += [("y", None)] if null else []
    write(schema, fine, tmp_path / "a.csv")
    assert read(schema, tmp_path / "a.csv") == fine
    for bad in ["two\nlines", *([] if escape else ["a,b"]), *(["NULL"] if null else [])]:
        with pytest.raises(SinkError, match="column 'b' as CSV without quotes"):
            write(schema, [("x", bad)], tmp_path / "b.csv")


def test_lists_that_could_not_be_told_apart_are_refused(tmp_path: Path) -> None:
    schema = CsvSchema.builder().add_array_column("words").set_null_value("NULL").build()
    for bad in (["a;b"], [""], ["NULL"]):
        with pytest.raises(SinkError, match="read back as another"):
            write(schema, [(bad,)], tmp_path / "b.csv")
    with_nulls: list[tuple[Any, ...]] = [(["a", None],), (None,), ([],)]
    write(schema, with_nulls, tmp_path / "a.csv")
    assert read(schema, tmp_path / "a.csv") == with_nulls


def test_untyped_records_with_other_characters(tmp_path: Path) -> None:
    from millstream.connectors.formats.csv_format import CsvWriterFactory

    factory = CsvWriterFactory(delimiter=";", quote="'", null_text="NULL", line_separator="\r\n")
    values: list[object] = [
        {"a;": "it's", "b": None},
        {"a;": "", "b": "NULL"},
        {"a;": 1, "b": "\n"},
    ]
    with (tmp_path / "a.csv").open("wb") as stream:
        writer = factory.create(stream, Types.PICKLED_BYTE_ARRAY())
        writer.write(Batch(Types.PICKLED_BYTE_ARRAY(), values=values))
        writer.finish()
    text = (tmp_path / "a.csv").read_bytes().decode()
    assert text == "'a;';b\r\n'it''s';NULL\r\n'';'NULL'\r\n1;'\n'\r\n"


def test_columns_have_types_of_tables_as_in_pyflink(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("127,1.5,1.25,1;2\n")
    builder = CsvSchema.builder().add_number_column("a", DataTypes.TINYINT())
    builder.add_number_column("b", DataTypes.FLOAT()).add_number_column(
        "c", DataTypes.DECIMAL(5, 2)
    )
    schema = builder.add_array_column("d", ";", DataTypes.INT()).build()
    kinds = [Types.BYTE(), Types.FLOAT(), Types.BIG_DEC(), Types.LIST(Types.INT())]
    assert list(map(str, schema.types))[::3] == list(map(str, kinds))[::3]
    assert read(schema, path) == [(127, 1.5, Decimal("1.25"), [1, 2])]


# -- headers ---------------------------------------------------------------------------------------


def two_columns() -> CsvSchemaBuilder:
    return CsvSchema.builder().add_number_column("id").add_string_column("name")


def test_columns_go_by_position_whatever_the_header_says(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("name,number\n1,a\n2,b\n")
    assert read(two_columns().set_use_header().build(), path) == [(1, "a"), (2, "b")]
    path.write_text("x,x\n1,a\n2,b\n")  # not even two names
    assert read(two_columns().set_use_header().build(), path) == [(1, "a"), (2, "b")]


def test_reordered_columns_are_found_by_name(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("name,more,id\na,0,1\nb,0,2\n")
    schema = two_columns().set_use_header().set_reorder_columns().build()
    assert read(schema, path) == [(1, "a"), (2, "b")]
    path.write_text("name,more\na,0\n")
    with pytest.raises(SourceError, match="the header lacks id"):
        read(schema, path)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("id,title", "column 2 of the header is 'title', the schema has 'name'"),
        ("name,id", "column 1 of the header is 'name', the schema has 'id'"),
        ("id", "column 2 of the header is missing, the schema has 'name'"),
        ("id,name,more", "column 3 of the header is 'more', the schema has no further one"),
    ],
)
def test_strict_headers(tmp_path: Path, header: str, message: str) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"{header}\n1,a\n")
    strict = two_columns().set_use_header().set_strict_headers().build()
    with pytest.raises(SourceError, match=message):
        read(strict, path)
    path.write_text("id,name\n1,a\n")
    assert read(strict, path) == [(1, "a")]
    path.write_text("")
    assert read(strict, path) == []
    path.write_text("1,a\n")  # without set_use_header it means nothing
    assert read(two_columns().set_strict_headers().build(), path) == [(1, "a")]


def test_the_first_data_row_is_skipped_behind_the_header_and_comments(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("# made by hand\nid,name\nunits,none\n1,a\n# in between\n2,b\n")
    both = two_columns().set_use_header().set_strict_headers().set_skip_first_data_row()
    schema = both.set_allow_comments().build()
    assert read(schema, path) == [(1, "a"), (2, "b")]
    assert read(schema, path, cut=1) == [(1, "a"), (2, "b")]
    by_name = both.set_reorder_columns().build()
    assert read(by_name, path) == [(1, "a"), (2, "b")]
    path.write_text("units,none\n1,a\n")
    assert read(two_columns().set_skip_first_data_row().build(), path) == [(1, "a")]


def test_lists_without_a_separator(tmp_path: Path) -> None:
    builder = CsvSchema.builder().add_array_column("a", ";").add_array_column("b", ";")
    schema = builder.remove_array_element_separator(1).build()
    (tmp_path / "a.csv").write_text("x;y,x;y\n,\n")
    assert read(schema, tmp_path / "a.csv") == [(["x", "y"], ["x;y"]), ([], [])]
    with pytest.raises(
        ConfigurationError, match="column 2 is no list column; the columns are a, b"
    ):
        builder.remove_array_element_separator(2)


def test_characters_that_cannot_be_are_refused() -> None:
    for builder in (
        two_columns().set_quote_char(","),
        two_columns().set_escape_char(","),
    ):
        with pytest.raises(ConfigurationError, match="must differ"):
            builder.build()
    with pytest.raises(ConfigurationError, match="the null value 'a,b' contains the column sep"):
        two_columns().set_null_value("a,b").build()
    with pytest.raises(ConfigurationError, match="single ASCII character"):
        two_columns().set_quote_char("«")
    with pytest.raises(ConfigurationError, match="set_any_property_name"):
        two_columns().set_any_property_name("rest")
    # Escaping quotes by quotes is what is done without an escape character.
    assert two_columns().set_escape_char('"').build().escape_char is None


def test_a_schema_does_not_change_with_its_builder() -> None:
    builder = two_columns()
    schema = builder.build()
    builder.add_string_column("more").set_column_separator("|")
    assert (schema.names, schema.column_separator) == (["id", "name"], ",")


def test_schemas_say_their_columns() -> None:
    schema = CsvSchema.builder().add_string_column("a").add_number_column("b").set_use_header()
    assert str(schema.build()) == "CsvSchema(a: String, b: Long; ',' between, with header)"
