"""The environment: settings, sources, and how a job is started."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

import millstream.datastream
from millstream.checkpoint.commit import PendingCommits
from millstream.checkpoint.savepoint import SavepointFormatType
from millstream.configuration import options
from millstream.configuration.configuration import Configuration
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.datastream import (
    CheckpointingMode,
    JobExecutionResult,
    JobStatus,
    RestartStrategies,
    StreamExecutionEnvironment,
)
from millstream.datastream.environment import (
    capture_job_graphs,
    execution_context,
    strategy_of_spark,
    type_of_spark,
)
from millstream.errors import ConfigurationError, ProgramError
from millstream.execution.monitor import JobStart
from millstream.functions.watermark_strategy import FieldTimestampAssigner, WatermarkStrategy
from millstream.state.query import StateQueryResult
from millstream.types.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.graph.model import JobGraph
    from millstream.metrics.progress import OperatorTime


class FakeClient:
    """A job that is over as soon as it is submitted."""

    def __init__(self, graph: JobGraph) -> None:
        self.graph = graph
        self.cancelled = False

    def get_job_id(self) -> str:
        return "job"

    def get_job_status(self) -> JobStatus:
        return JobStatus.FINISHED

    def cancel(self) -> None:
        self.cancelled = True

    def stop(self, *, drain: bool = False) -> str:
        return f"stopped, drained: {drain}"

    def stop_with_savepoint(
        self,
        directory: str | None = None,
        *,
        drain: bool = False,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        return f"{directory}, drained: {drain}, {format_type.value}"

    def trigger_savepoint(
        self,
        directory: str | None = None,
        format_type: SavepointFormatType = SavepointFormatType.CANONICAL,
    ) -> str:
        return f"{directory}, {format_type.value}"

    def query_state(self, uid: str, state: str, key: object) -> StateQueryResult:
        return StateQueryResult(1, 2, (uid, state, key))

    def get_job_execution_result(self) -> JobExecutionResult:
        return JobExecutionResult("job", self.graph.job_name, 5, {"n": 1})

    def get_metrics(self) -> dict[str, object]:
        return {}

    def get_last_checkpoint(self) -> None:
        return None

    def get_start(self) -> JobStart:
        return JobStart("job", "")

    def get_pending_commits(self) -> PendingCommits:
        return PendingCommits()

    def get_watermarks(self) -> dict[str, OperatorTime]:
        return {}

    def get_accumulators(self) -> dict[str, object]:
        return {}


def submit(job_graph: JobGraph, *, spark_dataframes: list[object]) -> FakeClient:
    assert spark_dataframes == []
    return FakeClient(job_graph)


def environment() -> StreamExecutionEnvironment:
    return StreamExecutionEnvironment.get_execution_environment()


def test_everything_promised_is_there() -> None:
    for name in vars(millstream.datastream)["__all__"]:
        assert hasattr(millstream.datastream, name)


def test_execute_runs_what_was_added_since_the_last_time() -> None:
    with execution_context(submitter=submit):
        env = environment()
        env.from_sequence(1, 2).sink_to(BlackholeSink())
        result = env.execute("first")
        assert result.job_name == "first"
        assert result.get_net_runtime() == 5
        assert result.get_accumulator_result("n") == 1
        with pytest.raises(ProgramError, match="No operators defined"):
            env.execute("second")


def test_name_of_the_job() -> None:
    env = environment()
    env.from_sequence(1, 2).sink_to(BlackholeSink())
    assert env.get_job_graph().job_name == "Millstream Streaming Job"
    env.get_configuration().set_string("pipeline.name", "configured")
    assert env.get_job_graph().job_name == "configured"
    assert env.get_job_graph("given").job_name == "given"


def test_the_job_keeps_the_configuration_it_was_started_with() -> None:
    env = environment()
    env.from_sequence(1, 2).sink_to(BlackholeSink())
    graph = env.get_job_graph()
    env.get_configuration().set_string("user.later", "1")
    assert not graph.configuration.contains_key("user.later")


def test_defaults_of_the_context_give_way_to_the_program() -> None:
    defaults = {"parallelism.default": "7", "pipeline.max-parallelism": "64"}
    with execution_context(defaults):
        assert environment().get_parallelism() == 7
        assert environment().set_parallelism(3).get_parallelism() == 3
        own = Configuration().set_string("parallelism.default", "5")
        env = StreamExecutionEnvironment.get_execution_environment(own)
        assert (env.get_parallelism(), env.get_max_parallelism()) == (5, 64)


def test_options_of_the_command_line_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLSTREAM_CONFIGURATION", json.dumps({"parallelism.default": "9"}))
    assert environment().get_parallelism() == 9


def test_parallelism_defaults_to_the_cores() -> None:
    assert 1 <= environment().get_parallelism() <= (os.cpu_count() or 1)


def test_capture_ends_the_program_at_execute() -> None:
    reached = False
    with capture_job_graphs() as caught:
        env = environment()
        env.from_sequence(1, 2).sink_to(BlackholeSink())
        env.execute("caught")
        reached = True
    assert not reached
    assert [graph.job_name for graph in caught] == ["caught"]


def test_configuration_file(tmp_path: Path) -> None:
    file = tmp_path / "conf.yaml"
    file.write_text("parallelism.default: 3\nexecution.checkpointing.interval: 2 s\n")
    env = environment().configure(Configuration.from_file(str(file)))
    assert env.get_parallelism() == 3
    assert env.get_checkpoint_interval() == 2000


def test_checkpointing() -> None:
    env = environment()
    assert env.get_checkpoint_interval() == -1
    assert env.get_checkpointing_mode() is CheckpointingMode.EXACTLY_ONCE
    env.enable_checkpointing(1500, CheckpointingMode.AT_LEAST_ONCE)
    assert env.get_checkpoint_interval() == 1500
    assert env.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE
    assert env.get_checkpoint_config().is_checkpointing_enabled()
    with pytest.raises(ConfigurationError, match="must be positive"):
        env.enable_checkpointing(0)


def test_restart_strategies_become_options() -> None:
    env = environment()
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(4, 250))
    entries = env.get_configuration().to_dict()
    assert entries["restart-strategy.type"] == "fixed-delay"
    assert entries["restart-strategy.fixed-delay.attempts"] == "4"
    env.set_restart_strategy(RestartStrategies.exponential_delay_restart(1, 2, 1.5, 4, 0.1))
    env.set_restart_strategy(RestartStrategies.no_restart())
    assert env.get_configuration().get_string("restart-strategy.type", "") == "none"


def test_a_restart_strategy_takes_the_place_of_the_one_before() -> None:
    env = environment()
    env.get_configuration().set_string("restart-strategy", "none")
    env.set_restart_strategy(RestartStrategies.fixed_delay_restart(4, 250))
    env.set_restart_strategy(RestartStrategies.failure_rate_restart(1, 1000, 10))
    assert {
        key: value
        for key, value in env.get_configuration().to_dict().items()
        if key.startswith("restart-strategy")
    } == RestartStrategies.failure_rate_restart(1, 1000, 10).entries
    env.set_restart_strategy(RestartStrategies.fall_back_restart())
    assert env.get_configuration().get_string("restart-strategy.type", "") == "none"
    untouched = environment().set_restart_strategy(RestartStrategies.fall_back_restart())
    assert not untouched.get_configuration().contains_key("restart-strategy.type")


def test_python_files_add_up() -> None:
    env = environment().add_python_file("a.py").add_python_file("b.zip")
    assert env.get_configuration().get_string("python.files", "") == "a.py,b.zip"


def test_execution_plan_is_json() -> None:
    env = environment()
    env.from_collection([1, 2]).sink_to(BlackholeSink())
    nodes = json.loads(env.get_execution_plan())["nodes"]
    assert [node["pact"] for node in nodes] == ["Data Source", "Data Sink"]


def test_what_is_no_source_is_refused() -> None:
    with pytest.raises(ProgramError, match="needs a Source"):
        environment().from_source([1, 2], None, "list")  # type: ignore[arg-type]
    with pytest.raises(ProgramError, match="needs a streaming DataFrame"):
        environment().from_spark([1, 2])


def test_watermark_of_a_spark_dataframe_is_preserved() -> None:
    def schema(**metadata: object) -> dict[str, object]:
        fields = [{"name": "at", "type": "timestamp", "nullable": True, "metadata": metadata}]
        return {"type": "struct", "fields": fields}

    delayed = schema(**{"spark.watermarkDelayMs": 5000})
    preserving = WatermarkStrategy.preserve()
    made = strategy_of_spark(delayed, preserving.with_idleness(10))
    assert vars(made.create_generator())["max_out_of_orderness"] == 5000
    assert isinstance(made.timestamp_assigner, FieldTimestampAssigner)
    assert (made.timestamp_assigner.field, made.idle_timeout) == ("at", 10)
    own = WatermarkStrategy.for_monotonous_timestamps()
    assert strategy_of_spark(delayed, own) is own
    with pytest.raises(ProgramError, match="withWatermark"):
        strategy_of_spark(schema(), preserving)
    with pytest.raises(ProgramError, match="does not wait"):
        strategy_of_spark(delayed, own.with_watermark_alignment("group", 5))


def test_types_of_spark_columns() -> None:
    def field(name: str, kind: object) -> dict[str, object]:
        return {"name": name, "type": kind, "nullable": True, "metadata": {}}

    array = {"type": "array", "elementType": "string", "containsNull": True}
    schema: dict[str, object] = {
        "type": "struct",
        "fields": [field("n", "long"), field("d", "decimal(10,2)"), field("l", array)],
    }
    kind = type_of_spark(schema)
    assert kind.get_field_names() == ["n", "d", "l"]  # type: ignore[attr-defined]
    assert kind.get_field_types()[0] == Types.LONG()  # type: ignore[attr-defined]
    assert kind.get_field_types()[2] == Types.LIST(Types.STRING())  # type: ignore[attr-defined]


def test_collecting_cleans_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with execution_context(submitter=submit):
        stream = environment().from_sequence(1, 2)
        with stream.execute_and_collect("collect") as records:  # type: ignore[union-attr]
            assert list(records) == []
        assert stream.execute_and_collect(limit=3) == []
    (mine,) = tmp_path.iterdir()  # the directory of this process, gone when it ends
    assert [path.name for path in mine.iterdir()] == ["lock"]


def test_job_status_says_what_is_over() -> None:
    assert JobStatus.FINISHED.is_globally_terminal_state()
    assert not JobStatus.RESTARTING.is_terminal_state()


def test_settings_that_programs_of_pyflink_have(caplog: pytest.LogCaptureFixture) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    assert env.is_chaining_enabled()
    assert not env.disable_operator_chaining().is_chaining_enabled()
    env.add_jars("file:///kafka.jar", "file:///json.jar")
    assert "no effect, Millstream needs no jars: file:///kafka.jar, file:///json.jar" in caplog.text
    config = env.get_checkpoint_config()
    config.set_min_pause_between_checkpoints(500).set_checkpoint_timeout(60_000)
    assert config.get_min_pause_between_checkpoints() == 500
    assert config.get_checkpoint_timeout() == 60_000
    assert env.get_configuration().get(options.CHECKPOINTING_MIN_PAUSE) == 500
    assert config.set_max_concurrent_checkpoints(3).get_max_concurrent_checkpoints() == 3
    with pytest.raises(ConfigurationError, match="must not be negative, but it is -1 ms"):
        config.set_min_pause_between_checkpoints(-1)
    with pytest.raises(ConfigurationError, match="cannot be 0 checkpoints at a time"):
        config.set_max_concurrent_checkpoints(0)
