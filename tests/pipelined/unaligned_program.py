"""A job whose barriers overtake: ``unaligned_program.py DIRECTORY``.

As that of ``test_failures.py``, but what is slow is the count behind the exchange, and rows are so
long that its links are full of them.  It is fast once there is a file ``gate`` in the directory.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pipelined.test_failures import KEYS, Count
from tests.support.environments import environments

from millstream.common import Encoder, Types
from millstream.datastream.connectors import FileSink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from millstream.datastream import KeyedProcessFunction, StreamExecutionEnvironment

ENGINE = {"execution.target": "local", "millstream.execution": "pipelined"}


#: Characters of a row: some hundreds fill the links.
ROW = 10_000
#: Rows of the program.
NUMBERS = 8000


def blown_up(number: int) -> str:
    """A row of a number."""
    return f"{number}:{'x' * ROW}"


def number_of(row: str) -> int:
    """The number of a row."""
    return int(row.partition(":")[0])


class SlowCount(Count):
    """Takes its time, as long as a gate is closed."""

    def __init__(self, gate: Path, seconds: float = 0.001) -> None:
        self.gate = gate
        self.seconds = seconds

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        if not self.gate.exists():
            time.sleep(self.seconds)
        yield from super().process_element(number_of(value), ctx)


def slow_job(
    make: Callable[..., StreamExecutionEnvironment],
    directory: Path,
    count: SlowCount,
    numbers: int,
    interval: str = "20",
) -> StreamExecutionEnvironment:
    """Numbers through a slow keyed count into an exactly-once file sink."""
    settings = {
        "execution.checkpointing.dir": str(directory / "checkpoints"),
        "execution.checkpointing.interval": interval,
        "execution.checkpointing.unaligned": "true",
        "execution.checkpointing.num-retained": "1000",
    }
    env = make(2, settings)
    source = env.from_sequence(0, numbers - 1).uid("numbers")
    rows = source.map(blown_up, Types.STRING()).uid("rows")
    keyed = rows.key_by(lambda row: number_of(row) % KEYS, Types.LONG())
    counted = keyed.process(count, Types.STRING()).uid("count")
    sink = FileSink.for_row_format(str(directory / "out"), Encoder.simple_string_encoder())
    counted.sink_to(sink.build()).uid("files")
    return env


def main(directory: Path) -> None:
    """Run the job to its end."""
    make, count = environments(directory, ENGINE), SlowCount(directory / "gate")
    slow_job(make, directory, count, NUMBERS).execute("slow")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
