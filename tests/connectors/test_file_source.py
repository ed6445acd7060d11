"""The file source: every format, cut anywhere, against other readers and malformed input."""

from __future__ import annotations

import csv
import gzip
import itertools
import json
from typing import TYPE_CHECKING, cast

import duckdb
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.examples import examples

from millstream.connectors.files.source import FileSource
from millstream.connectors.formats.csv_format import CsvFormat
from millstream.contracts.source import Boundedness
from millstream.datastream.connectors.file_system import StreamFormat
from millstream.errors import ConfigurationError, MalformedRecordError, SourceError
from millstream.testing.conformance import check_source, read_records, read_split
from millstream.types.time import Duration
from millstream.types.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.source import Source

ROWS = 5_000
SCHEMA = Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()])


def read_all(source: Source) -> list[object]:
    records: list[object] = []
    for split in source.discover(frozenset()):
        records += read_records(source, split, 0, source.end_offset(split))
    return records


def plain(records: list[object]) -> list[tuple[object, ...]]:
    return [tuple(cast("list[object]", record)) for record in records]


def dead_letters(source: Source) -> list[tuple[str, str, str]]:
    return [
        letter
        for split in source.discover(frozenset())
        for batch in read_split(source, split, 0, source.end_offset(split))
        for letter in batch.dead_letters
    ]


def frame() -> pd.DataFrame:
    numbers = np.random.default_rng(1)
    return pd.DataFrame(
        {
            "key": numbers.integers(0, 50, ROWS),
            "value": numbers.normal(size=ROWS).round(6),
            "text": [f'räksmörgås {i}, "quoted"' for i in range(ROWS)],
            "flag": numbers.integers(0, 2, ROWS).astype(bool),
        }
    )


# -- against other readers -----------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["csv", "json_lines", "parquet"])
def test_oracle_reads_what_duckdb_reads(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"data.{kind}"
    data = frame()
    if kind == "csv":
        data.to_csv(path, index=False)
        relation = duckdb.read_csv(str(path))
    elif kind == "json_lines":
        data.to_json(path, orient="records", lines=True, force_ascii=False)
        relation = duckdb.read_json(str(path))
    else:
        data.to_parquet(path, row_group_size=700)
        relation = duckdb.read_parquet(str(path))
    source: FileSource = getattr(FileSource, kind)(str(path))
    assert plain(read_all(source)) == relation.fetchall()
    check_source(source, rounds=2)


def test_oracle_csv_of_python(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    data = frame()
    data.to_csv(path, index=False, lineterminator="\r\n")
    with path.open(newline="") as stream:
        expected = [tuple(row) for row in csv.reader(stream)][1:]
    names = list(data.columns)
    source = FileSource.csv(str(path), schema=Types.ROW_NAMED(names, [Types.STRING()] * 4))
    assert plain(read_all(source)) == expected


def test_text_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("one\r\n\nträ\nlast".encode())
    source = FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(path)).build()
    assert read_all(source) == ["one", "", "trä", "last"]
    check_source(source)


def test_text_in_another_charset(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("blåbär\nöl\n".encode("latin-1"))
    assert read_all(FileSource.text(str(path), charset_name="latin-1")) == ["blåbär", "öl"]
    with pytest.raises(ConfigurationError, match="UTF-8"):
        FileSource.text(str(path), charset_name="utf-16")


def test_compressed_files_are_read_as_a_whole(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    rows = "".join(f"{i},n{i}\n" for i in range(30_000))
    path.write_bytes(gzip.compress(f"id,name\n{rows}".encode(), 1))
    source = FileSource.csv(str(path))
    assert plain(read_all(source)) == [(i, f"n{i}") for i in range(30_000)]
    check_source(source, rounds=1)


# -- cuts ----------------------------------------------------------------------------------------

TEXT = st.text(st.sampled_from('ab"\n,é '), max_size=6)


def write_csv(path: Path, rows: list[tuple[int, str]]) -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(["id", "name"])
        writer.writerows(rows)


ANY_PATH = examples(40)


@given(rows=st.lists(st.tuples(st.integers(0, 9), TEXT), min_size=1), seed=st.integers(0, 99))
@ANY_PATH
def test_oracle_csv_records_that_span_lines(
    tmp_path: Path, rows: list[tuple[int, str]], seed: int
) -> None:
    path = tmp_path / "a.csv"
    write_csv(path, rows)
    source = FileSource.csv(str(path), schema=SCHEMA, multi_line=True)
    assert plain(read_all(source)) == rows
    check_source(source, seed=seed, rounds=3)


@given(
    rows=st.lists(st.tuples(st.integers(0, 9), TEXT), min_size=1),
    a=st.integers(0, 200),
    b=st.integers(0, 200),
)
@ANY_PATH
@pytest.mark.parametrize("kind", ["csv", "json_lines", "text"])
def test_any_byte_is_a_good_cut_of_plain_lines(
    tmp_path: Path, kind: str, rows: list[tuple[int, str]], a: int, b: int
) -> None:
    path = tmp_path / "a.data"
    rows = [(number, text.replace("\n", "").replace('"', "")) for number, text in rows]
    if kind == "csv":
        write_csv(path, rows)
        source = FileSource.csv(str(path), schema=SCHEMA)
    elif kind == "json_lines":
        lines = [json.dumps({"id": number, "name": text}) for number, text in rows]
        path.write_text("\n".join(lines))
        source = FileSource.json_lines(str(path), schema=SCHEMA)
    else:
        path.write_text("\n".join(text for _, text in rows), encoding="utf-8")
        source = FileSource.text(str(path))
    (split,) = source.discover(frozenset())
    end = source.end_offset(split)
    a, b = sorted((min(a, end), min(b, end)))
    parts = [
        record
        for start, stop in ((0, a), (a, b), (b, end))
        for record in read_records(source, split, start, stop)
    ]
    assert parts == read_records(source, split, 0, end)
    if kind != "text":
        assert plain(parts) == rows


@given(cuts=st.lists(st.integers(0, 1000), max_size=4), group=st.integers(1, 300))
@ANY_PATH
def test_any_row_is_a_good_cut_of_parquet(tmp_path: Path, cuts: list[int], group: int) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(1000)}), path, row_group_size=group)
    source = FileSource.parquet(str(path))
    (split,) = source.discover(frozenset())
    bounds = [0, *sorted(cuts), 1000]
    parts = [
        record
        for start, stop in itertools.pairwise(bounds)
        for record in read_records(source, split, start, stop)
    ]
    assert plain(parts) == [(i,) for i in range(1000)]


