"""The package of docs/how-to/extensions.md adds one extension of each kind."""

from __future__ import annotations

import re
import sys
import tomllib
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.environments import environments
from tests.support.query_running import changelog, environment, insert, materialised

from millstream.common import Configuration
from millstream.configuration.options import STATE_BACKEND, STATE_BACKENDS
from millstream.configuration.state_backends import state_backend_of
from millstream.contracts.metrics import METRIC_REPORTERS
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ConfigurationError, ValidationError
from millstream.sql.catalog.connectors import FACTORIES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "extensions.md"


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Install a package, as pip does, into a directory that is searched."""
    before = set(sys.modules)

    def install(
        name: str, entry_points: dict[str, dict[str, str]], files: dict[str, str] | None = None
    ) -> None:
        site = tmp_path / f"site-{name}"
        metadata = site / f"{name}-1.0.dist-info"
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [
            "\n".join([f"[{group}]", *(f"{each} = {at}" for each, at in found.items())])
            for group, found in entry_points.items()
        ]
        (metadata / "entry_points.txt").write_text("\n\n".join(lines) + "\n")
        for file, content in (files or {}).items():
            (site / file).parent.mkdir(exist_ok=True)
            (site / file).write_text(content)
        monkeypatch.syspath_prepend(site)

    yield install
    for each in set(sys.modules) - before:
        if each.partition(".")[0] in {"pipes", "broken"}:
            del sys.modules[each]


@pytest.fixture
def pipes(install: Callable[..., None]) -> None:
    blocks = dict(re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", PAGE.read_text(), re.DOTALL))
    project = tomllib.loads(blocks.pop("pyproject.toml"))["project"]
    assert len(blocks) == len(project["entry-points"]) == 5
    install(project["name"], project["entry-points"], {**blocks, "pipes/__init__.py": ""})


@pytest.mark.both_engines
@pytest.mark.usefixtures("pipes")
def test_a_connector(tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql("CREATE TABLE s (n BIGINT) WITH ('connector' = 'count', 'to' = '4')")
    query = "SELECT n * 2 FROM s WHERE n > 0"
    assert materialised(changelog(env, query, tmp_path)) == Counter([(2,), (4,), (6,)])
    out = tmp_path / "out"
    env.execute_sql(f"CREATE TABLE d (n BIGINT) WITH ('connector' = 'count', 'path' = '{out}')")
    insert(env, "INSERT INTO d SELECT n FROM s")
    lines = [line for file in out.rglob("*") if file.is_file() for line in file.read_text().split()]
    assert len(lines) == 4
    env.execute_sql("CREATE TABLE w (n BIGINT) WITH ('connector' = 'count', 'too' = '4')")
    with pytest.raises(ValidationError, match=r"connector 'count' .*'too'.*Did you mean 'to'"):
        env.sql_query("SELECT * FROM w")


@pytest.mark.usefixtures("pipes")
def test_a_format(tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql(
        "CREATE TABLE t (a STRING, b STRING) WITH ('connector' = 'filesystem', "
        f"'path' = '{tmp_path}/data', 'format' = 'pipes', 'pipes.separator' = '/')"
    )
    insert(env, "INSERT INTO t VALUES ('a', '1'), ('b', '2')")
    texts = [each.read_text() for each in (tmp_path / "data").glob("*.txt")]
    assert sorted("".join(texts).split()) == ["a/1", "b/2"]
    rows = changelog(env, "SELECT b, a FROM t", tmp_path)
    assert materialised(rows) == Counter([("1", "a"), ("2", "b")])


@pytest.mark.usefixtures("pipes")
def test_a_catalog() -> None:
    env = environment(1)
    env.execute_sql("CREATE CATALOG c WITH ('type' = 'prepared', 'database' = 'sales')")
    env.execute_sql("USE CATALOG c")
    assert "sales" in env.list_databases()
    rows: list[Any] = list(env.execute_sql("DESCRIBE CATALOG c").collect())
    described = [tuple(row) for row in rows]
    assert ("type", "prepared") in described
    env.execute_sql("ALTER CATALOG c SET ('database' = 'stock')")
    assert "stock" in env.list_databases()
    with pytest.raises(ValidationError, match="needs the option 'database'"):
        env.execute_sql("CREATE CATALOG d WITH ('type' = 'prepared')")
    with pytest.raises(ValidationError, match=r"no option 'databse'\.\s+Did you mean 'database'"):
        env.execute_sql("CREATE CATALOG d WITH ('type' = 'prepared', 'databse' = 'a')")


@pytest.mark.usefixtures("pipes")
def test_a_state_backend_opens_stores_and_reads_its_snapshots_again(tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql("CREATE TABLE s (n BIGINT) WITH ('connector' = 'count', 'to' = '40')")
    query = "SELECT n / 10, COUNT(*) FROM s GROUP BY n / 10"
    rows = changelog(env, query, tmp_path, limit=7, state_backend="counted")
    assert materialised(rows) == Counter([(each, 10) for each in range(4)])
    opened = sys.modules["pipes.backend"].opened
    assert opened[0] is None
    assert "counted" in opened
    configuration = Configuration()
    configuration.set_string(STATE_BACKEND.key, "counted")
    backend = state_backend_of(configuration)
    assert str(backend) == "counted"
    again = Configuration()
    backend.configure(again)
    assert again.get(STATE_BACKEND) == "counted"
    with pytest.raises(ConfigurationError, match=r"must be one of rocksdb, hashmap, counted$"):
        configuration.set_string(STATE_BACKEND.key, "hasmap")


@pytest.mark.usefixtures("pipes")
def test_a_metric_reporter(tmp_path: Path) -> None:
    assert "lines" in METRIC_REPORTERS
    options = {
        "execution.target": "local",
        "metrics.reporter.mine.factory.class": "lines",
        "metrics.reporter.mine.path": str(tmp_path / "lines"),
        "metrics.scope.operator": "<job_name>.<operator_name>.<subtask_index>",
    }
    env = environments(tmp_path, {})(1, options)
    env.from_sequence(1, 3).name("numbers").sink_to(DiscardingSink()).name("nowhere")
    env.execute("a job")
    found = dict(line.rsplit(" ", 1) for line in (tmp_path / "lines").read_text().splitlines())
    assert found["a job.Source: numbers.0.numRecordsOut"] == "3"
    assert found["a job.nowhere: Writer.0.numRecordsIn"] == "3"


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        ("missing.module", "cannot be loaded: ModuleNotFoundError: No module named 'missing'"),
        ("broken.connector", "cannot be loaded: ZeroDivisionError: division by zero"),
        ("broken.plain:nothing", "cannot be loaded: AttributeError"),
        ("not a module!", "cannot be loaded"),
        ("broken.plain", "is not a connector: it has no OPTIONS, sink"),
    ],
)
def test_broken_extensions_are_reported_by_package(
    install: Callable[..., None], at: str, reason: str
) -> None:
    files = {
        "broken/__init__.py": "",
        "broken/connector.py": "1 / 0",
        "broken/plain.py": "def source(context): ...",
    }
    install("broken", {"millstream.connectors": {"bad": at}}, files)
    env = environment(1)
    env.execute_sql("CREATE TABLE t (n BIGINT) WITH ('connector' = 'bad')")
    with pytest.raises(ValidationError) as caught:
        env.sql_query("SELECT * FROM t")
    where = f"connector 'bad' of package 'broken' 1.0 (millstream.connectors: {at})"
    assert f": {where} {reason}" in str(caught.value)
    # Others are not disturbed.
    env.execute_sql("CREATE TABLE g (n BIGINT) WITH ('connector' = 'datagen')")
    env.sql_query("SELECT * FROM g")


def test_a_name_that_is_registered_twice(install: Callable[..., None]) -> None:
    install("one", {"millstream.connectors": {"both": "one", "print": "one"}})
    install("two", {"millstream.connectors": {"both": "two", "only": "two"}})
    env = environment(1)
    for name, makers in (
        ("both", "package 'one' 1.0 and package 'two' 1.0"),
        ("print", "Millstream itself and package 'one' 1.0"),
    ):
        env.execute_sql(f"CREATE TABLE {name}_t (n BIGINT) WITH ('connector' = '{name}')")
        with pytest.raises(ValidationError) as caught:
            env.sql_query(f"SELECT * FROM {name}_t")
        assert f"connector '{name}' is registered 2 times, by {makers}" in str(caught.value)
    assert "only" in FACTORIES
    assert list(FACTORIES)[:2] == ["filesystem", "datagen"]


def test_what_is_built_in_can_be_loaded() -> None:
    for extensions in (FACTORIES, STATE_BACKENDS, METRIC_REPORTERS):
        assert all(extensions[name] for name in extensions)
    with pytest.raises(ConfigurationError, match="no connector 'nothing'; there are blackhole, "):
        FACTORIES["nothing"]
