"""How long a pipelined job stands still when one of its slots is killed.

What it is: a count per key on slots of this machine, fed by a generator without end.  Again and
again one slot gets SIGKILL; the time from there to the first record that a slot of the next run
processes is what is measured.

Run by ``bench/run.py``.  Read next: ``docs/concepts/checkpoints.md``.
"""

from __future__ import annotations

import argparse
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from bench.measure import Outcome
from bench.millstream_jobs import PARALLELISM

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import KeyedProcessFunction, RuntimeContext, StreamExecutionEnvironment
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.state import ValueStateDescriptor

if TYPE_CHECKING:
    from collections.abc import Iterator

_KILLS = 7
_WARM_UP = 2
#: Seconds that a run works before it is disturbed, and in which it has to come back.
_WORK = 1.5
_PATIENCE = 60.0
_RECORDS = 10**12


class Counted(KeyedProcessFunction):
    """Counts, and leaves a file per process at its first record."""

    def __init__(self, marks: Path) -> None:
        self._marks = marks

    def open(self, runtime_context: RuntimeContext) -> None:
        """Get the state."""
        self._count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))
        self._seen = False

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[int]:
        """One output per record."""
        del ctx, value
        if not self._seen:
            self._seen = True
            (self._marks / f"{os.getpid()}").write_text(repr(time.time()))
        count = (self._count.value() or 0) + 1
        self._count.update(count)
        yield count


def _environment(scratch: Path) -> StreamExecutionEnvironment:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("millstream.execution", "pipelined")
    configuration.set_string("execution.checkpointing.dir", str(scratch / "checkpoint"))
    configuration.set_string("millstream.local-directory", str(scratch / "state"))
    configuration.set_string("millstream.progress", "off")
    configuration.set_string("restart-strategy.type", "fixed-delay")
    configuration.set_string("restart-strategy.fixed-delay.attempts", str(10 * _KILLS))
    configuration.set_string("restart-strategy.fixed-delay.delay", "1 ms")
    environment = StreamExecutionEnvironment.get_execution_environment(configuration)
    environment.set_parallelism(PARALLELISM)
    environment.enable_checkpointing(100)
    return environment


def _wait_for_marks(marks: Path, known: set[str]) -> set[str]:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        found = {path.name for path in marks.iterdir() if path.read_text()} - known
        if len(found) == PARALLELISM:
            return found
        time.sleep(0.005)
    message = "the job does not come back"
    raise RuntimeError(message)


def main() -> None:
    """Measure and save the outcome."""
    parser = argparse.ArgumentParser()
    for name in ("--events", "--keys", "--files"):
        parser.add_argument(name, type=int)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--sink")
    arguments = parser.parse_args()
    keys, marks = arguments.keys, arguments.scratch / "marks"
    marks.mkdir()
    environment = _environment(arguments.scratch)
    source = NumberSequenceSource(0, _RECORDS)
    numbers = environment.from_source(source, WatermarkStrategy.no_watermarks(), "numbers")
    keyed = numbers.key_by(lambda number: number % keys, Types.LONG())
    keyed.process(Counted(marks), Types.LONG()).sink_to(DiscardingSink()).uid("nowhere")
    client = environment.execute_async("recovery")
    known: set[str] = set()
    seconds: list[float] = []
    try:
        now = _wait_for_marks(marks, known)
        for _ in range(_KILLS + _WARM_UP):
            known |= now
            time.sleep(_WORK)
            killed = time.time()
            os.kill(int(min(now)), signal.SIGKILL)
            now = _wait_for_marks(marks, known)
            seconds.append(min(float((marks / name).read_text()) for name in now) - killed)
    finally:
        client.cancel().result()
    outcome = Outcome()
    counted = seconds[_WARM_UP:]
    outcome.figures = {
        "p50_seconds": float(np.median(counted)),
        "longest_seconds": max(counted),
    }
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
