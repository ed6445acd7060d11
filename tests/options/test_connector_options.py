"""Each option of Flink's connectors and formats is applied, refused, or logged once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.options.reference import (
    APPLIED,
    NO_EFFECT,
    REFUSED,
    connector_effect,
    connector_options,
    known_option,
)
from tests.support.query_running import environment

import millstream
from millstream.configuration import flink_options
from millstream.errors import ValidationError
from millstream.sql.catalog.connectors import FACTORIES
from millstream.sql.catalog.options import (
    IDLE_TIMEOUT,
    Options,
    unapplied_option,
    unapplied_options,
)
from millstream.sql.catalog.registry_formats import REGISTRY_PROPERTIES

ALL = connector_options()
#: Options that are read by constants, and one that says what always holds.
READ_OTHERWISE = {
    IDLE_TIMEOUT.key,
    "sink.partition-commit.policy.class",
    "sink.partition-commit.policy.class.parameters",
    "json.encode.decimal-as-plain-number",
    *(
        f"{name}.{key}"
        for name in ("avro-confluent", "debezium-avro-confluent")
        for key in (*REGISTRY_PROPERTIES, "subject")
    ),
}


@pytest.fixture
def said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(flink_options, "_said", set())
    return caplog


def connector_of(owner: str) -> str:
    return f"connector '{owner if owner in FACTORIES else 'filesystem'}'"


def test_each_option_is_in_one_of_three_classes() -> None:
    assert len(ALL) > 150
    wrong = {
        (owner, key) for owner, key, value in ALL if connector_effect(owner, key, value) is None
    }
    assert wrong == set()


def test_each_option_that_is_not_applied_is_refused_or_logged_once(
    said: pytest.LogCaptureFixture,
) -> None:
    for owner, key, value in ALL:
        if known_option(owner, key) is not None:
            continue
        effect, name = connector_effect(owner, key, value), connector_of(owner)
        said.clear()
        flink_options._said.clear()
        for _ in range(2):
            if effect == REFUSED:
                with pytest.raises(ValidationError) as raised:
                    Options(name, {key: value}, ())
                shown = f"{name}: option '{key}' = '{value}' is not in this release: "
                assert str(raised.value).startswith(shown)
            else:
                assert effect == NO_EFFECT
                Options(name, {key: value}, ())
        expected = [f"{name}: '{key}' has no effect"] if effect == NO_EFFECT else []
        assert [each.partition(",")[0] for each in said.messages] == expected


def test_their_defaults_are_taken_without_a_message(said: pytest.LogCaptureFixture) -> None:
    for owner, key, unapplied in unapplied_options():
        if unapplied.option.default:
            Options(connector_of(owner), {key: unapplied.option.default}, ())
            Options(connector_of(owner), {key: unapplied.option.default.upper()}, ())
    assert said.messages == []


def test_all_that_is_not_applied_is_in_the_list_of_flinks() -> None:
    listed = {(owner, key) for owner, key, _ in ALL}
    unapplied = {(owner, key) for owner, key, _ in unapplied_options()}
    # Flink CDC is a separate project, with a list of options that is not Flink's.
    assert {each for each in unapplied if each[0] != "postgres-cdc"} - listed == set()


def test_options_of_formats_stand_behind_the_part_of_the_message() -> None:
    for key in ("csv.trim-spaces", "value.csv.trim-spaces", "key.csv.trim-spaces"):
        assert unapplied_option("connector 'kafka'", key) is not None
    assert unapplied_option("connector 'kafka'", "other.trim-spaces") is None
    assert unapplied_option("connector 'print'", "scan.parallelism") is None


def test_code_reads_the_options_that_are_applied() -> None:
    files = (Path(millstream.__file__).parent / "sql").rglob("*.py")
    text = "\n".join(each.read_text() for each in files)
    quoted = re.findall(r'"([^"\n]*)"', text)
    unread = []
    for owner, key, value in ALL:
        if connector_effect(owner, key, value) != APPLIED or key.startswith("properties."):
            continue
        known = known_option(owner, key)
        if key in READ_OTHERWISE or (known is not None and len(known.choices) == 1):
            continue
        # Defined once, and read at least once; parts of keys are put together.
        ends = {key, *(key[at + 1 :] for at, each in enumerate(key) if each == ".")}
        if sum(each in ends for each in quoted) < 2:
            unread.append((owner, key))
    assert unread == []


def test_a_statement_with_an_option_of_a_connector_that_is_refused(tmp_path: Path) -> None:
    env = environment(1)
    env.execute_sql(
        f"CREATE TABLE t (a INT) WITH ('connector' = 'filesystem', 'path' = '{tmp_path}',"
        " 'format' = 'csv', 'source.path.regex-pattern' = '.*x')"
    )
    with pytest.raises(ValidationError) as raised:
        env.explain_sql("SELECT * FROM t")
    assert (
        "connector 'filesystem': option 'source.path.regex-pattern' = '.*x' is not in this release:"
        " all files of the path are read; give them a separate directory."
    ) in str(raised.value)


def test_the_idle_timeout_of_a_table_wins_over_that_of_the_session() -> None:
    env = environment(1, **{"table.exec.source.idle-timeout": "7 s"})
    columns = "(ts TIMESTAMP(3), WATERMARK FOR ts AS ts)"
    own = {"t1": ", 'scan.watermark.idle-timeout' = '5 s'", "t2": ""}
    timeouts = {}
    for name, option in own.items():
        env.execute_sql(f"CREATE TABLE {name} {columns} WITH ('connector' = 'datagen'{option})")
        plan = env.sql_query(f"SELECT ts FROM {name}").plan
        graph = env.session.program.graph_of([env.session.collected(plan, "/nowhere")], name)
        [node] = [each for each in graph.nodes.values() if "Watermark" in each.name]
        timeouts[name] = node.factory.strategy.idle_timeout  # type: ignore[union-attr]
    assert timeouts == {"t1": 5000, "t2": 7000}
