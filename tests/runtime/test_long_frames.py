"""Records that are gathered for a target are several frames if one were too long."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.common import Types
from millstream.contracts.batch import Batch
from millstream.graph.model import Partitioning, StreamEdge
from millstream.runtime import exchange
from millstream.runtime.exchange import (
    DATA_ARROW,
    DATA_PICKLE,
    ExchangeWriter,
    Outbox,
    create_partitioner,
    decode_batch,
)
from millstream.runtime.operators import FilterFactory
from millstream.runtime.pipelined.links import Frame, Link, LinkOutbox, OutLink, TaskId
from millstream.testing.harness import OperatorHarness

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.types import TypeInformation

MOST = 10_000
TARGETS = 3

pytestmark = pytest.mark.parametrize(
    "type_info", [Types.STRING(), Types.PICKLED_BYTE_ARRAY()], ids=["columns", "objects"]
)


@pytest.fixture(autouse=True)
def limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchange, "_MOST_BYTES", MOST)


def _write(outbox: Outbox, batches: list[Batch]) -> None:
    type_info = batches[0].type_info
    edge = StreamEdge(0, 1, 2, 0, Partitioning.HASH, None, type_info, key_selector=lambda v: v)
    reader = OperatorHarness(FilterFactory(bool), input_type=type_info, parallelism=TARGETS).context
    partitioner = create_partitioner(edge, 0, 1, reader)
    writer = ExchangeWriter(edge, 1, TARGETS, partitioner, outbox)
    for batch in batches:
        writer.emit(batch)
    writer.flush()


def _batches(type_info: TypeInformation, lengths: Callable[[], int]) -> tuple[list[Batch], Any]:
    """Batches of different lengths, some of them slices of others; and (value, time) of all."""
    made, sent, number = [], [], 0
    for count in (1, 40, 3, 200, 1, 1, 90):
        values: list[object] = [
            f"{n:06}".ljust(lengths(), "x") for n in range(number, number + count)
        ]
        times = np.arange(number, number + count)
        whole = Batch(type_info, values=values, timestamps=times)
        if type_info.arrow_schema is not None:
            whole = whole.conformed
        made += [whole.slice(0, count // 2), whole.slice(count // 2, count)]
        sent += list(zip(values, times.tolist(), strict=True))
        number += count
    return made, sent


def test_no_frame_is_long_and_records_keep_their_order(type_info: TypeInformation) -> None:
    choose = random.Random(1)
    batches, sent = _batches(type_info, lambda: choose.choice([10, 700, 3 * MOST]))
    outbox = Outbox()
    _write(outbox, batches)
    got: list[list[Any]] = [[] for _ in range(TARGETS)]
    numbers: list[int] = []
    for rows in outbox.drain():
        for frame in rows.to_pylist():
            assert frame["kind"] in (DATA_ARROW, DATA_PICKLE)
            batch = decode_batch(frame["kind"], frame["payload"], type_info)
            assert len(frame["payload"]) < 1.2 * MOST or len(batch) == 1
            pairs = zip(batch.values, batch.timestamp_list, strict=True)
            got[frame["subtask"]] += list(pairs)
            numbers.append(frame["sequence"])
    assert numbers == list(range(len(numbers)))
    assert len(numbers) > 20
    assert sorted(pair for pairs in got for pair in pairs) == sent
    assert all(pairs == sorted(pairs) for pairs in got)


def test_short_records_stay_together(type_info: TypeInformation) -> None:
    batches, _ = _batches(type_info, lambda: 10)
    outbox = Outbox()
    _write(outbox, batches)
    assert sum(rows.num_rows for rows in outbox.drain()) == TARGETS


def test_slots_send_each_other_no_long_frame(type_info: TypeInformation) -> None:
    batches, sent = _batches(type_info, lambda: 700)
    source = TaskId(0, 0)
    links = {
        target: OutLink(Link(source, target), 1 << 20)
        for target in (TaskId(1, subtask) for subtask in range(TARGETS))
    }
    sizes: list[int] = []
    values: list[object] = []

    def deliver(link: Link, frame: Frame) -> None:
        del link
        assert isinstance(frame.payload, bytes)
        sizes.append(len(frame.payload))
        values.extend(decode_batch(frame.kind, frame.payload, type_info).values)

    _write(LinkOutbox(links, lambda _: False, deliver), batches)
    assert max(sizes) < 1.2 * MOST
    assert sorted(map(str, values)) == [value for value, _ in sent]
