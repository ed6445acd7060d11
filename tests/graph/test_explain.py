"""The plan as text, JSON and picture."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from millstream.configuration.configuration import Configuration
from millstream.connectors.basic.collect import CollectSink
from millstream.connectors.basic.data_generator import NumberSequenceSource
from millstream.connectors.basic.print_sink import BlackholeSink
from millstream.contracts.sink import DeliveryGuarantee, Sink, SinkKind
from millstream.datastream import (
    CheckpointingMode,
    OutputTag,
    StreamExecutionEnvironment,
    TumblingEventTimeWindows,
)
from millstream.datastream.aggregates import Count
from millstream.functions.watermark_strategy import WatermarkStrategy
from millstream.graph.explain import (
    execution_plan,
    explain,
    guarantee_table,
    picture,
    sink_guarantees,
)
from millstream.types.types import Types

if TYPE_CHECKING:
    from millstream.graph.model import JobGraph


def environment(directory: str, execution: str = "epochs") -> StreamExecutionEnvironment:
    configuration = Configuration().set_string("execution.checkpointing.dir", directory)
    configuration.set_string("millstream.execution", execution)
    return StreamExecutionEnvironment.get_execution_environment(configuration)


class ExactSink(BlackholeSink):
    guarantee = DeliveryGuarantee.EXACTLY_ONCE


class RepeatingSink(BlackholeSink):
    guarantee = DeliveryGuarantee.AT_LEAST_ONCE


class KeyedSink(BlackholeSink):
    kind = SinkKind.IDEMPOTENT


class PromisesNothing(BlackholeSink):
    guarantee = DeliveryGuarantee.NONE


class FleetingSource(NumberSequenceSource):
    replayable = False


def example() -> JobGraph:
    env = environment("checkpoints").set_parallelism(2)
    source = env.from_sequence(1, 9).uid("numbers").name("Source: n < 10 & more")
    counted = (
        source.assign_timestamps_and_watermarks(WatermarkStrategy.for_monotonous_timestamps())
        .uid("time")
        .key_by(lambda x: x % 3, Types.LONG())
        .window(TumblingEventTimeWindows.of(1000))
        .aggregate({"n": Count()})
        .uid("count")
    )
    counted.sink_to(ExactSink()).name("out").uid("out").set_parallelism(1)
    dead = source.get_side_output(OutputTag("dead-letter"))
    dead.sink_to(RepeatingSink()).name("dead").uid("dead")
    graph = env.get_job_graph("an example")
    for node in graph.nodes.values():
        node.location = f"job.py:{node.id}"
    return graph


def test_text() -> None:
    assert (
        explain(example())
        == """\
Job 'an example' (streaming): 5 operators in 3 stages

Stage 0, parallelism 2
  [1] Source: n < 10 & more x2                   job.py:1
        uid numbers
        type Long
        side output 'dead-letter' type RowTypeInfo(place: String, raw: String, error: String)
  [2] Timestamps/Watermarks x2                   job.py:2
        <- [1] Source: n < 10 & more: forward
        uid time
        type Long
  [5] dead x2                                    job.py:5
        <- [1] Source: n < 10 & more: forward, side output 'dead-letter'
        uid dead