def test_parquet_cuts_prefer_row_group_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": range(1000)}), path, row_group_size=300)
    source = FileSource.parquet(str(path))
    (split,) = source.discover(frozenset())
    assert source.next_stop(split, 0, 250, 1000) == 300
    assert source.next_stop(split, 0, 10, 1000) == 10
    assert source.next_stop(split, 300, 5000, 1000) == 1000


def test_records_that_span_lines_are_detected(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    rows = [(i, f"two\nlines {i}") for i in range(500)]
    write_csv(path, rows)
    source = FileSource.csv(str(path))
    assert isinstance(source.file_format, CsvFormat)
    assert source.file_format.multi_line
    assert plain(read_all(source)) == rows
    check_source(source)


def test_stray_quotes_are_not_taken_for_records_that_span_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text('id,name\n1,5" pipe\n2,x\n3,7" pipe\n')
    source = FileSource.csv(str(path))
    assert plain(read_all(source)) == [(1, '5" pipe'), (2, "x"), (3, '7" pipe')]
    check_source(source)


# -- malformed input -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("x,name", "int64"),
        ("7", "columns"),
        ("7,a,b", "columns"),
        ('7,"open', "not closed"),
    ],
)
def test_a_malformed_csv_line_names_file_and_line(tmp_path: Path, line: str, reason: str) -> None:
    path = tmp_path / "bad.csv"
    good = [f"{i},n{i}" for i in range(3000)]
    path.write_text("\n".join(["id,name", *good[:1500], line, *good[1500:]]) + "\n")
    with pytest.raises(MalformedRecordError) as caught:
        read_all(FileSource.csv(str(path), schema=SCHEMA))
    assert f"{path}:1502: malformed record" in str(caught.value)
    assert reason in str(caught.value)
    source = FileSource.csv(str(path), schema=SCHEMA, malformed="dead-letter")
    records = read_all(source)
    assert plain(records[:-1]) == [(i, f"n{i}") for i in range(3000)]
    ((place, raw, why),) = dead_letters(source)
    assert (place, raw) == (f"{path}:1502", line)
    assert reason in why
    check_source(source, rounds=2)


