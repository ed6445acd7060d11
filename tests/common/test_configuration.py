"""Options: typed, checked when set, read from files."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
from typing import TYPE_CHECKING

import pytest

from millstream.common import Configuration, Duration
from millstream.common.config_options import ConfigOptions
from millstream.configuration import flink_options, option, options
from millstream.configuration.configuration import CONFIGURATION_VARIABLE
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def said(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> pytest.LogCaptureFixture:
    """What is logged, as if nothing had been said in this process before."""
    monkeypatch.setattr(flink_options, "_said", set())
    return caplog


def test_defaults() -> None:
    configuration = Configuration()
    assert configuration.get(options.STATE_BACKEND) == "rocksdb"
    assert configuration.get(options.MAX_PARALLELISM) == -1
    assert configuration.get(options.TARGET_EPOCH_DURATION) == 1000
    assert configuration.get(options.CHECKPOINT_FSYNC) is True
    assert configuration.get_string("pipeline.name", "unnamed") == "unnamed"
    assert configuration.to_dict() == {}


def test_every_default_is_a_value_that_could_be_set() -> None:
    for known in options.ALL_OPTIONS.values():
        assert known.read(known.default) == known.get_default()
        assert known.description


def test_getters_and_setters_as_in_pyflink() -> None:
    configuration = Configuration()
    configuration.set_string("user.str", "v1").set_integer("user.int", 2)
    configuration.set_boolean("user.bool", True).set_float("user.float", 0.5)
    configuration.set_bytearray("user.bytes", bytearray([1, 2, 3]))
    assert configuration.get_string("user.str", "") == "v1"
    assert configuration.get_integer("user.int", 0) == 2
    assert configuration.get_boolean("user.bool", False) is True
    assert configuration.get_float("user.float", 0) == 0.5
    assert configuration.get_bytearray("user.bytes", bytearray()) == bytearray([1, 2, 3])
    assert configuration.get_string("user.bool", "") == "true"
    assert configuration.get_integer("user.none", 7) == 7
    target: dict[str, object] = {}
    configuration.add_all_to_dict(target)
    assert target["user.int"] == 2
    assert configuration.to_dict()["user.float"] == "0.5"
    assert configuration.key_set() == set(target)
    with pytest.raises(ConfigurationError, match=r"user\.str is 'v1'; it must be a whole number"):
        configuration.get_integer("user.str", 0)


def test_copies_equality_and_text() -> None:
    configuration = Configuration({"user.a": "v1", "parallelism.default": 2})
    other = copy.deepcopy(configuration)
    assert other == configuration == Configuration(configuration) == configuration.clone()
    assert hash(other) == hash(configuration)
    assert pickle.loads(pickle.dumps(configuration)) == configuration
    assert str(configuration) == "{user.a=v1, parallelism.default=2}"
    other.set_string("user.a", "v2")
    assert other != configuration
    prefixed = Configuration()
    prefixed.add_all(Configuration({"user.x": 1}), "user.")
    assert prefixed.to_dict() == {"user.user.x": "1"}
    assert configuration.remove_config("user.a")
    assert not configuration.remove_config("user.a")
    assert not configuration.contains_key("user.a")


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        *(
            ("10 s", 10_000),
            ("200 ms", 200),
            ("1 min", 60_000),
            ("2h", 7_200_000),
            ("1 d", 86_400_000),
        ),
        *((500, 500), ("500", 500), (" 3  Seconds ", 3000), (Duration.of_seconds(2), 2000)),
        *((dt.timedelta(minutes=1), 60_000), ("1500 us", 1), ("0", 0)),
    ],
)
def test_durations(text: object, millis: int) -> None:
    configuration = Configuration({"execution.checkpointing.interval": text})
    assert configuration.get(options.CHECKPOINTING_INTERVAL) == millis


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("execution.checkpointing.interval", "10 sheep", "length of time"),
        ("execution.checkpointing.interval", "", "length of time"),
        ("execution.checkpointing.interval", "-5 s", "at least 0"),
        ("parallelism.default", "two", "whole number"),
        ("parallelism.default", 1.5, "whole number"),
        ("pipeline.max-parallelism", 0, "at least 1"),
        ("state.backend.type", "rocks", "one of rocksdb, hashmap"),
        ("state.backend", "forst", "one of rocksdb, hashmap"),
        ("execution.runtime-mode", "FAST", "one of STREAMING, BATCH, AUTOMATIC"),
        ("millstream.checkpoint.fsync", "yes", "true or false"),
        ("restart-strategy.exponential-delay.backoff-multiplier", "x", "number"),
        ("restart-strategy.exponential-delay.attempts-before-reset-backoff", "x", "infinite"),
        ("restart-strategy.type", "sometimes", "one of"),
    ],
)
def test_values_that_make_no_sense(key: str, value: object, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason) as raised:
        Configuration({key: value})
    assert repr(value) in str(raised.value)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("executon.checkpointing.interval", "'execution.checkpointing.interval'"),
        ("execution.checkpoint.interval", "'execution.checkpointing.interval'"),
        ("state.backend.typ", "'state.backend.type'"),
        ("max-parallelism", "'pipeline.max-parallelism'"),
        ("millstream.progess", "'millstream.progress'"),
    ],
)
def test_keys_that_look_misspelt_are_warned_about_once(
    key: str, near: str, said: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        configuration = Configuration().set_string(key, "1")
    assert configuration.get_string(key, "") == "1"
    assert len(said.messages) == 1
    assert f"unknown option '{key}'; did you mean " in said.text
    assert near in said.text


@pytest.mark.parametrize("key", ["qux", "my.application.mode", "user.parallelism.default", "input"])
def test_keys_of_the_program_are_kept(key: str, said: pytest.LogCaptureFixture) -> None:
    assert Configuration().set_integer(key, 1).get_integer(key, 0) == 1
    assert said.messages == []


def test_options_of_ours_that_there_are_not(said: pytest.LogCaptureFixture) -> None:
    Configuration({"millstream.colour": "green"})
    assert said.messages == [
        "unknown option 'millstream.colour'; millstream.configuration.options lists all of ours"
    ]


def test_flinks_own_machinery_is_accepted_and_said_to_have_no_effect(
    said: pytest.LogCaptureFixture,
) -> None:
    configuration = Configuration()
    for key in (
        "taskmanager.numberOfTaskSlots",
        "pipeline.jars",
        "python.fn-execution.bundle.size",
    ):
        configuration.set_string(key, "3")
    assert len(configuration.key_set()) == 3
    Configuration(configuration)
    Configuration({"pipeline.jars": "other.jar"})
    assert [message.partition(" has no effect")[0] for message in said.messages] == [
        "taskmanager.numberOfTaskSlots",
        "pipeline.jars",
        "python.fn-execution.bundle.size",
    ]


def test_from_dict_and_lists() -> None:
    configuration = Configuration.from_dict({"parallelism.default": "3", "inputs": ["a", "b;c"]})
    assert configuration.get(options.PARALLELISM) == 3
    assert configuration.to_dict() == {"parallelism.default": "3", "inputs": "a;'b;c'"}
    with pytest.raises(ConfigurationError, match="whole number"):
        Configuration.from_dict({"parallelism.default": "x"})


@pytest.mark.parametrize(
    ("text", "elements"),
    [
        ("", []),
        ("a.jar", ["a.jar"]),
        ("a.jar;b.jar", ["a.jar", "b.jar"]),
        ("[a.jar, b.jar]", ["a.jar", "b.jar"]),
        ("- a.jar\n- b.jar", ["a.jar", "b.jar"]),
        ("\n  - a.jar\n  - 'b;c'\n", ["a.jar", "b;c"]),
        ("[a.jar,\n b.jar]", ["a.jar", "b.jar"]),
        ("-a;- b", ["-a", "- b"]),
        ("a;'b;c';'it''s'", ["a", "b;c", "it's"]),
    ],
)
def test_lists(text: str, elements: list[str]) -> None:
    assert Configuration.parse_list_value(text) == elements
    assert Configuration.parse_list_value(option.parse_string(elements)) == elements


@pytest.mark.parametrize("text", ["[a, [}]", "- a\nb: 1", "[a, 'b]"])
def test_lists_that_are_not_valid_yaml(text: str) -> None:
    with pytest.raises(ValueError, match="must be a list in YAML"):
        Configuration.parse_list_value(text)


@pytest.mark.parametrize(
    "entries",
    [{}, {"a": "1"}, {"url": "http://x:80", "list": "a,b", "who's": 'say "it"'}, {"": ""}],
)
def test_maps_are_read_as_they_are_written(entries: dict[str, str]) -> None:
    configuration = Configuration().set(options.GLOBAL_JOB_PARAMETERS, entries)
    assert configuration.get(options.GLOBAL_JOB_PARAMETERS) == entries
    text = configuration.get_string("pipeline.global-job-parameters", "")
    assert option.parse_map(text) == entries


@pytest.mark.parametrize("text", ["a", "a:1,b", "'a:1"])
def test_maps_with_mistakes(text: str) -> None:
    with pytest.raises(ConfigurationError, match="global-job-parameters"):
        Configuration({"pipeline.global-job-parameters": text})


def test_options_of_the_program() -> None:
    text = ConfigOptions.key("tmp.dir").string_type().default_value("/tmp")
    number = ConfigOptions.key("app.parallelism").int_type().default_value(100)
    large = ConfigOptions.key("app.bytes").long_type().no_default_value()
    share = ConfigOptions.key("app.share").double_type().default_value(0.5)
    ratio = ConfigOptions.key("app.ratio").float_type().no_default_value()
    flag = ConfigOptions.key("app.flag").boolean_type().default_value(False)
    empty = Configuration()
    assert (empty.get(text), empty.get(number)) == ("/tmp", 100)
    assert (empty.get(share), empty.get(flag)) == (0.5, False)
    assert (empty.get(large), empty.get(ratio)) == (None, None)
    given = {"app.parallelism": "7", "app.bytes": str(2**40), "app.flag": "TRUE", "app.ratio": "2"}
    configuration = Configuration.from_dict(given)
    assert (configuration.get(number), configuration.get(large)) == (7, 2**40)
    assert (configuration.get(flag), configuration.get(ratio)) == (True, 2.0)
    with pytest.raises(
        ConfigurationError, match=r"app\.parallelism is '1099511627776'; it must lie"
    ):
        Configuration({"app.parallelism": str(2**40)}).get(number)


def test_aliases_mean_the_same_and_the_last_one_set_wins() -> None:
    configuration = Configuration({"state.checkpoints.dir": "/a", "state.backend": "HashMap"})
    assert configuration.get(options.CHECKPOINTS_DIRECTORY) == "/a"
    assert configuration.get_string("execution.checkpointing.dir", "") == "/a"
    assert configuration.get_string("state.backend.type", "") == "hashmap"
    assert configuration.contains_key("execution.checkpointing.dir")
    configuration.set_string("execution.checkpointing.dir", "/b")
    assert configuration.get_string("state.checkpoints.dir", "") == "/b"
    configuration.set_string("state.checkpoints.dir", "/c")
    assert configuration.get(options.CHECKPOINTS_DIRECTORY) == "/c"
    assert configuration.remove_config("execution.checkpointing.dir")
    assert configuration.get(options.CHECKPOINTS_DIRECTORY) == ""


def test_set_by_option() -> None:
    configuration = Configuration().set(options.BATCH_SIZE, 100).set(options.TICK_INTERVAL, 50)
    assert configuration.get(options.BATCH_SIZE) == 100
    assert configuration.contains(options.BATCH_SIZE)
    with pytest.raises(ConfigurationError, match="at least 1"):
        configuration.set(options.BATCH_SIZE, 0)


YAML = """
execution:
  checkpointing:
    interval: 10 s
    mode: exactly-once
