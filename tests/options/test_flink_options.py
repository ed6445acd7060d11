"""Each option of Flink 2.3 is applied, refused, or logged once as having no effect."""

from __future__ import annotations

from typing import Final

import pytest
from tests.options.reference import (
    APPLIED,
    NO_EFFECT,
    PAGE,
    REFUSED,
    constants,
    effect_of,
    page,
    read_constants,
)

from millstream.common import Configuration
from millstream.configuration import flink_options as accepted
from millstream.configuration.flink_options import (
    FlinkOption,
    flink_options,
    named_flink_options,
    option_refusals,
)
from millstream.configuration.options import ALL_OPTIONS
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ConfigurationError, MillstreamError, UnsupportedSqlError
from millstream.table import TableEnvironment

OTHERS: Final = {
    "int": "77",
    "long": "77",
    "float": "0.77",
    "double": "0.77",
    "string": "other",
    "duration": "77 s",
    "memory": "77 mb",
    "map": "a:b",
    "list": "a;b",
}
ALL: Final = {each.key: each for each in flink_options()}


def other_value(option: FlinkOption) -> str:
    """A value that is not the default."""
    if option.type == "boolean":
        return "false" if option.default == "true" else "true"
    names = option.type.removeprefix("List<").removesuffix(">").split("|")
    return OTHERS.get(option.type) or next(
        each for each in reversed(names) if each != option.default
    )


@pytest.fixture
def said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(accepted, "_said", set())
    return caplog


def submitted(configuration: Configuration) -> None:
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1]).sink_to(DiscardingSink())
    env.get_job_graph()


def test_the_list_is_that_of_flink() -> None:
    assert len(ALL) > 950
    assert list(ALL) == sorted(ALL)
    for part in ("table.exec.", "execution.checkpointing.", "python.", "state.backend.rocksdb."):
        assert any(key.startswith(part) for key in ALL)
    assert named_flink_options()["execution.savepoint.path"].key == "execution.state-recovery.path"


def test_each_option_is_applied_or_refused_or_logged_once(said: pytest.LogCaptureFixture) -> None:
    effects = {key: effect_of(key) for key in ALL}
    assert {key for key, effect in effects.items() if effect is None} == set()
    for key, option in ALL.items():
        for name in (key, *option.aliases):
            if effects[key] == APPLIED:
                # rest.port and web.port are names of rest.bind-port, too.
                owners = [each for each in ALL if name == each or name in ALL[each].aliases]
                assert any(ALL_OPTIONS[name] is ALL_OPTIONS[each] for each in owners)
                assert key in owners
                continue
            said.clear()
            accepted._said.clear()
            value = other_value(option)
            refusal = Configuration({name: value}).refusal()
            Configuration({name: value})
            if effects[key] == REFUSED:
                assert said.messages == []
                assert refusal is not None
                assert refusal.startswith(f"Option '{name}' = ")
                assert "' is not in this release: " in refusal
            else:
                assert refusal is None
                [message] = said.messages
                assert message.startswith(f"{name} has no effect, ")


def test_code_reads_the_options_that_are_applied() -> None:
    unread = {
        name: option.key
        for name, option in constants().items()
        if effect_of(option.key) == APPLIED and name not in read_constants()
    }
    assert unread == {}


def test_options_of_ours_are_flinks_or_have_our_prefix() -> None:
    # Those of file systems are in Flink's documentation, and in none of its classes; those of the
    # autoscaler are of Flink's Kubernetes operator; endpoints of the SQL gateway compose theirs.
    prefixes = ("millstream.", "s3.", "fs.s3a.", "job.autoscaler.", "sql-gateway.endpoint.")
    others = {key for key in ALL_OPTIONS if not key.startswith(prefixes)}
    assert others - named_flink_options().keys() == set()


def test_defaults_of_flink_are_taken_without_a_message(said: pytest.LogCaptureFixture) -> None:
    given = {
        key: option.default
        for key, option in ALL.items()
        if effect_of(key) != APPLIED and option.default
    }
    assert len(given) > 500
    submitted(Configuration(given))
    assert [each for each in said.messages if "no effect" in each] == []


@pytest.mark.parametrize("key", [key for key in ALL if effect_of(key) == REFUSED])
def test_jobs_and_statements_with_an_option_that_is_refused(key: str) -> None:
    configuration = Configuration({key: other_value(ALL[key])})
    with pytest.raises(ConfigurationError, match=f"Option '{key}' = .* is not in this release: "):
        submitted(configuration)
    configuration.set_string("execution.target", "local")
    with pytest.raises(UnsupportedSqlError, match=f"Option '{key}' = .* is not in this release: "):
        TableEnvironment.create(configuration).execute_sql("SELECT 1")
    configuration.remove_config(key)
    submitted(configuration)


def test_a_refused_secret_is_not_shown() -> None:
    configuration = Configuration({"fs.default-scheme": "hdfs://user:pass@host"})
    with pytest.raises(MillstreamError) as raised:
        submitted(configuration)
    assert "pass@" not in str(raised.value)


def test_a_job_takes_all_options_without_effect(said: pytest.LogCaptureFixture) -> None:
    given = {key: other_value(each) for key, each in ALL.items() if effect_of(key) == NO_EFFECT}
    submitted(Configuration(given))
    found = [each for each in said.messages if " has no effect, " in each]
    assert len(found) == len(given) > 800


def test_refusals_name_no_option_that_is_applied() -> None:
    assert not option_refusals().keys() & ALL_OPTIONS.keys()


def test_the_page_lists_what_the_code_does() -> None:
    assert PAGE.read_text() == page(), "run: python -m tests.options.reference"


def test_applied_options_take_flinks_values_or_name_those_that_they_take() -> None:
    refused: dict[str, list[str]] = {}
    for key, option in ALL.items():
        if effect_of(key) != APPLIED:
            continue
        if option.default:
            ALL_OPTIONS[key].read(option.default)
        values = (
            option.type.removeprefix("List<").removesuffix(">").split("|")
            if "|" in option.type
            else [other_value(option)]
        )
        for value in values:
            try:
                ALL_OPTIONS[key].read(value)
            except ConfigurationError as error:
                assert f"{key} is '{value}'; it must be " in str(error)  # noqa: PT017
                refused.setdefault(key, []).append(value)
    assert {key: values for key, values in refused.items() if values != ["other"]} == {
        "execution.state-recovery.claim-mode": ["LEGACY"],
        "restart-strategy.exponential-delay.backoff-multiplier": ["0.77"],
        "state.backend.rocksdb.compression.per.level": [
            "XPRESS_COMPRESSION",
            "DISABLE_COMPRESSION_OPTION",
        ],
        "table.exec.sink.type-length-enforcer": ["ERROR"],
    }
