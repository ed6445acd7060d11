"""The operator harness: runs one operator without Spark, with time and epochs under control.

What it is: what tests of operators and of user functions use::

    harness = OperatorHarness(KeyedProcessFactory(MyFunction(), lambda r: r[0]))
    harness.process(("a", 1), 10)
    harness.end_epoch()            # checkpoint, and go on in a fresh instance
    harness.watermark(100)
    assert harness.outputs == [...]

An epoch may be cut anywhere: the instance is closed, and a new one, made by the same factory,
starts on the state of the old one.

What it is not: parallel.  It runs one subtask; give ``subtask`` and ``parallelism`` for another.

Read next: ``contracts/operator.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from millstream.configuration.configuration import Configuration
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.contracts.operator import EpochContext, OperatorContext
from millstream.runtime.user_code import check_output
from millstream.testing.memory_store import MemoryStore
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.contracts.operator import Operator, OperatorFactory, OperatorSnapshot
    from millstream.types.typeinfo import TypeInformation

__all__ = ["OperatorHarness"]


class _Recorder:
    """The output of the operator under test."""

    def __init__(self, harness: OperatorHarness) -> None:
        self._harness = harness

    def emit(self, batch: Batch) -> None:
        check_output(self._harness.context, batch)
        records = list(zip(batch.values, batch.timestamp_list, strict=True))
        self._harness.batches.append(batch)
        self._harness.records.extend(records)
        self._harness.events.extend(("record", *record) for record in records)

    def emit_side(self, tag: str, batch: Batch) -> None:
        check_output(self._harness.context, batch, tag)
        records = list(zip(batch.values, batch.timestamp_list, strict=True))
        self._harness.side_records.setdefault(tag, []).extend(records)

    def emit_watermark(self, watermark: int) -> None:
        self._harness.watermarks.append(watermark)
        self._harness.events.append(("watermark", watermark))

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - as in the contract
        self._harness.events.append(("idle", idle))


class OperatorHarness:
    """Feeds one operator and records what it emits."""

    def __init__(
        self,
        factory: OperatorFactory,
        *,
        input_type: TypeInformation | None = None,
        output_type: TypeInformation | None = None,
        side_types: Mapping[str, TypeInformation] | None = None,
        batch_mode: bool = False,
        subtask: int = 0,
        parallelism: int = 1,
        max_parallelism: int = 128,
        configuration: Configuration | None = None,
        name: str = "operator",
    ) -> None:
        """Open an operator and begin its first epoch.

        Args:
            factory: Makes the operator, again after each cut.
            input_type: Type of the records of ``process``; untyped by default.
            output_type: Type of the main output; untyped by default.
            side_types: Types of side outputs by tag id.
            batch_mode: BATCH runtime mode.
            subtask: Which subtask this is.
            parallelism: Of how many.
            max_parallelism: Number of key groups.
            configuration: The job's configuration; empty by default.
            name: The operator's name in error messages.
        """
        self.factory = factory
        self.input_type = input_type or Types.PICKLED_BYTE_ARRAY()
        sides = dict(side_types or {})
        self.context = OperatorContext(
            uid=name,
            name=name,
            location="test",
            subtask=subtask,
            parallelism=parallelism,
            max_parallelism=max_parallelism,
            job_name="test",
            configuration=configuration or Configuration(),
            output_type=output_type or Types.PICKLED_BYTE_ARRAY(),
            side_types=sides,
            read_tags=frozenset(sides),
            batch_mode=batch_mode,
        )
        #: Everything emitted on the main output, as (value, timestamp).
        self.records: list[tuple[object, int]] = []
        #: The same as batches.
        self.batches: list[Batch] = []
        #: By tag id, as (value, timestamp).
        self.side_records: dict[str, list[tuple[object, int]]] = {}
        self.watermarks: list[int] = []
        #: ("record", value, timestamp), ("watermark", time) and ("idle", flag) in order.
        self.events: list[tuple[object, ...]] = []
        self.committables: list[object] = []
        #: Sums over all epochs.
        self.metrics: dict[str, int] = {}
        self.epoch = 0
        self.current_watermark = MIN_TIMESTAMP
        self.current_processing_time = 0
        self._store = MemoryStore()
        self._operator_state: object | None = None
        self.operator: Operator = self._begin()

    @property
    def outputs(self) -> list[object]:
        """The values emitted on the main output so far."""
        return [value for value, _ in self.records]

    def side_outputs(self, tag: str) -> list[object]:
        """Return the values emitted on a side output so far."""
        return [value for value, _ in self.side_records.get(tag, [])]

    def process(self, value: object, timestamp: int | None = None, input_index: int = 0) -> None:
        """Process one record."""
        stamps = None if timestamp is None else [timestamp]
        self.process_all([value], stamps, input_index)

    def process_all(
        self,
        values: Sequence[object],
        timestamps: Sequence[int] | None = None,
        input_index: int = 0,
        *,
        columnar: bool = False,
    ) -> None:
        """Process records as one batch; as Arrow columns if ``columnar`` (needs an input type)."""
        stamps = None if timestamps is None else list(timestamps)
        batch = Batch(self.input_type, values=list(values), timestamps=stamps)
        if columnar:
            batch = Batch(self.input_type, arrow=batch.arrow, timestamps=stamps)
        self.process_batch(batch, input_index)

    def process_batch(self, batch: Batch, input_index: int = 0) -> None:
        """Process a batch."""
        self.operator.process_batch(batch, input_index)

    def watermark(self, watermark: int) -> None:
        """Advance event time; a watermark that is not higher is passed over, as by the runtime."""
        if watermark > self.current_watermark:
            self.current_watermark = watermark
            self.operator.process_watermark(watermark)

    def processing_time(self, now: int) -> None:
        """Advance processing time, which moves at the start of an epoch only: cuts the epoch."""
        self.current_processing_time = now
        self.end_epoch()

    def end_epoch(self, *, swap: bool = True, final: bool = False) -> OperatorSnapshot:
        """End the epoch and begin the next on its state; in a fresh instance if ``swap``."""
        snapshot = self.operator.end_epoch()
        self._operator_state = snapshot.operator_state
        self.committables.extend(snapshot.committables)
        for name, count in snapshot.metrics.items():
            self.metrics[name] = self.metrics.get(name, 0) + count
        self._store = self._store.copy()
        self.epoch += 1
        if swap:
            self.operator.close()
            if not final:
                self.operator = self._begin()
        elif not final:
            self.operator.begin_epoch(self._epoch_context())
        return snapshot

    def crash(self) -> None:
        """Lose the running epoch, its output too: a fresh instance starts on the last cut."""
        self.operator.close()
        entries, records, watermarks, events, batches, self.current_watermark = self._committed
        self._store = MemoryStore(entries)
        del self.records[records:], self.watermarks[watermarks:]
        del self.events[events:], self.batches[batches:]
        for tag, side in self.side_records.items():
            del side[self._committed_sides.get(tag, 0) :]
        self.operator = self._begin()

    def finish(self) -> None:
        """End the input: the maximum watermark, ``end_input``, the last epoch."""
        self.watermark(MAX_TIMESTAMP)
        self.operator.end_input()
        self.end_epoch(final=True)

    def state_entries(self) -> Iterable[tuple[bytes, bytes]]:
        """Return what the store holds, in order: to see that nothing is left behind."""
        return sorted(self._store.entries.items())

    def close(self) -> None:
        """Close the operator."""
        self.operator.close()

    def __enter__(self) -> Self:
        """Return the harness."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the operator."""
        self.close()

    def _begin(self) -> Operator:
        operator = self.factory.create()
        operator.setup(self.context, _Recorder(self))
        operator.open()
        operator.begin_epoch(self._epoch_context())
        return operator

    def _epoch_context(self) -> EpochContext:
        self._committed = (
            dict(self._store.entries),
            len(self.records),
            len(self.watermarks),
            len(self.events),
            len(self.batches),
            self.current_watermark,
        )
        self._committed_sides = {tag: len(side) for tag, side in self.side_records.items()}
        return EpochContext(
            epoch=self.epoch,
            attempt=f"attempt-{self.epoch}",
            processing_time=self.current_processing_time,
            store=self._store if self.factory.keyed else None,
            watermark=self.current_watermark,
            operator_state=self._operator_state,
        )