state.backend.type: hashmap
parallelism.default: 4
millstream.checkpoint.fsync: false
pipeline.jars: [a.jar, b.jar]
python:
  files:
    - one.py
    - two.py
pipeline.cached-files: |
  - name:words,path:/tmp/words.txt
  - name:more,path:/tmp/more.txt
"""
PROPERTIES = """
# comment
execution.checkpointing.interval = 10 s
execution.checkpointing.mode: exactly-once
state.backend.type=hashmap
parallelism.default = 4
millstream.checkpoint.fsync = false
pipeline.jars = a.jar;b.jar
python.files = one.py;two.py
pipeline.cached-files = name:words,path:/tmp/words.txt;name:more,path:/tmp/more.txt
"""


@pytest.mark.parametrize(("name", "text"), [("c.yaml", YAML), ("c.properties", PROPERTIES)])
def test_files(tmp_path: Path, name: str, text: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    configuration = Configuration.from_file(file)
    assert configuration.get(options.CHECKPOINTING_INTERVAL) == 10_000
    assert configuration.get_string("execution.checkpointing.mode", "") == "EXACTLY_ONCE"
    assert configuration.get(options.STATE_BACKEND) == "hashmap"
    assert configuration.get(options.PARALLELISM) == 4
    assert configuration.get(options.CHECKPOINT_FSYNC) is False
    assert configuration.get_string("pipeline.jars", "") == "a.jar;b.jar"


@pytest.mark.parametrize(
    ("name", "text", "reason"),
    [
        ("c.yaml", "a: [", "no valid YAML"),
        ("c.yaml", "- 1", "must hold keys and values"),
        ("c.yaml", "parallelism:\n  default:", "parallelism.default has no value"),
        ("c.properties", "user.a = 1\nnonsense", ":2: expected 'key = value'"),
        ("c.txt", "", "must end in"),
    ],
)
def test_files_with_mistakes(tmp_path: Path, name: str, text: str, reason: str) -> None:
    file = tmp_path / name
    file.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=reason) as raised:
        Configuration.from_file(file)
    assert str(file) in str(raised.value)


def test_a_misspelt_key_in_a_file(tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "c.yaml"
    file.write_text("paralelism.default: 2")
    Configuration.from_file(file)
    assert said.messages == [
        f"{file}: unknown option 'paralelism.default'; did you mean 'parallelism.default'?"
    ]


def test_a_missing_and_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        Configuration.from_file(tmp_path / "none.yaml")
    (tmp_path / "empty.yaml").touch()
    assert Configuration.from_file(tmp_path / "empty.yaml") == Configuration()


def test_from_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(CONFIGURATION_VARIABLE, raising=False)
    assert Configuration.from_environment() == Configuration()
    monkeypatch.setenv(CONFIGURATION_VARIABLE, json.dumps({"parallelism.default": "3"}))
    assert Configuration.from_environment().get(options.PARALLELISM) == 3
    for wrong in ("{", "[1]"):
        monkeypatch.setenv(CONFIGURATION_VARIABLE, wrong)
        with pytest.raises(ConfigurationError, match=CONFIGURATION_VARIABLE):
            Configuration.from_environment()
