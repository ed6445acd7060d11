"""A running job beside 200 clients: what a record costs in the slots, and what the driver spends.

Seconds with and without clients alternate, and CPU time is compared, so other work on the machine
changes little; what it does change is measured as the difference between quiet seconds.
"""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import pytest
from tests.rest.test_load import _CLIENT
from tests.support.environments import environments, wait_until

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import MapFunction, RuntimeContext
from millstream.datastream.connectors import DiscardingSink, NumberSequenceSource
from millstream.rest import running
from millstream.rest.server import Budget

if TYPE_CHECKING:
    from collections.abc import Iterator

_CLIENTS = 200
_SECONDS, _PAIRS = 3.0, 8
_TICKS = os.sysconf("SC_CLK_TCK")
#: The bound of slowing a job.
_MOST = 0.02


class Counted(MapFunction):
    """Counts records in a file that the test reads; written once in many records."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def open(self, runtime_context: RuntimeContext) -> None:
        path = self.directory / f"count-{runtime_context.get_index_of_this_subtask()}"
        path.write_bytes(bytes(8))
        with path.open("r+b") as file:
            self.shared = mmap.mmap(file.fileno(), 8)
        self.count = 0

    def map(self, value: int) -> tuple[int, int]:
        self.count += 1
        if not self.count & 255:
            struct.pack_into("q", self.shared, 0, self.count)
        return value % 100, 1


class _Watched:
    """A job without an end, and what it has done."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        options = {
            "execution.target": "local",
            "millstream.execution": "pipelined",
            "execution.checkpointing.interval": "500 ms",
            "rest.port": "0",
        }
        env = environments(directory, {})(1, options)
        numbers = env.from_source(
            NumberSequenceSource(0, 10**12), WatermarkStrategy.no_watermarks(), "numbers"
        )
        pairs = numbers.map(Counted(directory), Types.TUPLE([Types.LONG(), Types.LONG()]))
        pairs.key_by(lambda pair: pair[0], Types.LONG()).reduce(
            lambda one, other: (one[0], one[1] + other[1])
        ).sink_to(DiscardingSink())
        self.client = env.execute_async("watched")
        self.driver: Any = self.client.job
        (server,) = running.servers()
        self.port = server.server.port
        job = self.driver.get_job_id()
        of_job = ("", "/plan", "/checkpoints", "/exceptions", "/metrics", "/accumulators")
        self.paths = ["/overview", "/jobs/overview", *(f"/jobs/{job}{each}" for each in of_job)]

    @property
    def records(self) -> int:
        files = self._directory.glob("count-*")
        return sum(struct.unpack("q", each.read_bytes())[0] for each in files)

    @property
    def slot_seconds(self) -> float:
        """CPU time of the slots."""
        found = 0
        for pid in self.driver._engine._host.pids:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            found += int(fields[11]) + int(fields[12])
        return found / _TICKS

    def observe(self, *, clients: bool) -> tuple[float, float, float]:
        """Return CPU seconds of the slots for a record, those of the driver, and the elapsed."""
        records, slots = self.records, self.slot_seconds
        began, driver = time.monotonic(), time.process_time()
        if clients:
            command = [sys.executable, "-c", _CLIENT, "127.0.0.1", str(self.port), str(_CLIENTS)]
            subprocess.run([*command, str(_SECONDS), *self.paths], check=True, capture_output=True)
        else:
            time.sleep(_SECONDS)
        elapsed, spent = time.monotonic() - began, time.process_time() - driver
        cost = (self.slot_seconds - slots) / (self.records - records)
        return cost, spent, elapsed


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[_Watched]:
    made = _Watched(tmp_path)
    yield made
    made.driver.cancel()


@pytest.mark.extended
@pytest.mark.slow
def test_two_hundred_clients_slow_a_job_by_less_than_two_percent(watched: _Watched) -> None:
    wait_until(lambda: watched.records > 100_000, "the job runs", 60)
    watched.observe(clients=True)  # what is answered at once, however much it is
    seen = [(each, watched.observe(clients=each)) for _ in range(_PAIRS) for each in (False, True)]
    quiet = [figures for clients, figures in seen if not clients]
    busy = [figures for clients, figures in seen if clients]
    before, after = (median(cost for cost, *_ in each) for each in (quiet, busy))
    noise = abs(median(c for c, *_ in quiet[::2]) / median(c for c, *_ in quiet[1::2]) - 1)
    print(
        f"{before * 1e6:.2f} us for a record, {after * 1e6:.2f} us with clients, noise {noise:.1%}"
    )
    assert after / before < 1 + _MOST + noise, seen
    elapsed = sum(seconds for *_, seconds in busy)
    idle = sum(spent for _, spent, _ in quiet) / sum(seconds for *_, seconds in quiet)
    more = sum(spent for _, spent, _ in busy) - idle * elapsed
    print(f"the driver spends {more:.2f} s more in {elapsed:.1f} s")
    budget = Budget()
    # Its budget may have been refilled in the quiet seconds; accepting a connection is not in it.
    assert more < budget.burst + 2 * budget.share * elapsed + 1.0, seen
