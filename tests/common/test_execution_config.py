"""``env.get_config()``: another way to the configuration."""

from __future__ import annotations

import os

import pytest

from millstream.common import Configuration, ExecutionConfig
from millstream.configuration import flink_options, options
from millstream.datastream import MapFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.errors import ProgramError
from millstream.testing.local_run import run_and_collect

SWITCHES = {
    "closure_cleaner": ("is_closure_cleaner_enabled", True),
    "force_kryo": ("is_force_kryo_enabled", False),
    "force_avro": ("is_force_avro_enabled", False),
    "auto_generated_uids": ("has_auto_generated_uids_enabled", True),
    "object_reuse": ("is_object_reuse_enabled", False),
}
NUMBERS = {
    "auto_watermark_interval": 200,
    "latency_tracking_interval": 0,
    "task_cancellation_interval": 30_000,
    "task_cancellation_timeout": 180_000,
}


@pytest.fixture
def config() -> ExecutionConfig:
    return ExecutionConfig(Configuration())


@pytest.mark.parametrize("name", SWITCHES)
def test_switches(name: str, config: ExecutionConfig) -> None:
    question, default = SWITCHES[name]
    assert getattr(config, question)() is default
    assert getattr(config, f"enable_{name}")() is config
    assert getattr(config, question)() is True
    assert getattr(config, f"disable_{name}")() is config
    assert getattr(config, question)() is False


def test_generic_types_and_compression(config: ExecutionConfig) -> None:
    assert not config.has_generic_types_disabled()
    assert config.disable_generic_types().has_generic_types_disabled()
    assert not config.enable_generic_types().has_generic_types_disabled()
    assert not config.is_use_snapshot_compression()
    assert config.set_use_snapshot_compression(True).is_use_snapshot_compression()


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name: str, config: ExecutionConfig) -> None:
    assert getattr(config, f"get_{name}")() == NUMBERS[name]
    assert getattr(config, f"set_{name}")(70) is config
    assert getattr(config, f"get_{name}")() == 70


def test_parallelism(config: ExecutionConfig) -> None:
    assert config.get_parallelism() == len(os.sched_getaffinity(0))
    assert config.set_parallelism(7).get_parallelism() == 7
    assert config.set_parallelism(ExecutionConfig.PARALLELISM_UNKNOWN).get_parallelism() == 7
    cores = config.set_parallelism(ExecutionConfig.PARALLELISM_DEFAULT).get_parallelism()
    assert cores == len(os.sched_getaffinity(0))
    assert config.get_max_parallelism() == -1, "derived from the parallelism of each operator"
    assert config.set_max_parallelism(64).get_max_parallelism() == 64
    for wrong in (0, -3):
        with pytest.raises(ProgramError, match="positive number"):
            config.set_parallelism(wrong)


def test_it_writes_the_configuration_of_the_environment() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_config().set_parallelism(3).set_auto_watermark_interval(50).set_max_parallelism(64)
    assert (env.get_parallelism(), env.get_max_parallelism()) == (3, 64)
    assert env.get_configuration().get(options.AUTO_WATERMARK_INTERVAL) == 50
    assert env.get_config() == env.get_config()
    assert hash(env.get_config()) == hash(env.get_config())
    other = StreamExecutionEnvironment.get_execution_environment()
    assert env.get_config() != other.get_config()


def test_what_has_no_effect_is_said_once(
    config: ExecutionConfig, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flink_options, "_said", set())
    for _ in range(2):
        config.enable_object_reuse().set_parallelism(2).set_global_job_parameters({"a": 1})
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("pipeline.object-reuse has no effect")


class Greeting(MapFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.word = runtime_context.get_job_parameter("word", "?")
        self.own = runtime_context.get_job_parameter("user.own", "?")
        self.none = runtime_context.get_job_parameter("none", "?")

    def map(self, value: object) -> object:
        return (value, self.word, self.own, self.none)


def test_functions_get_the_global_job_parameters() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_configuration().set_string("user.own", "configured")
    config = env.get_config().set_global_job_parameters({"word": "a:b, 'c'", "count": 3})
    assert config.get_global_job_parameters() == {"word": "a:b, 'c'", "count": "3"}
    [greetings] = run_and_collect(env.from_collection([1]).map(Greeting()))
    assert greetings == [(1, "a:b, 'c'", "configured", "?")]


def test_without_generated_uids_each_operator_needs_one() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.get_config().disable_auto_generated_uids()
    numbers = env.from_sequence(1, 3).uid("numbers").map(str)
    numbers.sink_to(DiscardingSink()).uid("nowhere")
    with pytest.raises(ProgramError, match=r"operator 'Map' .*test_execution_config.* has no uid"):
        env.get_job_graph()
    numbers.uid("texts")
    assert {node.uid for node in env.get_job_graph().nodes.values()} == {
        "numbers",
        "texts",
        "nowhere",
    }
