"""Timestamps and watermarks: vectorised and per record alike."""

from __future__ import annotations

import datetime as dt
import pickle
import random
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from millstream.common import Duration, Types, WatermarkStrategy, field_timestamps
from millstream.contracts.batch import Batch
from millstream.errors import ProgramError, TypeMismatchError
from millstream.functions.watermark_strategy import (
    BoundedOutOfOrdernessWatermarks,
    NoWatermarks,
    TimestampAssigner,
    WatermarkGenerator,
    WatermarkOutput,
)
from millstream.types.time import MAX_TIMESTAMP, MIN_TIMESTAMP

if TYPE_CHECKING:
    from collections.abc import Callable

    from millstream.types.types import TypeInformation


class Collected:
    def __init__(self) -> None:
        self.watermarks: list[int] = []

    def emit_watermark(self, watermark: int) -> None:
        self.watermarks.append(watermark)

    def mark_idle(self) -> None:
        pass

    def current_processing_time(self) -> int:
        return 0


class ByAttribute(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value.ts  # type: ignore[no-any-return]


class OneLater(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return record_timestamp + 1


class Punctuated(WatermarkGenerator):
    def __init__(self) -> None:
        self.seen = 0

    def on_event(self, event: Any, event_timestamp: int, output: WatermarkOutput) -> None:
        self.seen += 1
        if event == "mark":
            output.emit_watermark(event_timestamp)

    def on_periodic_emit(self, output: WatermarkOutput) -> None:
        pass


ROW = Types.ROW_NAMED(["key", "ts"], [Types.STRING(), Types.LONG()])
TIMES = Types.ROW_NAMED(["key", "ts"], [Types.STRING(), Types.SQL_TIMESTAMP()])
ZONED = Types.ROW_NAMED(["key", "ts"], [Types.STRING(), Types.TIMESTAMP_LTZ()])


def columnar(info: TypeInformation, values: list[Any]) -> Batch:
    return Batch(info, arrow=info.to_arrow(values))


@pytest.mark.parametrize(
    "assigner",
    [
        lambda r, _t: r.ts,
        lambda r, _t: r["ts"],
        lambda r, _t: r[1],
        lambda r, _t: r[-1],
        field_timestamps("ts"),
        field_timestamps(1),
        ByAttribute(),
    ],
)
@pytest.mark.parametrize("info", [ROW, TIMES, ZONED], ids=["long", "timestamp", "zoned"])
def test_agree_vectorised_and_per_record(
    assigner: Callable[[Any, int], int], info: TypeInformation
) -> None:
    rng = random.Random(7)
    millis = [rng.randrange(-(10**12), 10**12) for _ in range(200)]
    epoch = dt.datetime(1970, 1, 1, tzinfo=dt.UTC if info is ZONED else None)
    # Half a millisecond on top: both ways round towards minus infinity.
    half = dt.timedelta(microseconds=500)
    times = millis if info is ROW else [epoch + dt.timedelta(milliseconds=m) + half for m in millis]
    batch = columnar(info, [("k", time) for time in times])
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(assigner)
    vectorised = strategy.extract_timestamps(batch)
    per_record = strategy.extract_timestamps(Batch(info, values=batch.values))
    assert vectorised.dtype == per_record.dtype == np.int64
    assert vectorised.tolist() == per_record.tolist() == millis


def test_vectorised_means_no_python_values() -> None:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda r, _t: r.ts)
    batch = columnar(ROW, [("a", 1)])
    strategy.extract_timestamps(batch)
    assert batch._values is None


def test_other_assigners_are_called_per_record() -> None:
    batch = Batch(Types.LONG(), values=[5, 6], timestamps=[10, 20])
    strategy = WatermarkStrategy.no_watermarks()
    assert strategy.extract_timestamps(batch).tolist() == [10, 20]
    later = strategy.with_timestamp_assigner(OneLater())
    assert later.extract_timestamps(batch).tolist() == [11, 21]
    own = strategy.with_timestamp_assigner(lambda v, t: v * 100 + t)
    assert own.extract_timestamps(batch).tolist() == [510, 620]
    assert own.extract_timestamps(Batch(Types.LONG(), values=[])).tolist() == []
    mixed = strategy.with_timestamp_assigner(lambda v, _t: np.int64(v) if v == 5 else v + 0.9)  # type: ignore[arg-type, return-value]
    assert mixed.extract_timestamps(batch).tolist() == [5, 6]
    dicts = Batch(Types.PICKLED_BYTE_ARRAY(), values=[{"ts": 3}])
    assert (
        strategy.with_timestamp_assigner(field_timestamps("ts")).extract_timestamps(dicts)[0] == 3
    )


@pytest.mark.parametrize("wrong", [None, "2020", True, float("nan"), 2**63])
def test_what_is_no_timestamp(wrong: object) -> None:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda v, _t: v)
    with pytest.raises(TypeMismatchError, match="timestamp"):
        strategy.extract_timestamps(Batch(Types.PICKLED_BYTE_ARRAY(), values=[1, wrong]))


