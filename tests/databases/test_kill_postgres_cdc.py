"""kill -9 of a job that reads changes of PostgreSQL: in the snapshot, the switch and the stream."""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.databases.change_writer import CREATE, ChangeWriter, content, materialized
from tests.databases.server import execute

from millstream.connectors.basic.collect import read_collected
from millstream.testing.crash import run_once

if TYPE_CHECKING:
    from tests.databases.server import PostgresServer

JOB = Path(__file__).parent / "cdc_kill_job.py"
#: Around reading, the checkpoint and its commit; the second time most are passed in the stream.
POINTS = {
    "epochs": ("source.read.after", "task.ack.before", "manifest.publish.before"),
    "pipelined": ("barrier.send.before", "notify.before", "notify.after"),
}
EVERYWHERE = ("manifest.publish.after", "sink.commit.before")


@pytest.mark.extended
@pytest.mark.parametrize("engine", sorted(POINTS))
def test_oracle_of_a_job_that_is_killed(
    server: PostgresServer, database: str, tmp_path: Path, engine: str
) -> None:
    seed = random.randrange(10**6)
    print(f"seed {seed}")
    schema = database.rpartition("%3D")[2]
    execute(database, CREATE)
    execute(database, "INSERT INTO items SELECT i + 100 FROM generate_series(1, 20000) i")
    command = [sys.executable, str(JOB), engine, str(server.port), schema, str(tmp_path)]
    over = threading.Event()
    writer = ChangeWriter(database, seed)

    def write() -> None:
        while not over.wait(0.02):
            writer.step(3)
            writer.end_all()  # the snapshot waits for transactions that are open
        writer.finish()

    writing = threading.Thread(target=write)
    writing.start()
    points = [f"{name}:{count}" for name in (*POINTS[engine], *EVERYWHERE) for count in (1, 3)]
    try:
        for number, point in enumerate(points):
            run = run_once(command, directory=tmp_path / f"run-{number}", crash=point)
            assert run.killed, f"{point} was not reached\n{run.output}"
        for number in range(3):  # wherever it is then
            run = run_once(command, directory=tmp_path / f"late-{number}", kill_after=2.0 + number)
            assert run.killed, run.output
    finally:
        over.set()
        writing.join()
    wanted = content(database)

    def stop_at_the_end() -> None:
        deadline = time.monotonic() + 90
        while time.monotonic() < deadline:
            try:
                if materialized(read_collected(tmp_path / "out")) == wanted:
                    break
            except AssertionError:
                break  # told below
            time.sleep(0.2)
        (tmp_path / "stop").touch()

    stopping = threading.Thread(target=stop_at_the_end)
    stopping.start()
    run = run_once(command, directory=tmp_path / "last")
    stopping.join()
    assert materialized(read_collected(tmp_path / "out")) == wanted, run.output
    execute(database, f"SELECT pg_drop_replication_slot('{schema}')")
