"""Sources of lakehouse tables: versions, further versions, changed columns, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import deltalake
import pyarrow as pa
import pytest
from tests.databases.targets import TARGETS, IcebergTarget, LakeTarget
from tests.databases.test_lakehouse_sinks import LAKES, commit, written

from millstream.common import Duration
from millstream.connectors.lakehouse.delta import DeltaSource
from millstream.connectors.lakehouse.iceberg import IcebergSource
from millstream.errors import SourceError
from millstream.testing.conformance import check_cursors, check_source, read_records

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.connectors.lakehouse.source import LakehouseSource
    from millstream.contracts.source import Split


@pytest.fixture(params=LAKES)
def target(request: pytest.FixtureRequest, tmp_path: Path) -> LakeTarget:
    made = TARGETS[request.param](str(tmp_path / "t"))
    assert isinstance(made, LakeTarget)
    made.create()
    return made


def source(target: LakeTarget, **more: Any) -> LakehouseSource:
    if isinstance(target, IcebergTarget):
        return IcebergSource("sales.results", target.catalog, **more)
    return DeltaSource(target.directory, **more)


def append(target: LakeTarget, keys: str, epoch: int) -> None:
    sink = target.sink()
    commit(sink, written(sink, keys, epoch), epoch)


def read(made: LakehouseSource, splits: list[Split]) -> list[Any]:
    return [
        record
        for split in splits
        for record in read_records(made, split, 0, made.end_offset(split))
    ]


def keys(made: LakehouseSource, splits: list[Split]) -> str:
    return "".join(sorted(str(row.key) for row in read(made, splits)))


def test_keeps_the_contract(target: LakeTarget) -> None:
    for epoch in (1, 2):
        append(target, "abcab", epoch)
    made = source(target)
    made.validate()
    check_source(made, rounds=2)
    check_cursors(made)
    rows = {(row.key, row.n, row.id) for row in read(made, made.discover({}))}
    assert rows == set(target.read())


def test_a_version_stays_as_it_is(target: LakeTarget) -> None:
    append(target, "ab", 1)
    made = source(target)
    version = made.table.reader().newest()
    append(target, "c", 2)
    assert keys(made, source(target, version=version).discover({})) == "ab"
    splits = made.discover({})
    assert keys(made, splits) == "abc"
    append(target, "d", 3)
    assert made.discover({split.id: 0 for split in splits}) == []


def test_each_further_version_is_read_once(target: LakeTarget) -> None:
    """Also after a restart, which knows only which splits there were."""
    append(target, "ab", 1)
    options = {"discovery_interval": Duration.of_millis(10)}
    made = source(target, **options)
    known: dict[str, int] = {}
    found = []
    for epoch, letters in enumerate(["", "cd", "", "e"], 2):
        if letters:
            append(target, letters, 2 * epoch)
            append(target, letters.upper(), 2 * epoch + 1)
        splits = source(target, **options).discover(known)
        known |= {split.id: 0 for split in splits}
        found.append(keys(made, splits))
    assert found == ["ab", "CDcd", "", "Ee"]


def test_a_table_without_a_version_is_waited_for(tmp_path: Path) -> None:
    target = TARGETS["iceberg"](str(tmp_path / "t"))
    assert isinstance(target, LakeTarget)
    target.create()
    made = source(target, discovery_interval=Duration.of_millis(10))
    assert made.discover({}) == []
    append(target, "a", 1)
    assert keys(made, made.discover({})) == "a"


def test_a_compaction_brings_nothing_new(tmp_path: Path) -> None:
    target = TARGETS["delta"](str(tmp_path / "t"))
    assert isinstance(target, LakeTarget)
    target.create()
    append(target, "a", 1)
    append(target, "b", 2)
    made = source(target, discovery_interval=Duration.of_millis(10))
    known = {split.id: 0 for split in made.discover({})}
    deltalake.DeltaTable(str(target.directory)).optimize.compact()
    append(target, "c", 3)
    assert keys(made, made.discover(known)) == "c"


def test_deleted_rows_are_refused_where_versions_follow(target: LakeTarget) -> None:
    append(target, "ab", 1)
    made = source(target, discovery_interval=Duration.of_millis(10))
    known = {split.id: 0 for split in made.discover({})}
    opened: Any = target._open()  # type: ignore[attr-defined]
    opened.delete("key = 'a'")
    with pytest.raises(SourceError, match="has changed or deleted rows"):
        made.discover(known)
    bounded = source(target)
    assert keys(bounded, bounded.discover({})) == "b"


def test_columns_that_were_added_and_renamed(tmp_path: Path) -> None:
    target = TARGETS["iceberg"](str(tmp_path / "t"))
    assert isinstance(target, LakeTarget)
    target.create()
    append(target, "a", 1)
    opened: Any = target._open()  # type: ignore[attr-defined]
    from pyiceberg.types import StringType

    with opened.update_schema() as update:
        update.rename_column("id", "number")
        update.add_column("note", StringType())
    made = source(target)
    (row,) = read(made, made.discover({}))
    assert row.as_dict() == {"key": "a", "n": 0, "number": 1, "note": None}


def test_columns_that_a_file_lacks(tmp_path: Path) -> None:
    target = TARGETS["delta"](str(tmp_path / "t"))
    assert isinstance(target, LakeTarget)
    target.create()
    append(target, "a", 1)
    more = pa.table({"key": ["b"], "n": [1], "id": [2], "note": ["new"]})
    deltalake.write_deltalake(str(target.directory), more, mode="append", schema_mode="merge")
    made = source(target)
    found = sorted((row.key, row.note) for row in read(made, made.discover({})))
    assert found == [("a", None), ("b", "new")]


def test_what_cannot_be_read(target: LakeTarget, tmp_path: Path) -> None:
    wrong = source(target, schema=pa.schema([("word", pa.string())]))
    with pytest.raises(SourceError, match="has no column 'word'"):
        wrong.validate()
    with pytest.raises(SourceError, match="there is no Delta table"):
        DeltaSource(tmp_path / "none").validate()
