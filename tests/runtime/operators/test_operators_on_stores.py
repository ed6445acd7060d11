"""The operators on the real backends: the same output as on the harness's own store."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import pytest

from millstream.checkpoint.local_storage import LocalStorage
from millstream.functions.functions import AggregateFunction
from millstream.functions.window_assigners import (
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TumblingEventTimeWindows,
)
from millstream.runtime.columnar.aggregates import Count, Sum
from millstream.runtime.operators import (
    AggregateSpec,
    ApplySpec,
    BuiltInSpec,
    KeyedReduceFactory,
    WindowFactory,
)
from millstream.state import keyed
from millstream.state.backend import open_store
from millstream.testing.harness import OperatorHarness
from millstream.types.types import Types

if TYPE_CHECKING:
    from pathlib import Path

    from millstream.contracts.key_value_store import KeyValueStore, StateHandle

RECORD = Types.TUPLE([Types.LONG(), Types.LONG()])


class Total(AggregateFunction):
    """A sum."""

    def create_accumulator(self) -> Any:
        return 0

    def add(self, value: Any, accumulator: Any) -> Any:
        return accumulator + value[1]

    def get_result(self, accumulator: Any) -> Any:
        return accumulator

    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        return acc_a + acc_b


class BackendHarness(OperatorHarness):
    """A harness whose epochs go through a backend's snapshot."""

    def __init__(self, backend: str, directory: Path, factory: Any) -> None:
        self._backend = backend
        self._directory = directory
        self._storage = LocalStorage(str(directory / "checkpoints"), fsync=False)
        self._handle: list[StateHandle] = []
        self._real: KeyValueStore | None = None
        super().__init__(factory, input_type=RECORD)

    def _snapshot_store(self) -> None:
        assert self._real is not None
        self._handle = [self._real.snapshot()]

    def _restore_context(self) -> Any:
        # The harness has a store of its own: a real one is opened from its last snapshot instead.
        context = super()._restore_context()
        if self._real is not None:
            self._real.close()
        self._real = open_store(
            self._backend, self._storage, "uid", 0, (0, 128), self._handle,
            f"attempt-{self.epoch}", self._directory / "local", fsync=False,
        )  # fmt: skip
        context.store = self._real
        return context


FACTORIES: dict[str, Any] = {
    "reduce": KeyedReduceFactory(lambda a, b: (a[0], a[1] + b[1]), lambda r: r[0]),
    "aggregate": WindowFactory(
        SlidingEventTimeWindows.of(20, 10), AggregateSpec(Total()), lambda r: r[0], 15
    ),
    "apply": WindowFactory(
        TumblingEventTimeWindows.of(20),
        ApplySpec(lambda key, window, elements: [(key, window.end, list(elements))]),
        lambda r: r[0],
        15,
    ),
    "built-in": WindowFactory(
        SlidingEventTimeWindows.of(20, 10), BuiltInSpec([Count(), Sum(1)]), lambda r: r[0], 15
    ),
}


def feed(harness: OperatorHarness, seed: int) -> list[str]:
    chance = random.Random(seed)
    for position in range(40):
        count = chance.randrange(1, 9)
        records = [(chance.randrange(5), position) for _ in range(count)]
        harness.process_all(records, [position * 3 + chance.randrange(-20, 20) for _ in records])
        if chance.random() < 0.5:
            harness.watermark(position * 3 - chance.randrange(20))
        if chance.random() < 0.4:
            harness.end_epoch()
    harness.finish()
    return sorted(map(repr, harness.records))


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("backend", ["hashmap", "rocksdb"])
@pytest.mark.parametrize("kind", FACTORIES)
def test_agree_backends(backend: str, kind: str, tmp_path: Path) -> None:
    factory = FACTORIES[kind]
    expected = feed(OperatorHarness(factory, input_type=RECORD), seed=1)
    assert len(expected) > 20
    assert feed(BackendHarness(backend, tmp_path, factory), seed=1) == expected


SESSIONS: dict[str, Any] = {
    "built-in sessions": WindowFactory(
        EventTimeSessionWindows(6), BuiltInSpec([Count(), Sum(1)]), lambda r: r[0], 15
    ),
    "sessions": WindowFactory(
        EventTimeSessionWindows(6), AggregateSpec(Total()), lambda r: r[0]
    ),
    "late sessions": WindowFactory(
        EventTimeSessionWindows(6), AggregateSpec(Total()), lambda r: r[0], 15
    ),
}  # fmt: skip


@pytest.mark.sampled(every=3)
@pytest.mark.parametrize("engine", ["long-lived"], indirect=True)
@pytest.mark.parametrize(
    ("most_bytes", "most_unwritten"), [(0, 0), (3_000, 3), (64 << 20, 0), (64 << 20, 2_000)]
)
@pytest.mark.parametrize("kind", FACTORIES | SESSIONS)
def test_agree_however_much_stays_in_memory(
    kind: str, most_bytes: int, most_unwritten: int, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Evicted, and written ahead of snapshots, at any moment: the results are the same."""
    assert engine == "long-lived"
    factory = (FACTORIES | SESSIONS)[kind]
    monkeypatch.setattr(keyed, "MOST_UNWRITTEN", most_unwritten)
    monkeypatch.setattr(OperatorHarness, "managed_memory", most_bytes)
    expected = feed(OperatorHarness(factory, input_type=RECORD, long_lived=False), seed=2)
    assert feed(OperatorHarness(factory, input_type=RECORD, long_lived=True), seed=2) == expected
