"""What a savepoint costs the job that takes it, and the job that starts from it.

What it is: a count per key on the pipelined engine, fed by a sequence without end whose records
come back to each key in turn.  Once all keys are there, a savepoint is taken while the job runs.

``taken``: seconds from the request to the complete savepoint.
``beside``: the throughput before and after it, on average, by that meanwhile: 1.0 is no loss, 2.0
is half the throughput.
``started``: seconds per GiB of the savepoint until the first records of a job that starts from it.

Run by ``bench/run.py`` (``--only savepoint``).  Read next: ``docs/concepts/savepoints.md``.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from bench.growing import growing_arguments
from bench.measure import Outcome
from bench.millstream_jobs import PARALLELISM

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.state import ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from millstream.execution.job_client import JobClient

WORKLOADS: Final = ("taken", "beside", "started")

#: Seconds in which the throughput without a savepoint is measured, and those that a job has to
#: come so far.
_STEADY: Final = 5.0
_PATIENCE: Final = 900.0
_RECORDS: Final = 10**12
_GIBIBYTE: Final = 2**30
_UID: Final = "counts"


class Counted(KeyedProcessFunction):
    """Counts the records of each key."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        """One output per record."""
        del ctx, value
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield count


def start(
    scratch: Path, name: str, keys: int, savepoint: str = "", *, checkpoints: str = ""
) -> JobClient:
    """Start the job; its checkpoints are in ``scratch`` unless another place is given."""
    configuration = Configuration()
    for key, value in {
        "execution.target": "local",
        "millstream.execution": "pipelined",
        "execution.checkpointing.dir": checkpoints or str(scratch / name / "checkpoint"),
        "millstream.local-directory": str(scratch / name / "state"),
        "millstream.progress": "off",
        "execution.state-recovery.path": savepoint,
    }.items():
        if value:
            configuration.set_string(key, value)
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(PARALLELISM)
    environment.enable_checkpointing(1_000)
    numbers = environment.from_source(
        NumberSequenceSource(0, _RECORDS), WatermarkStrategy.no_watermarks(), "numbers"
    ).uid("numbers")
    counts = numbers.key_by(lambda number: number % keys, Types.LONG())
    counts.process(Counted(), Types.LONG()).uid(_UID).sink_to(DiscardingSink())
    return environment.execute_async(name)


def _processed(client: JobClient) -> int:
    """Return how many records the counts have taken so far."""
    return int(str(client.get_metrics().get(f"{_UID}.numRecordsIn", 0)))


def wait_for(client: JobClient, records: int) -> None:
    """Wait until the counts have taken so many records."""
    deadline = time.monotonic() + _PATIENCE
    while _processed(client) < records:
        if time.monotonic() > deadline:
            message = f"{_processed(client):,} of {records:,} records in {_PATIENCE} s"
            raise TimeoutError(message)
        time.sleep(0.02)


def _steady_rate(client: JobClient) -> float:
    started, before = time.monotonic(), _processed(client)
    time.sleep(_STEADY)
    return (_processed(client) - before) / (time.monotonic() - started)


def _size(directory: str) -> int:
    return sum(path.stat().st_size for path in Path(directory).rglob("*") if path.is_file())


def _measured(workload: str, keys: int, scratch: Path) -> dict[str, float]:
    client = start(scratch, "first", keys)
    wait_for(client, keys)
    rate = _steady_rate(client)
    started, before = time.monotonic(), _processed(client)
    savepoint = client.trigger_savepoint(str(scratch / "savepoints")).result()
    seconds = time.monotonic() - started
    left = (_processed(client) - before) / seconds
    rate = (rate + _steady_rate(client)) / 2
    client.cancel().result()
    if workload == "taken":
        return {"seconds": seconds}
    if workload == "beside":
        return {"seconds": rate / left}
    started = time.monotonic()
    second = start(scratch, "second", keys, savepoint)
    wait_for(second, 1)
    seconds = time.monotonic() - started
    second.cancel().result()
    return {"seconds": seconds / (_size(savepoint) / _GIBIBYTE)}


def main() -> None:
    """Measure one workload at one size and save the outcome."""
    arguments = growing_arguments(WORKLOADS)
    figures = _measured(arguments.workload, arguments.size, arguments.scratch)
    Outcome(figures=figures).save(arguments.report)
    os._exit(0)  # jobs of one process end with it; nothing of them is needed


if __name__ == "__main__":
    main()
