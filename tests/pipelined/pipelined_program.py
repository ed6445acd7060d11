"""A program on the pipelined engine: ``pipelined_program.py MODE DIRECTORY``.

``numbers`` is the job of ``test_failures.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.pipelined.test_failures import job
from tests.support.environments import environments


def main() -> None:
    mode, directory = sys.argv[1], Path(sys.argv[2])
    engine = {"execution.target": "local", "millstream.execution": "pipelined"}
    make = environments(directory, {**engine, "execution.checkpointing.interval": "100"})
    if mode == "numbers":
        job(make, directory).execute("numbers")


if __name__ == "__main__":
    main()
