"""Kinds of rows on their way: through cuts, conversions, frames of all encodings and exchanges.

The model of a batch is a list of (value, kind, timestamp).
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pyarrow as pa
import pytest
from tests.integration.job_runs import collect, collected, environment

from millstream.common import Row, RowKind, Types
from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.errors import TypeMismatchError
from millstream.graph.model import Partitioning, StreamEdge
from millstream.runtime.exchange import (
    DATA_ARROW,
    DATA_PICKLE,
    ExchangeWriter,
    Outbox,
    concatenate,
    create_partitioner,
    decode_batch,
    encode_batch,
)
from millstream.runtime.operators import FilterFactory, MapBatchesFactory
from millstream.testing.harness import OperatorHarness
from millstream.testing.mini_cluster import MiniCluster
from millstream.types.row import kinds_of, row_class, without_kind_column

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from millstream.types.types import TypeInformation

KINDS = list(RowKind)
ROW = Types.ROW_NAMED(["key", "n"], [Types.STRING(), Types.LONG()])
#: Whether rows say themselves what they are.
TYPES: dict[str, tuple[TypeInformation, bool]] = {
    "untyped rows": (Types.PICKLED_BYTE_ARRAY(), True),
    "untyped tuples": (Types.PICKLED_BYTE_ARRAY(), False),
    "rows": (ROW, True),
    "tuples": (Types.TUPLE([Types.STRING(), Types.LONG()]), False),
    "numbers": (Types.LONG(), False),
}


@dataclass
class Model:
    values: list[Any]
    kinds: list[int]
    stamps: list[int]

    def picked(self, positions: list[int]) -> Model:
        columns = (self.values, self.kinds, self.stamps)
        return Model(*([each[i] for i in positions] for each in columns))


def plain(value: object) -> object:
    return list(value) if isinstance(value, Row | tuple) else value


def check(batch: Batch, model: Model, *, rows: bool) -> None:
    kinds = batch.row_kinds
    assert (kinds is None) == (not any(model.kinds))
    assert (kinds if kinds is not None else np.zeros(len(batch), np.int8)).tolist() == model.kinds
    assert [plain(value) for value in batch.values] == [plain(value) for value in model.values]
    assert batch.timestamp_list == model.stamps
    if rows:
        found = [cast("Row", value).get_row_kind().value for value in batch.values]
        assert found == model.kinds
    if batch.type_info.arrow_schema is not None:
        assert batch.arrow.schema.equals(batch.type_info.arrow_schema)  # no column of kinds


def drawn(draw: random.Random, form: str, count: int, *, changes: bool) -> tuple[Batch, Model]:
    """A batch of one of the forms that batches may have, given as values or as columns."""
    kind, rows = TYPES[form]
    kinds = [draw.randrange(4) if changes else 0 for _ in range(count)]
    values: list[Any] = [(draw.choice("abcdef"), draw.randrange(100)) for _ in range(count)]
    if form == "numbers":
        values = [number for _, number in values]
    stamps = [draw.randrange(1000) for _ in range(count)] if draw.random() < 0.5 else None
    model = Model(values, kinds, stamps or [MIN_TIMESTAMP] * count)
    numbers = np.array(kinds, dtype=np.int8) if any(kinds) or draw.random() < 0.2 else None
    if kind.arrow_schema is not None and draw.random() < 0.5:
        arrow = kind.to_arrow(values)
        if rows and draw.random() < 0.5:  # as sources give rows
            arrow = kind.to_arrow(as_rows(values, kinds))
            numbers = None
        return Batch(kind, arrow=arrow, timestamps=stamps, row_kinds=numbers), model
    if rows:
        return Batch(kind, values=as_rows(values, kinds), timestamps=stamps), model
    return Batch(kind, values=values, timestamps=stamps, row_kinds=numbers), model


def as_rows(values: list[Any], kinds: list[int]) -> list[Any]:
    return [row_class(("key", "n"), KINDS[k])(v) for v, k in zip(values, kinds, strict=True)]


def through_a_frame(batch: Batch) -> Batch:
    kind, payload = encode_batch(batch)
    assert kind == (DATA_PICKLE if batch.type_info.arrow_schema is None else DATA_ARROW)
    return decode_batch(kind, payload, batch.type_info)


def touched(batch: Batch) -> Batch:
    assert len(batch.values) == len(batch)
    return batch


def checked(batch: Batch) -> Batch:
    batch.check("here")
    return batch


@pytest.mark.parametrize("form", TYPES)
@pytest.mark.parametrize("seed", range(40))
def test_kinds_stay_with_their_records(form: str, seed: int) -> None:
    draw = random.Random(f"{form}-{seed}")
    rows = TYPES[form][1]
    batch, model = drawn(draw, form, draw.randrange(1, 30), changes=draw.random() < 0.8)
    same: list[Callable[[Batch], Batch]] = [
        through_a_frame,
        touched,
        checked,
        lambda b: b.conformed,
        lambda b: b.with_timestamps(b.raw_timestamps),
    ]
    for _ in range(8):
        size = len(batch)
        step = draw.randrange(6)
        if step == 0:
            positions = [draw.randrange(size) for _ in range(draw.randrange(1, size + 1))]
            batch, model = batch.take(positions), model.picked(positions)
        elif step == 1:
            mask = [draw.random() < 0.8 for _ in range(size - 1)] + [True]
            positions = [i for i, kept in enumerate(mask) if kept]
            batch, model = batch.filter(mask), model.picked(positions)
        elif step == 2:
            start = draw.randrange(size)
            stop = draw.randrange(start + 1, size + 1)
            batch, model = batch.slice(start, stop), model.picked(list(range(start, stop)))
        elif step == 3:
            other, added = drawn(draw, form, draw.randrange(1, 9), changes=draw.random() < 0.5)
            batch = concatenate([batch, other])
            names = ("values", "kinds", "stamps")
            model = Model(*(getattr(model, name) + getattr(added, name) for name in names))
        else:
            batch = draw.choice(same)(batch)
    check(batch, model, rows=rows)


@pytest.mark.parametrize("form", TYPES)
@pytest.mark.parametrize("seed", range(6))
def test_kinds_cross_an_exchange_in_order(form: str, seed: int) -> None:
    """Batches with changes and batches of inserts only, on one channel, split by key."""
    draw = random.Random(f"{form}-{seed}")
    kind, rows = TYPES[form]

    def key_of(value: Any) -> Any:
        return value if form == "numbers" else value[0]

    edge = StreamEdge(3, 1, 2, 0, Partitioning.HASH, None, kind, key_selector=key_of)
    reader = OperatorHarness(FilterFactory(bool), input_type=kind, parallelism=3).context
    outbox = Outbox()
    writer = ExchangeWriter(edge, 1, 3, create_partitioner(edge, 0, 1, reader), outbox)
    sent: list[tuple[Any, int]] = []
    for number in range(12):
        batch, model = drawn(draw, form, draw.randrange(1, 40), changes=draw.random() < 0.5)
        sent += [(plain(v), k) for v, k in zip(model.values, model.kinds, strict=True)]
        writer.emit(batch)
        if draw.random() < 0.3:
            writer.emit_watermark(number)
    writer.flush()

    received: dict[int, list[tuple[Any, int]]] = defaultdict(list)
    for frames in outbox.drain():
        for frame in frames.to_pylist():
            if frame["kind"] in (DATA_ARROW, DATA_PICKLE):
                got = decode_batch(frame["kind"], frame["payload"], kind)
                kinds = got.row_kinds
                numbers = [0] * len(got) if kinds is None else kinds.tolist()
                received[frame["subtask"]] += zip(map(plain, got.values), numbers, strict=True)
                if rows:
                    assert numbers == [cast("Row", v).get_row_kind().value for v in got.values]
    by_subtask = {subtask: {key_of(v) for v, _ in got} for subtask, got in received.items()}
    assert sum(map(len, by_subtask.values())) == len({key_of(v) for v, _ in sent})
    for subtask, keys in by_subtask.items():
        assert received[subtask] == [(v, k) for v, k in sent if key_of(v) in keys]


@pytest.mark.parametrize("form", ["rows", "tuples", "numbers"])
def test_inserts_have_no_column_in_frames(form: str) -> None:
    draw = random.Random(form)
    batch, _ = drawn(draw, form, 20, changes=False)
    _, payload = encode_batch(batch)
    with pa.ipc.open_stream(payload) as reader:
        names = [name for name in reader.schema.names if name != "__timestamp"]
    schema = TYPES[form][0].arrow_schema
    assert schema is not None
    assert names == schema.names
    changes, _ = drawn(draw, form, 20, changes=True)
    with pa.ipc.open_stream(encode_batch(changes)[1]) as reader:
        assert "$row_kind" in reader.schema.names


def test_kinds_beside_rows_win_and_leave_the_callers_rows_alone() -> None:
    rows: list[object] = [Row(key="a", n=1), Row(key="b", n=2)]
    batch = Batch(ROW, values=rows, row_kinds=np.array([0, 3], np.int8))
    assert [cast("Row", row).get_row_kind() for row in batch.values] == [
        RowKind.INSERT,
        RowKind.DELETE,
    ]
    assert batch.values[0] is rows[0]
    assert cast("Row", rows[1]).get_row_kind() is RowKind.INSERT
    inserts = batch.with_row_kinds(None)
    assert inserts.row_kinds is None
    assert kinds_of(inserts.values) is None


def test_map_batches_sees_kinds_and_keeps_them() -> None:
    batch = Batch(
        ROW,
        arrow=ROW.to_arrow([("a", 1), ("b", 2), ("c", 3)]),
        row_kinds=np.array([1, 0, 3], np.int8),
    )

    def kinds_after(function: Any) -> list[int]:
        with OperatorHarness(MapBatchesFactory(function), input_type=ROW, output_type=ROW) as op:
            op.process_batch(batch)
            (made,) = op.batches
            kinds = made.row_kinds
            return [0] * len(made) if kinds is None else kinds.tolist()

    assert kinds_after(lambda columns: columns) == [1, 0, 3]
    assert kinds_after(lambda columns: columns.filter(pa.array([False, True, True]))) == [0, 3]
    assert kinds_after(lambda columns: columns.sort_by([("n", "descending")])) == [3, 0, 1]
    for without in (
        lambda columns: columns.select(["key", "n"]).slice(1),
        # By position they would be those of other records.
        lambda columns: columns.sort_by([("n", "descending")]).select(["key", "n"]),
    ):
        with pytest.raises(TypeMismatchError, match=r"updates or deletions.*\$row_kind"):
            kinds_after(without)


@pytest.mark.both_engines
@pytest.mark.parametrize("typed", [True, False])
def test_rows_of_a_job_keep_the_kind_that_the_program_gave(tmp_path: Path, typed: bool) -> None:
    """From a collection, through functions, a filter and an exchange, into a sink."""
    kind = ROW if typed else Types.PICKLED_BYTE_ARRAY()
    rows = as_rows([("abc"[n % 3], n) for n in range(60)], [n % 4 for n in range(60)])
    inserts = as_rows([("abc"[n % 3], n) for n in range(60, 90)], [0] * 30)

    def turned(row: Any) -> Any:
        made = Row(key=row.key, n=row.n)
        made.set_row_kind(KINDS[3 - row.get_row_kind().value])
        return made

    env = environment(2)
    both = env.from_collection(rows, kind).union(env.from_collection(inserts, kind))
    kept = both.filter(lambda row: row.n % 5 != 0).key_by(lambda row: row.key)
    collect(kept.map(turned, output_type=kind).rebalance(), tmp_path)
    MiniCluster(env.get_job_graph("kinds"), tmp_path / "checkpoint").run()
    wanted = {(row.key, row.n, 3 - row.get_row_kind().value) for row in rows + inserts if row.n % 5}
    found = collected(tmp_path)
    assert {(row.key, row.n, row.get_row_kind().value) for row in found} == wanted
    assert len(found) == len(wanted)


def test_kinds_out_of_range_are_refused() -> None:
    columns = pa.record_batch({"n": [1], "$row_kind": [4]})
    with pytest.raises(TypeMismatchError, match="from 0 to 3"):
        without_kind_column(columns)
