"""Which jobs cannot run with tasks that live on, and what they are told."""

from __future__ import annotations

import re

import pytest

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.engines.pipelined.engine import require_pipelined, why_not_pipelined
from millstream.errors import ProgramError
from millstream.graph.validation import aligned_edges


class _Frame:
    isStreaming = True  # noqa: N815 - Spark's
    schema = type("Schema", (), {"jsonValue": lambda _: {"type": "struct", "fields": []}})()


def test_spark_dataframes_need_epochs() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_spark(_Frame(), type_info=Types.LONG(), name="orders").print()
    graph = env.get_job_graph()
    with pytest.raises(ProgramError) as error:
        require_pipelined(graph)
    assert str(error.value) == why_not_pipelined(graph)
    assert re.search(
        r"^source 'Source: orders' \(.*test_requirements.py:\d+\) is a Spark DataFrame.*"
        r"millstream.execution: epochs",
        str(error.value),
    )


def test_other_sources_do_not() -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.from_collection([1]).print()
    graph = env.get_job_graph()
    require_pipelined(graph)
    assert why_not_pipelined(graph) is None


def unaligned(**settings: str) -> StreamExecutionEnvironment:
    configuration = Configuration()
    for key, value in {"millstream.execution": "pipelined", **settings}.items():
        name = key if "." in key else f"execution.checkpointing.{key.replace('_', '-')}"
        configuration.set_string(name, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.get_checkpoint_config().enable_unaligned_checkpoints()
    return env


def test_unaligned_checkpoints_are_one_at_a_time() -> None:
    """As in Flink: records in flight would be kept by several."""
    env = unaligned(max_concurrent_checkpoints="2")
    env.from_collection([1]).print()
    with pytest.raises(ProgramError, match=r"unaligned.enabled.*max-concurrent-checkpoints is 2"):
        require_pipelined(env.get_job_graph())


def test_unaligned_checkpoints_do_not_go_with_custom_partitioners_unless_forced() -> None:
    env = unaligned()
    stream = env.from_collection([1], Types.LONG())
    stream.partition_custom(lambda key, count: hash(key) % count, lambda value: value).print()
    with pytest.raises(ProgramError, match=r"partition_custom\(\).*'Sink: .*unaligned.forced"):
        require_pipelined(env.get_job_graph())
    env.get_checkpoint_config().set_force_unaligned_checkpoints()
    require_pipelined(env.get_job_graph())


def test_unaligned_checkpoints_need_exactly_once(caplog: pytest.LogCaptureFixture) -> None:
    env = unaligned(mode="AT_LEAST_ONCE", max_concurrent_checkpoints="2")
    env.from_collection([1]).print()
    require_pipelined(env.get_job_graph())
    assert "unaligned.enabled has no effect" in caplog.text


@pytest.mark.parametrize(
    ("settings", "without_effect"),
    [
        ({"millstream.epoch.target-duration": "5 s"}, ["millstream.epoch.target-duration"]),
        ({"millstream.tick-interval": "1 s"}, ["millstream.tick-interval"]),
        (
            {"execution.checkpointing.aligned-checkpoint-timeout": "1 s"},
            ["execution.checkpointing.aligned-checkpoint-timeout"],
        ),
        (
            {"execution.checkpointing.unaligned.forced": "true"},
            ["execution.checkpointing.unaligned.forced"],
        ),
        (
            {
                "execution.checkpointing.min-pause": "10",
                "execution.checkpointing.max-concurrent-checkpoints": "2",
            },
            ["execution.checkpointing.max-concurrent-checkpoints"],
        ),
        (
            {"execution.buffer-timeout.enabled": "false", "execution.buffer-timeout": "1"},
            ["execution.buffer-timeout.interval"],
        ),
        (
            {
                "execution.checkpointing.unaligned": "true",
                "execution.checkpointing.unaligned.forced": "true",
                "execution.checkpointing.aligned-checkpoint-timeout": "1 s",
                "execution.checkpointing.min-pause": "10",
                "execution.buffer-timeout": "1",
            },
            [],
        ),
        ({"execution.checkpointing.max-concurrent-checkpoints": "2"}, []),
    ],
)
def test_what_has_no_effect_is_said(
    caplog: pytest.LogCaptureFixture, settings: dict[str, str], without_effect: list[str]
) -> None:
    configuration = Configuration()
    for key, value in {"millstream.execution": "pipelined", **settings}.items():
        configuration.set_string(key, value)
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    env.from_collection([1]).print()
    require_pipelined(env.get_job_graph())
    said = [text.split(" has no effect: ")[0] for text in caplog.messages]
    assert said == without_effect


@pytest.mark.parametrize(
    ("partition", "is_aligned"),
    [
        ("key_by", False),
        ("rebalance", False),
        ("shuffle", False),
        ("global_", False),
        ("rescale", True),
        ("broadcast", True),
    ],
)
def test_barriers_overtake_nothing_that_could_not_be_restored(
    partition: str, *, is_aligned: bool
) -> None:
    env = unaligned().set_parallelism(2)
    stream = env.from_collection([1], Types.LONG())
    arguments = [lambda value: value] if partition == "key_by" else []
    stream = getattr(stream, partition)(*arguments).map(lambda value: value, Types.LONG())
    stream.set_parallelism(3).print()
    graph = env.get_job_graph()
    into_map = {e.id for e in graph.edges if graph.nodes[e.target].name.startswith("Map")}
    assert aligned_edges(graph) == (into_map if is_aligned else set())


def test_what_else_leads_to_a_reader_of_a_broadcast_waits_with_it() -> None:
    """As in Flink: a rule would be known to some records and not to others."""
    env = unaligned().set_parallelism(2)
    rules = env.from_collection([1], Types.LONG()).broadcast()
    values = env.from_collection([1], Types.LONG()).rebalance()
    values.union(rules).map(lambda value: value, Types.LONG()).set_parallelism(3).print()
    graph = env.get_job_graph()
    into_map = {e.id for e in graph.edges if graph.nodes[e.target].name.startswith("Map")}
    assert len(into_map) == 2
    assert aligned_edges(graph) == into_map
