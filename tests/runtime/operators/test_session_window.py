"""Sessions that fire by the watermark alone: they agree with the general operator."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from millstream.datastream.window import CountEvictor, EventTimeSessionWindows, TimeWindow
from millstream.functions.functions import ProcessWindowFunction
from millstream.runtime.operators import ProcessSpec, ReduceSpec, WindowFactory
from millstream.runtime.operators.windows.generic import (
    GeneralWindowOperator,
    SessionWindowOperator,
)
from millstream.testing.harness import OperatorHarness


class Listed(ProcessWindowFunction[Any, Any, Any, TimeWindow]):
    """The elements as they come, with the session."""

    def process(self, key: Any, context: Any, elements: Any) -> Any:
        window = context.window()
        yield key, window.start, window.end, list(elements)


def joined(one: Any, other: Any) -> Any:
    return one[0], one[1] + other[1]


def key_of(record: Any) -> Any:
    return record[0]


class General(WindowFactory):
    """Makes the general operator whatever the windows are."""

    def create(self) -> GeneralWindowOperator:
        return GeneralWindowOperator(replace(self, late_tag="late"))


SPECS = {"reduce": ReduceSpec(joined), "process": ProcessSpec(Listed())}
ASSIGNERS = {
    "fixed": EventTimeSessionWindows.with_gap(10),
    "dynamic": EventTimeSessionWindows.with_dynamic_gap(lambda record: 3 + record[2] % 20),
}


def play(harness: OperatorHarness, seed: int) -> tuple[list[Any], list[Any]]:
    """Random batches, watermarks and cuts; returns what came out."""
    chance = random.Random(seed)
    now = 0
    for _ in range(25):
        stamps = [max(0, now + chance.randrange(-25, 40)) for _ in range(chance.randrange(12))]
        values = [(chance.choice(["a", "b", 3]), [stamp], chance.randrange(50)) for stamp in stamps]
        harness.process_all(values, stamps)
        now += chance.randrange(20)
        if chance.random() < 0.7:
            harness.watermark(now)
        if chance.random() < 0.3:
            harness.end_epoch(swap=chance.random() < 0.5)
    harness.finish()
    assert [name for name, _ in harness.state_entries() if name[:1] != b"M"] == []
    return harness.events, harness.side_records.get("late", [])


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("evictor", [None, CountEvictor.of(2)])
@pytest.mark.parametrize("assigner", ASSIGNERS.values(), ids=ASSIGNERS)
@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_agree_with_the_general_operator(assigner: Any, spec: Any, evictor: Any) -> None:
    for seed in range(6):
        played = []
        for make in (WindowFactory, General):
            factory = make(assigner, spec, key_of, late_tag="late", evictor=evictor)
            with OperatorHarness(factory) as harness:
                chosen = SessionWindowOperator if make is WindowFactory else GeneralWindowOperator
                assert type(harness.operator) is chosen
                played.append(play(harness, seed))
        assert played[0] == played[1]


@pytest.mark.parametrize("later", [0, 20])
def test_a_session_that_grew_before_a_restart_fires_at_its_last_end(later: int) -> None:
    assigner = EventTimeSessionWindows.with_gap(10)
    with OperatorHarness(WindowFactory(assigner, ReduceSpec(joined), key_of)) as harness:
        harness.process_all([("a", 1), ("a", 2), ("a", 4)], [0, 5, 12])
        # With another lateness it is another operator that goes on.
        harness.factory = WindowFactory(assigner, ReduceSpec(joined), key_of, later)
        harness.end_epoch()
        harness.watermark(20)
        assert harness.outputs == []
        harness.watermark(21)
        assert harness.records == [(("a", 7), 21)]
        harness.watermark(50)
        harness.end_epoch()
        assert [name for name, _ in harness.state_entries() if name[:1] != b"M"] == []


def test_records_of_one_batch_join_sessions_that_were_apart() -> None:
    assigner = EventTimeSessionWindows.with_gap(10)
    with OperatorHarness(WindowFactory(assigner, ProcessSpec(Listed()), key_of)) as harness:
        records = [("a", stamp) for stamp in (0, 15, 40, 8, 41)]
        harness.process_all(records, [stamp for _, stamp in records])
        harness.watermark(100)
        assert harness.outputs == [
            ("a", 0, 25, [("a", 0), ("a", 15), ("a", 8)]),
            ("a", 40, 51, [("a", 40), ("a", 41)]),
        ]