Stage 1, parallelism 2
  [3] Window(TumblingEventTimeWindows(1000)) x2  job.py:3
        <- [2] Timestamps/Watermarks: hash, pre-aggregated
        uid count
        type RowTypeInfo(key: Long, window_start: Long, window_end: Lo...

Stage 2, parallelism 1
  [4] out x1                                     job.py:4
        <- [3] Window(TumblingEventTimeWindows(1000)): rebalance
        uid out

Guarantees
  [4] out: exactly-once
  [5] dead: at-least-once (the sink may write records again after a failure)
"""
    )


def test_json_has_flinks_form() -> None:
    nodes = json.loads(execution_plan(example()))["nodes"]
    assert [node["pact"] for node in nodes] == [
        "Data Source",
        "Operator",
        "Operator",
        "Data Sink",
        "Data Sink",
    ]
    assert nodes[2]["predecessors"] == [{"id": 2, "ship_strategy": "HASH", "side": "second"}]
    assert nodes[4]["predecessors"][0]["side_output"] == "dead-letter"
    assert nodes[3]["parallelism"] == 1


def test_picture_is_well_formed_and_holds_every_operator() -> None:
    graph = example()
    root = ET.fromstring(picture(graph))
    text = "\n".join(root.itertext())
    for node in graph.nodes.values():
        assert node.name[:20] in text
    assert "Stage 2" in text
    assert "exactly-once" in text
    assert "pre-aggregated" in text


def test_picture_keeps_boxes_apart() -> None:
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(2)
    source = env.from_sequence(1, 9)
    streams = [source.map(str).filter(bool) for _ in range(4)]
    merged = streams[0].union(*streams[1:]).key_by(lambda x: x).reduce(max)
    source.map(str).union(merged).sink_to(BlackholeSink())
    root = ET.fromstring(picture(env.get_job_graph()))
    boxes = [
        (float(box.attrib["x"]), float(box.attrib["y"]))
        for box in root.iter("{http://www.w3.org/2000/svg}rect")
        if box.attrib.get("rx") == "9"
    ]
    assert len(boxes) == len(env.get_job_graph().nodes)
    for index, (x, y) in enumerate(boxes):
        for other_x, other_y in boxes[index + 1 :]:
            assert abs(x - other_x) >= 210 or abs(y - other_y) >= 62


@pytest.mark.parametrize(
    ("replayable", "sink", "mode", "expected"),
    [
        (True, ExactSink(), CheckpointingMode.EXACTLY_ONCE, "exactly-once"),
        (True, RepeatingSink(), CheckpointingMode.EXACTLY_ONCE, "at-least-once"),
        (True, ExactSink(), CheckpointingMode.AT_LEAST_ONCE, "at-least-once"),
        (True, KeyedSink(), CheckpointingMode.EXACTLY_ONCE, "exactly-once"),
        (True, KeyedSink(), CheckpointingMode.AT_LEAST_ONCE, "exactly-once"),
        (True, ExactSink(), CheckpointingMode.NONE, "at-most-once"),
        (False, RepeatingSink(), CheckpointingMode.NONE, "at-most-once"),
        (True, PromisesNothing(), CheckpointingMode.EXACTLY_ONCE, "none"),
        (False, ExactSink(), CheckpointingMode.EXACTLY_ONCE, "at-most-once"),
        (False, RepeatingSink(), CheckpointingMode.EXACTLY_ONCE, "none"),
    ],
)
def test_guarantee_is_that_of_the_weakest_part(
    replayable: bool, sink: BlackholeSink, mode: CheckpointingMode, expected: str
) -> None:
    env = environment("checkpoints")
    env.enable_checkpointing(1000, mode)
    source = NumberSequenceSource(1, 2) if replayable else FleetingSource(1, 2)
    env.from_source(source, None, "numbers").sink_to(sink)
    (found,) = sink_guarantees(env.get_job_graph())
    assert found.guarantee == expected
    assert bool(found.reasons) == (expected != "exactly-once")
    assert bool(found.notes) == isinstance(sink, KeyedSink)


def test_a_sink_that_commits_nothing_repeats_what_it_writes() -> None:
    class ShowingSink(ExactSink):
        kind = Sink.kind

    env = environment("checkpoints")
    env.from_sequence(1, 2).sink_to(ShowingSink())
    (found,) = sink_guarantees(env.get_job_graph())
    assert found.guarantee == "at-least-once"
    assert "no committer" in found.reasons[0]


@pytest.mark.parametrize(
    ("sink", "mode", "expected"),
    [
        (KeyedSink(), CheckpointingMode.EXACTLY_ONCE, "exactly-once"),
        # Counts that were restored may have taken in what is read again.
        (KeyedSink(), CheckpointingMode.AT_LEAST_ONCE, "at-least-once"),
        (CollectSink("collected"), CheckpointingMode.NONE, "at-most-once"),
        (KeyedSink(), CheckpointingMode.NONE, "none"),
    ],
)
def test_guarantee_where_tasks_go_on(sink: Sink, mode: CheckpointingMode, expected: str) -> None:
    env = environment("checkpoints", "pipelined")
    env.enable_checkpointing(1000, mode)
    env.from_source(NumberSequenceSource(1, 2), None, "numbers").sink_to(sink)
    (found,) = sink_guarantees(env.get_job_graph())
    assert found.guarantee == expected
    assert bool(found.reasons) == (expected != "exactly-once")


@pytest.mark.parametrize("directory", ["", "checkpoints"])
def test_without_a_checkpoint_directory_exactly_once_ends_with_the_driver(directory: str) -> None:
    env = environment(directory)
    numbers = env.from_source(NumberSequenceSource(1, 2), None, "numbers")
    numbers.sink_to(BlackholeSink())
    numbers.print()
    numbers.sink_to(CollectSink("collected"))
    notes = [each.notes for each in sink_guarantees(env.get_job_graph())]
    said = ("as long as the driver lives: execution.checkpointing.dir is not set",)
    assert [[note.split(", so")[0] for note in each] for each in notes] == [
        [] if directory else list(said),
        [],
        [],
    ]


def test_the_table_of_the_page_is_what_is_computed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "concepts" / "guarantees.md").read_text()
    assert f"\n\n{guarantee_table()}\n" in page
