"""Batches are put together for operators that ask for it, and nothing passes them by."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from millstream.contracts.batch import Batch
from millstream.runtime import task
from millstream.runtime.exchange import (
    DATA_PICKLE,
    FINISHED,
    WATERMARK,
    Destination,
    Outbox,
    encode_long,
)
from millstream.runtime.task import FrameReader
from millstream.types.pickling import dumps
from millstream.types.types import ArrowTypeInfo, RowTypeInfo

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pytest

_MANAGED = 512 << 20
TYPE = RowTypeInfo([ArrowTypeInfo(pa.int64())], ["v"])


def batch(*values: int, kinds: Sequence[int] | None = None) -> Batch:
    arrow = pa.RecordBatch.from_arrays([pa.array(values, pa.int64())], names=["v"])
    return Batch(TYPE, arrow=arrow, row_kinds=None if kinds is None else np.array(kinds, np.int8))


class Instance:
    """Records what comes to the operators 1 and 2, in its order."""

    def __init__(self, edges: dict[int, int]) -> None:
        self.level = 1
        self.outbox = Outbox()
        self.received: Counter[int] = Counter()
        self.seen: list[Any] = []
        self.edges = {
            number: SimpleNamespace(id=number, target=target, input_index=0, type_info=TYPE)
            for number, target in edges.items()
        }
        self.operators = {
            target: SimpleNamespace(
                gathers_batches=target == 1,
                process_batch=lambda batch, _, target=target: self._batch(target, batch),
            )
            for target in edges.values()
        }

    def read_gauges(self) -> None:
        """There are none."""

    def _batch(self, target: int, batch: Batch) -> None:
        kinds = None if batch.row_kinds is None else batch.row_kinds.tolist()
        self.seen.append((target, batch.arrow.column(0).to_pylist(), kinds))

    def channel_watermark(self, target: int, edge: int, channel: int, watermark: int) -> None:
        self.seen.append((target, edge, channel, watermark))

    def channel_finished(self, target: int, edge: int, channel: int) -> None:
        self.seen.append((target, edge, channel, "finished"))


def read(instance: Any, frames: Sequence[tuple[int, int, Any]]) -> list[Any]:
    """What comes to the operators; frames are edge, channel, and a batch, watermark or None."""
    outbox = Outbox()
    for edge, channel, content in frames:
        if isinstance(content, Batch):
            outbox.add_batch(Destination(1, 0, edge, channel, 0, 0), content)
        elif content is None:
            outbox.add(Destination(1, 0, edge, channel), FINISHED, b"")
        else:
            outbox.add(Destination(1, 0, edge, channel), WATERMARK, encode_long(content))
    assert not list(FrameReader(instance, _MANAGED).read(outbox.drain()))
    seen: list[Any] = instance.seen
    return seen


def test_what_is_behind_records_stays_behind_them() -> None:
    frames = [
        *((7, 0, 5), (7, 0, batch(1)), (7, 1, batch(2, kinds=[3])), (7, 0, 6), (8, 0, batch(9))),
        *((8, 0, 4), (7, 1, batch(3, 4)), (7, 1, 8), (7, 0, None), (8, 0, batch(10))),
    ]
    assert read(Instance({7: 1, 8: 2}), frames) == [
        (1, 7, 0, 5),
        (2, [9], None),
        (2, 8, 0, 4),
        (2, [10], None),
        (1, [1, 2, 3, 4], [0, 3, 0, 0]),
        (1, 7, 0, 6),
        (1, 7, 1, 8),
        (1, 7, 0, "finished"),
    ]


def test_so_much_is_gathered_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_MOST_ROWS", 3)
    frames = [(7, 0, batch(1)), (7, 0, 5), (7, 0, batch(2, 3)), (7, 0, batch(4)), (7, 0, 6)]
    assert read(Instance({7: 1}), frames) == [
        (1, [1, 2, 3], None),
        (1, 7, 0, 5),
        (1, [4], None),
        (1, 7, 0, 6),
    ]


def test_little_managed_memory_bounds_what_is_gathered() -> None:
    """Operators take several times the memory of a batch while they process it."""
    instance: Any = Instance({7: 1})
    outbox = Outbox()
    for number in range(4):
        outbox.add_batch(Destination(1, 0, 7, 0, 0, 0), batch(*[number] * 1_000))
    reader = FrameReader(instance, 16 * 12_000)
    assert not list(reader.read(outbox.drain()))
    assert [len(values) for _, values, _ in instance.seen] == [2_000, 2_000]


def test_a_batch_of_more_bytes_than_allowed_is_processed_in_parts() -> None:
    instance: Any = Instance({7: 1, 8: 1})
    values = list(range(5_000))
    outbox = Outbox()
    outbox.add_batch(Destination(1, 0, 7, 0, 0, 0), batch(*values, kinds=[0, 3] * 2_500))
    assert not list(FrameReader(instance, 16 * 8 * 2_000).read(outbox.drain()))
    assert [len(part) for _, part, _ in instance.seen] == [2_000, 2_000, 1_000]
    assert [value for _, part, _ in instance.seen for value in part] == values
    assert [kind for _, _, kinds in instance.seen for kind in kinds] == [0, 3] * 2_500


def test_an_operator_of_several_inputs_gets_its_batches_as_they_come() -> None:
    frames = [(7, 0, batch(1)), (8, 0, batch(2)), (7, 0, batch(3)), (8, 0, 5)]
    assert read(Instance({7: 1, 8: 1}), frames) == [
        (1, [1], None),
        (1, [2], None),
        (1, [3], None),
        (1, 8, 0, 5),
    ]


def test_what_is_gathered_keeps_no_epoch_in_memory() -> None:
    """Columns are views of what came with them, which may be frames of other edges."""
    big, most = b"x" * (1 << 20), 0
    instance: Any = Instance({7: 1, 8: 2})
    instance.operators[2].process_batch = lambda *_: None

    def frames() -> Iterator[pa.RecordBatch]:
        nonlocal most
        for number in range(100):
            outbox = Outbox()
            outbox.add_batch(Destination(1, 0, 7, 0, 0, 0), batch(number))
            outbox.add(Destination(1, 0, 8, 0), DATA_PICKLE, dumps(([big], None, None)))
            yield from outbox.drain()
            most = max(most, pa.total_allocated_bytes() - before)

    before = pa.total_allocated_bytes()
    assert not list(FrameReader(instance, _MANAGED).read(frames()))
    assert [value for _, values, _ in instance.seen for value in values] == list(range(100))
    assert 1 < len(instance.seen) < 20
    assert most < 2 * (16 << 20)
