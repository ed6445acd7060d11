"""Partitions and statistics that catalogs keep, under PyFlink's names.

What it is: the catalog in memory and that of files; what is said of partitions that are not there,
and of tables that are none, is as Flink's catalog in memory has it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import environment

from millstream.errors import CatalogError
from millstream.sql.catalog.file_catalog import FileCatalog
from millstream.table import DataTypes
from millstream.table.catalog import (
    Catalog,
    CatalogColumnStatistics,
    CatalogPartition,
    CatalogPartitionSpec,
    CatalogTable,
    CatalogTableStatistics,
    GenericInMemoryCatalog,
    ObjectPath,
    ResolvedSchema,
)

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment

P, N = ObjectPath("default", "p"), ObjectPath("default", "n")
Spec = CatalogPartitionSpec


def _schema() -> ResolvedSchema:
    kinds = {"v": DataTypes.INT(), "dt": DataTypes.STRING(), "h": DataTypes.INT()}
    return ResolvedSchema.physical(list(kinds), list(kinds.values()))


def _opened(kind: str, root: Path) -> Catalog:
    made = (
        GenericInMemoryCatalog("c") if kind == "memory" else FileCatalog("c", str(root / "catalog"))
    )
    made.open()
    return made


@pytest.fixture(params=["memory", "files"])
def catalog(request: pytest.FixtureRequest, tmp_path: Path) -> Catalog:
    made = _opened(request.param, tmp_path)
    options = {"connector": "filesystem", "format": "json", "path": str(tmp_path / "p")}
    for path, keys, chosen in (
        (P, ("dt", "h"), options),
        (ObjectPath("default", "k"), ("dt", "h"), {"connector": "kafka"}),
        (N, (), {"connector": "datagen"}),
    ):
        table = CatalogTable(schema=_schema(), options=chosen, partition_keys=keys)
        made.create_table(path, table, ignore_if_exists=False)
    return made


def test_a_spec_is_its_values() -> None:
    spec = Spec({"dt": "x", "h": "1"})
    assert str(spec) == "CatalogPartitionSpec{{dt=x, h=1}}"
    assert spec == Spec({"h": "1", "dt": "x"}) != Spec({"h": "1"})
    assert hash(spec) == hash(Spec({"h": "1", "dt": "x"}))
    assert spec.get_partition_spec() == {"dt": "x", "h": "1"}


@pytest.mark.parametrize("name", ["p", "k"])
def test_partitions_are_made_and_dropped(catalog: Catalog, tmp_path: Path, name: str) -> None:
    path, spec = ObjectPath("default", name), Spec({"h": "1", "dt": "a/b"})
    said = CatalogPartition.create_instance({"q": "w"}, "mine")
    catalog.create_partition(path, spec, said, ignore_if_exists=False)
    catalog.create_partition(path, spec, CatalogPartition(), ignore_if_exists=True)
    catalog.create_partition(path, Spec({"h": "2", "dt": "y"}), CatalogPartition(), True)
    assert (tmp_path / "p" / "dt=a%2Fb" / "h=1").is_dir() is (name == "p")
    assert set(catalog.list_partitions(path)) == {spec, Spec({"h": "2", "dt": "y"})}
    assert catalog.list_partitions(path, Spec({"dt": "a/b"})) == [spec]
    assert catalog.list_partitions(path, Spec({"zz": "x"})) == []
    found = catalog.get_partition(path, spec)
    assert found == said == found.copy()
    assert (found.get_properties(), found.get_comment()) == ({"q": "w"}, "mine")
    assert found.get_description() is found.get_detailed_description() is None
    catalog.alter_partition(path, spec, CatalogPartition(), ignore_if_not_exists=False)
    assert catalog.get_partition(path, spec).get_properties() == {}
    catalog.alter_partition_statistics(path, spec, CatalogTableStatistics(7), False)
    catalog.drop_partition(path, spec, ignore_if_not_exists=False)
    catalog.drop_partition(path, spec, ignore_if_not_exists=True)
    assert not catalog.partition_exists(path, spec)
    catalog.create_partition(path, spec, CatalogPartition(), ignore_if_exists=False)
    assert catalog.get_partition_statistics(path, spec) == CatalogTableStatistics()


def test_partitions_that_are_none(catalog: Catalog) -> None:
    full, part, said = Spec({"dt": "x", "h": "1"}), Spec({"dt": "x"}), CatalogPartition()
    for path, spec in ((P, full), (P, part), (N, full), (ObjectPath("no", "no"), full)):
        assert not catalog.partition_exists(path, spec)
    catalog.alter_partition(P, full, said, ignore_if_not_exists=True)
    catalog.create_partition(P, full, said, ignore_if_exists=False)
    other = Spec({"dt": "x", "h": "2"})
    calls: Any = [
        (lambda: catalog.list_partitions(N), r"default\.n in catalog c is not partitioned"),
        (lambda: catalog.list_partitions(ObjectPath("default", "q")), r"default\.q does not exist"),
        (lambda: catalog.get_partition(P, other), r"dt=x, h=2}} of table default\.p .*not exist"),
        (lambda: catalog.get_partition(P, part), r"{{dt=x}} of table .* does not exist"),
        (lambda: catalog.create_partition(P, full, said, False), "already exists"),
        (
            lambda: catalog.create_partition(P, part, said, True),
            r"does not match partition keys \[dt, h\]",
        ),
        (lambda: catalog.create_partition(N, full, said, True), "is not partitioned"),
        (lambda: catalog.alter_partition(P, other, said, False), "does not exist"),
        (lambda: catalog.drop_partition(P, other, False), "does not exist"),
        (lambda: catalog.get_partition_statistics(P, other), "does not exist"),
    ]
    for call, message in calls:
        with pytest.raises(CatalogError, match=message):
            call()


@pytest.mark.parametrize("value", ["../x", "..", ".", "/etc", "", "a\0b", "%2E%2E"])
def test_no_partition_is_outside_of_its_table(catalog: Catalog, tmp_path: Path, value: str) -> None:
    kept = tmp_path / "x" / "h=1"
    kept.mkdir(parents=True)
    spec = Spec({"dt": value, "h": "1"})
    catalog.create_partition(P, spec, CatalogPartition(), ignore_if_exists=False)
    assert catalog.list_partitions(P) == [spec]
    (made,) = (tmp_path / "p").iterdir()
    assert made.name.startswith("dt=")
    catalog.drop_partition(P, spec, ignore_if_not_exists=False)
    assert catalog.list_partitions(P) == []
    assert kept.is_dir()


def test_what_links_lead_to_is_not_deleted(catalog: Catalog, tmp_path: Path) -> None:
    elsewhere, base = tmp_path / "x" / "h=1", tmp_path / "p"
    elsewhere.mkdir(parents=True)
    (elsewhere / "data").touch()
    (base / "dt=a").mkdir(parents=True)
    (base / "dt=a" / "h=1").symlink_to(elsewhere)
    (base / "dt=b").symlink_to(elsewhere.parent)
    catalog.drop_partition(P, Spec({"dt": "a", "h": "1"}), ignore_if_not_exists=False)
    assert list((base / "dt=a").iterdir()) == []
    with pytest.raises(CatalogError, match=r"dt=b/h=1 is a link out of .*/p, to .*/x"):
        catalog.drop_partition(P, Spec({"dt": "b", "h": "1"}), ignore_if_not_exists=False)
    assert (elsewhere / "data").is_file()


def test_values_that_no_directory_can_have(catalog: Catalog) -> None:
    spec = Spec({"dt": "x" * 300, "h": "1"})
    assert not catalog.partition_exists(P, spec)
    with pytest.raises(CatalogError, match="cannot be made: File name too long"):
        catalog.create_partition(P, spec, CatalogPartition(), ignore_if_exists=False)
    wrong: Any = {"dt": None, "h": 1}
    with pytest.raises(CatalogError, match=r"of partition column 'dt' is a text.*it is None"):
        Spec(wrong)


def test_statistics_are_kept(catalog: Catalog) -> None:
    unknown = catalog.get_table_statistics(N)
    assert unknown.get_row_count() == unknown.get_field_count() == -1
    assert unknown.get_total_size() == unknown.get_raw_data_size() == -1
    assert unknown.get_properties() == {}
    rows = CatalogTableStatistics(10, 2, 300, 400, {"a": "b"})
    columns = CatalogColumnStatistics({"v": {"min": 1, "ndv": 5}}, {"x": "y"})
    spec = Spec({"dt": "x", "h": "1"})
    catalog.create_partition(P, spec, CatalogPartition(), ignore_if_exists=False)
    for path in (N, P):
        catalog.alter_table_statistics(path, rows, ignore_if_not_exists=False)
        catalog.alter_table_column_statistics(path, columns, ignore_if_not_exists=False)
        assert catalog.get_table_statistics(path) == rows.copy()
        assert catalog.get_table_column_statistics(path) == columns.copy()
    catalog.alter_partition_statistics(P, spec, rows, ignore_if_not_exists=False)
    catalog.alter_partition_column_statistics(P, spec, columns, ignore_if_not_exists=False)
    assert catalog.bulk_get_partition_statistics(P, [spec, spec]) == [rows, rows]
    assert catalog.bulk_get_partition_column_statistics(P, [spec]) == [columns]
    found = catalog.get_partition_column_statistics(P, spec)
    assert found.get_column_statistics_data() == {"v": {"min": 1, "ndv": 5}}
    assert found.get_properties() == {"x": "y"}
    missing = ObjectPath("default", "q")
    catalog.alter_table_statistics(missing, rows, ignore_if_not_exists=True)
    catalog.alter_partition_statistics(P, Spec({"dt": "z", "h": "1"}), rows, True)
    with pytest.raises(CatalogError, match=r"default\.q does not exist"):
        catalog.alter_table_statistics(missing, rows, ignore_if_not_exists=False)
    with pytest.raises(CatalogError, match="has no column 'zz'"):
        catalog.alter_table_column_statistics(
            N, CatalogColumnStatistics({"zz": {}}), ignore_if_not_exists=False
        )
    with pytest.raises(CatalogError, match=r"'v' have no 'mim'.*Did you mean 'min'"):
        CatalogColumnStatistics({"v": {"mim": 1}})


def test_facts_go_with_their_table(catalog: Catalog) -> None:
    table = catalog.get_table(N)
    catalog.alter_table_statistics(N, CatalogTableStatistics(10), ignore_if_not_exists=False)
    catalog.rename_table(N, "m", ignore_if_not_exists=False)
    assert catalog.get_table_statistics(ObjectPath("default", "m")).get_row_count() == 10
    catalog.create_table(N, table, ignore_if_exists=False)
    assert catalog.get_table_statistics(N).get_row_count() == -1
    catalog.drop_table(ObjectPath("default", "m"), ignore_if_not_exists=False)
    catalog.rename_table(N, "m", ignore_if_not_exists=False)
    assert catalog.get_table_statistics(ObjectPath("default", "m")).get_row_count() == -1


def test_later_sessions_find_facts_but_not_those_of_a_dropped_table(tmp_path: Path) -> None:
    first = _opened("files", tmp_path)
    table = CatalogTable(schema=_schema(), options={"connector": "x"}, partition_keys=("dt",))
    first.create_table(P, table, ignore_if_exists=False)
    spec = Spec({"dt": "x"})
    first.create_partition(P, spec, CatalogPartition(properties={"k": "v"}), ignore_if_exists=False)
    first.alter_partition_statistics(P, spec, CatalogTableStatistics(3), ignore_if_not_exists=False)
    second = _opened("files", tmp_path)
    assert second.get_partition(P, spec).get_properties() == {"k": "v"}
    assert second.get_partition_statistics(P, spec) == CatalogTableStatistics(3)
    (file,) = (tmp_path / "catalog").rglob("facts/*.json")
    kept = file.read_text()
    assert json.loads(kept)["kind"] == "facts"
    with pytest.raises(CatalogError, match="cannot be kept in files"):
        first.alter_table_column_statistics(
            P, CatalogColumnStatistics({"v": {"min": object()}}), ignore_if_not_exists=False
        )
    assert file.read_text() == kept
    second.drop_table(P, ignore_if_not_exists=False)
    file.write_text(kept)  # as if it had died before it was gone
    first.create_table(P, table, ignore_if_exists=False)
    assert first.list_partitions(P) == []


@pytest.fixture
def env(tmp_path: Path) -> TableEnvironment:
    made = environment()
    for word, name in (("", "p"), ("TEMPORARY", "t")):
        made.execute_sql(
            f"CREATE {word} TABLE {name} (v INT, a STRING, b INT) PARTITIONED BY (a, b) WITH ("
            f"'connector' = 'filesystem', 'path' = '{tmp_path / name}', 'format' = 'json')"
        )
    return made


def test_statements_and_the_catalog_agree(env: TableEnvironment, tmp_path: Path) -> None:
    catalog, path = env.get_catalog("default_catalog"), ObjectPath("default_database", "p")
    assert catalog is not None
    env.execute_sql("ALTER TABLE p ADD PARTITION (b = 1, a = 'x') WITH ('k' = 'v')")
    (tmp_path / "p" / "a=__DEFAULT_PARTITION__" / "b=2").mkdir(parents=True)
    specs = [Spec({"a": "__DEFAULT_PARTITION__", "b": "2"}), Spec({"a": "x", "b": "1"})]
    assert catalog.list_partitions(path) == specs
    assert catalog.get_partition(path, specs[1]).get_properties() == {"k": "v"}
    assert catalog.get_partition(path, specs[0]).get_properties() == {}
    shown: Any = list(env.execute_sql("SHOW PARTITIONS p PARTITION (a = 'x')").collect())
    assert [tuple(each) for each in shown] == [("a=x/b=1",)]
    env.execute_sql("ALTER TABLE p DROP PARTITION (b = 1, a = 'x')")
    assert catalog.list_partitions(path) == specs[:1]
    env.execute_sql("ALTER TABLE p ADD PARTITION (b = 1, a = 'x')")
    assert catalog.get_partition(path, specs[1]).get_properties() == {}


def test_temporary_tables_have_directories_alone(env: TableEnvironment) -> None:
    env.execute_sql("ALTER TABLE t ADD PARTITION (b = 1, a = 'x') PARTITION (b = 2, a = 'x')")
    env.execute_sql("ALTER TABLE t DROP PARTITION (b = 1, a = 'x')")
    shown: Any = list(env.execute_sql("SHOW PARTITIONS t PARTITION (a = 'x')").collect())
    assert [tuple(each) for each in shown] == [("a=x/b=2",)]
    with pytest.raises(Exception, match=r"'default_catalog\.default_database\.t' is temporary"):
        env.execute_sql("ALTER TABLE t ADD PARTITION (b = 3, a = 'x') WITH ('k' = 'v')")


def test_catalogs_that_keep_nothing_say_so(tmp_path: Path) -> None:
    class Plain(GenericInMemoryCatalog):
        facts_of = Catalog.facts_of
        change_facts = Catalog.change_facts

    catalog = Plain("c")
    options = {"connector": "filesystem", "path": str(tmp_path)}
    table = CatalogTable(schema=_schema(), options=options, partition_keys=("dt",))
    catalog.create_table(P, table, ignore_if_exists=False)
    catalog.create_partition(P, Spec({"dt": "x"}), CatalogPartition(), ignore_if_exists=False)
    assert catalog.list_partitions(P) == [Spec({"dt": "x"})]
    catalog.drop_partition(P, Spec({"dt": "x"}), ignore_if_not_exists=False)
    with pytest.raises(CatalogError, match="Catalog 'c' keeps neither statistics nor"):
        catalog.alter_table_statistics(P, CatalogTableStatistics(1), ignore_if_not_exists=False)
