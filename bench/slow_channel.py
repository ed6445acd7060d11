"""One channel that is slow, exactly-once against at-least-once: what aligning barriers costs.

What it is: a count per key on two slots of this machine, for some seconds.  A function in the first
source subtask waits a fifth of a second per batch, so barriers behind its records are late.  What
the second one reads goes to keys of the second slot alone, where nothing waits but for barriers:
exactly-once its records stand still until the late barrier has come, at-least-once they do not.
The rate is that of all records; how long checkpoints take is beside it.

Run by ``bench/run.py`` (``--only slow_channel``).  Read next: ``docs/concepts/checkpoints.md``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from bench.measure import Outcome, steady_rate
from bench.millstream_jobs import (
    PARALLELISM,
    RunningCount,
    batches_of,
    checkpoint_figures,
    manifests_of,
    new_environment,
)

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.datastream import MapFunction, RuntimeContext
from millstream.datastream.connectors import DiscardingSink
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.state.key_codec import key_group, subtask_of

__all__ = ["MODES"]

MODES = ("at_least_once", "exactly_once")
_SECONDS = 15
_RECORDS = 10**12
_MAX_PARALLELISM = 128
#: The slow channel's: after so many records so many seconds.
_EVERY = 4_096
_WAIT = 0.05


class GiveKey(MapFunction):
    """Gives each number a key; waits in the first subtask."""

    def __init__(self, keys: int) -> None:
        self._keys = keys

    def open(self, runtime_context: RuntimeContext) -> None:
        """See which subtask this is, and which keys the second one has."""
        self._is_slow = runtime_context.get_index_of_this_subtask() == 0
        groups = {key: key_group(key, _MAX_PARALLELISM) for key in range(4 * self._keys)}
        second = [k for k, g in groups.items() if subtask_of(g, _MAX_PARALLELISM, PARALLELISM) == 1]
        self._second = second[: self._keys]

    def map(self, value: int) -> tuple[int, int]:
        """Return key and number."""
        if not self._is_slow:
            return self._second[value % self._keys], value
        if value % _EVERY == 0:
            time.sleep(_WAIT)
        return value % self._keys, value


def main() -> None:
    """Run the job for some seconds and save the outcome."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--mode", choices=MODES, required=True)
    for name in ("--events", "--keys", "--files"):
        parser.add_argument(name, type=int)
    parser.add_argument("--scratch", type=Path, required=True)
    parser.add_argument("--report", type=Path, required=True)
    parser.add_argument("--sink")
    arguments = parser.parse_args()
    settings = Configuration()
    settings.set_string("execution.target", "local")
    settings.set_string("execution.checkpointing.mode", arguments.mode.upper())
    settings.set_integer("pipeline.max-parallelism", _MAX_PARALLELISM)
    environment = new_environment(arguments.scratch, "pipelined", settings)
    source = NumberSequenceSource(0, _RECORDS - 1, splits=PARALLELISM)
    pair = Types.TUPLE([Types.LONG(), Types.LONG()])
    numbers = environment.from_source(source, WatermarkStrategy.no_watermarks(), "events")
    pairs = numbers.uid("events").map(GiveKey(arguments.keys), pair)
    counted = pairs.key_by(lambda each: each[0], Types.LONG()).process(RunningCount(), pair)
    counted.sink_to(DiscardingSink()).uid("nowhere")
    client = environment.execute_async("slow channel")
    try:
        time.sleep(_SECONDS)
    finally:
        client.cancel().result()
    manifests = manifests_of(arguments.scratch)
    batches = batches_of(manifests)
    outcome = Outcome(rows=sum(batch.rows for batch in batches), batches=batches)
    outcome.rows_per_second = steady_rate(batches)
    outcome.figures |= checkpoint_figures(manifests, arguments.scratch)
    outcome.save(arguments.report)


if __name__ == "__main__":
    main()
