"""Google Cloud Storage and Azure Blob Storage: what is shown on S3, on emulators of both."""

from __future__ import annotations

import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.objects import file_job
from tests.objects.test_files import pending
from tests.objects.test_kill_jobs import S3Chain
from tests.objects.test_object_stores import (
    storage,
    test_a_put_whose_answer_was_lost_is_known_by_its_writer,
    test_blobs_are_signed,
    test_files_travel_both_ways,
    test_list_names_is_sorted_and_below_the_prefix,
    test_of_concurrent_puts_one_wins,
    test_put_if_absent_keeps_the_first,
    test_write_replaces_and_reads_tell_what_is_missing,
)
from tests.objects.test_packs import test_files_of_all_operators_of_a_task_are_one_object
from tests.objects.test_savepoints import (
    test_a_running_job_is_saved_and_another_one_starts_there,
    test_of_two_drivers_at_once_exactly_one_publishes,
)
from tests.objects.test_tables import Tables, kill_at_each_step
from tests.recovery.test_kill_driver import FIRST, OF_EPOCHS, POINTS, _kill_at

from millstream.checkpoint.storages import open_storage
from millstream.common import Encoder, Types
from millstream.connectors.files import object_files
from millstream.connectors.files.object_files import ObjectFileCommitter
from millstream.contracts.batch import Batch
from millstream.contracts.sink import CommitRequest
from millstream.crash_points import points_of
from millstream.datastream.connectors.file_system import FileSink
from millstream.errors import ObjectStoreError, PermanentSinkError, SinkError
from millstream.object_stores import ObjectStore
from millstream.testing.conformance import check_sink
from millstream.testing.crash import run_once

if TYPE_CHECKING:
    from tests.objects.azure_server import AzureServer
    from tests.objects.google_server import GoogleServer

    from millstream.object_stores import ObjectEntry

    Server = AzureServer | GoogleServer

__all__ = [
    "storage",
    "test_a_put_whose_answer_was_lost_is_known_by_its_writer",
    "test_a_running_job_is_saved_and_another_one_starts_there",
    "test_blobs_are_signed",
    "test_files_of_all_operators_of_a_task_are_one_object",
    "test_files_travel_both_ways",
    "test_list_names_is_sorted_and_below_the_prefix",
    "test_of_concurrent_puts_one_wins",
    "test_of_two_drivers_at_once_exactly_one_publishes",
    "test_put_if_absent_keeps_the_first",
    "test_write_replaces_and_reads_tell_what_is_missing",
]

pytestmark = [pytest.mark.extended, pytest.mark.timeout(600)]

#: Each start of these takes seconds.
SAMPLE = 3


