"""Partitions of files: INSERT OVERWRITE, PARTITION (...), their commit, pruning, SHOW and ALTER.

What it is: tables in directories; what readers see is compared with plain Python, also after the
driver dies at each step of a commit.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment

from millstream import crash_points
from millstream.connectors.files.partitions import PartitionTime
from millstream.errors import MillstreamError, ValidationError
from millstream.sql.parser.parser import parse_statement
from millstream.sql.statements import plans
from millstream.testing import MiniCluster

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.table import TableEnvironment


def _graph(env: TableEnvironment, text: str) -> Any:
    statement: Any = parse_statement(text)
    session = env.session
    return session.program.graph_of(session.sinks([session.target(statement, text)]), "test")


def _run(env: TableEnvironment, text: str, state: Path | None = None, **options: Any) -> None:
    MiniCluster(_graph(env, text), state, **options).run()


def _table(env: TableEnvironment, name: str, columns: str, path: Path, more: str = "") -> None:
    env.execute_sql(
        f"CREATE TABLE {name} ({columns}) {more.partition('|')[0]} WITH ("
        f"'connector' = 'filesystem', 'path' = '{path}', 'format' = 'json' "
        f"{more.partition('|')[2]})"
    )


def _rows(path: Path) -> dict[str, list[Any]]:
    """The rows that a reader sees, by directory."""
    found: dict[str, list[Any]] = {}
    for each in sorted(path.rglob("*")):
        below = each.relative_to(path)
        if each.is_file() and not any(part.startswith((".", "_")) for part in below.parts):
            lines = map(json.loads, each.read_text().splitlines())
            found.setdefault(str(below.parent), []).extend(tuple(row.values()) for row in lines)
    return {place: sorted(rows) for place, rows in found.items()}


# -- INSERT ... PARTITION and INSERT OVERWRITE ---------------------------------------------------


@pytest.fixture
def env(tmp_path: Path) -> TableEnvironment:
    made = environment()
    _table(made, "p", "v INT, a STRING, b INT", tmp_path / "p", "PARTITIONED BY (a, b)")
    _table(made, "f", "v INT, a STRING", tmp_path / "f")
    return made


@pytest.mark.both_engines
def test_insert_into_a_partition_adds_rows(env: TableEnvironment, tmp_path: Path) -> None:
    _run(env, "INSERT INTO p PARTITION (b = 7, a = 'x') VALUES (1), (2)")
    _run(env, "INSERT INTO p PARTITION (a = 'x') VALUES (3, 7), (4, 8)")
    _run(env, "INSERT INTO p PARTITION (b = '9') (a, v) VALUES ('y', 5)")
    _run(env, "INSERT INTO p PARTITION (a = 'z/1') (b) VALUES (1)")
    assert _rows(tmp_path / "p") == {
        "a=x/b=7": [(1,), (2,), (3,)],
        "a=x/b=8": [(4,)],
        "a=y/b=9": [(5,)],
        "a=z%2F1/b=1": [(None,)],
    }


@pytest.mark.both_engines
def test_overwrite_replaces_partitions(env: TableEnvironment, tmp_path: Path) -> None:
    _run(env, "INSERT INTO p VALUES (1, 'x', 1), (2, 'x', 2), (3, 'y', 1)")
    _run(env, "INSERT OVERWRITE p VALUES (4, 'x', 1), (5, 'z', 1)")
    others = {"a=x/b=2": [(2,)], "a=y/b=1": [(3,)]}
    assert _rows(tmp_path / "p") == {"a=x/b=1": [(4,)], "a=z/b=1": [(5,)], **others}
    _run(env, "INSERT OVERWRITE p PARTITION (a = 'x') VALUES (6, 2)")
    assert _rows(tmp_path / "p")["a=x/b=2"] == [(6,)]
    assert _rows(tmp_path / "p")["a=x/b=1"] == [(4,)]
    empty = "SELECT * FROM (VALUES (1)) AS t(v) WHERE v > 1"
    _run(env, f"INSERT OVERWRITE p PARTITION (a = 'x', b = 1) {empty}")
    assert "a=x/b=1" not in _rows(tmp_path / "p")
    _run(env, "INSERT OVERWRITE p SELECT v, 'y', 1 FROM (VALUES (1)) AS t(v) WHERE v > 1")
    assert _rows(tmp_path / "p")["a=y/b=1"] == [(3,)]


@pytest.mark.both_engines
def test_overwrite_replaces_a_table_that_it_reads(env: TableEnvironment, tmp_path: Path) -> None:
    _run(env, "INSERT INTO f VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    _run(env, "INSERT OVERWRITE f SELECT v + 1, a FROM f WHERE v > 1", limits=iter([1] * 50))
    assert _rows(tmp_path / "f") == {".": [(3, "b"), (4, "c")]}
    _run(env, "INSERT OVERWRITE f SELECT v, a FROM f WHERE v > 9")
    assert _rows(tmp_path / "f") == {}


@pytest.mark.both_engines
def test_overwrite_by_a_table_without_files(env: TableEnvironment, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    _table(env, "e", "v INT, a STRING", tmp_path / "empty")
    _run(env, "INSERT INTO f VALUES (1, 'a')")
    _run(env, "INSERT OVERWRITE f SELECT v, a FROM e")
    assert _rows(tmp_path / "f") == {}


def test_one_job_does_not_replace_what_it_writes_itself(env: TableEnvironment) -> None:
    made = env.create_statement_set()
    made.add_insert_sql("INSERT OVERWRITE f VALUES (1, 'a')")
    made.add_insert_sql("INSERT INTO f VALUES (2, 'b')")
    with pytest.raises(ValidationError, match="would delete what another INSERT"):
        made.explain()


def test_nothing_is_replaced_before_the_end(env: TableEnvironment, tmp_path: Path) -> None:
    _run(env, "INSERT INTO f VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    graph = _graph(env, "INSERT OVERWRITE f SELECT v * 2, a FROM f")
    state = tmp_path / "state"
    for _ in range(2):
        MiniCluster(graph, state, limits=iter([1] * 50), pipelined=False).run(1)
        assert _rows(tmp_path / "f") == {".": [(1, "a"), (2, "b"), (3, "c")]}
    MiniCluster(graph, state, limits=iter([1] * 50), pipelined=False).run()
    assert _rows(tmp_path / "f") == {".": [(2, "a"), (4, "b"), (6, "c")]}
    MiniCluster(graph, state, pipelined=False).run()
    assert _rows(tmp_path / "f") == {".": [(2, "a"), (4, "b"), (6, "c")]}


class _Died(BaseException):
    """The driver died."""


def _dies_at(monkeypatch: pytest.MonkeyPatch, point: str, at: int = 1) -> None:
    """The driver dies once, at the n-th passing of a point."""
    passed = 0

    def pass_point(name: str) -> None:
        nonlocal passed
        passed += name == point
        if name == point and passed == at:
            raise _Died

    for module in ("partitions", "pending_files"):
        monkeypatch.setattr(f"millstream.connectors.files.{module}.crash_point", pass_point)


_POINTS = sorted(crash_points.points_of("partition commit", "overwrite", "file sink"))


@pytest.mark.parametrize("point", _POINTS)
def test_an_overwrite_that_dies_is_done_by_the_next_run(
    point: str, env: TableEnvironment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if point.startswith("partition"):
        env.execute_sql("ALTER TABLE p SET ('sink.partition-commit.policy.kind' = 'success-file')")
    _run(env, "INSERT INTO p VALUES (1, 'x', 1), (2, 'x', 2), (3, 'y', 1)")
    text = "INSERT OVERWRITE p VALUES (4, 'x', 1), (5, 'x', 1), (6, 'x', 2), (7, 'z', 3)"
    graph = _graph(env, text)
    with monkeypatch.context() as patched:
        _dies_at(patched, point, at=2 if point == "overwrite.move.after" else 1)
        with pytest.raises(_Died):
            MiniCluster(graph, tmp_path / "state", pipelined=False).run()
    for _ in range(2):
        MiniCluster(graph, tmp_path / "state", pipelined=False).run()
        assert _rows(tmp_path / "p") == {
            "a=x/b=1": [(4,), (5,)],
            "a=x/b=2": [(6,)],
            "a=y/b=1": [(3,)],
            "a=z/b=3": [(7,)],
        }


def test_what_cannot_be_overwritten_is_refused(env: TableEnvironment, tmp_path: Path) -> None:
    env.execute_sql("CREATE TABLE d (v INT, a STRING) WITH ('connector' = 'datagen')")
    env.execute_sql("CREATE TABLE n (v INT, a STRING) WITH ('connector' = 'print')")
    for text, message in [
        (
            "INSERT OVERWRITE f SELECT v, a FROM d",
            "Streaming mode not support overwrite: 'Source: d'",
        ),
        (
            "INSERT OVERWRITE n VALUES (1, 'a')",
            "requires that the underlying DynamicTableSink",
        ),
        ("INSERT INTO f PARTITION (a = 'x') VALUES (1)", r"'.*f' is not partitioned"),
        ("INSERT INTO p PARTITION (v = 1) VALUES (1)", r"'v' does not partition table '.*p'"),
        ("INSERT INTO p PARTITION (a = 'x', a = 'y') VALUES (1)", "'a' is given more than once"),
        ("INSERT INTO p PARTITION (b = 'x') VALUES (1, 'a')", "'b' INT cannot be 'x'"),
        ("INSERT INTO p PARTITION (b = 99999999999) VALUES (1, 'a')", "'b' INT cannot be 99999"),
        ("INSERT INTO p PARTITION (b = 3.7) VALUES (1, 'a')", "'b' INT cannot be Decimal"),
        ("INSERT INTO p PARTITION (a = 'x') (a, v) VALUES (1, 2)", "'a' is in PARTITION already"),
        ("INSERT INTO p PARTITION (a = 'x') VALUES (1, 'a', 2)", "Different number of columns"),
    ]:
        with pytest.raises(ValidationError, match=message):
            _graph(env, text)
    assert not (tmp_path / "f").exists()


def test_the_table_api_and_plans_overwrite(env: TableEnvironment, tmp_path: Path) -> None:
    _run(env, "INSERT INTO f VALUES (1, 'a')")
    table = env.sql_query("SELECT 2, 'b'")
    assert "overwrite=[true]" in table.insert_into("f", overwrite=True).explain()
    plan = table.insert_into("f", overwrite=True).compile_plan()
    made = plans.loaded(env.session, plan.as_json_string(), "it")
    MiniCluster(env.session.program.graph_of(plans.ends_of(env.session, made), "test")).run()
    assert _rows(tmp_path / "f") == {".": [(2, "b")]}


# -- partition commit ----------------------------------------------------------------------------


class Noted:
    """A policy that writes down what it is told."""

    def __init__(self, path: str) -> None:
        self._path = path

    def commit(self, context: Any) -> None:
        rows = _rows(context.partition_path()).get(".", [])
        with open(self._path, "a") as stream:  # noqa: PTH123 - to add to it
            told = [context.table_name(), context.partition_spec(), rows]
            stream.write(json.dumps(told) + "\n")


def _noted(path: Path) -> list[tuple[str, list[Any]]]:
    """The partitions that were committed, with the rows that were there, in their order."""
    if not path.exists():
        return []
    told = [json.loads(line) for line in path.read_text().splitlines()]
    assert {table for table, _, _ in told} <= {"o"}
    return [("/".join(spec.values()), [tuple(row) for row in rows]) for _, spec, rows in told]


#: Hours and minutes of rows, in four files; the last row of the third file is late.
_TIMES = [(0, 10), (0, 50), (1, 5), (1, 59), (2, 0), (2, 30), (0, 59), (3, 40), (4, 10), (5, 0)]


def _timed(env: TableEnvironment, path: Path, more: str, source: str = "") -> None:
    """A table of times, and one that is partitioned by day and hour."""
    directory = path / "in"
    directory.mkdir()
    for number, (hour, minute) in enumerate(_TIMES):
        row = {"v": number, "ts": f"2024-01-01 {hour:02}:{minute:02}:00"}
        (directory / f"{number}.json").write_text(json.dumps(row) + "\n")
    columns = "v INT, ts TIMESTAMP(3), WATERMARK FOR ts AS ts"
    _table(env, "t", columns, directory, f"|{source}")
    policy = (
        f", 'sink.partition-commit.policy.kind' = 'success-file, custom', "
        f"'sink.partition-commit.policy.class' = '{__name__}.Noted', "
        f"'sink.partition-commit.policy.class.parameters' = '{path / 'noted'}'"
    )
    columns = "v INT, dt STRING, hr STRING"
    _table(env, "o", columns, path / "o", f"PARTITIONED BY (dt, hr) | {policy} {more}")


_INSERT = "INSERT INTO o SELECT v, DATE_FORMAT(ts, 'yyyyMMdd'), DATE_FORMAT(ts, 'HH') FROM t"
_BY_TIME = (
    ", 'sink.partition-commit.trigger' = 'partition-time', 'sink.partition-commit.delay' = '1 h', "
    "'partition.time-extractor.timestamp-pattern' = '$dt $hr:00:00', "
    "'partition.time-extractor.timestamp-formatter' = 'yyyyMMdd HH:mm:ss'"
)
_BY_HOUR = {
    f"20240101/{hour:02}": [(v,) for v, (each, _) in enumerate(_TIMES) if each == hour]
    for hour in range(6)
}


def _complete(path: Path) -> set[str]:
    return {
        f"{each.parent.parent.name[3:]}/{each.parent.name[3:]}" for each in path.rglob("_SUCCESS")
    }


def test_partitions_are_committed_when_the_watermark_has_passed(tmp_path: Path) -> None:
    env = environment()
    _timed(env, tmp_path, _BY_TIME)
    graph, seen = _graph(env, _INSERT), []
    for _ in _TIMES:
        MiniCluster(graph, tmp_path / "state", limits=iter([1] * 9), pipelined=False).run(1)
        seen.append(sorted(hour for _, hour in (each.split("/") for each in _complete(tmp_path))))
    # Hour 0 ends with the row of hour 1 that has passed it; the row at 0:59 commits it again.
    ends = [[], [], ["00"], ["00"], ["00"], ["00", "01"], ["00", "01"], ["00", "01", "02"]]
    assert seen[:8] == ends
    assert seen[8:] == [["00", "01", "02", "03"]] * 2
    MiniCluster(graph, tmp_path / "state", pipelined=False).run()
    assert _complete(tmp_path) == set(_BY_HOUR)
    told = _noted(tmp_path / "noted")
    assert [place[-2:] for place, _ in told[:3]] == ["00", "01", "00"]
    assert [len(rows) for _, rows in told[:3]] == [2, 2, 3]
    assert dict(told) == _BY_HOUR
    assert len(told) == len(_BY_HOUR) + 1


@pytest.mark.both_engines
def test_a_checkpoint_before_the_first_row_has_no_directory(
    env: TableEnvironment, tmp_path: Path
) -> None:
    _timed(env, tmp_path, _BY_TIME)
    _run(env, f"{_INSERT} WHERE v > 7", tmp_path / "state", limits=iter([1] * 50))
    assert _complete(tmp_path) == {"20240101/04", "20240101/05"}
    _run(env, "INSERT OVERWRITE f SELECT v, 'a' FROM t WHERE v > 8", limits=iter([1] * 50))
    assert _rows(tmp_path / "f") == {".": [(9, "a")]}
    _run(env, "INSERT OVERWRITE p SELECT v, 'a', 1 FROM t WHERE v > 9", limits=iter([1] * 50))
    assert _rows(tmp_path / "p") == {}


@pytest.mark.both_engines
@pytest.mark.parametrize("parallelism", [1, 3])
def test_all_partitions_are_committed_at_the_end(parallelism: int, tmp_path: Path) -> None:
    env = environment(parallelism)
    _timed(env, tmp_path, _BY_TIME)
    _run(env, _INSERT, tmp_path / "state", limits=iter([2] * 50))
    assert dict(_noted(tmp_path / "noted")) == _BY_HOUR
    assert _complete(tmp_path) == set(_BY_HOUR)


@pytest.mark.parametrize("point", [each for each in _POINTS if not each.startswith("overwrite")])
@pytest.mark.parametrize("at", [1, 3])
def test_a_partition_is_only_committed_behind_its_files(
    point: str, at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    env = environment(2)
    _timed(env, tmp_path, _BY_TIME)
    graph = _graph(env, _INSERT)
    with monkeypatch.context() as patched:
        _dies_at(patched, point, at)
        with pytest.raises(_Died):
            MiniCluster(graph, tmp_path / "state", limits=iter([1] * 50), pipelined=False).run()
    MiniCluster(graph, tmp_path / "state", limits=iter([1] * 50), pipelined=False).run()
    told = _noted(tmp_path / "noted")
    assert dict(told) == _BY_HOUR
    # None is committed more often than once for each time that rows came, and once for the death.
    assert all(count <= 3 for count in Counter(place for place, _ in told).values())
    assert {f"{d[3:]}/{h[3:]}": rows for d, h, rows in _parts(tmp_path / "o")} == _BY_HOUR


def _parts(path: Path) -> list[tuple[str, str, list[Any]]]:
    return [(*place.split("/"), rows) for place, rows in _rows(path).items()]  # type: ignore[misc]


def test_partitions_are_committed_by_the_clock(tmp_path: Path) -> None:
    env = environment()
    _timed(
        env,
        tmp_path,
        ", 'sink.partition-commit.delay' = '10 s'",
        ", 'source.monitor-interval' = '1 s'",
    )
    now = [1_000]
    graph = _graph(env, _INSERT)
    assert any(node.needs_processing_time for node in graph.nodes.values() if node.sink)
    cluster = MiniCluster(
        graph, tmp_path / "state", clock=lambda: now[0], tick_interval=1, pipelined=False
    )
    cluster.run(1)
    assert len(_rows(tmp_path / "o")) == 6
    assert _complete(tmp_path) == set()
    now[0] = 11_000
    cluster.run(1)
    assert _complete(tmp_path) == set()
    now[0] = 11_001
    cluster.run(1)
    assert _complete(tmp_path) == set(_BY_HOUR)
    assert dict(_noted(tmp_path / "noted")) == _BY_HOUR


def test_times_of_partitions() -> None:
    spec = {"dt": "2024-01-02", "h": "5", "hour": "6"}
    midnight = 1_704_153_600_000
    assert PartitionTime().millis(spec, "UTC") == midnight
    assert PartitionTime("$dt $hour:00:00").millis(spec, "UTC") == midnight + 6 * 3_600_000
    assert PartitionTime().millis({"d": "2024-1-2 3:4:5.5"}, "UTC") == midnight + 11_045_500
    assert PartitionTime(None, "yyyyMMdd").millis({"d": "20240102"}, "Asia/Tokyo") == (
        midnight - 9 * 3_600_000
    )
    # The first column may be another's beginning, and a value may look like a column.
    assert PartitionTime("$d").millis({"d": "2024-01-02", "dt": "x"}, "UTC") == midnight
    assert PartitionTime("$dt").columns(["d", "dt", "dty"]) == ["dt"]
    for values in ({"d": "2024"}, {"d": "2024-13-01"}):
        with pytest.raises(MillstreamError, match="has no time"):
            PartitionTime().millis(values, "UTC")


def test_rows_of_partitions_without_a_time(tmp_path: Path) -> None:
    """NULL is committed at the end; what says no time is refused before it is written."""
    env = environment()
    more = ", 'sink.partition-commit.trigger' = 'partition-time', "
    policy = "'sink.partition-commit.policy.kind' = 'success-file'"
    _table(env, "o", "v INT, dt STRING", tmp_path / "o", f"PARTITIONED BY (dt) | {more} {policy}")
    _run(env, "INSERT INTO o VALUES (1, CAST(NULL AS STRING)), (2, '2024-01-01')")
    assert (tmp_path / "o" / "dt=__DEFAULT_PARTITION__" / "_SUCCESS").exists()
    with pytest.raises(MillstreamError, match=r"partition \{'dt': 'x'\} has no time"):
        _run(env, "INSERT INTO o VALUES (1, 'x')")


def test_null_beside_the_time_of_a_partition(tmp_path: Path) -> None:
    """It is committed like others by what does say a time."""
    env = environment()
    _timed(env, tmp_path, _BY_TIME.replace("$dt $hr:", "$dt 00:"))
    null = "CASE WHEN HOUR(ts) > 0 THEN DATE_FORMAT(ts, 'HH') END"
    text = f"INSERT INTO o SELECT v, DATE_FORMAT(ts, 'yyyyMMdd'), {null} FROM t"
    graph = _graph(env, text)
    for _ in range(4):
        MiniCluster(graph, tmp_path / "state", limits=iter([1] * 9), pipelined=False).run(1)
    assert _complete(tmp_path) == {"20240101/__DEFAULT_PARTITION__", "20240101/01"}


def test_options_of_partition_commit_that_make_no_sense_are_refused(tmp_path: Path) -> None:
    env, key = environment(), "sink.partition-commit."
    by, kind = "PARTITIONED BY (a)", f"'{key}policy.kind' = 'success-file'"
    for number, (more, options, message) in enumerate(
        [
            ("", kind, "is for tables PARTITIONED BY"),
            (by, f"'{key}trigger' = 'partition-time'", f"needs '{key}policy.kind'"),
            (by, f"'{key}policy.kind' = 'metastore'", "for a file system table"),
            (by, f"'{key}policy.kind' = 'what'", "must be of success-file and custom"),
            (by, f"'{key}policy.kind' = 'custom'", f"needs '{key}policy.class'"),
            (
                by,
                f"'{key}policy.kind' = 'custom', '{key}policy.class' = 'no.Such'",
                "cannot be made",
            ),
            (
                by,
                f"'{key}policy.kind' = 'custom', '{key}policy.class' = 'builtins.int'",
                "no method",
            ),
            (by, f"{kind}, '{key}success-file.name' = 'ok'", "must begin with '_'"),
            (by, f"{kind}, '{key}trigger' = 'now'", "must be one of process-time, partition-time"),
            (by, f"{kind}, '{key}watermark-time-zone' = 'Mars'", "watermark-time-zone"),
            (by, f"{kind}, 'partition.time-extractor.kind' = 'custom'", "must be one of default"),
        ]
    ):
        _table(env, f"t{number}", "v INT, a STRING", tmp_path / "x", f"{more} |, {options}")
        with pytest.raises(ValidationError, match=message):
            _graph(env, f"INSERT INTO t{number} VALUES (1, 'a')")


# -- pruning, SHOW PARTITIONS, ADD and DROP PARTITION --------------------------------------------


@pytest.mark.parametrize(
    ("where", "files"),
    [
        ("a = 'x'", 2),
        ("a = 'x' AND b > 1 AND v < 100", 1),
        ("a IS NULL OR b = 3", 2),
        ("b IN (1, 3) AND UPPER(a) LIKE 'Y%'", 1),
        ("a = 'no'", 0),
        ("a = 'x' OR v = 3", 5),
        ("CAST(CURRENT_DATE AS STRING) > a", 5),
    ],
)
def test_only_partitions_of_the_filter_are_read(
    where: str, files: int, env: TableEnvironment, tmp_path: Path
) -> None:
    rows = "(1, 'x', 1), (2, 'x', 2), (3, 'y', 1), (4, CAST(NULL AS STRING), 1), (5, 'z', 3)"
    _run(env, f"INSERT INTO p VALUES {rows}")
    session, query = env.session, f"SELECT v, a, b FROM p WHERE {where}"
    end = session.collected(env.sql_query(query).plan, str(tmp_path / "pruned"))
    assert len(_source(env, end).discover({})) == files
    assert ("partitions=[" in env.explain_sql(query)) == (files < 5)
    found = Counter(map(tuple, changelog(env, query, tmp_path)))
    # Without the filter right above the scan nothing is pruned.
    apart = f"SELECT v, a, b FROM (SELECT v, a, b, RAND() r FROM p) WHERE r >= 0 AND ({where})"
    assert "partitions=[" not in env.explain_sql(apart)
    assert found == Counter(map(tuple, changelog(env, apart, tmp_path)))


def _source(env: TableEnvironment, end: Any) -> Any:
    graph = env.session.program.graph_of(end if isinstance(end, list) else [end], "test")
    (source,) = [node.source for node in graph.nodes.values() if node.source is not None]
    return source


def test_a_cast_that_no_row_is_asked_for_does_not_fail(
    env: TableEnvironment, tmp_path: Path
) -> None:
    _run(env, "INSERT INTO p VALUES (1, '7', 1), (2, 'x', 1)")
    query = "SELECT v FROM p WHERE v = 1 AND CAST(a AS INT) = 7"
    assert "partitions=[" in env.explain_sql(query)
    assert [tuple(row) for row in changelog(env, query, tmp_path)] == [(1,)]


def test_partitions_that_come_later_are_chosen_too(env: TableEnvironment, tmp_path: Path) -> None:
    _run(env, "INSERT INTO p VALUES (1, 'x', 1), (2, 'y', 1)")
    monitored = "p /*+ OPTIONS('source.monitor-interval' = '1 s') */"
    plan = env.sql_query(f"SELECT v FROM {monitored} WHERE a = 'x'").plan
    source = _source(env, env.session.collected(plan, str(tmp_path / "out")))
    first = source.discover({})
    _run(env, "INSERT INTO p VALUES (3, 'x', 7), (4, 'y', 7)")
    later = source.discover({each.id: each for each in first})
    assert [each.id.split("/")[-3:-1] for each in first] == [["a=x", "b=1"]]
    assert [each.id.split("/")[-3:-1] for each in later] == [["a=x", "b=7"]]


def test_another_choice_of_partitions_is_another_source(
    env: TableEnvironment, tmp_path: Path
) -> None:
    _run(env, "INSERT INTO p VALUES (1, 'x', 1), (2, 'y', 1)")
    insert = "INSERT INTO f SELECT v, a FROM p WHERE a = '{}'"
    MiniCluster(_graph(env, insert.format("x")), tmp_path / "state", pipelined=False).run(1)
    with pytest.raises(MillstreamError, match=r"(?s)partitions:.*- =\(a STRING.*'x'.*\+ =.*'y'"):
        MiniCluster(_graph(env, insert.format("y")), tmp_path / "state", pipelined=False).run(1)
    made = env.compile_plan_sql(insert.format("x")).as_json_string()
    again = plans.loaded(env.session, made, "it")
    assert "partitions=[=(a, _UTF-16LE'x')]" in plans.explained(env.session, again)
    assert len(_source(env, plans.ends_of(env.session, again)).discover({})) == 1


def _shown(env: TableEnvironment, text: str) -> list[Any]:
    found: list[Any] = list(env.execute_sql(text).collect())
    return [row[0] for row in found]


def test_partitions_are_shown_added_and_dropped(env: TableEnvironment, tmp_path: Path) -> None:
    assert _shown(env, "SHOW PARTITIONS p") == []
    _run(env, "INSERT INTO p VALUES (1, 'x', 1), (2, 'x', 2), (3, 'a/b', 1)")
    every = ["a=a%2Fb/b=1", "a=x/b=1", "a=x/b=2"]
    assert _shown(env, "SHOW PARTITIONS p") == every
    assert _shown(env, "SHOW PARTITIONS p PARTITION (a = 'a/b')") == every[:1]
    assert _shown(env, "SHOW PARTITIONS p PARTITION (b = 1)") == every[:2]
    env.execute_sql("ALTER TABLE p ADD PARTITION (a = 'z', b = 1) PARTITION (b = 2, a = 'z')")
    assert _shown(env, "SHOW PARTITIONS p PARTITION (a = 'z')") == ["a=z/b=1", "a=z/b=2"]
    env.execute_sql("ALTER TABLE p DROP PARTITION (a = 'x', b = 1), PARTITION (a = 'z', b = 1)")
    assert _rows(tmp_path / "p") == {"a=a%2Fb/b=1": [(3,)], "a=x/b=2": [(2,)]}
    env.execute_sql("ALTER TABLE p ADD IF NOT EXISTS PARTITION (a = 'z', b = 2)")
    env.execute_sql("ALTER TABLE p DROP IF EXISTS PARTITION (a = 'q', b = 2)")
    for text, message in [
        ("ALTER TABLE p ADD PARTITION (a = 'z', b = 2)", "a=z/b=2 of table .*p exists"),
        ("ALTER TABLE p DROP PARTITION (a = 'q', b = 2)", "a=q/b=2 of table .*p does not exist"),
        ("ALTER TABLE p DROP PARTITION (a = 'x')", r"does not match partition keys \[a, b\]"),
        ("ALTER TABLE p ADD PARTITION (c = 'x')", "'c' does not partition"),
        ("SHOW PARTITIONS f", "Table .*f is not partitioned"),
        ("SHOW PARTITIONS ff", "'ff' not found"),
    ]:
        with pytest.raises(MillstreamError, match=message):
            env.execute_sql(text)
