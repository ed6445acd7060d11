"""OperatorHarness: runs one operator without Spark, with time and checkpoints under control.

For example::

    harness = OperatorHarness(KeyedProcessFactory(MyFunction(), lambda r: r[0]))
    harness.process(("a", 1), 10)
    harness.end_epoch()            # checkpoint, and continue in a fresh instance
    harness.watermark(100)
    assert harness.outputs == [...]

A checkpoint may come anywhere: the instance is closed, and a new one, made by the same factory,
starts on the state of the old one.  A ``long_lived`` harness behaves like an
engine that takes checkpoints while records flow: the instance continues after its snapshot, with
the store open.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Self

from millstream.configuration import options
from millstream.configuration.configuration import Configuration
from millstream.contracts.batch import MAX_TIMESTAMP, MIN_TIMESTAMP, Batch
from millstream.contracts.metrics import added
from millstream.contracts.operator import Checkpoint, OperatorContext, RestoreContext
from millstream.errors import StateError
from millstream.runtime.user_code import OutputCheck
from millstream.state.operator_state import OperatorStates, StateContent, inline_handle
from millstream.state.registry import META
from millstream.state.rescale import own_states
from millstream.testing.memory_store import MemoryStore
from millstream.types.types import Types

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from millstream.contracts.metrics import Measure, MetricValue
    from millstream.contracts.operator import (
        Operator,
        OperatorFactory,
        OperatorSnapshot,
        OperatorStateHandle,
    )
    from millstream.types.types import TypeInformation

__all__ = ["OperatorHarness"]


class _Recorder:
    """The output of the operator under test."""

    def __init__(self, harness: OperatorHarness) -> None:
        self._harness = harness

    def _refuse_while_restoring(self) -> None:
        if self._harness.is_restoring:
            message = "an operator emits while it is restored; those downstream may not be yet"
            raise StateError(message)

    def _check(self, batch: Batch, tag: str | None = None) -> None:
        OutputCheck(self._harness.context, tag)(batch)
        if batch.type_info.arrow_schema is not None:
            _ = batch.arrow  # of every record, as an exchange would

    def emit(self, batch: Batch) -> None:
        self._refuse_while_restoring()
        self._check(batch)
        records = list(zip(batch.values, batch.timestamp_list, strict=True))
        self._harness.batches.append(batch)
        self._harness.records.extend(records)
        self._harness.events.extend(("record", *record) for record in records)

    def emit_side(self, tag: str, batch: Batch) -> None:
        self._refuse_while_restoring()
        self._check(batch, tag)
        records = list(zip(batch.values, batch.timestamp_list, strict=True))
        self._harness.side_records.setdefault(tag, []).extend(records)

    def emit_watermark(self, watermark: int) -> None:
        self._refuse_while_restoring()
        self._harness.watermarks.append(watermark)
        self._harness.events.append(("watermark", watermark))

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - as in the contract
        self._refuse_while_restoring()
        self._harness.events.append(("idle", idle))


class OperatorHarness:
    """Feeds one operator and records what it emits; opened, in its first epoch, when it is made.

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
        long_lived: Whether the instance goes on behind a cut as it is, on the store that it
            has, instead of being restored; ``crash`` restores it in any case.
    """

    #: What ``long_lived`` is where it is not given.
    long_lived_by_default: ClassVar[bool] = False
    #: ``taskmanager.memory.managed.size`` where it is not set.
    managed_memory: ClassVar[int | None] = None

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
        long_lived: bool | None = None,
    ) -> None:
        self.factory = factory
        self.long_lived = self.long_lived_by_default if long_lived is None else long_lived
        self.is_restoring = False
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
            configuration=self._configured(configuration or Configuration()),
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
        #: Gauges, meters and distributions over all epochs, as ``contracts/metrics.py`` has them;
        #: their time is the processing time.
        self.measures: dict[str, Measure] = {}
        self.epoch = 0
        self.current_watermark = MIN_TIMESTAMP
        self.current_processing_time = 0
        self._store = MemoryStore()
        self._states = OperatorStates(f"operator {name!r}")
        self.operator_states: dict[str, OperatorStateHandle] = {}
        self.operator: Operator = self._begin()

    def _configured(self, configuration: Configuration) -> Configuration:
        if self.managed_memory is None or configuration.contains(options.MANAGED_MEMORY):
            return configuration
        return Configuration(configuration).set(options.MANAGED_MEMORY, self.managed_memory)

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
        """Process a batch, and write some state ahead of the snapshot if tasks live on."""
        self.operator.process_batch(batch, input_index)
        # What tests look at next is there, as it would be a little later in a job.
        self.operator.finish_pending()
        if self.long_lived:
            self.operator.write_some(0.0)

    def watermark(self, watermark: int) -> None:
        """Advance event time; a watermark that is not higher is passed over, as by the runtime."""
        if watermark > self.current_watermark:
            self.current_watermark = watermark
            self.operator.process_watermark(watermark)

    def processing_time(self, now: int) -> None:
        """Cut the epoch, and advance processing time."""
        self.current_processing_time = now
        self.end_epoch()
        if self.long_lived:
            self.operator.process_processing_time(now)

    def time_passes(self, now: int) -> None:
        """Advance processing time between two cuts, as where tasks live on."""
        self.current_processing_time = now
        self.operator.process_processing_time(now)

    def end_epoch(self, *, swap: bool = True, final: bool = False) -> OperatorSnapshot:
        """Take a checkpoint and go on: in a fresh instance if ``swap``, else in this one, restored.

        A harness that is long-lived goes on in this one, as it is.
        """
        is_long_running = self.long_lived and not final
        following = f"attempt-{self.epoch + 1}" if is_long_running else None
        snapshot = self.operator.snapshot(Checkpoint(self.epoch, following))
        #: As a checkpoint has them.
        self.operator_states = _handles(self._states)
        self.committables.extend(snapshot.committables)
        if snapshot.output is not None:
            self.committables.extend(snapshot.output.finish())
        self._add_metrics(snapshot.metrics)
        self._snapshot_store()
        self.epoch += 1
        if is_long_running:
            self._commit()
            return snapshot
        if swap:
            self.operator.close()
        if not final:
            self.operator = self._begin(None if swap else self.operator)
        return snapshot

    def _add_metrics(self, metrics: Mapping[str, MetricValue]) -> None:
        for name, value in metrics.items():
            if isinstance(value, int):
                # Else it would be known at checkpoints only.
                assert name in self.operator.counted, name  # noqa: S101 - a test kit
                self.metrics[name] = self.metrics.get(name, 0) + value
            elif value["kind"] == "counter":
                self.metrics[name] = self.metrics.get(name, 0) + value["count"]
            else:
                before, now = self.measures.get(name), self.current_processing_time
                self.measures[name] = added(before, value, self.context.subtask, now)

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
        """Return what the store holds, in order: to see that nothing is left behind.

        What it says of itself (``state/registry.py``) is left out.
        """
        entries = self._store.entries.items()
        return sorted(entry for entry in entries if not entry[0].startswith(META))

    def close(self) -> None:
        """Close the operator."""
        self.operator.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _begin(self, operator: Operator | None = None) -> Operator:
        """Restore an instance, a fresh one if none is given, to the last cut."""
        if operator is None:
            operator = self.factory.create()
            operator.setup(self.context, _Recorder(self))
            operator.open()
        self._commit()
        self.is_restoring = True
        try:
            operator.restore(self._restore_context())
        finally:
            self.is_restoring = False
        operator.process_processing_time(self.current_processing_time)
        return operator

    def _commit(self) -> None:
        """Note what there is: ``crash`` comes back to it."""
        self._committed = (
            dict(self._store.entries),
            len(self.records),
            len(self.watermarks),
            len(self.events),
            len(self.batches),
            self.current_watermark,
        )
        self._committed_sides = {tag: len(side) for tag, side in self.side_records.items()}

    def _snapshot_store(self) -> None:
        """Take the store's snapshot; an operator that is restored gets another store."""
        if not self.long_lived:
            self._store = self._store.copy()

    def _restore_context(self) -> RestoreContext:
        self._states = OperatorStates(f"operator {self.context.name!r}")
        self._states.restore(own_states(self.operator_states))
        return RestoreContext(
            epoch=self.epoch,
            attempt=f"attempt-{self.epoch}",
            processing_time=self.current_processing_time,
            store=self._store if self.factory.keyed else None,
            watermark=self.current_watermark,
            operator_states=self._states,
            resumes=self.long_lived,
        )


def _handles(states: OperatorStates) -> dict[str, OperatorStateHandle]:
    handles = {
        name: inline_handle(state) if isinstance(state, StateContent) else state
        for name, state in states.snapshot().items()
    }
    states.written(handles)
    return handles