def test_a_null_in_the_column_names_the_record() -> None:
    strategy = WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda r, _t: r.ts)
    with pytest.raises(TypeMismatchError, match="None for record 1"):
        strategy.extract_timestamps(columnar(ROW, [("a", 1), ("b", None)]))


@pytest.mark.parametrize("bound", [0, 1, 500])
def test_agree_batches_and_events(bound: int) -> None:
    rng = random.Random(bound)
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(bound))
    by_batch, by_event, output = (
        strategy.create_generator(),
        strategy.create_generator(),
        Collected(),
    )
    assert isinstance(by_batch, BoundedOutOfOrdernessWatermarks)
    seen = []
    for _ in range(20):
        times = [rng.randrange(10_000) for _ in range(rng.randrange(4))]
        seen += times
        by_batch.on_batch(np.array(times, dtype=np.int64))
        for time in times:
            by_event.on_event(None, time, output)
        by_event.on_periodic_emit(output)
        assert by_batch.current_watermark() == output.watermarks[-1]
        assert output.watermarks[-1] == (max(seen) - bound - 1 if seen else MIN_TIMESTAMP)


def test_watermarks_stay_within_the_range_of_a_long() -> None:
    generator = BoundedOutOfOrdernessWatermarks(1000)
    assert generator.current_watermark() == MIN_TIMESTAMP
    generator.on_batch(np.array([MIN_TIMESTAMP], dtype=np.int64))
    assert generator.current_watermark() == MIN_TIMESTAMP
    generator.on_batch(np.array([MAX_TIMESTAMP], dtype=np.int64))
    assert generator.current_watermark() == MAX_TIMESTAMP - 1001


def test_no_watermarks() -> None:
    generator = WatermarkStrategy.no_watermarks().create_generator()
    assert isinstance(generator, NoWatermarks)
    generator.on_batch(np.array([1], dtype=np.int64))
    output = Collected()
    generator.on_event("x", 1, output)
    generator.on_periodic_emit(output)
    assert (generator.current_watermark(), output.watermarks) == (MIN_TIMESTAMP, [])


def test_generator_state_is_its_attributes() -> None:
    generator = WatermarkStrategy.for_bounded_out_of_orderness(5).create_generator()
    assert isinstance(generator, BoundedOutOfOrdernessWatermarks)
    generator.on_batch(np.array([100], dtype=np.int64))
    restored = pickle.loads(pickle.dumps(generator))
    assert restored.current_watermark() == 94
    assert vars(restored) == {"max_out_of_orderness": 5, "max_timestamp": 100}
    assert type(restored.max_timestamp) is int


def test_own_generators() -> None:
    strategy = WatermarkStrategy.for_generator(Punctuated)
    generator, output = strategy.create_generator(), Collected()
    assert not generator.vectorised
    assert strategy.create_generator() is not generator
    for event, time in (("a", 1), ("mark", 2)):
        generator.on_event(event, time, output)
    assert output.watermarks == [2]
    assert pickle.loads(pickle.dumps(generator)).seen == 2


def test_strategies_are_immutable_and_picklable() -> None:
    plain = WatermarkStrategy.for_monotonous_timestamps()
    full = (
        plain.with_timestamp_assigner(field_timestamps("ts"))
        .with_idleness(Duration.of_seconds(5))
        .with_watermark_alignment("group", Duration.of_seconds(20))
    )
    assert (plain.timestamp_assigner, plain.idle_timeout, plain.alignment) == (None, None, None)
    restored = pickle.loads(pickle.dumps(full))
    assert restored.idle_timeout == 5000
    assert (restored.alignment.group, restored.alignment.max_drift) == ("group", 20_000)
    assert restored.alignment.update_interval == 1000
    for given, milliseconds in [(None, 1000), (Duration.of_seconds(5), 5000)]:
        aligned = plain.with_watermark_alignment("group", 10, given).alignment
        assert aligned is not None
        assert aligned.update_interval == milliseconds
    assert restored.extract_timestamps(columnar(ROW, [("a", 7)])).tolist() == [7]


def test_nonsense_is_refused() -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps()
    with pytest.raises(ProgramError, match="negative"):
        WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(-1))
    with pytest.raises(ProgramError, match="positive"):
        strategy.with_idleness(0)
    with pytest.raises(ProgramError, match="no timestamp assigner"):
        strategy.with_timestamp_assigner("ts")  # type: ignore[arg-type]
