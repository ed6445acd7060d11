"""A program on the local engine: ``local_program.py MODE DIRECTORY``.

Its workers leave their process ids as names of files in DIRECTORY/workers.  The modes are what the
second stage does at its first record: ``sleep``, ``spin`` without ever waiting, or ``collect``:
nothing, and the results are printed.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from millstream.common import Configuration, Types
from millstream.datastream import MapFunction, StreamExecutionEnvironment

MODE, DIRECTORY = sys.argv[1], Path(sys.argv[2])


class Busy(MapFunction):
    """Tells who it is, then does what the mode says."""

    def map(self, value: object) -> object:
        (DIRECTORY / "workers").mkdir(exist_ok=True)
        (DIRECTORY / "workers" / str(os.getpid())).touch()
        while MODE != "collect":
            if MODE != "spin":
                time.sleep(0.01)
        return value

    def close(self) -> None:
        (DIRECTORY / "closed").mkdir(exist_ok=True)
        (DIRECTORY / "closed" / str(os.getpid())).touch()


def main() -> None:
    configuration = Configuration()
    configuration.set_string("execution.target", "local")
    configuration.set_string("execution.checkpointing.interval", "1 ms")
    env = StreamExecutionEnvironment.get_execution_environment(configuration).set_parallelism(2)
    numbers = env.from_sequence(0, 99).map(lambda n: n, Types.LONG())
    results = numbers.key_by(lambda n: n).map(Busy(), Types.LONG())
    if MODE == "collect":
        with results.execute_and_collect() as found:  # type: ignore[union-attr]
            print(sum(found))
        heavy = {"pandas", "pyspark", "py4j", "duckdb", "pyarrow.parquet", "pyarrow.dataset"}
        print(sorted(heavy & sys.modules.keys()))
        return
    results.print()
    env.execute("busy")


if __name__ == "__main__":
    main()
