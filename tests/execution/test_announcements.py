"""Jobs that run on this machine are found through what their drivers announce."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.pipelined.test_stop import read, start
from tests.support.environments import wait_until

from millstream.directories import run_directory
from millstream.execution.announcements import (
    AnnouncedJob,
    announce,
    announce_address,
    announced_jobs,
    withdraw,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = """
import os, sys
from millstream.execution.announcements import AnnouncedJob, announce
announce(AnnouncedJob("b" * 32, "other", os.getpid(), 1, "/checkpoints"))
print("announced", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def other(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "announced\n"
    yield process
    process.kill()
    process.communicate()


def test_a_job_of_another_process_is_found_while_that_lives(
    other: subprocess.Popen[str], tmp_path: Path
) -> None:
    found = announced_jobs([tmp_path])
    assert [(each.name, each.process) for each in found] == [("other", other.pid)]
    assert found[0].checkpoints == "/checkpoints"
    other.send_signal(signal.SIGKILL)
    other.wait()
    assert announced_jobs([tmp_path]) == []


def test_the_address_is_for_this_user_only_and_goes_with_the_job() -> None:
    job = AnnouncedJob("a" * 32, "mine", os.getpid(), 1)
    announce(job)
    announce_address(job.job_id, "http://127.0.0.1:1", "secret")
    found = [each for each in announced_jobs() if each.job_id == job.job_id]
    assert [(each.address, each.token) for each in found] == [("http://127.0.0.1:1", "secret")]
    file = run_directory().path / f"job-{job.job_id}.json"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.write_text('{"written": "by another version"}')
    assert job.job_id not in {each.job_id for each in announced_jobs()}
    withdraw(job.job_id)
    assert not file.exists()
    announce_address(job.job_id, "http://127.0.0.1:1")  # has ended meanwhile
    assert not file.exists()


def test_a_running_job_announces_itself(tmp_path: Path) -> None:
    client = start(tmp_path, "epochs", {})
    wait_until(lambda: read(client) > 0, "records", 60)
    job_id = client.get_job_id()
    found = next(each for each in announced_jobs() if each.job_id == job_id)
    assert found.checkpoints == str(tmp_path / "checkpoints")
    assert found.process == os.getpid()
    client.cancel().result()
    assert job_id not in {each.job_id for each in announced_jobs()}
