"""Options that programs of PyFlink's set, and what each does: the options named one by one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.query_running import changelog, environment, materialised

from millstream.common import Configuration
from millstream.configuration import flink_options
from millstream.configuration.configuration import misspelling
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ConfigurationError, ValidationError
from millstream.table import EnvironmentSettings, TableEnvironment

if TYPE_CHECKING:
    from pathlib import Path

REPEATED = "table.exec.source.cdc-events-duplicate"


@pytest.fixture
def said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(flink_options, "_said", set())
    return caplog


# -- table.exec.source.cdc-events-duplicate ------------------------------------------------------


def changes(
    env: TableEnvironment, directory: Path, key: str = ", PRIMARY KEY (k) NOT ENFORCED"
) -> None:
    """A table of changes, of which some come twice, as after a restart of what captures them."""
    directory.mkdir()
    one, two = {"k": "x", "n": 1}, {"k": "x", "n": 2}
    other = {"k": "y", "n": 5}
    events = [
        {"before": None, "after": one, "op": "c"},
        {"before": None, "after": other, "op": "c"},
        {"before": one, "after": two, "op": "u"},
        {"before": None, "after": one, "op": "c"},
        {"before": one, "after": two, "op": "u"},
        {"before": other, "after": None, "op": "d"},
        {"before": other, "after": None, "op": "d"},
    ]
    (directory / "events.jsonl").write_text("".join(json.dumps(each) + "\n" for each in events))
    env.execute_sql(
        f"CREATE TABLE c (k STRING, n BIGINT{key}) WITH ('connector' = 'filesystem',"
        f" 'path' = '{directory}', 'format' = 'debezium-json')"
    )


@pytest.mark.both_engines
@pytest.mark.parametrize("seed", [1, 2])
def test_changes_that_are_repeated_count_once(tmp_path: Path, seed: int) -> None:
    env = environment(2)
    env.get_config().set(REPEATED, "true")
    changes(env, tmp_path / "in")
    rows = changelog(env, "SELECT k, n FROM c", tmp_path, seed)
    assert materialised(rows) == {("x", 2): 1}
    sums = changelog(env, "SELECT COUNT(*), SUM(n) FROM c", tmp_path, seed)
    assert materialised(sums) == {(1, 2): 1}


def test_repeated_changes_are_normalized_by_the_key_as_in_flink(tmp_path: Path) -> None:
    env = environment(1)
    changes(env, tmp_path / "in")
    assert "ChangelogNormalize" not in env.explain_sql("SELECT * FROM c")
    env.get_config().set(REPEATED, "true")
    plan = env.explain_sql("SELECT * FROM c")
    nodes = ("ChangelogNormalize(key=[k]", "Exchange(", "DropUpdateBefore", "TableSourceScan(")
    places = [plan.index(node, plan.index("Optimized Physical Plan")) for node in nodes]
    assert places == sorted(places)
    env.execute_sql("CREATE TABLE g (k INT) WITH ('connector' = 'datagen')")
    assert "ChangelogNormalize" not in env.explain_sql("SELECT * FROM g"), "it has no changes"


def test_repeated_changes_need_a_key(tmp_path: Path) -> None:
    env = environment(1, **{REPEATED: "true"})
    changes(env, tmp_path / "in", key="")
    with pytest.raises(ValidationError, match=rf"\.c' needs a PRIMARY KEY: '{REPEATED}'"):
        env.explain_sql("SELECT * FROM c")


# -- table.display.max-column-width, table.dml-sync, names ---------------------------------------


@pytest.mark.parametrize(
    ("width", "cells"),
    [
        (None, ["abcdefghijklmnop".rjust(30), "[1, 2, 3, 4, 5, 6]".rjust(30), "abc".rjust(30)]),
        ("5", ["abc...", "[1,...", "   abc"]),
        ("8", ["abcde...", "[1, 2...", "     abc"]),
    ],
)
@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_columns_are_printed_as_wide_as_the_option_says(
    capsys: pytest.CaptureFixture[str], width: str | None, cells: list[str], mode: str
) -> None:
    env = _environment(mode)
    if width is not None:
        env.get_config().set("table.display.max-column-width", width)
    env.execute_sql(
        "SELECT 'abcdefghijklmnop' AS a, ARRAY[1, 2, 3, 4, 5, 6] AS b, CAST('abc' AS CHAR(3)) AS c,"
        " TRUE AS d"
    ).print()
    row = capsys.readouterr().out.splitlines()[3]
    shown = f"| {' | '.join(cells)} |   TRUE |"
    assert row == (shown if mode == "batch" else f"| +I {shown}")
    env.execute_sql("SHOW CATALOGS").print()
    assert "| default_catalog |" in capsys.readouterr().out


def _environment(mode: str) -> TableEnvironment:
    configuration = Configuration({"execution.runtime-mode": mode, "parallelism.default": "1"})
    return TableEnvironment.create(configuration)


def test_a_column_width_that_makes_no_sense() -> None:
    with pytest.raises(ConfigurationError, match=r"max-column-width is '0'; it must be at least 1"):
        _environment("streaming").get_config().set("table.display.max-column-width", "0")


@pytest.mark.parametrize("waits", [True, False])
def test_statements_that_write_wait_for_their_job(tmp_path: Path, *, waits: bool) -> None:
    env = environment(1, **{"table.dml-sync": str(waits).lower()})
    env.execute_sql(
        f"CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}/out',"
        " 'format' = 'csv')"
    )
    result = env.execute_sql("INSERT INTO t VALUES (1), (2)")
    client = result.get_job_client()
    assert client is not None
    if waits:
        assert client.job.get_job_status().is_terminal_state()
        assert len(list((tmp_path / "out").glob("*.csv"))) == 1
    result.wait()


def test_a_session_begins_with_the_catalog_and_database_of_the_options() -> None:
    configuration = Configuration(
        {"table.builtin-catalog-name": "mill", "table.builtin-database-name": "stream"}
    )
    settings = EnvironmentSettings.new_instance().with_configuration(configuration).build()
    assert settings.get_built_in_catalog_name() == "mill"
    env = TableEnvironment.create(settings)
    assert (env.get_current_catalog(), env.get_current_database()) == ("mill", "stream")


# -- refused, and without effect -----------------------------------------------------------------


def submitted(given: dict[str, Any]) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(Configuration(given))
    env.from_collection([1]).sink_to(DiscardingSink())
    env.get_job_graph()


def test_savepoints_are_claimed_or_not_and_nothing_else() -> None:
    with pytest.raises(ConfigurationError, match="'LEGACY'; it must be one of NO_CLAIM, CLAIM"):
        Configuration({"execution.state-recovery.claim-mode": "LEGACY"})
    for value in ("NO_CLAIM", "no-claim", "CLAIM"):
        Configuration({"execution.savepoint-restore-mode": value})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("execution.batch-shuffle-mode", "ALL_EXCHANGES_PIPELINED"),
        ("queryable-state.enable", "true"),
        ("execution.checkpointing.max-concurrent-checkpoints", "2"),
        ("table.exec.mini-batch.size", "5000"),
    ],
)
def test_what_has_no_effect_is_logged_once(
    key: str, value: str, said: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        submitted({key: value})
    [message] = [each for each in said.messages if " has no effect, " in each]
    assert message.startswith(key)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("execution.savepont.path", "execution.savepoint.path"),
        ("taskmanager.numberOfTaskSlot", "taskmanager.numberOfTaskSlots"),
        ("heartbeat.timeot", "heartbeat.timeout"),
        ("table.exec.sorce.idle-timeout", "table.exec.source.idle-timeout"),
        ("millstream.fsync", "millstream.checkpoint.fsync"),
        ("millstream.batch-size", "millstream.batch.size"),
        ("millstream.commit-retries.attempts", "millstream.commit-retry.attempts"),
    ],
)
def test_misspelt_keys_are_given_the_nearest(
    key: str, near: str, said: pytest.LogCaptureFixture
) -> None:
    Configuration({key: "1"})
    assert len(said.messages) == 1
    assert f"unknown option '{key}'; did you mean '{near}'" in said.text
    assert repr(near) in (misspelling(key) or "")


def test_keys_with_parts_of_their_own_are_not_taken_for_misspelt(
    said: pytest.LogCaptureFixture,
) -> None:
    for key in (
        "events.reporter.log.port",
        "metrics.reporter.prom.port",
        "kubernetes.pods.name",
        "taskmanager.memory.process.size",
    ):
        Configuration({key: "1"})
        assert misspelling(key) is None
    assert [each.partition(",")[0] for each in said.messages] == [
        "events.reporter.log.port has no effect",
        "kubernetes.pods.name has no effect",
        "taskmanager.memory.process.size has no effect",
    ]


def test_an_unknown_option_of_tables_is_warned_about(said: pytest.LogCaptureFixture) -> None:
    Configuration({"table.no-such-thing": "1"})
    (message,) = said.messages
    assert message == (
        "unknown option 'table.no-such-thing': it has no effect; "
        "docs/reference/options.md lists Flink's"
    )