@pytest.mark.parametrize(
    "line", [b'{"id": 1', b'{"id": "x"}', b"[1]", b'{"id":1}{"id":2}', b'{"name": "\xff"}', b"word"]
)
def test_a_malformed_json_line_names_file_and_line(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "bad.jsonl"
    good = [b'{"id": %d, "name": "n", "other": [1]}' % i for i in range(100)]
    path.write_bytes(b"\n".join([*good[:50], line, b"", *good[50:]]))
    with pytest.raises(MalformedRecordError, match=r"bad\.jsonl:51: malformed record"):
        read_all(FileSource.json_lines(str(path), schema=SCHEMA))
    source = FileSource.json_lines(str(path), schema=SCHEMA, malformed="dead-letter")
    assert plain(read_all(source)[:-1]) == [(i, "n") for i in range(100)]
    assert [letter[0] for letter in dead_letters(source)] == [f"{path}:51"]
    check_source(source, rounds=2)


def test_a_file_of_nothing_but_malformed_lines(tmp_path: Path) -> None:
    path = tmp_path / "bad.csv"
    path.write_text("id,name\n" + "x,y\n" * 300)
    source = FileSource.csv(str(path), schema=SCHEMA, malformed="dead-letter")
    assert len(dead_letters(source)) == 300


def test_invalid_utf8_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\xff\xfe\n")
    with pytest.raises(MalformedRecordError, match=r"a\.txt:2"):
        read_all(FileSource.text(str(path)))


def test_blank_lines_and_a_byte_order_mark_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"\xef\xbb\xbfid,name\r\n\r\n1,a\r\n\r\n\r\n2,b")
    source = FileSource.csv(str(path))
    assert plain(read_all(source)) == [(1, "a"), (2, "b")]
    check_source(source)


def test_columns_go_by_the_header_of_each_file(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,name\n1,a\n")
    (tmp_path / "b.csv").write_text("extra,name,id\n0,b,2\n")
    assert plain(read_all(FileSource.csv(str(tmp_path)))) == [(1, "a"), (2, "b")]
    (tmp_path / "c.csv").write_text("id\n3\n")
    with pytest.raises(SourceError, match=r"c\.csv:1: the header lacks name"):
        read_all(FileSource.csv(str(tmp_path)))


def test_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("1;x\n2;\n")
    source = FileSource.csv(str(tmp_path), header=False, delimiter=";", null_values=[""])  # type: ignore[arg-type]
    assert plain(read_all(source)) == [(1, "x"), (2, None)]
    assert source.produced_type.arrow_schema is not None
    assert source.produced_type.arrow_schema.names == ["f0", "f1"]


# -- files and directories -----------------------------------------------------------------------


def test_directories_are_searched_without_hidden_files(tmp_path: Path) -> None:
    for name in (
        "b/2.txt",
        "a/1.txt",
        ".hidden/x.txt",
        "_tmp/x.txt",
        "a/_SUCCESS",
        "a/.crc",
        "c.txt",
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"{name}\n")
    source = FileSource.text(str(tmp_path))
    assert read_all(source) == ["a/1.txt", "b/2.txt", "c.txt"]
    assert read_all(FileSource.text(tmp_path.as_uri())) == ["a/1.txt", "b/2.txt", "c.txt"]


def test_missing_paths_are_reported_before_anything_is_read(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere")
    with pytest.raises(SourceError, match="nowhere"):
        FileSource.csv(missing)
    source = FileSource.text(missing)
    with pytest.raises(SourceError, match="nowhere"):
        source.validate()


def test_monitoring_finds_new_files_only(tmp_path: Path) -> None:
    (tmp_path / "1.txt").write_text("one\n")
    source = (
        FileSource.for_record_stream_format(StreamFormat.text_line_format(), str(tmp_path))
        .monitor_continuously(Duration.of_millis(0))
        .build()
    )
    assert source.boundedness is Boundedness.CONTINUOUS_UNBOUNDED
    first = source.discover(frozenset())
    (tmp_path / "0.txt").write_text("zero\n")
    second = source.discover(frozenset(split.id for split in first))
    assert [split.id for split in second] == [str(tmp_path / "0.txt")]
    assert source.is_final(second[0])


def test_monitoring_tells_its_interval(tmp_path: Path) -> None:
    source = FileSource.text(str(tmp_path), discovery_interval=Duration.of_hours(1))
    assert source.discovery_interval == 3_600_000
    assert FileSource.text(str(tmp_path)).discovery_interval == 0


def test_a_discovered_file_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "1.txt"
    path.write_text("one\n")
    source = FileSource.text(str(tmp_path))
    (split,) = source.discover(frozenset())
    path.write_text("one\ntwo\n")
    assert source.end_offset(split) == 4
    assert read_records(source, split, 0, 4) == ["one"]
    path.write_text("o")
    with pytest.raises(SourceError, match="shorter"):
        read_records(source, split, 0, 4)


def test_a_file_that_is_not_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("no")
    with pytest.raises(SourceError, match=r"a\.parquet"):
        FileSource.parquet(str(path))


def test_parquet_columns_by_schema(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"name": pa.array(["x"]).dictionary_encode(), "id": pa.array([1], pa.int32())})
    pq.write_table(table, path)
    assert plain(read_all(FileSource.parquet(str(path), schema=SCHEMA))) == [(1, "x")]
    assert plain(read_all(FileSource.parquet(str(path)))) == [("x", 1)]
    missing = Types.ROW_NAMED(["nope"], [Types.LONG()])
    with pytest.raises(SourceError, match="lacks the columns nope"):
        read_all(FileSource.parquet(str(path), schema=missing))
