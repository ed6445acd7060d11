"""Options: typed, checked when set, read from files."""

from __future__ import annotations

import copy
import datetime as dt
import json
import pickle
from typing import TYPE_CHECKING

import pytest

from millstream.common import Configuration, Duration
from millstream.configuration import options
from millstream.configuration.configuration import CONFIGURATION_VARIABLE
from millstream.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path


def test_defaults() -> None:
    configuration = Configuration()
    assert configuration.get(options.STATE_BACKEND) == "rocksdb"
    assert configuration.get(options.MAX_PARALLELISM) == 128
    assert configuration.get(options.TARGET_EPOCH_DURATION) == 1000
    assert configuration.get(options.CHECKPOINT_FSYNC) is True
    assert configuration.get_string("pipeline.name", "unnamed") == "unnamed"
    assert configuration.to_dict() == {}


def test_every_default_is_a_value_that_could_be_set() -> None:
    for option in options.ALL_OPTIONS.values():
        assert option.read(option.default) == option.default
        assert option.description


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
def test_unknown_keys_list_near_matches(key: str, near: str) -> None:
    with pytest.raises(ConfigurationError, match="did you mean") as raised:
        Configuration().set_string(key, "1")
    assert near in str(raised.value)


def test_unknown_keys_without_near_matches() -> None:
    with pytest.raises(ConfigurationError, match=r"unknown option 'qux'.*user\."):
        Configuration().set_integer("qux", 1)


def test_flinks_own_machinery_is_accepted() -> None:
    configuration = Configuration()
    for key in (
        "taskmanager.numberOfTaskSlots",
        "pipeline.jars",
        "python.fn-execution.bundle.size",
    ):
        configuration.set_string(key, "1")
    assert len(configuration.key_set()) == 3


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
"""
PROPERTIES = """
# comment
execution.checkpointing.interval = 10 s
execution.checkpointing.mode: exactly-once
state.backend.type=hashmap
parallelism.default = 4
millstream.checkpoint.fsync = false
pipeline.jars = a.jar;b.jar
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
        ("c.yaml", "paralelism.default: 2", "did you mean 'parallelism.default'"),
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
