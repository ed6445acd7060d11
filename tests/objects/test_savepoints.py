"""Savepoints to and from S3, through the job client and the command line."""

from __future__ import annotations

import re
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from tests.pipelined.test_stop import lines, read, start

from millstream.checkpoint import ManifestLog
from millstream.checkpoint.inspect import inspect_checkpoint
from millstream.checkpoint.savepoint import SavepointFormatType
from millstream.checkpoint.storages import open_storage
from millstream.cli.main import main
from millstream.datastream import JobStatus
from millstream.directories import run_directory
from millstream.errors import FencedError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.objects.server import S3Server

    Eventually = Callable[[Callable[[], bool], str], None]

ENGINES = ["epochs", "pipelined"]
PATH = "execution.state-recovery.path"
DIRECTORY = "execution.checkpointing.dir"


def records_of(saved: str) -> int:
    """How many records the job had read."""
    return inspect_checkpoint(open_storage(saved)).manifest.totals["numbers.numRecordsIn"]


@pytest.mark.slow
@pytest.mark.parametrize("execution", ENGINES)
def test_a_running_job_is_saved_and_another_one_starts_there(
    tmp_path: Path, bucket: str, eventually: Eventually, execution: str
) -> None:
    """On S3, then in a directory, then on S3 again."""
    first = start(tmp_path / "first", execution, {DIRECTORY: f"{bucket}/first"})
    eventually(lambda: read(first) > 50, "records")
    saved = first.trigger_savepoint(f"{bucket}/savepoints").result()
    assert saved.startswith(f"{bucket}/savepoints/savepoint-")
    count = records_of(saved)
    other = ENGINES[1 - ENGINES.index(execution)]
    fork = start(tmp_path / "second", other, {PATH: saved})
    eventually(lambda: read(fork) > count, "records")
    local = fork.stop_with_savepoint(False, f"{tmp_path}/savepoints").result()
    assert records_of(local) == read(fork) > count
    assert len(lines(tmp_path / "second")) == read(fork) - count
    first.stop().result()
    third = start(
        tmp_path / "third",
        execution,
        {PATH: local, DIRECTORY: f"{bucket}/third", "execution.state-recovery.claim-mode": "CLAIM"},
    )
    eventually(lambda: read(third) > count, "records")
    third.cancel().result()


def test_the_command_line(
    tmp_path: Path,
    bucket: str,
    s3_server: S3Server,
    eventually: Eventually,
    capsys: pytest.CaptureFixture[str],
) -> None:
    checkpoints = f"{bucket}/checkpoints"
    client = start(tmp_path, "pipelined", {DIRECTORY: checkpoints})
    eventually(lambda: read(client) > 50, "records")
    assert main(["savepoint", checkpoints, f"{bucket}/saved", "--stop"]) == 0
    saved = capsys.readouterr().out.strip()
    assert saved.startswith(f"{bucket}/saved/savepoint-")
    assert client.get_job_status().result() is JobStatus.FINISHED
    assert main(["checkpoints", checkpoints]) == 0
    assert f"in {checkpoints}" in capsys.readouterr().out
    assert main(["checkpoints", saved, "verify"]) == 0
    assert "all well" in capsys.readouterr().out
    assert main(["checkpoints", saved, "state"]) == 0
    assert "uid 'greatest'" in capsys.readouterr().out
    assert main(["checkpoints", f"{bucket}/nothing"]) == 1
    assert "there is no directory" in capsys.readouterr().err


@pytest.mark.parametrize("kind", SavepointFormatType)
def test_a_job_downloads_each_file_of_its_savepoint_once(
    kind: SavepointFormatType,
    tmp_path: Path,
    bucket: str,
    s3_server: S3Server,
    eventually: Eventually,
) -> None:
    """All are verified before anything is written; they are kept until they are taken over."""
    first = start(tmp_path / "first", "epochs", {DIRECTORY: f"{bucket}/first"})
    eventually(lambda: read(first) > 50, "records")
    saved = first.stop_with_savepoint(False, f"{bucket}/saved", kind).result()
    count, name = records_of(saved), bucket.removeprefix("s3://")
    before = len(s3_server.requests(name))
    second = start(tmp_path / "second", "epochs", {PATH: saved, DIRECTORY: f"{bucket}/second"})
    eventually(lambda: read(second) > count, "records")
    second.cancel().result()
    requests = s3_server.requests(name)[before:]
    reads = Counter(each for each in requests if re.match("GET /saved/.*/state/", each))
    assert reads
    assert set(reads.values()) == {1}, reads
    assert not list(run_directory().path.glob("kept-*"))


def test_of_two_drivers_at_once_exactly_one_publishes(bucket: str) -> None:
    """Both open the log again and again, and publish while they may."""
    from tests.checkpoint.test_manifest_log import manifest

    location = f"{bucket}/job"
    published: list[tuple[int, int]] = []
    lock = threading.Lock()

    def drive() -> None:
        log = ManifestLog(open_storage(location))
        for _ in range(6):
            log.open_generation()
            try:
                for _ in range(3):
                    version = log.publish(manifest(log.last_version, log.generation))
                    with lock:
                        published.append((version, log.generation))
            except FencedError:
                continue

    drivers = [threading.Thread(target=drive) for _ in range(2)]
    for each in drivers:
        each.start()
    for each in drivers:
        each.join()
    entries = [e for e in ManifestLog(open_storage(location)).entries() if e.manifest is not None]
    assert [(each.version, each.generation) for each in entries] == sorted(published)
    generations = [each.generation for each in entries]
    assert generations == sorted(generations)
    assert len({each.version for each in entries}) == len(published)
