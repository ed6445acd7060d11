"""The rules of contracts/operator.py that the test kit holds operators to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from tests.runtime.operators.test_operators_on_stores import FACTORIES, RECORD, BackendHarness, feed

from millstream.contracts.operator import Operator, is_per_channel
from millstream.errors import StateError
from millstream.functions.watermark_strategy import WatermarkStrategy
from millstream.runtime.operators import TimestampsWatermarksFactory
from millstream.testing import OperatorHarness

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.batch import Batch
    from millstream.contracts.operator import RestoreContext


@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("kind", FACTORIES)
def test_rule_2_an_instance_that_went_on_forgets_it_when_it_is_restored(
    backend: str, kind: str, tmp_path: Path, engine: str
) -> None:
    factory = FACTORIES[kind]
    harness = BackendHarness(backend, tmp_path, factory)
    expected = OperatorHarness(factory, input_type=RECORD)
    for each in (harness, expected):
        each.process_all([(key, 1) for key in range(5)], [3] * 5)
        each.end_epoch(swap=False)
    # What is processed here is lost: the same instance is restored on the snapshot before it.
    harness.process_all([(key, 100) for key in range(5)], [4] * 5)
    del harness.records[len(expected.records) :]
    harness.operator = harness._begin(harness.operator)
    for each in (harness, expected):
        each.process_all([(key, 10) for key in range(5)], [5] * 5)
        each.finish()
    assert harness.outputs == expected.outputs
    assert len(harness.outputs) >= 5
    assert harness.long_lived == (engine == "long-lived")


class Hasty(Operator):
    """Emits while it is restored."""

    def restore(self, restored: RestoreContext) -> None:
        self.output.emit_watermark(restored.watermark)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        self.output.emit(batch)


@dataclass
class HastyFactory:
    keyed = False

    def create(self) -> Operator:
        return Hasty()


def test_rule_3_nothing_is_emitted_while_restoring() -> None:
    with pytest.raises(StateError, match="emits while it is restored"):
        OperatorHarness(HastyFactory())


@pytest.mark.parametrize("kind", FACTORIES)
def test_rule_6_counters_are_those_since_the_snapshot_before(kind: str) -> None:
    harness = OperatorHarness(FACTORIES[kind], input_type=RECORD)
    counts = []
    for count in (3, 0, 2):
        harness.process_all([(key, 1) for key in range(count)], [1] * count)
        counts.append(harness.end_epoch(swap=False).metrics["numRecordsIn"])
    assert counts == [3, 0, 2]


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("kind", FACTORIES)
def test_agree_engines(kind: str) -> None:
    results = [
        feed(OperatorHarness(FACTORIES[kind], input_type=RECORD, long_lived=lives), seed=7)
        for lives in (False, True)
    ]
    assert results[0] == results[1]
    assert len(results[0]) > 20


def test_who_is_per_channel_is_said_by_the_factory() -> None:
    strategy: Any = WatermarkStrategy.no_watermarks()
    assert is_per_channel(TimestampsWatermarksFactory(strategy))
    assert not is_per_channel(HastyFactory())
    assert not is_per_channel(None)
