"""How long a checkpoint stands in the way of one keyed subtask whose task lives on.

What it is: an operator on a RocksDB of the default settings, in this process, driven as the main
loop of a slot does it: batches, every few milliseconds a little writing ahead, and each second a
checkpoint.  The pause is what the loop waits for: the operator's snapshot and the first step of the
store's.  Another thread does the second step meanwhile.  Between two checkpoints 50,000 keys out of
all change.  CPU time is that of the loop's thread in the pause: what a pause would be on a machine
that has nothing else to do.

``process``: a KeyedProcessFunction that counts; ``reduce``: a tuple per key.

Run by ``bench/run.py`` (``--only pause``).  Read next: ``bench/growing.py``.
"""

from __future__ import annotations

import gc
import statistics
import threading
import time
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from bench.growing import growing_arguments
from bench.measure import Outcome

from millstream.checkpoint.local_storage import LocalStorage
from millstream.common import Types
from millstream.configuration.configuration import Configuration
from millstream.contracts.batch import MIN_TIMESTAMP, Batch
from millstream.contracts.operator import Checkpoint, OperatorContext, RestoreContext
from millstream.datastream.state import ValueStateDescriptor
from millstream.functions.functions import KeyedProcessFunction
from millstream.runtime.operators import KeyedProcessFactory, KeyedReduceFactory
from millstream.state.backend import open_store
from millstream.state.operator_state import OperatorStates

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from millstream.contracts.key_value_store import PendingSnapshot
    from millstream.contracts.operator import Operator

__all__ = ["WORKLOADS"]

WORKLOADS: Final = ("process", "reduce")

_SEED: Final = 20_260_103
_MAX_PARALLELISM: Final = 128
#: Keys that change between two checkpoints, seconds between these, and how many are measured.
_CHANGED: Final = 50_000
_INTERVAL: Final = 1.0
_CHECKPOINTS: Final = 20
_WARM_UP: Final = 3
#: As in the main loop: seconds between two looks at the clock, and what may be written at each.
_TICK: Final = 0.005
_WRITE: Final = 0.001
_FILLED: Final = 10_000


class _Count(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        del value, ctx
        self.count.update((self.count.value() or 0) + 1)
        return ()


class _Nobody:
    """An output that nobody reads."""

    def emit(self, batch: Batch) -> None:
        """Take records."""

    def emit_side(self, tag: str, batch: Batch) -> None:
        """Take records of a side output."""

    def emit_watermark(self, watermark: int) -> None:
        """Take a watermark."""

    def emit_idle(self, idle: bool) -> None:  # noqa: FBT001 - as in the contract
        """Take a status."""


def _operator(workload: str) -> Operator:
    factory: Any = (
        KeyedProcessFactory(_Count(), lambda record: record[0])
        if workload == "process"
        else KeyedReduceFactory(lambda a, b: (a[0], a[1] + b[1]), lambda record: record[0])
    )
    kind = Types.PICKLED_BYTE_ARRAY()
    context = OperatorContext(
        uid="bench", name="bench", location="bench", subtask=0, parallelism=1,
        max_parallelism=_MAX_PARALLELISM, job_name="bench", configuration=Configuration(),
        output_type=kind, side_types={}, read_tags=frozenset(),
    )  # fmt: skip
    operator: Operator = factory.create()
    operator.setup(context, _Nobody())
    operator.open()
    return operator


class _Subtask:
    """An operator on its store, checkpoint after checkpoint."""

    def __init__(self, workload: str, directory: Path) -> None:
        self._operator = _operator(workload)
        self._kind = Types.PICKLED_BYTE_ARRAY()
        storage = LocalStorage(directory / "checkpoint", fsync=False)
        self._store = open_store(
            "rocksdb", storage, "bench", 0, (0, _MAX_PARALLELISM), [], "attempt",
            directory / "local", fsync=False,
        )  # fmt: skip
        self._operator.restore(
            RestoreContext(0, "attempt-0", 0, self._store, MIN_TIMESTAMP, OperatorStates("bench"))
        )
        self._epoch = 0

    def process(self, keys: list[int]) -> None:
        self._operator.process_batch(Batch(self._kind, values=[(key, 1) for key in keys]))

    def write_some(self) -> None:
        self._operator.write_some(time.monotonic() + _WRITE)

    def checkpoint(self) -> PendingSnapshot:
        self._operator.snapshot(Checkpoint(self._epoch, f"attempt-{self._epoch + 1}"))
        self._epoch += 1
        return self._store.prepare_snapshot()

    def close(self) -> None:
        self._operator.close()
        self._store.close()


def _interval(subtask: _Subtask, keys: list[int]) -> None:
    """A second of records, written ahead as the main loop does it."""
    ticks = int(_INTERVAL / _TICK)
    size = len(keys) // ticks
    start = time.monotonic()
    for tick in range(ticks):
        subtask.process(keys[tick * size : (tick + 1) * size])
        subtask.write_some()
        time.sleep(max(0.0, start + (tick + 1) * _TICK - time.monotonic()))


def _paused(workload: str, keys: int, directory: Path) -> dict[str, float]:
    subtask = _Subtask(workload, directory)
    for first in range(0, keys, _FILLED):
        subtask.process(list(range(first, min(first + _FILLED, keys))))
    subtask.checkpoint().finish()
    gc.collect()
    gc.set_threshold(200_000, 20, 100)  # as slots do
    generator = np.random.default_rng([_SEED, keys])
    pauses: list[float] = []
    work: list[float] = []
    uploads: list[threading.Thread] = []
    for number in range(_CHECKPOINTS + _WARM_UP):
        _interval(subtask, generator.choice(keys, min(keys, _CHANGED), replace=False).tolist())
        began, worked = time.perf_counter(), time.thread_time()
        pending = subtask.checkpoint()
        if number >= _WARM_UP:
            pauses.append(time.perf_counter() - began)
            work.append(time.thread_time() - worked)
        for upload in uploads:
            upload.join()
        uploads = [threading.Thread(target=pending.finish)]
        uploads[0].start()
    for upload in uploads:
        upload.join()
    subtask.close()
    return {
        "seconds": statistics.median(pauses),
        "longest_seconds": max(pauses),
        "cpu_seconds": statistics.mean(work),
    }


def main() -> None:
    """Measure one workload at one size and save the outcome."""
    arguments = growing_arguments(WORKLOADS)
    figures = _paused(arguments.workload, arguments.size, arguments.scratch)
    Outcome(figures=figures).save(arguments.report)


if __name__ == "__main__":
    main()