@pytest.fixture(params=["google_server", "azure_server"], ids=["gs", "az"])
def server(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Server:
    """A server, which the environment lets clients use."""
    found: Server = request.getfixturevalue(request.param)
    for name, value in found.environment().items():
        monkeypatch.setenv(name, value)
    return found


@pytest.fixture
def bucket(server: Server) -> str:
    """A new bucket or container, as a URI."""
    return f"{server.scheme}://{server.new_bucket()}"


def test_what_is_missing_is_named(bucket: str) -> None:
    scheme = bucket.partition(":")[0]
    missing = open_storage(f"{scheme}://nosuchbucket/x")
    for step in (missing.check, missing.probe, lambda: missing.put_if_absent("x", b"")):
        with pytest.raises(ObjectStoreError, match="there is no bucket 'nosuchbucket'"):
            step()
    there = open_storage(bucket)
    there.check()
    there.probe()
    assert not there.is_there()
    there.write("a", b"1")
    there.delete(["a", "never"])
    assert not there.is_there()


@pytest.mark.slow
@pytest.mark.parametrize("master", ["local", "pipelined"])
def test_jobs_that_are_killed(master: str, bucket: str, tmp_path: Path) -> None:
    chance = random.Random(1)
    chain = S3Chain(tmp_path, bucket, 1, master, records=600)
    points = sorted(set(POINTS) - set(FIRST))
    if master == "pipelined":
        points = sorted({*points, *points_of("pipelined task")} - set(OF_EPOCHS))
    _kill_at(chain, FIRST[:1] + chance.sample(points, SAMPLE), chance)
    assert chain.start(slow=False).exit_code == 0


# -- file sinks ------------------------------------------------------------------------------------


def visible(server: Server, bucket: str) -> dict[str, bytes]:
    """What a reader that skips hidden names sees."""
    client = server.client(bucket.partition("://")[2])
    keys = [entry["path"] for page in client.list() for entry in page]
    return {key: bytes(client.get(key).bytes()) for key in keys if not re.search(r"(^|/)[._]", key)}


def hidden(server: Server, bucket: str) -> list[str]:
    """The objects that are pending."""
    client = server.client(bucket.partition("://")[2])
    keys = [entry["path"] for page in client.list() for entry in page]
    return [key for key in keys if "/.pending" in key]


def test_the_contract_of_sinks(bucket: str, server: Server) -> None:
    """Commits, retries, crashes of processes, replays, other runs and jobs."""
    batches = [
        Batch(Types.STRING(), values=[f"line {number}" for number in range(start, start + 3)])
        for start in (0, 3)
    ]

    def make() -> FileSink:
        return FileSink.for_row_format(f"{bucket}/out", Encoder.simple_string_encoder()).build()

    def read() -> list[str]:
        found = visible(server, bucket).values()
        return sorted(line for each in found for line in each.decode().splitlines())

    check_sink(make, batches, read, leftovers=lambda: hidden(server, bucket))


@pytest.mark.parametrize("size", [0, 100, 20 << 20])
def test_nothing_is_visible_before_the_commit(size: int, bucket: str, server: Server) -> None:
    content = (bytes(range(256)) * (size // 256 + 1))[:size]
    _, committable = pending(bucket, content)
    assert visible(server, bucket) == {}
    assert len(hidden(server, bucket)) == 1
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    request = CommitRequest(json.loads(json.dumps(committable)), 1, retried=False)
    for _ in range(2):  # an answer may be lost
        committer.commit([request])
        assert visible(server, bucket) == {"out/part-1.txt": content}
    assert hidden(server, bucket) == []


def test_output_of_unknown_runs_is_not_replaced(bucket: str, server: Server) -> None:
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    _, first = pending(bucket, b"first")
    committer.commit([CommitRequest(first, 1, retried=False)])
    _, second = pending(bucket, b"second", generation=2)
    with pytest.raises(PermanentSinkError, match="exists already, written by a run that this"):
        committer.commit([CommitRequest(second, 1, retried=True)])
    assert visible(server, bucket) == {"out/part-1.txt": b"first"}
    committer.commit([CommitRequest(second, 1, retried=True, published=False)])
    assert visible(server, bucket) == {"out/part-1.txt": b"second", "out/part-1-g1.txt": b"first"}


def test_output_that_was_deleted_by_others_is_reported(bucket: str, server: Server) -> None:
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    _, lost = pending(bucket, b"lost")
    server.client(bucket.partition("://")[2]).delete(hidden(server, bucket))
    with pytest.raises(PermanentSinkError, match="output of checkpoint 1 is lost"):
        committer.commit([CommitRequest(lost, 1, retried=True)])
    committer.commit([CommitRequest(lost, 1, retried=True, confirmed=True)])


def test_a_copy_that_azure_completes_later_is_waited_for(
    bucket: str, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    if server.scheme != "az":
        pytest.skip("only Azure answers before a copy is whole")
    committer = ObjectFileCommitter(ObjectStore(f"{bucket}/out"))
    _, committable = pending(bucket, b"content")
    find, sizes = ObjectStore.find, [0, 0, 7]

    def find_slowly(self: ObjectStore, key: str) -> ObjectEntry | None:
        found = find(self, key)
        return found and replace(found, size=sizes.pop(0))

    monkeypatch.setattr(ObjectStore, "find", find_slowly)
    committer.commit([CommitRequest(committable, 1, retried=False)])
    assert sizes == []
    monkeypatch.setattr(object_files, "_PATIENCE", 0.0)
    sizes += [0, 0]
    with pytest.raises(SinkError, match="is not complete after 0 s: 0 of 7 bytes"):
        committer.commit([CommitRequest(committable, 1, retried=True)])


@pytest.mark.slow
def test_tables_are_replaced_and_partitions_committed(
    bucket: str, server: Server, tmp_path: Path
) -> None:
    tables = Tables(server.client(bucket.partition("://")[2]))
    kill_at_each_step(tables, bucket, "epochs", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("execution", ["epochs", "pipelined"])
def test_jobs_that_are_killed_at_each_step_of_an_upload(
    execution: str, bucket: str, server: Server, tmp_path: Path
) -> None:
    job = Path(file_job.__file__)
    arguments = [f"{bucket}/out", f"{bucket}/checkpoints", execution]
    lines: list[bytes] = []
    for number, point in enumerate([*points_of("object sink"), ""]):
        run = run_once(
            [sys.executable, str(job), *arguments],
            directory=tmp_path / str(number),
            crash=f"{point}:1" if point else "",
            deadline=120,
        )
        assert run.killed or not run.exit_code, run.output
        found = visible(server, bucket).items()
        lines = [line for key, each in found if key.startswith("out/") for line in each.split()]
        assert len(lines) == len(set(lines)), point
    assert sorted(map(int, lines)) == list(range(file_job.COUNT))
    assert hidden(server, bucket) == []
